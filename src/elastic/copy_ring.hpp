// Decides which rank keeps copies of which rank's residuals, and sends them there, so that what a rank had yet to send
// is not lost with it.
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

/// Only the thread that makes steps uses this class, except kept().
class CopyRing {
 public:
  CopyRing(std::shared_ptr<Processes> processes, const Policy::Elastic& settings)
      : processes_(std::move(processes)),
        every_(settings.replicate),
        form_{settings.replicate_exact, settings.replicate_packed} {}

  /// The copies that this rank keeps for others. Any thread may call this.
  [[nodiscard]] KeptCopies& kept() noexcept { return kept_; }
  [[nodiscard]] bool in_use() const noexcept { return every_ > 0; }
  /// Bounds the copies of other ranks: error feedback covers at most so many elements.
  void bound(std::uint64_t elements);
  /// Enters `world`. `nodes` are the nodes of its ranks, as in Transport::nodes().
  void enter(const membership::World& world, const std::vector<std::uint32_t>& nodes);

  /// Whether residuals are to be copied after this step, as they are after the first one in a world.
  [[nodiscard]] bool is_due_after(std::uint64_t step) const;
  /// Sends the residuals to the rank that keeps them for this one.
  void send(std::uint64_t step, const ResidualCopy& copy);

  /// Residuals of a rank that was in the previous world and is not in this one.
  struct RankCopy {
    Processes::Id who = 0;
    std::optional<std::uint64_t> step = {};  // the residuals were copied after this step; none: there is no copy
    ResidualCopy copy = {};
  };
  /// Returns the copy of each of the `holders` that ended, on the rank that keeps it. If that rank has ended as well,
  /// rank 0 returns an entry without a copy.
  [[nodiscard]] std::vector<RankCopy> take(const std::vector<Processes::Id>& holders);
  /// Notes that this process goes on with the residuals in `kept`.
  void note_used(const RankCopy& kept) { used_.emplace_back(kept.who, kept.step.value()); }
  /// Returns the copies noted since the last call: whose residuals they are, and after which step they were copied.
  [[nodiscard]] std::vector<std::pair<Processes::Id, std::uint64_t>> take_used() { return std::exchange(used_, {}); }

 private:
  std::shared_ptr<Processes> processes_;
  const std::uint64_t every_;  // steps between two copies; 0: never
  const CopyForm form_;
  KeptCopies kept_;
  membership::World world_;
  membership::World before_;  // the previous world
  std::vector<int> keepers_;  // by rank of the world: the rank that keeps its residuals; the rank itself: none does
  std::vector<int> keepers_before_;  // of the previous world
  bool copied_ = false;              // whether residuals were copied in this world
  std::vector<std::pair<Processes::Id, std::uint64_t>> used_;
};

}  // namespace gradwire::session
