// Which rank keeps copies of which rank's residuals, and how they get there: so that what a rank had yet to send is not
// lost with it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "elastic/kept_copies.hpp"
#include "elastic/residual_copy.hpp"
#include "gradwire/policy.hpp"
#include "gradwire/processes.hpp"
#include "membership/world.hpp"

namespace gradwire::session {

/// Only the thread that makes steps uses it, but for kept().
class CopyRing {
 public:
  CopyRing(std::shared_ptr<Processes> processes, const Policy::Elastic& settings)
      : processes_(std::move(processes)), every_(settings.replicate), exact_(settings.replicate_exact) {}

  /// The copies that this rank keeps for others. Any thread.
  [[nodiscard]] KeptCopies& kept() noexcept { return kept_; }
  [[nodiscard]] bool in_use() const noexcept { return every_ > 0; }
  /// Error feedback may hold something of so many elements, which bounds the copies of other ranks.
  void bound(std::uint64_t elements);
  /// `nodes`: of the ranks of `world`, as Transport::nodes().
  void enter(const membership::World& world, const std::vector<std::uint32_t>& nodes);

  /// Whether residuals are to be copied after this step; after the first one in a world they are.
  [[nodiscard]] bool is_due_after(std::uint64_t step) const;
  /// Sends them to the rank that keeps them for this one.
  void send(std::uint64_t step, const ResidualCopy& copy);

  /// Residuals of a rank that was in the world before, and is not in this one.
  struct RankCopy {
    Processes::Id who = 0;
    std::optional<std::uint64_t> step = {};  // after which they were copied; none: there is no copy
    ResidualCopy copy = {};
  };
  /// Returns the copy of each of the `holders` that ended, on the rank that keeps it. If that rank has ended as well,
  /// rank 0 returns an entry without a copy.
  [[nodiscard]] std::vector<RankCopy> take(const std::vector<Processes::Id>& holders);
  /// They go on in this process.
  void note_used(const RankCopy& kept) { used_.emplace_back(kept.who, kept.step.value()); }
  /// Those noted since the last call: whose they are, and after which step they were copied.
  [[nodiscard]] std::vector<std::pair<Processes::Id, std::uint64_t>> take_used() { return std::exchange(used_, {}); }

 private:
  std::shared_ptr<Processes> processes_;
  const std::uint64_t every_;  // steps; 0: never
  const bool exact_;
  KeptCopies kept_;
  membership::World world_;
  membership::World before_;         // the one before it
  std::vector<int> keepers_;         // by rank of the world: who keeps its residuals; the rank itself: nobody
  std::vector<int> keepers_before_;  // of the world before
  bool copied_ = false;              // in this world
  std::vector<std::pair<Processes::Id, std::uint64_t>> used_;
};

}  // namespace gradwire::session
