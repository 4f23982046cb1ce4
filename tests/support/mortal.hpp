// Processes that die or fall silent at a time that a test chooses: after a number of their own operations, which are
// the messages between them and the calls of their transports. A dead process does nothing more and tells nobody; the
// others hear that it has ended.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "exchange/hop_codecs.hpp"
#include "gradwire/processes.hpp"
#include "tests/support/forwarding_transport.hpp"
#include "wire/frame.hpp"

namespace gradwire::test {

/// Thrown in the threads of a dead process, to unwind them.
struct Death : std::runtime_error {
  Death() : std::runtime_error("this process is dead") {}
};

/// The life of one process, counted in operations.
class Life {
 public:
  static constexpr std::int64_t kForEver = INT64_MAX / 2;
  /// Called once this process knows that another one has ended, in the thread that hears about it.
  std::function<void()> on_loss = nullptr;
  /// The process sends frames that a device has made, which do not name a world.
  bool device_frames = false;

  /// In its last operation the process calls `last`, which need not return.
  Life(std::int64_t operations, std::function<void()> last) : left_(operations), last_(std::move(last)) {}
  /// With `silent` above 0 the process does not die, but does nothing for this long.
  explicit Life(std::int64_t operations = kForEver, std::chrono::milliseconds silent = {})
      : left_(operations), silent_(silent) {}

  /// Counts an operation. Returns false from the last one on.
  bool live() {
    const std::int64_t left = left_.fetch_sub(1);
    if (left == 1 && last_) {
      last_();
      return true;
    }
    if (left == 1 && silent_.count() > 0) {
      until_ = std::chrono::steady_clock::now().time_since_epoch() + silent_;
      left_ = kForEver;
    }
    rest();
    if (left == 1 && silent_.count() == 0) {
      dead_ = true;
    }
    return !dead_;
  }
  /// Sets how many more operations the process lives; at least one.
  void end_after(std::int64_t operations) { left_ = operations; }
  [[nodiscard]] bool dead() const { return dead_; }
  void die() { dead_ = true; }
  /// Blocks the calling thread while the process is silent.
  void rest() const {
    std::this_thread::sleep_until(
        std::chrono::steady_clock::time_point(std::chrono::steady_clock::duration(until_.load())));
  }
  /// Returns the number of operations so far of a process that lives for ever.
  [[nodiscard]] std::int64_t counted() const { return kForEver - left_; }

  /// Records the last message for the text of a failure.
  void note(const char* what) { last_seen_ = what; }
  [[nodiscard]] const char* last_seen() const { return last_seen_; }

 private:
  std::atomic<std::int64_t> left_;
  const std::chrono::milliseconds silent_{};
  const std::function<void()> last_;
  std::atomic<std::chrono::steady_clock::duration> until_{std::chrono::steady_clock::duration::zero()};
  std::atomic<bool> dead_ = false;
  std::atomic<const char*> last_seen_ = nullptr;
};

/// A network partition: from happen() on, messages between the two sides are lost, for ever and in both directions.
/// Transports still work, as if they used another network; a world with ranks on both sides ends because their messages
/// are missing.
class Cut {
 public:
  explicit Cut(std::set<Processes::Id> side) : side_(std::move(side)) {}
  void happen() { happened_ = true; }
  [[nodiscard]] bool happened() const { return happened_; }
  [[nodiscard]] bool between(Processes::Id a, Processes::Id b) const {
    return happened_ && side_.contains(a) != side_.contains(b);
  }

 private:
  const std::set<Processes::Id> side_;
  std::atomic<bool> happened_ = false;
};

class MortalTransport final : public ForwardingTransport {
 public:
  /// `nodes`: the node of each rank; empty takes the transport's own.
  MortalTransport(std::shared_ptr<Transport> inner, std::uint32_t epoch, std::shared_ptr<Life> life,
                  std::function<void()> die, std::vector<std::uint32_t> nodes)
      : ForwardingTransport(std::move(inner)),
        epoch_(epoch),
        life_(std::move(life)),
        die_(std::move(die)),
        nodes_(std::move(nodes)) {}

  [[nodiscard]] std::string name() const override { return "mortal(" + inner().name() + ")"; }
  [[nodiscard]] std::vector<std::uint32_t> nodes() const override { return nodes_.empty() ? inner().nodes() : nodes_; }

