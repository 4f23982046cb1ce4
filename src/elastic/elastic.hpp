// What a session holds whose job goes on without ranks that end: its place among the processes, and how it gets from
// one world to the next.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "elastic/member.hpp"
#include "elastic/residual_copy.hpp"
#include "gradwire/session.hpp"
#include "session/runner/runner.hpp"
#include "session/state/state_file.hpp"
#include "session/step/faults.hpp"

namespace gradwire::session {

class Elastic {
 public:
  /// Error(invalid_argument) where spares leave too few ranks.
  Elastic(std::shared_ptr<Processes> processes, MakeRunner make_runner, const Policy::Elastic& settings,
          std::chrono::milliseconds timeout);

  /// Whether this process is in no world yet: a spare, or one that joins.
  [[nodiscard]] bool waits() const noexcept { return world_.members.empty(); }
  /// That there were at the beginning.
  [[nodiscard]] int processes() const { return static_cast<int>(processes_->all().size()); }
  /// Ranks of a whole world.
  [[nodiscard]] int full_size() const { return processes() - static_cast<int>(settings_.spares); }
  /// Whether others may become ranks: spares, or processes that join.
  [[nodiscard]] bool expects_others() const { return settings_.spares > 0 || processes_->open(); }
  /// See Member::wait_for_place().
  [[nodiscard]] bool wait_for_place(const std::string& facts) { return member_.wait_for_place(facts); }

  /// What a rank that comes later is to hold: `parameters` of all ranks. From here on others may come.
  void share(std::vector<View> parameters) { shared_ = std::move(parameters); }
  void let_in(std::string facts) {
    lets_in_ = true;
    member_.let_in(std::move(facts));
  }
  [[nodiscard]] bool lets_in() const noexcept { return lets_in_; }
  [[nodiscard]] const std::vector<View>& shared() const noexcept { return shared_; }
  /// Whether a rank of the world now may not hold what the others do. The same on all of them.
  [[nodiscard]] bool has_newcomers() const;
  /// Whether this rank does.
  [[nodiscard]] bool holds() const;
  /// Whether a rank has made all its steps.
  [[nodiscard]] bool job_is_over() const { return member_.any_left(ranks_); }
  /// From here on all ranks of the world now do.
  void all_hold() { holders_ = world_.members; }

  /// A transport over the world that counts now; worlds that are over before it is made are passed over.
  /// Error(expelled), Error(too_few).
  [[nodiscard]] std::shared_ptr<Transport> connect();
  /// What moves the buckets of the world of the last connect(), or of a process that is in none.
  [[nodiscard]] std::unique_ptr<Runner> runner_over(std::shared_ptr<Transport> transport) const {
    return make_runner_(std::move(transport), epoch());
  }
  /// Of the world of the last connect().
  [[nodiscard]] std::uint32_t epoch() const noexcept { return world_.epoch; }
  [[nodiscard]] const std::vector<Processes::Id>& members() const noexcept { return world_.members; }
  /// `interrupt` is called once the world of the last connect() is over, or about to be.
  void watch(std::function<void()> interrupt) { member_.watch(world_.epoch, std::move(interrupt)); }
  /// The others hear that this process has ended. Any thread.
  void end() noexcept { member_.fail(); }
  /// See Member::commit().
  [[nodiscard]] bool commit();
  /// See Member::confirm().
  void confirm() { member_.confirm(timeout_); }
  /// See Processes::deny_success().
  void deny_success(const Error& error) { processes_->deny_success(error); }
  /// What it took in the world now. Any thread.
  [[nodiscard]] double commit_seconds() const noexcept { return commit_seconds_; }

  /// Of so many elements error feedback may hold something: what copies of other ranks can be as long as.
  void take_copies_of(std::uint64_t elements);
  /// Whether residuals are to be copied after this step; after the first one in a world they are.
  [[nodiscard]] bool replicates_after(std::uint64_t step) const;
  /// Sends them to the rank that keeps them for this one.
  void replicate(std::uint64_t step, const ResidualCopy& copy);
  /// Residuals of a rank that is in the world before, and not in this one.
  struct Kept {
    Processes::Id who = 0;
    std::optional<std::uint64_t> step = {};  // after which they were copied; none: there is no copy
    ResidualCopy copy = {};
  };
  /// Of each that ended, on the rank that keeps them; where that one has ended as well, on rank 0.
  [[nodiscard]] std::vector<Kept> take_kept();
  /// They go on in this process.
  void note_kept(const Kept& kept) { kept_.emplace_back(kept.who, kept.step.value()); }
  [[nodiscard]] std::string name(Processes::Id who) const { return processes_->describe(who); }
  [[nodiscard]] bool replicates() const noexcept { return settings_.replicate > 0; }

  /// A line for people, with what it costs. `residual_bytes`: that this rank holds now; 0: it is
  /// not known.
  [[nodiscard]] std::string explain(std::uint64_t residual_bytes) const;

  /// Whether another world comes. Waits for it; where `failed` and nobody is missed yet, as long as it takes to miss a
  /// silent rank. Error(expelled), Error(timeout) where ranks do not agree.
  [[nodiscard]] bool await_change(bool failed);
  /// Whether this world is another one than take_change() told of last; never on a process that was in none before.
  [[nodiscard]] bool has_to_tell() const;
  /// What has changed since the world that it told of last.
  [[nodiscard]] WorldChange take_change();
  /// Its place in the world now; none: it is not in it.
  [[nodiscard]] std::optional<int> rank_of(Processes::Id who) const;
  /// None: there is no such rank.
  [[nodiscard]] std::optional<Processes::Id> id_of(int rank) const;

 private:
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] std::shared_ptr<Transport> try_to_connect(const Member::World& world);
  [[nodiscard]] std::chrono::milliseconds patience(bool failed) const;
  void miss_failed_peer();
  void find_keepers(const std::vector<std::uint32_t>& nodes);

  std::shared_ptr<Processes> processes_;
  const MakeRunner make_runner_;
  const Policy::Elastic settings_;
  const std::chrono::milliseconds timeout_;
  Member::World world_;  // of the transport in use
  std::weak_ptr<Transport> transport_;
  Member::World before_;                // of the one before
  Member::World told_;                  // by take_change()
  std::set<Processes::Id> ranks_;       // that there were, as far as is known here
  std::vector<Processes::Id> holders_;  // of what a newcomer gets; ascending
  std::vector<View> shared_;
  bool lets_in_ = false;
  std::vector<int> keepers_;         // by rank of the world: who keeps its residuals; the rank itself: nobody
  bool copied_ = false;              // in this world
  std::vector<int> keepers_before_;  // of the world before
  std::vector<std::pair<Processes::Id, std::uint64_t>> kept_;  // since take_change()
  std::atomic<double> commit_seconds_ = 0;
  Member member_;
};

}  // namespace gradwire::session
