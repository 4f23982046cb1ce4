// Options and results of a session's step, as plain values that need no session.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace gradwire {

/// How a session treats a step with NaN or Inf in a gradient.
enum class Nonfinite : std::uint8_t {
  automatic,  // propagate; skip once set_loss_scale() was called
  propagate,  // the step is reduced like any other, except that a flush or the last step before local steps is skipped.
              // The result is not finite on any rank, and the affected blocks keep their residuals. If the caller then
              // skips the step, what healthy ranks sent is lost, and so are residuals that an exact step carried
  skip,       // ranks look and agree before anything is encoded: nothing is reduced and no residual changes. Buckets
              // therefore start only once all tensors are ready: no overlap with the backward pass
};

/// Identifies a tensor of a session; the order of add().
enum class TensorId : std::uint32_t {};

/// Identifies a table of a session; the order of add_table().
enum class TableId : std::uint32_t {};

/// Stands for one bucket of one step. A default ticket, which ready() returns under no_sync, is always done.
struct Ticket {
  static constexpr std::uint32_t kNothing = ~0U;
  std::uint64_t step = 0;
  std::uint32_t bucket = kNothing;
  std::uint32_t session = 0;  // the number of the session in this process, from 1 on; 0: not known
};

/// What finish() returns. It is the same on every rank, except for `nonfinite` over device memory.
struct StepOutcome {
  std::uint64_t step = 0;            // the one that ended
  bool skipped = false;              // nothing was reduced: gradients are each rank's own, as before ready()
  bool nonfinite = false;            // NaN or Inf in a result, or in the gradients of a skipped step; over device
                                     // memory what this rank knew when finish() was called (docs/how-to/gpu.md)
  std::vector<int> nonfinite_ranks;  // of a skipped step: the ranks whose gradients had NaN or Inf
  // These two are set only by a session over Processes (docs/explanation/elastic.md).
  bool world_changed = false;  // other ranks take part from here on; rank() and world_size() are new
  bool repeat = false;         // nothing of this step was delivered: make its gradients again, step() is as before
};

/// Tells which processes take part from here on. Ranks are those of the previous world, except where a member says
/// otherwise.
struct WorldChange {
  std::uint32_t epoch = 0;  // number of the new world
  int rank = 0;             // of this process in the new world
  int world_size = 1;
  int old_rank = 0;
  int old_world_size = 1;
  std::vector<int> lost = {};                // ranks that ended or were left out; ascending
  std::vector<std::string> lost_names = {};  // a description of each
  std::vector<int> joined = {};              // ranks in the new world of spares and processes that joined; ascending
  std::vector<std::string> joined_names = {};
  /// The ranks that ended and whose residuals this rank has a valid copy of ([elastic] replicate), with the step after
  /// which each copy was made. This rank sends these residuals with its own. What such a rank dropped after that step
  /// is lost.
  std::vector<std::pair<int, std::uint64_t>> residuals_kept = {};
  double seconds = 0;  // from this rank's first sign of the change until the new world was made
};

}  // namespace gradwire
