#include "plugins/nccl_preload/requests.hpp"

#include <cuda.h>

#include <array>
#include <limits>
#include <string>
#include <utility>

#include "plugins/nccl_preload/device_path.hpp"
#include "plugins/nccl_preload/driver_events.hpp"
#include "plugins/nccl_preload/group.hpp"
#include "plugins/nccl_preload/real.hpp"
#include "plugins/nccl_preload/state.hpp"

GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclCommCount, (ncclComm_t, int*))
GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclCommUserRank, (ncclComm_t, int*))

namespace gradwire::nccl_preload {
namespace {

using choice::Function;

std::uint64_t times(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<std::uint64_t>::max() : product;
}

std::optional<DType> dtype_of(ncclDataType_t datatype) noexcept {
  switch (datatype) {
    case ncclFloat32: return DType::f32;
    case ncclFloat16: return DType::f16;
    case ncclBfloat16: return DType::bf16;
    case ncclFloat64: return DType::f64;
    default: return std::nullopt;
  }
}

std::uint64_t bytes_of_element(ncclDataType_t datatype) noexcept {
  switch (datatype) {
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64: return 8;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    default: return 1;
  }
}

std::optional<Reduction> reduction_of(int op) noexcept {
  switch (op) {
    case ncclSum: return Reduction::sum;
    case ncclAvg: return Reduction::mean;
    default: return std::nullopt;
  }
}

std::string op_name(int op) {
  static constexpr std::array<const char*, 5> kNames = {"sum", "prod", "max", "min", "avg"};
  if (op == kNoOp) {
    return {};
  }
  return op >= 0 && static_cast<std::size_t>(op) < kNames.size() ? kNames[static_cast<std::size_t>(op)] : "unknown";
}

bool in_all_segments(Function function) noexcept {
  return function == Function::nccl_reduce_scatter || function == Function::nccl_all_gather ||
         function == Function::nccl_all_to_all;
}

/// Asks NCCL for size and rank on the first collective and keeps them. Does not ask for non-blocking communicators,
/// which may not be ready to answer.
std::optional<KnownCommunicator> communicator_of(ncclComm_t comm) {
  std::optional<KnownCommunicator> known = state().communicators.find(comm);
  if (known && known->open && known->blocking && !known->state) {
    CommunicatorState fresh;
    if (GRADWIRE_NCCL_REAL(ncclCommCount)(comm, &fresh.size) == ncclSuccess &&
        GRADWIRE_NCCL_REAL(ncclCommUserRank)(comm, &fresh.rank) == ncclSuccess) {
      known->state = fresh;
      state().communicators.set_state(comm, fresh);
      state().largest.note(fresh);
    }
  }
  return known;
}

// The factor of a scaled sum; null if the operation is none.
const std::optional<Factor>* find_scaled_sum(const KnownCommunicator& comm, int op) {
  const auto found = comm.scaled_sums.find(op);
  return found == comm.scaled_sums.end() ? nullptr : &found->second;
}

bool point_to_point(Function function) noexcept {
  return function == Function::nccl_send || function == Function::nccl_recv;
}

}  // namespace

bool is_captured(cudaStream_t stream) noexcept {
  static const auto ask = reinterpret_cast<decltype(&cuStreamIsCapturing)>(driver_function("cuStreamIsCapturing"));
  if (ask == nullptr) {
    return false;
  }
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = ask(stream, &status);
  // IMPLICIT: this is the legacy stream, and another one is being captured.
  return result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
         (result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE);
}

Described describe(const NcclCall& request) {
  Described described;
  described.comm = communicator_of(request.comm);
  const std::optional<KnownCommunicator>& comm = described.comm;
  const int size = comm && comm->state ? comm->state->size : 0;
  const auto* const scaled = comm ? find_scaled_sum(*comm, request.op) : nullptr;
  const std::uint64_t elements = in_all_segments(request.function) && size > 0
                                     ? times(request.count, static_cast<std::uint64_t>(size))
                                     : request.count;
  described.bytes = times(elements, bytes_of_element(request.datatype));
  described.call = {
      .function = request.function,
      .dtype = dtype_of(request.datatype),
      .reduction = scaled == nullptr ? reduction_of(request.op)
                   : *scaled         ? std::optional(Reduction::sum)
                                     : std::nullopt,
      .count = elements,
      .world_size = size,
      .valid = request.comm != nullptr && (!comm || comm->open) &&
               (request.count == 0 || (request.sendbuff != nullptr && request.recvbuff != nullptr)),
      .known = comm.has_value(),
      .blocking = !comm || comm->blocking,
  };
  described.scaled = scaled != nullptr;
  described.factor = scaled != nullptr ? scaled->value_or(Factor{}) : Factor{};
  described.what = {.function = request.function,
                    .dtype = described.call.dtype,
                    .op = scaled != nullptr ? "scaled sum" : op_name(request.op),
                    .count = elements,
                    .communicator_size = size};
  return described;
}

void count(const drop_in::CallClass& what, const drop_in::CallTotals& totals) {
  if (open_group != nullptr) {
    open_group->calls.push_back({what, totals});
  } else {
    state().ledger.add(what, totals);
  }
}

void count(const Described& described, choice::Reason reason) {
  drop_in::CallClass what = described.what;
  what.reason = reason;
  count(what, drop_in::passed_totals(what.function, 1, described.bytes, what.communicator_size));
}

std::optional<TimedCall> to_be_timed(const drop_in::CallClass& what, std::uint64_t bytes, cudaStream_t stream) {
  if (!state().configuration.observes() || !what.dtype) {
    return std::nullopt;
  }
  TimedCall call{.what = what, .bytes = bytes, .stream = stream};
  if (open_group == nullptr) {
    return call;
  }
  open_group->timed.push_back(std::move(call));
  return std::nullopt;
}

std::optional<TimedCall> observe(const NcclCall& request) noexcept {
  std::optional<TimedCall> timed;
  if (InsideNccl::active()) {
    return timed;
  }
  unseen([&] {
    Described described = describe(request);
    described.call.grouped = open_group != nullptr;
    if (!point_to_point(request.function)) {
      state().latest = request.comm;
      if (described.comm && described.comm->state && described.comm->state->reducer) {
        described.comm->state->reducer->note_other_call();
      }
    }
    choice::Reason reason = choice::decide(described.call, state().settings).reason;
    // This is asked last, since only this question costs a call into the driver.
    if (reason == choice::Reason::device_path && is_captured(request.stream)) {
      described.call.captured = true;
      reason = choice::decide(described.call, state().settings).reason;
    }
    count(described, reason);
    if (reason == choice::Reason::device_path) {
      drop_in::CallClass what = described.what;
      what.reason = reason;
      timed = to_be_timed(what, described.bytes, request.stream);
    }
  });
  return timed;
}

}  // namespace gradwire::nccl_preload
