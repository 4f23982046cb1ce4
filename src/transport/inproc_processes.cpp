// Processes that are threads of one.
#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "base/forked.hpp"
#include "base/mutex.hpp"
#include "gradwire/processes.hpp"
#include "transport/inproc_links.hpp"

namespace gradwire {
namespace {

using transport::Witness;

class Hub {
 public:
  using Id = Processes::Id;
  using Heard = Processes::Heard;

  Hub(std::size_t count, bool open) : open_(open), start_(count), inboxes_(count) {}

  [[nodiscard]] bool open() const noexcept { return open_; }
  /// Number of processes at the beginning.
  [[nodiscard]] std::size_t start() const noexcept { return start_; }
  [[nodiscard]] std::size_t count() {
    const MutexLock lock(mutex_);
    return inboxes_.size();
  }

  Id join() {
    const MutexLock lock(mutex_);
    const auto who = static_cast<Id>(inboxes_.size());
    Inbox& own = inboxes_.emplace_back();
    for (Id other = 0; other < who; ++other) {
      if (inboxes_[other].closed) {
        own.heard.push_back(end_of(other));
      } else {
        give(other, {.from = who, .came = true});
      }
    }
    return who;
  }

  void send(Id to, Heard heard) {
    const MutexLock lock(mutex_);
    if (to < inboxes_.size() && !inboxes_[to].closed && !inboxes_[heard.from].closed && !knows_end(to, heard.from) &&
        !knows_end(heard.from, to)) {
      const auto link = broken_.find(pair_of(heard.from, to));
      if (link == broken_.end()) {
        give(to, std::move(heard));
      } else {
        link->second.waiting.emplace_back(to, std::move(heard));
      }
    }
  }

  void enter(Id who, std::uint32_t epoch) {
    const MutexLock lock(mutex_);
    inboxes_[who].epoch = epoch;
  }
  void count_step(Id who, std::uint64_t step) {
    const MutexLock lock(mutex_);
    inboxes_[who].step = step;
  }
  void trust_resets(Id who) {
    const MutexLock lock(mutex_);
    inboxes_[who].trusts_resets = true;
  }

  void break_link(Id one, Id other, Witness witness) {
    const MutexLock lock(mutex_);
    check(other);
    if (one == other || !broken_.try_emplace(pair_of(one, other), Broken{.witness = witness, .waiting = {}}).second) {
      return;
    }
    for (const auto& [who, from] : {std::pair(one, other), std::pair(other, one)}) {
      if (inboxes_[who].closed || inboxes_[from].closed || knows_end(who, from)) {
        continue;
      }
      if (inboxes_[who].trusts_resets) {
        tell_end(who, {.from = from, .ended = true});
      } else {
        give(who, {.from = from, .lost = true});
      }
    }
  }
  void heal_link(Id one, Id other) {
    const MutexLock lock(mutex_);
    check(other);
    auto link = broken_.extract(pair_of(one, other));
    if (link.empty() || inboxes_[one].closed || inboxes_[other].closed) {
      return;
    }
    for (const auto& [who, from] : {std::pair(one, other), std::pair(other, one)}) {
      if (!knows_end(who, from)) {
        give(who, {.from = from, .back = true});
      }
    }
    for (auto& [to, heard] : link.mapped().waiting) {
      if (!knows_end(to, heard.from)) {
        give(to, std::move(heard));
      }
    }
  }

  std::vector<Heard> hear(Id who, std::chrono::milliseconds wait) {
    const MutexLock lock(mutex_);
    Inbox& own = inboxes_[who];
    own.changed.wait_for(mutex_, wait, [&] { return !own.heard.empty() || own.woken; });
    own.woken = false;
    return std::exchange(own.heard, {});
  }

  void wake(Id who) {
    const MutexLock lock(mutex_);
    inboxes_[who].woken = true;
    inboxes_[who].changed.notify_all();
  }

  void end(Id who) {
    const MutexLock lock(mutex_);
    if (std::exchange(inboxes_[who].closed, true)) {
      return;
    }
    inboxes_[who].heard.clear();
    inboxes_[who].changed.notify_all();
    for (Id other = 0; other < inboxes_.size(); ++other) {
      const auto link = broken_.find(pair_of(who, other));
      const bool reaches = link == broken_.end() || link->second.witness == Witness::reached;
      if (!inboxes_[other].closed && !knows_end(other, who) && reaches) {
        tell_end(other, end_of(who));
      }
    }
  }

  std::shared_ptr<Transport> connect(Id who, std::span<const Id> members, std::uint32_t epoch) {
    const auto at = std::lower_bound(members.begin(), members.end(), who);
    if (at == members.end() || *at != who) {
      throw Error(ErrorCode::invalid_argument, "connect: process " + std::to_string(who) + " is not a member");
    }
    const MutexLock lock(mutex_);
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
    CondVar changed;
    std::vector<Heard> heard;
    bool woken = false;
    bool closed = false;
    bool trusts_resets = false;
    std::uint32_t epoch = 0;
    std::uint64_t step = 0;
    std::set<Id> ended;  // processes whose end it was told
  };
  struct Broken {
    Witness witness = Witness::reached;
    std::vector<std::pair<Id, Heard>> waiting;  // messages that wait, with their receivers
  };

