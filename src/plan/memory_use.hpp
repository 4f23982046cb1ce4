// Forecasts the host memory that a rank's session takes, by purpose. It is a pure function of the plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "plan/plan.hpp"

namespace gradwire::plan {

/// Bytes of one rank. Small objects, what an MPI library keeps, rows of tables and checkpoints are not in it.
struct MemoryUse {
  std::uint64_t gradients = 0;  // the caller's own
  std::uint64_t local = 0;      // residuals of the rank's own values
  std::uint64_t summed = 0;     // residuals of sums that it makes: as an owner, and for its node
  std::uint64_t second = 0;     // second buffers of residuals, where a step can be undone
  std::uint64_t in_files = 0;   // the part of these three that lies in files, since it does not fit into memory
  std::uint64_t copies = 0;     // values that sync modes keep beside the gradients
  std::uint64_t replicas = 0;   // copies of residuals: its own that is sent, and those that it keeps for other ranks
  std::uint64_t frames = 0;     // most that the frames under way take at once
  std::uint64_t sealed = 0;     // most that their encrypted copies take, with a key

  /// All memory that the session takes: everything but the gradients.
  [[nodiscard]] std::uint64_t session() const noexcept { return residuals() + copies + replicas + frames + sealed; }
  /// The memory of residuals.
  [[nodiscard]] std::uint64_t residuals() const noexcept { return local + summed + second - in_files; }
};

/// Returns the most that any stage of the plan, or any level of codec = "auto" up to plan.most_level, needs. Rank 0
/// owns a largest shard.
[[nodiscard]] MemoryUse memory_of(const Plan& plan, int rank = 0);
/// Returns the same up to another level.
[[nodiscard]] MemoryUse memory_of(const Plan& plan, int rank, std::size_t most_level);
/// Returns the last level of codec = "auto" up to which memory_of() fits, as `fits` says, or 0 if that does not; no
/// value if the codec of no bucket is chosen.
[[nodiscard]] std::optional<std::size_t> level_that_fits(const Plan& plan, int rank,
                                                         const std::function<bool(const MemoryUse&)>& fits);

/// Returns the levels of codec = "auto" up to the last one that has memory; they live as long as the bucket.
[[nodiscard]] std::span<const policy::Level> levels_up_to(const Bucket& bucket, std::size_t most_level);
/// Returns the codecs of levels between `most_level` and plan.most_level, for people; empty if there are none.
[[nodiscard]] std::string codecs_above(const Plan& plan, std::size_t most_level);

/// Returns the room on the disk that a rank's residuals take at each place, in bytes: whole pages, with second buffers,
/// and with the snapshots that copies for other ranks are made of. Checkpoints and saves take more while they are
/// written.
[[nodiscard]] std::map<exchange::ResidualPlace, std::uint64_t> disk_room_of(const Plan& plan, int rank);

/// Returns a table for people: bytes by purpose, and what the next smaller choices would save.
[[nodiscard]] std::string explain_memory(const Plan& plan);

}  // namespace gradwire::plan
