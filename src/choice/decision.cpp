#include "choice/decision.hpp"

#include <array>
#include <limits>

namespace gradwire::choice {
namespace {

enum class Returns : std::uint8_t { result, request, persistent_request };

struct FunctionRow {
  Function function;
  std::string_view name;
  bool handled;  // may be compressed
  Returns returns;
  int hops;  // a perfect algorithm sends hops x (P-1)/P of the larger buffer; 0: not stated
};

constexpr std::array kFunctions{
    FunctionRow{Function::mpi_allreduce, "MPI_Allreduce", true, Returns::result, 2},
    FunctionRow{Function::mpi_reduce_scatter, "MPI_Reduce_scatter", true, Returns::result, 1},
    FunctionRow{Function::mpi_reduce_scatter_block, "MPI_Reduce_scatter_block", true, Returns::result, 1},
    FunctionRow{Function::mpi_reduce, "MPI_Reduce", true, Returns::result, 1},
    FunctionRow{Function::mpi_iallreduce, "MPI_Iallreduce", true, Returns::request, 2},
    FunctionRow{Function::mpi_ireduce_scatter, "MPI_Ireduce_scatter", true, Returns::request, 1},
    FunctionRow{Function::mpi_ireduce_scatter_block, "MPI_Ireduce_scatter_block", true, Returns::request, 1},
    FunctionRow{Function::mpi_allreduce_init, "MPI_Allreduce_init", true, Returns::persistent_request, 2},
    FunctionRow{Function::mpi_reduce_scatter_init, "MPI_Reduce_scatter_init", true, Returns::persistent_request, 1},
    FunctionRow{Function::mpi_reduce_scatter_block_init, "MPI_Reduce_scatter_block_init", true,
                Returns::persistent_request, 1},
    FunctionRow{Function::c10d_all_reduce, "c10d allreduce", true, Returns::result, 2},
    FunctionRow{Function::c10d_reduce_scatter, "c10d reduce_scatter", true, Returns::result, 1},
    FunctionRow{Function::nccl_all_reduce, "ncclAllReduce", true, Returns::result, 2},
    FunctionRow{Function::nccl_reduce_scatter, "ncclReduceScatter", true, Returns::result, 1},
    FunctionRow{Function::nccl_all_gather, "ncclAllGather", false, Returns::result, 1},
    FunctionRow{Function::nccl_broadcast, "ncclBroadcast", false, Returns::result, 0},
    FunctionRow{Function::nccl_reduce, "ncclReduce", false, Returns::result, 0},
    FunctionRow{Function::nccl_send, "ncclSend", false, Returns::result, 0},
    FunctionRow{Function::nccl_recv, "ncclRecv", false, Returns::result, 0},
    FunctionRow{Function::nccl_all_to_all, "ncclAlltoAll", false, Returns::result, 1},
    FunctionRow{Function::nccl_gather, "ncclGather", false, Returns::result, 0},
    FunctionRow{Function::nccl_scatter, "ncclScatter", false, Returns::result, 0},
    FunctionRow{Function::other, "other", false, Returns::result, 0},
};

constexpr const FunctionRow& row(Function function) { return kFunctions[static_cast<std::size_t>(function)]; }

constexpr bool rows_in_order() {
  for (std::size_t i = 0; i < kFunctions.size(); ++i) {
    if (kFunctions[i].function != Function{static_cast<std::uint8_t>(i)}) {
      return false;
    }
  }
  return true;
}
static_assert(rows_in_order(), "kFunctions is indexed by Function");

// Types that are never compressed count as the widest type that is, as they do where only the count is known.
bool below(const Call& call, std::uint64_t floor_bytes) {
  constexpr std::uint64_t kWidest = 8;
  const std::uint64_t known = call.dtype ? element_bytes(*call.dtype) : 0;
  const std::uint64_t each = known > 0 ? known : kWidest;
  const std::uint64_t count = call.count;
  return count <= std::numeric_limits<std::uint64_t>::max() / each && count * each < floor_bytes;
}

// Returns what the arguments alone decide.
Reason judge_arguments(const Call& call, const Settings& settings) {
  if (!row(call.function).handled) {
    return Reason::function;
  }
  if (!call.valid) {
    return Reason::bad_arguments;
  }
  if (!call.known) {
    return Reason::unknown;
  }
  if (!call.intra) {
    return Reason::intercommunicator;
  }
  if (call.grouped) {
    return Reason::grouped;
  }
  if (call.captured) {
    return Reason::captured;
  }
  if (call.count == 0 || below(call, settings.floor_bytes)) {
    return Reason::below_floor;
  }
  if (!call.reduction) {
    return Reason::operation;
  }
  if (!call.dtype || element_bytes(*call.dtype) == 0 ||
      (*call.dtype == DType::f64 && (!settings.f64 || is_nccl(call.function)))) {
    return Reason::dtype;
  }
  // These come after the checks above, so that a call which would be passed on anyway does not give its request as the
  // reason. The size of a communicator that does not block is not known.
  const Returns returns = row(call.function).returns;
  if (!call.blocking || (returns != Returns::result && !(returns == Returns::request && settings.requests))) {
    return Reason::nonblocking;
  }
  return call.world_size < 2 ? Reason::alone : Reason::none;
}

// Returns what the ranks' configuration decides about a call that could be compressed.
Reason judge_configuration(const Call& call, const Settings& settings) {
  if (!call.agreed) {
    return Reason::agreeing;
  }
  if (settings.disabled) {
    return Reason::disabled;
  }
  if (settings.ranks_differ) {
    return Reason::ranks_differ;
  }
  if (settings.one_process) {
    return Reason::one_process;
  }
  if (settings.observing) {
    return Reason::observing;
  }
  if (call.policy_exact) {
    return Reason::policy_exact;
  }
  return is_nccl(call.function) && !settings.device_path ? Reason::device_path : Reason::none;
}

}  // namespace

std::string_view name_of(Function function) noexcept { return row(function).name; }

bool is_nccl(Function function) noexcept {
  return function >= Function::nccl_all_reduce && function != Function::other;
}

bool is_reduce_scatter(Function function) noexcept {
  switch (function) {
    case Function::mpi_reduce_scatter:
    case Function::mpi_reduce_scatter_block:
    case Function::mpi_ireduce_scatter:
    case Function::mpi_ireduce_scatter_block:
    case Function::mpi_reduce_scatter_init:
    case Function::mpi_reduce_scatter_block_init:
    case Function::c10d_reduce_scatter:
    case Function::nccl_reduce_scatter: return true;
    default: return false;
  }
}

const char* text(Reason reason) noexcept {
  switch (reason) {
    case Reason::none: return "";
    case Reason::function: return "function is always passed on";
    case Reason::bad_arguments: return "bad arguments";
    case Reason::unknown: return "unknown communicator";
    case Reason::intercommunicator: return "intercommunicator";
    case Reason::nonblocking: return "nonblocking";
    case Reason::grouped: return "inside a group";
    case Reason::captured: return "captured into a graph";
    case Reason::operation: return "neither sum nor average";
    case Reason::dtype: return "type is not compressed";
    case Reason::alone: return "communicator of one rank";
    case Reason::below_floor: return "below the floor";
    case Reason::agreeing: return "ranks have not agreed yet";
    case Reason::disabled: return "disabled";
    case Reason::ranks_differ: return "ranks differ";
    case Reason::one_process: return "several ranks in one process";
    case Reason::policy_exact: return "policy says exact";
    case Reason::learning: return "step not known yet";
    case Reason::device_path: return "device path not built";
    case Reason::measuring: return "being measured";
    case Reason::no_faster: return "no faster on this link";
    case Reason::recorded: return "passed in the recorded job";
    case Reason::observing: return "observed: no codec was named";
    case Reason::aside: return "some rank cannot compress here";
    case Reason::untried: return "too large to be made both ways";
    case Reason::inaccurate: return "error above max_error";
    case Reason::failed: return "ended with an error";
    case Reason::role_open: return "not known to be a gradient yet";
    case Reason::no_gradient: return "no gradient: its buffer changes or repeats";
    case Reason::half_scatter: return "16-bit reduce-scatter without a rule";
    case Reason::no_memory: return "no device memory for messages";
    case Reason::scaled: return "scaled sum, which the kernel inside a node does not make";
  }
  return "";
}

bool lasts(Reason reason) noexcept {
  switch (reason) {
    case Reason::intercommunicator:
    case Reason::operation:
    case Reason::dtype:
    case Reason::alone:
    case Reason::below_floor:
    case Reason::disabled:
    case Reason::ranks_differ:
    case Reason::one_process:
    case Reason::observing:
    case Reason::policy_exact: return true;
    default: return false;
  }
}

CallDecision decide(const Call& call, const Settings& settings) noexcept {
  Reason reason = judge_arguments(call, settings);
  if (reason == Reason::none) {
    reason = judge_configuration(call, settings);
  }
  return {.compress = reason == Reason::none, .reason = reason};
}

std::uint64_t dense_bytes(Function function, std::uint64_t bytes, int world_size) noexcept {
  const auto others = static_cast<std::uint64_t>(world_size > 1 ? world_size - 1 : 0);
  return static_cast<std::uint64_t>(row(function).hops) * others * bytes;
}

}  // namespace gradwire::choice
