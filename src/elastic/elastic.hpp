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

#include "elastic/copy_ring.hpp"
#include "elastic/world_agreement.hpp"
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
  /// The number of processes at the beginning.
  [[nodiscard]] int processes() const { return static_cast<int>(processes_->all().size()); }
  /// The number of ranks that a world has while no rank is missing.
  [[nodiscard]] int full_size() const { return processes() - static_cast<int>(settings_.spares); }
  /// Whether others may become ranks: spares, or processes that join.
  [[nodiscard]] bool expects_newcomers() const { return settings_.spares > 0 || processes_->open(); }
  /// See WorldAgreement::wait_for_place().
  [[nodiscard]] bool wait_for_place(const std::string& facts) { return agreement_.wait_for_place(facts); }

  /// See WorldAgreement::let_in().
  void let_in(std::string facts) { agreement_.let_in(std::move(facts)); }
  /// Whether the current world may have a rank that does not hold what the others do. All ranks agree on that.
  [[nodiscard]] bool has_newcomers() const;
  /// Whether this rank holds what the others do.
  [[nodiscard]] bool holds() const;
  /// Whether a rank has made all its steps.
  [[nodiscard]] bool job_is_over() const { return agreement_.any_said_farewell(ranks_); }
  /// From here on all ranks of the current world hold the same.
  void all_hold() { holders_ = world_.members; }

  /// Returns a transport over the current world; worlds that are over before it is made are passed over.
  /// Error(expelled), Error(too_few).
  [[nodiscard]] std::shared_ptr<Transport> connect();
  /// Returns what moves buckets in the world of the last connect(), or in no world.
  [[nodiscard]] std::unique_ptr<Runner> runner_over(std::shared_ptr<Transport> transport) const {
    return make_runner_(std::move(transport), world_.epoch);
  }
  /// The ranks of the world of the last connect().
  [[nodiscard]] const std::vector<Processes::Id>& members() const noexcept { return world_.members; }
  /// `interrupt` is called once the world of the last connect() is over, or about to be.
  void watch(std::function<void()> interrupt) { agreement_.watch(world_.epoch, std::move(interrupt)); }
  /// The others hear that this process has ended. Any thread may call this.
  void end() noexcept { agreement_.fail(); }
  /// See WorldAgreement::commit().
  [[nodiscard]] bool commit();
  /// See WorldAgreement::confirm().
  void confirm() { agreement_.confirm(timeout_); }
  /// See Processes::deny_success().
  void deny_success(const Error& error) { processes_->deny_success(error); }
  /// The time that commit() took in this world. Any thread may call this.
  [[nodiscard]] double commit_seconds() const noexcept { return commit_seconds_; }

  /// The copies of residuals.
  [[nodiscard]] CopyRing& copies() noexcept { return copies_; }
  /// Those ranks of the world before that hold what newcomers get, ascending.
  [[nodiscard]] const std::vector<Processes::Id>& holders() const noexcept { return holders_; }
  [[nodiscard]] std::string name(Processes::Id who) const { return processes_->describe(who); }

  /// Returns a line for people, with the costs. `residual_bytes` is what this rank holds now; 0 if that is not known.
  [[nodiscard]] std::string explain(std::uint64_t residual_bytes) const;

  /// Whether another world comes, after a failure. Waits for it; where nobody is missed yet, as long as it takes to
  /// miss a silent rank. Error(expelled), Error(timeout) where ranks do not agree.
  [[nodiscard]] bool await_change();
  /// Whether this world is another one than take_change() told of last. False on a process that was in no world before.
  [[nodiscard]] bool has_to_tell() const;
  /// Returns what has changed since the world that it told of last.
  [[nodiscard]] WorldChange take_change();
  /// The rank of `who` in the current world, if it has one.
  [[nodiscard]] std::optional<int> rank_of(Processes::Id who) const;
  /// The process that is `rank` in the current world, if there is such a rank.
  [[nodiscard]] std::optional<Processes::Id> id_of(int rank) const;

 private:
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] std::chrono::milliseconds patience() const;

  std::shared_ptr<Processes> processes_;
  const MakeRunner make_runner_;
  const Policy::Elastic settings_;
  const std::chrono::milliseconds timeout_;
  WorldAgreement::World world_;  // of the transport in use
  std::weak_ptr<Transport> transport_;
  WorldAgreement::World reported_world_;  // the world that take_change() told of last
  std::set<Processes::Id> ranks_;         // all that have been ranks, as far as is known here
  std::vector<Processes::Id> holders_;    // the processes that hold what a newcomer gets, ascending
  CopyRing copies_;
  std::atomic<double> commit_seconds_ = 0;
  WorldAgreement agreement_;
};

}  // namespace gradwire::session
