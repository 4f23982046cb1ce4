// What a session holds whose job goes on without ranks that end: its place among the processes, and how it gets from
// one world to the next.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/session.hpp"
#include "session/checkpoint/state_file.hpp"
#include "session/elastic/member.hpp"

namespace gradwire::session {

/// Whether the error may come of another rank's end.
[[nodiscard]] inline bool may_be_of_others(ErrorCode code) {
  return code == ErrorCode::aborted || code == ErrorCode::transport || code == ErrorCode::timeout;
}

class Elastic {
 public:
  Elastic(std::shared_ptr<Processes> processes, const Policy::Elastic& settings, std::chrono::milliseconds timeout);

  /// A transport over the world that counts now; worlds that are over before it is made are passed over.
  /// Error(expelled), Error(too_few).
  [[nodiscard]] std::shared_ptr<Transport> connect();
  /// `interrupt` is called once the world of the last connect() is over, or about to be.
  void watch(std::function<void()> interrupt) { member_.watch(world_.epoch, std::move(interrupt)); }
  /// The others hear that this process has ended. Any thread.
  void end() noexcept { processes_->end(); }
  /// See Member::commit().
  [[nodiscard]] bool commit();
  /// What it took in the world now. Any thread.
  [[nodiscard]] double commit_seconds() const noexcept { return commit_seconds_; }

  /// Whether residuals are to be copied after this step; after the first one in a world they are.
  [[nodiscard]] bool replicates_after(std::uint64_t step) const;
  /// Sends them to the rank that keeps them for this one.
  void replicate(std::uint64_t step, const std::vector<SavedState::Residual>& residuals);
  /// What this rank keeps of ranks that are in the world before, and not in this one.
  struct Kept {
    int rank = 0;  // in the world before
    std::uint64_t step = 0;
    std::vector<SavedState::Residual> residuals;
  };
  [[nodiscard]] std::vector<Kept> take_kept();

  /// A line for people, with what it costs.
  [[nodiscard]] std::string explain() const;

  /// Whether another world comes. Waits for it; where `failed` and nobody is missed yet, as long as it takes to miss a
  /// silent rank. Error(expelled), Error(timeout) where ranks do not agree.
  [[nodiscard]] bool await_change(bool failed);
  /// What has changed since the connect() before the last one.
  [[nodiscard]] WorldChange change() const;
  /// Its place in the world now; none: it is not in it.
  [[nodiscard]] std::optional<int> rank_of(Processes::Id who) const;
  /// None: there is no such rank.
  [[nodiscard]] std::optional<Processes::Id> id_of(int rank) const;

  std::function<void(const WorldChange&)> callback;

 private:
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] std::shared_ptr<Transport> try_to_connect(const Member::World& world);
  [[nodiscard]] std::chrono::milliseconds patience(bool failed) const;
  void find_keepers(const std::vector<std::uint32_t>& nodes);

  std::shared_ptr<Processes> processes_;
  const Policy::Elastic settings_;
  const std::chrono::milliseconds timeout_;
  Member::World world_;              // of the transport in use
  Member::World before_;             // of the one before
  std::vector<int> keepers_;         // by rank of the world: who keeps its residuals; the rank itself: nobody
  bool copied_ = false;              // in this world
  std::vector<int> keepers_before_;  // of the world before
  std::atomic<double> commit_seconds_ = 0;
  Member member_;
};

}  // namespace gradwire::session