  void post_send(Operation& operation, int peer, Tag tag, std::span<const std::byte> data) override {
    note(tag);
    go_on();
    std::uint32_t magic = 0;
    if (data.size() >= wire::kHeaderBytes) {
      std::memcpy(&magic, data.data(), sizeof magic);
    }
    if (magic == wire::kMagic && !life_->device_frames && wire::parse_header(data).epoch != epoch_ % 256) {
      throw std::logic_error("a frame of another world");  // ends the test; it happened when an executor wrote epoch 0
    }
    inner().post_send(operation, peer, tag, data);
  }
  void post_receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data) override {
    note(tag);
    go_on();
    inner().post_receive(operation, peer, tag, data);
  }
  void post_receive_at_most(Operation& operation, int peer, Tag tag, std::span<std::byte> data) override {
    note(tag);
    go_on();
    inner().post_receive_at_most(operation, peer, tag, data);
  }
  void post_all_reduce(Operation& operation, View data) override {
    life_->note("native sum");
    go_on();
    inner().post_all_reduce(operation, data);
  }
  bool progress(std::chrono::microseconds wait) override {
    if (life_->dead()) {
      throw Death();
    }
    life_->rest();
    return inner().progress(wait);  // not counted, because the number of its calls is random
  }
  void abort(const Error& error) noexcept override {
    if (!life_->dead()) {
      inner().abort(error);
    }
  }

 private:
  void go_on() {
    if (!life_->live()) {
      die_();
      throw Death();
    }
  }
  void note(Tag tag) {
    switch (static_cast<exchange::Hop>(tag % (1U << exchange::kHopBits))) {
      case exchange::Hop::own: return life_->note("first hop");
      case exchange::Hop::node: return life_->note("hop between nodes");
      case exchange::Hop::result: return life_->note("second hop");
      default: return life_->note("agreement of ranks");
    }
  }

  const std::uint32_t epoch_;
  std::shared_ptr<Life> life_;
  std::function<void()> die_;
  const std::vector<std::uint32_t> nodes_;
};

class MortalProcesses final : public Processes {
 public:
  /// `node`: this many consecutive processes pretend to share one node; with 0, the transport knows.
  MortalProcesses(std::shared_ptr<Processes> inner, std::shared_ptr<Life> life, std::shared_ptr<Cut> cut = nullptr,
                  std::uint32_t node = 0)
      : inner_(std::move(inner)), life_(std::move(life)), cut_(std::move(cut)), node_(node) {}

  [[nodiscard]] Id self() const noexcept override { return inner_->self(); }
  [[nodiscard]] std::vector<Id> all() const override { return inner_->all(); }
  [[nodiscard]] bool joined() const noexcept override { return inner_->joined(); }
  [[nodiscard]] bool open() const noexcept override { return inner_->open(); }
  [[nodiscard]] std::vector<Id> newcomers() const override { return inner_->newcomers(); }
  [[nodiscard]] std::string describe(Id who) const override { return inner_->describe(who); }

  using Processes::send;
  void send(Id to, std::span<const std::byte> message, Lane lane) noexcept override {
    life_->note(lane == Lane::bulk ? "copy of residuals" : "message to members");
    if (life_->live()) {
      if (cut_ == nullptr || !cut_->between(inner_->self(), to)) {
        inner_->send(to, message, lane);
      }
    } else {
      inner_->end();
    }
  }
  [[nodiscard]] std::vector<Heard> hear(std::chrono::milliseconds wait) override {
    std::vector<Heard> heard = inner_->hear(life_->dead() ? std::chrono::milliseconds(1) : wait);
    life_->rest();
    if (cut_ != nullptr) {  // the other side does not learn of the end either
      std::erase_if(heard, [&](const Heard& one) { return cut_->between(one.from, inner_->self()); });
    }
    if (life_->dead()) {
      inner_->end();
      heard.clear();
      for (const std::vector<Id>& ids : {inner_->all(), inner_->newcomers()}) {
        for (const Id who : ids) {  // so that none of its threads waits for a process
          heard.push_back({.from = who, .ended = true});
        }
      }
    }
    return heard;
  }
  [[nodiscard]] std::uint64_t unsent(Id to, Lane lane) const noexcept override { return inner_->unsent(to, lane); }
  void wake() noexcept override { inner_->wake(); }
  void end() noexcept override { inner_->end(); }
  void enter(std::uint32_t epoch) noexcept override { inner_->enter(epoch); }
  void count(std::uint64_t step) noexcept override { inner_->count(step); }
  void trust_resets() noexcept override { inner_->trust_resets(); }
  void note_loss() noexcept override {
    inner_->note_loss();
    if (life_->on_loss) {
      life_->on_loss();
    }
  }

  [[nodiscard]] std::shared_ptr<Transport> connect(std::span<const Id> members, std::uint32_t epoch,
                                                   std::chrono::milliseconds timeout) override {
    life_->note("a new world");
    if (!life_->live()) {
      inner_->end();
      throw Death();
    }
    std::vector<std::uint32_t> nodes;
    for (const Id member : members) {
      if (node_ > 0) {
        nodes.push_back(member / node_);
      }
    }
    return std::make_shared<MortalTransport>(
        inner_->connect(members, epoch, timeout), epoch, life_, [inner = inner_] { inner->end(); }, std::move(nodes));
  }

 private:
  std::shared_ptr<Processes> inner_;  // other processes hear of its end
  std::shared_ptr<Life> life_;
  std::shared_ptr<Cut> cut_;
  const std::uint32_t node_;
};

}  // namespace gradwire::test
