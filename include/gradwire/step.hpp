// What a step of a session takes and leaves, without the session: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace gradwire {

/// What a step with NaN or Inf in a gradient does.
enum class Nonfinite : std::uint8_t {
  automatic,  // propagate; skip once set_loss_scale() was called
  propagate,  // reduced like any step, but where it flushes or is the last one before local steps, which is skipped:
              // the result is not finite on any rank, and residuals of the blocks concerned stay. What healthy ranks
              // sent in a step that the caller then skips is lost, and so are residuals that an exact step carried
  skip,       // ranks look and agree before anything is encoded: nothing is reduced and no residual changes. Buckets
              // therefore start only once all tensors are ready: no overlap with the backward pass
};

/// Identifies a tensor of a session; the order of add().
enum class TensorId : std::uint32_t {};

/// Identifies a table of a session; the order of add_table().
enum class TableId : std::uint32_t {};

/// What ready() set going: one bucket of one step. A default one (from ready() under no_sync) is always done.
struct Ticket {
  static constexpr std::uint32_t kNothing = ~0U;
  std::uint64_t step = 0;
  std::uint32_t bucket = kNothing;
  std::uint32_t session = 0;  // which one of this process, from 1; 0: not said
};

/// What finish() found; the same on every rank, but for `nonfinite` over device memory.
struct StepOutcome {
  std::uint64_t step = 0;            // the one that ended
  bool skipped = false;              // nothing was reduced: gradients are each rank's own, as before ready()
  bool nonfinite = false;            // NaN or Inf in a result, or in the gradients of a skipped step; over device
                                     // memory what this rank knew when finish() was called (docs/gpu.md)
  std::vector<int> nonfinite_ranks;  // of a skipped step: whose gradients they were
  // Of a session over Processes (docs/elastic.md).
  bool world_changed = false;  // other ranks take part from here on; rank() and world_size() are new
  bool repeat = false;         // and nothing of this step was delivered: make its gradients again, step() is as before
};

/// Who takes part from here on. Ranks are those of the world before, but for `rank` and `world_size`.
struct WorldChange {
  std::uint32_t epoch = 0;  // number of the new world
  int rank = 0;             // of this process, now
  int world_size = 1;
  int old_rank = 0;
  int old_world_size = 1;
  std::vector<int> lost = {};                // ended, or were left out; ascending
  std::vector<std::string> lost_names = {};  // what is known of each
  std::vector<int> joined = {};              // ranks of the world now, of spares and processes that came; ascending
  std::vector<std::string> joined_names = {};
  /// What ranks that ended had yet to send, as far as this rank has a copy that counts ([elastic] replicate): it is
  /// sent with this rank's own. The rank, of the world before; and the step after which the copy was made: what it
  /// dropped since is lost.
  std::vector<std::pair<int, std::uint64_t>> residuals_kept = {};
  double seconds = 0;  // from the first sign of it on this rank until the new world was there
};

}  // namespace gradwire