  static std::pair<Id, Id> pair_of(Id one, Id other) { return {std::min(one, other), std::max(one, other)}; }
  void check(Id who) const REQUIRES(mutex_) {
    if (who >= inboxes_.size()) {
      throw Error(ErrorCode::invalid_argument, "there is no process " + std::to_string(who));
    }
  }
  [[nodiscard]] Heard end_of(Id who) const REQUIRES(mutex_) {
    return {.from = who, .ended = true, .epoch = inboxes_[who].epoch, .step = inboxes_[who].step};
  }
  [[nodiscard]] bool knows_end(Id who, Id of) const REQUIRES(mutex_) { return inboxes_[who].ended.contains(of); }
  void tell_end(Id to, Heard end) REQUIRES(mutex_) {
    inboxes_[to].ended.insert(end.from);
    give(to, std::move(end));
  }
  void give(Id to, Heard heard) REQUIRES(mutex_) {
    inboxes_[to].heard.push_back(std::move(heard));
    inboxes_[to].changed.notify_all();
  }

  Mutex mutex_;
  const bool open_;
  const std::size_t start_;
  std::deque<Inbox> inboxes_ GUARDED_BY(mutex_);
  std::map<std::pair<Id, Id>, Broken> broken_ GUARDED_BY(mutex_);  // broken links
  std::map<std::pair<std::uint32_t, std::vector<Id>>, std::vector<std::shared_ptr<Transport>>> worlds_
      GUARDED_BY(mutex_);
};

class InprocProcesses final : public Processes {
 public:
  InprocProcesses(std::shared_ptr<Hub> hub, Id self) : hub_(std::move(hub)), self_(self) {}
  ~InprocProcesses() override { hub_->end(self_); }

  [[nodiscard]] Id self() const noexcept override { return self_; }
  [[nodiscard]] std::vector<Id> all() const override {
    std::vector<Id> ids(hub_->start());
    std::iota(ids.begin(), ids.end(), Id{0});
    return ids;
  }
  [[nodiscard]] bool joined() const noexcept override { return self_ >= hub_->start(); }
  [[nodiscard]] bool open() const noexcept override { return hub_->open(); }
  [[nodiscard]] std::vector<Id> newcomers() const override {
    std::vector<Id> ids(hub_->count() - hub_->start());
    std::iota(ids.begin(), ids.end(), static_cast<Id>(hub_->start()));
    std::erase(ids, self_);
    return ids;
  }
  [[nodiscard]] std::string describe(Id who) const override {
    return who < hub_->start() ? "rank " + std::to_string(who) + " of the start"
                               : "process " + std::to_string(who) + ", which joined";
  }
  [[nodiscard]] std::shared_ptr<Processes> join() const {
    return make_shared_at_home<InprocProcesses>(hub_, hub_->join());
  }

  using Processes::send;
  void send(Id to, std::span<const std::byte> message, Lane /*lane*/) noexcept override {
    try {
      hub_->send(to, {.from = self_, .message = {message.begin(), message.end()}});
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): send() may lose messages
    }
  }
  [[nodiscard]] std::uint64_t unsent(Id /*to*/, Lane /*lane*/) const noexcept override { return 0; }
  [[nodiscard]] std::vector<Heard> hear(std::chrono::milliseconds wait) override { return hub_->hear(self_, wait); }
  void wake() noexcept override { hub_->wake(self_); }
  void end() noexcept override { hub_->end(self_); }
  void enter(std::uint32_t epoch) noexcept override { hub_->enter(self_, epoch); }
  void count(std::uint64_t step) noexcept override { hub_->count_step(self_, step); }
  void trust_resets() noexcept override { hub_->trust_resets(self_); }
  [[nodiscard]] Hub& hub() const noexcept { return *hub_; }

  [[nodiscard]] std::shared_ptr<Transport> connect(std::span<const Id> members, std::uint32_t epoch,
                                                   std::chrono::milliseconds /*timeout*/) override {
    return hub_->connect(self_, members, epoch);
  }

 private:
  std::shared_ptr<Hub> hub_;
  Id self_;
};

}  // namespace

std::vector<std::shared_ptr<Processes>> make_inproc_processes(int count, bool open) {
  if (count < 1) {
    throw Error(ErrorCode::invalid_argument,
                "make_inproc_processes: a job has at least 1 process, not " + std::to_string(count));
  }
  const auto hub = std::make_shared<Hub>(static_cast<std::size_t>(count), open);
  std::vector<std::shared_ptr<Processes>> processes;
  processes.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    processes.push_back(make_shared_at_home<InprocProcesses>(hub, static_cast<Processes::Id>(i)));
  }
  return processes;
}

std::shared_ptr<Processes> join_inproc_processes(const Processes& one) {
  const auto* own = dynamic_cast<const InprocProcesses*>(&one);
  if (own == nullptr || !own->open()) {
    throw Error(ErrorCode::invalid_argument,
                "join_inproc_processes: nobody may join those; make them by make_inproc_processes(count, true)");
  }
  return own->join();
}

namespace transport {
namespace {

const InprocProcesses& as_inproc(const Processes& one) {
  const auto* own = dynamic_cast<const InprocProcesses*>(&one);
  if (own == nullptr) {
    throw Error(ErrorCode::invalid_argument, "only links of make_inproc_processes() can be broken");
  }
  return *own;
}

}  // namespace

void break_link(const Processes& one, Processes::Id other, Witness witness) {
  as_inproc(one).hub().break_link(one.self(), other, witness);
}

void heal_link(const Processes& one, Processes::Id other) { as_inproc(one).hub().heal_link(one.self(), other); }

}  // namespace transport

}  // namespace gradwire
