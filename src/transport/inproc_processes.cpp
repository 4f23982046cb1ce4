// Processes that are threads of one.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "gradwire/processes.hpp"

namespace gradwire {
namespace {

class Hub {
 public:
  using Id = Processes::Id;
  using Heard = Processes::Heard;

  explicit Hub(std::size_t count) : inboxes_(count) {}

  [[nodiscard]] std::size_t count() const noexcept { return inboxes_.size(); }

  void send(Id to, Heard heard) {
    const std::lock_guard lock(mutex_);
    if (to < inboxes_.size() && !inboxes_[to].closed && !inboxes_[heard.from].closed) {
      inboxes_[to].heard.push_back(std::move(heard));
      inboxes_[to].changed.notify_all();
    }
  }

  std::vector<Heard> hear(Id who, std::chrono::milliseconds wait) {
    std::unique_lock lock(mutex_);
    Inbox& own = inboxes_[who];
    own.changed.wait_for(lock, wait, [&] { return !own.heard.empty() || own.woken; });
    own.woken = false;
    return std::exchange(own.heard, {});
  }

  void wake(Id who) {
    const std::lock_guard lock(mutex_);
    inboxes_[who].woken = true;
    inboxes_[who].changed.notify_all();
  }

  void end(Id who) {
    const std::lock_guard lock(mutex_);
    if (std::exchange(inboxes_[who].closed, true)) {
      return;
    }
    inboxes_[who].heard.clear();
    inboxes_[who].changed.notify_all();
    for (Inbox& inbox : inboxes_) {
      if (!inbox.closed) {
        inbox.heard.push_back({.from = who, .ended = true});
        inbox.changed.notify_all();
      }
    }
  }

  std::shared_ptr<Transport> connect(Id who, std::span<const Id> members, std::uint32_t epoch) {
    const auto at = std::lower_bound(members.begin(), members.end(), who);
    if (at == members.end() || *at != who) {
      throw Error(ErrorCode::invalid_argument, "connect: process " + std::to_string(who) + " is not a member");
    }
    const std::lock_guard lock(mutex_);
    auto& made = worlds_[{epoch, {members.begin(), members.end()}}];
    if (made.empty()) {
      made = make_inproc_world(static_cast<int>(members.size()));
    }
    auto own = std::exchange(made[static_cast<std::size_t>(at - members.begin())], nullptr);
    if (own == nullptr) {
      throw Error(ErrorCode::invalid_argument,
                  "connect: process " + std::to_string(who) + " is in epoch " + std::to_string(epoch) + " already");
    }
    return own;
  }

 private:
  struct Inbox {
    std::condition_variable changed;
    std::vector<Heard> heard;
    bool woken = false;
    bool closed = false;
  };

  std::mutex mutex_;
  std::vector<Inbox> inboxes_;
  std::map<std::pair<std::uint32_t, std::vector<Id>>, std::vector<std::shared_ptr<Transport>>> worlds_;
};

class InprocProcesses final : public Processes {
 public:
  InprocProcesses(std::shared_ptr<Hub> hub, Id self) : hub_(std::move(hub)), self_(self) {}
  ~InprocProcesses() override { hub_->end(self_); }

  [[nodiscard]] Id self() const noexcept override { return self_; }
  [[nodiscard]] std::vector<Id> all() const override {
    std::vector<Id> ids(hub_->count());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<Id>(i);
    }
    return ids;
  }
  [[nodiscard]] std::string describe(Id who) const override { return "rank " + std::to_string(who) + " of the start"; }

  using Processes::send;
  void send(Id to, std::span<const std::byte> message, Lane /*lane*/) noexcept override {
    try {
      hub_->send(to, {.from = self_, .message = {message.begin(), message.end()}});
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): lost, as the contract says
    }
  }
  [[nodiscard]] std::uint64_t unsent(Id /*to*/, Lane /*lane*/) const noexcept override { return 0; }
  [[nodiscard]] std::vector<Heard> hear(std::chrono::milliseconds wait) override { return hub_->hear(self_, wait); }
  void wake() noexcept override { hub_->wake(self_); }
  void end() noexcept override { hub_->end(self_); }

  [[nodiscard]] std::shared_ptr<Transport> connect(std::span<const Id> members, std::uint32_t epoch,
                                                   std::chrono::milliseconds /*timeout*/) override {
    return hub_->connect(self_, members, epoch);
  }

 private:
  std::shared_ptr<Hub> hub_;
  Id self_;
};

}  // namespace

std::vector<std::shared_ptr<Processes>> make_inproc_processes(int count) {
  if (count < 1) {
    throw Error(ErrorCode::invalid_argument,
                "make_inproc_processes: a job has at least 1 process, not " + std::to_string(count));
  }
  const auto hub = std::make_shared<Hub>(static_cast<std::size_t>(count));
  std::vector<std::shared_ptr<Processes>> processes;
  processes.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    processes.push_back(std::make_shared<InprocProcesses>(hub, static_cast<Processes::Id>(i)));
  }
  return processes;
}

}  // namespace gradwire
