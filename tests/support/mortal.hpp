// Processes that die or fall silent at a moment that a test chooses: after so many of their own operations, which are
// the messages that they tell each other and the calls of their transports. What is dead does nothing more and tells
// nobody; the others hear that it has ended.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "gradwire/processes.hpp"
#include "wire/frame.hpp"

namespace gradwire::test {

/// Thrown where a dead process goes on: unwinds its thread.
struct Death : std::runtime_error {
  Death() : std::runtime_error("this process is dead") {}
};

/// How long one process lives, in operations.
class Life {
 public:
  static constexpr std::int64_t kForEver = INT64_MAX / 2;

  /// In the last of them the process does `last`, which need not return.
  Life(std::int64_t operations, std::function<void()> last) : left_(operations), last_(std::move(last)) {}
  /// `silent` above 0: it does not die, but does nothing for so long.
  explicit Life(std::int64_t operations = kForEver, std::chrono::milliseconds silent = {})
      : left_(operations), silent_(silent) {}

  /// Counts an operation. False from the last on.
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
  [[nodiscard]] bool dead() const { return dead_; }
  void die() { dead_ = true; }
  /// While it is silent no thread of it goes on.
  void rest() const {
    std::this_thread::sleep_until(
        std::chrono::steady_clock::time_point(std::chrono::steady_clock::duration(until_.load())));
  }
  /// Operations so far, of one who lives for ever.
  [[nodiscard]] std::int64_t counted() const { return kForEver - left_; }

 private:
  std::atomic<std::int64_t> left_;
  const std::chrono::milliseconds silent_{};
  const std::function<void()> last_;
  std::atomic<std::chrono::steady_clock::duration> until_{std::chrono::steady_clock::duration::zero()};
  std::atomic<bool> dead_ = false;
};

/// A network that comes apart: from happen() on, what the one side tells the other is lost, for ever and both ways.
/// Transports go on, as another network would; a world of both sides ends for want of what they tell each other.
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

class MortalTransport final : public Transport {
 public:
  MortalTransport(std::shared_ptr<Transport> inner, std::uint32_t epoch, std::shared_ptr<Life> life,
                  std::function<void()> die)
      : inner_(std::move(inner)), epoch_(epoch), life_(std::move(life)), die_(std::move(die)) {}

  [[nodiscard]] std::string name() const override { return "mortal(" + inner_->name() + ")"; }
  [[nodiscard]] int rank() const noexcept override { return inner_->rank(); }
  [[nodiscard]] int world_size() const noexcept override { return inner_->world_size(); }
  [[nodiscard]] TransportCapabilities capabilities() const override { return inner_->capabilities(); }
  [[nodiscard]] std::vector<std::uint32_t> nodes() const override { return inner_->nodes(); }
  [[nodiscard]] TransportCounters counters() const override { return inner_->counters(); }

  void post_send(Operation& operation, int peer, Tag tag, std::span<const std::byte> data) override {
    go_on();
    std::uint32_t magic = 0;
    if (data.size() >= wire::kHeaderBytes) {
      std::memcpy(&magic, data.data(), sizeof magic);
    }
    if (magic == wire::kMagic && wire::parse_header(data).epoch != epoch_ % 256) {
      throw std::logic_error("a frame of another world");  // ends the test; seen so when an executor wrote 0
    }
    inner_->post_send(operation, peer, tag, data);
  }
  void post_receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data) override {
    go_on();
    inner_->post_receive(operation, peer, tag, data);
  }
  void post_all_reduce(Operation& operation, View data) override {
    go_on();
    inner_->post_all_reduce(operation, data);
  }
  bool progress(std::chrono::microseconds wait) override {
    if (life_->dead()) {
      throw Death();
    }
    life_->rest();
    return inner_->progress(wait);  // how often it is called is a matter of chance, so it is not counted
  }
  bool cancel(Operation& operation) noexcept override { return inner_->cancel(operation); }
  void abort(ErrorCode code, const std::string& message) noexcept override {
    if (!life_->dead()) {
      inner_->abort(code, message);
    }
  }
  [[nodiscard]] std::vector<PeerState> ask(std::chrono::milliseconds limit) override { return inner_->ask(limit); }

 private:
  void go_on() {
    if (!life_->live()) {
      die_();
      throw Death();
    }
  }

  std::shared_ptr<Transport> inner_;
  const std::uint32_t epoch_;
  std::shared_ptr<Life> life_;
  std::function<void()> die_;
};

class MortalProcesses final : public Processes {
 public:
  MortalProcesses(std::shared_ptr<Processes> inner, std::shared_ptr<Life> life, std::shared_ptr<Cut> cut = nullptr)
      : inner_(std::move(inner)), life_(std::move(life)), cut_(std::move(cut)) {}

  [[nodiscard]] Id self() const noexcept override { return inner_->self(); }
  [[nodiscard]] std::vector<Id> all() const override { return inner_->all(); }
  [[nodiscard]] std::string describe(Id who) const override { return inner_->describe(who); }

  using Processes::send;
  void send(Id to, std::span<const std::byte> message, Lane lane) noexcept override {
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
    if (cut_ != nullptr) {  // nor does an end reach the other side
      std::erase_if(heard, [&](const Heard& one) { return cut_->between(one.from, inner_->self()); });
    }
    if (life_->dead()) {
      inner_->end();
      heard.clear();
      for (const Id who : inner_->all()) {  // so that no thread of it waits for anybody
        heard.push_back({.from = who, .ended = true});
      }
    }
    return heard;
  }
  [[nodiscard]] std::uint64_t unsent(Id to, Lane lane) const noexcept override { return inner_->unsent(to, lane); }
  void wake() noexcept override { inner_->wake(); }
  void end() noexcept override { inner_->end(); }

  [[nodiscard]] std::shared_ptr<Transport> connect(std::span<const Id> members, std::uint32_t epoch,
                                                   std::chrono::milliseconds timeout) override {
    if (!life_->live()) {
      inner_->end();
      throw Death();
    }
    return std::make_shared<MortalTransport>(inner_->connect(members, epoch, timeout), epoch, life_,
                                             [inner = inner_] { inner->end(); });
  }

 private:
  std::shared_ptr<Processes> inner_;  // its end is what others hear
  std::shared_ptr<Life> life_;
  std::shared_ptr<Cut> cut_;
};

}  // namespace gradwire::test
