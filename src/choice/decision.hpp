// Decides whether a collective call that was made for the real library is compressed, or why it is passed through. The
// answer follows from what every rank knows about the call, never from data, addresses or time, so all ranks agree on
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "gradwire/dtype.hpp"
#include "gradwire/reduction.hpp"

namespace gradwire::choice {

/// The functions that a drop-in tells apart. What it never sees or only forwards is `other`.
enum class Function : std::uint8_t {
  mpi_allreduce,
  mpi_reduce_scatter,
  mpi_reduce_scatter_block,
  mpi_reduce,
  mpi_iallreduce,
  mpi_ireduce_scatter,
  mpi_ireduce_scatter_block,
  mpi_allreduce_init,
  mpi_reduce_scatter_init,
  mpi_reduce_scatter_block_init,
  c10d_all_reduce,
  c10d_reduce_scatter,
  nccl_all_reduce,
  nccl_reduce_scatter,
  nccl_all_gather,
  nccl_broadcast,
  nccl_reduce,
  nccl_send,
  nccl_recv,
  nccl_all_to_all,
  nccl_gather,
  nccl_scatter,
  other,
};

/// "MPI_Allreduce", "c10d allreduce", "ncclAllReduce", ...
[[nodiscard]] std::string_view name_of(Function function) noexcept;
[[nodiscard]] bool is_nccl(Function function) noexcept;
/// Whether each rank gets its segment of the sum, in whichever library, blocking or not.
[[nodiscard]] bool is_reduce_scatter(Function function) noexcept;

/// Why a call is passed through. decide() checks the reasons up to `device_path` in about this order and returns the
/// first that holds. The other reasons come from a router, which knows the policy, the step and the measurements.
enum class Reason : std::uint8_t {
  none,               // the call is compressed
  function,           // the function is always passed on
  bad_arguments,      // the library itself has to report the error
  unknown,            // the drop-in did not see how the communicator was made
  intercommunicator,  // the communicator has two groups
  grouped,            // inside a group of calls that runs as one
  captured,           // captured into a graph
  below_floor,        // too small
  operation,          // neither sum nor average, or the user's own
  dtype,              // no predefined floating-point type, or one that is not asked for
  nonblocking,        // the call or the communicator does not block: its request or state stays the library's
  alone,              // a communicator of one rank
  agreeing,           // the ranks of the communicator have not agreed yet
  disabled,           // some rank has GRADWIRE_DISABLE=1
  ranks_differ,       // in policy, version or settings
  one_process,        // several of the ranks are in one process
  policy_exact,       // the policy's codec for the call is `exact`
  learning,           // the policy needs the call's place in the step, which is not known yet
  device_path,        // device memory, where this build cannot compress
  measuring,          // the call takes part in a comparison of both ways
  no_faster,          // compression was measured to be no faster
  recorded,           // the job whose choices are followed passed it on
  observing,          // no codec was named: with `--codec auto` it would be compressed or measured
  aside,              // some rank cannot compress on this communicator; a line said why
  untried,            // codec = "auto" cannot make it both ways: it is too large, or some rank lacks the memory
  inaccurate,         // the relative error of similar calls exceeded `max_error`
  failed,             // it ended with an error, which its caller got
  role_open,          // over NCCL: whether it carries gradients is not known yet
  no_gradient,        // over NCCL: its address changes, or comes several times in a step
  half_scatter,       // over NCCL: a reduce-scatter of 16-bit values, which activations may be
  no_memory,          // over NCCL: some rank has no device memory for the call's messages
  scaled,             // over NCCL: codec = "auto" takes one kernel for such calls, which has no factors
};

inline constexpr std::size_t kReasons = 32;

/// For people: "below the floor". Empty for `none`.
[[nodiscard]] const char* text(Reason reason) noexcept;
/// Whether a call that passes for this reason always will, with equal arguments on the same communicator.
[[nodiscard]] bool lasts(Reason reason) noexcept;

/// The known facts about a call. Fields that have no meaning in a library keep their defaults.
struct Call {
  Function function = Function::other;
  std::optional<DType> dtype = {};          // none: not a predefined type that codecs know
  std::optional<Reduction> reduction = {};  // none: any other operation
  std::uint64_t count = 0;                  // elements of the larger buffer, which holds the segments of all ranks
  int world_size = 0;                       // of the communicator
  bool valid = true;                        // handles, counts and buffers could be right
  bool known = true;                        // the drop-in saw how the communicator was made, where that matters
  bool intra = true;
  bool blocking = true;       // both the communicator and the call
  bool grouped = false;       // between ncclGroupStart and the outermost ncclGroupEnd
  bool captured = false;      // its stream is being captured
  bool agreed = true;         // the ranks of its communicator have agreed
  bool policy_exact = false;  // the policy gives this call `exact`
};

/// What all ranks agreed on for the call's communicator.
struct Settings {
  std::uint64_t floor_bytes = 64ULL << 10;
  bool f64 = false;         // f64 is compressed too, except on devices
  bool device_path = true;  // false: calls on device memory cannot be compressed
  bool requests = false;    // calls that return a request are compressed too, except persistent ones
  bool disabled = false;    // some rank has GRADWIRE_DISABLE=1
  bool observing = false;   // no codec was named, and this is no dry run
  bool ranks_differ = false;
  bool one_process = false;  // several of the ranks are in one process
};

struct CallDecision {
  bool compress = false;
  Reason reason = Reason::none;
  friend bool operator==(const CallDecision&, const CallDecision&) = default;
};

/// Returns what follows from the arguments and from the agreement of the ranks, which stays true while the call waits
/// for its turn. To be called once for each call.
[[nodiscard]] CallDecision decide(const Call& call, const Settings& settings) noexcept;

/// Bytes that a perfect uncompressed algorithm sends for such a call, summed over the ranks of its communicator.
[[nodiscard]] std::uint64_t dense_bytes(Function function, std::uint64_t bytes, int world_size) noexcept;

}  // namespace gradwire::choice
