// Collective and point-to-point calls: each is decided on, counted and, until there is a device path, handed on as it
// is.
#include <cuda.h>
#include <dlfcn.h>

#include <array>
#include <limits>
#include <string>

#include "plugins/nccl_preload/group.hpp"
#include "plugins/nccl_preload/real.hpp"
#include "plugins/nccl_preload/state.hpp"

GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclCommCount, (ncclComm_t, int*))
GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclCommUserRank, (ncclComm_t, int*))

namespace gradwire::nccl_preload {
namespace {

using shim::Function;

constexpr int kNoOp = -1;

/// A call as its caller wrote it.
struct Request {
  Function function;
  const void* sendbuff;
  const void* recvbuff;
  std::size_t count;
  ncclDataType_t datatype;
  int op;  // ncclRedOp_t, or kNoOp where the function takes none
  ncclComm_t comm;
  cudaStream_t stream;
};

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

/// The driver's own answer, from whichever libcuda the process has loaded. What cannot be asked counts as not captured.
bool is_captured(cudaStream_t stream) noexcept {
  static const auto ask = [] {
    void* found = dlsym(RTLD_DEFAULT, "cuStreamIsCapturing");
    if (found == nullptr) {
      if (void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD); driver != nullptr) {
        found = dlsym(driver, "cuStreamIsCapturing");
      }
    }
    return reinterpret_cast<decltype(&cuStreamIsCapturing)>(found);
  }();
  if (ask == nullptr) {
    return false;
  }
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = ask(stream, &status);
  // IMPLICIT: the legacy stream, while another one is being captured.
  return result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
         (result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE);
}

/// Asks NCCL for size and rank on the first collective; later collectives find them. Not with non-blocking
/// communicators, which may not be ready to answer.
std::optional<Communicator> communicator_of(ncclComm_t comm) {
  std::optional<Communicator> known = state().communicators.find(comm);
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

shim::Reason reason_for(shim::Call call, cudaStream_t stream) {
  // Asked last: it is the one question that costs a call into the driver.
  shim::Reason reason = shim::decide(call, state().settings).reason;
  if (reason == shim::Reason::device_path && is_captured(stream)) {
    call.captured = true;
    reason = shim::decide(call, state().settings).reason;
  }
  return reason;
}

void count(const Request& request) {
  const std::optional<Communicator> comm = communicator_of(request.comm);
  const int size = comm && comm->state ? comm->state->size : 0;
  const bool scaled_sum = comm && comm->scaled_sums.contains(request.op);
  const std::uint64_t elements = in_all_segments(request.function) && size > 0
                                     ? times(request.count, static_cast<std::uint64_t>(size))
                                     : request.count;
  const std::uint64_t bytes = times(elements, bytes_of_element(request.datatype));

  const shim::Call call{
      .function = request.function,
      .dtype = dtype_of(request.datatype),
      .reduction = scaled_sum ? std::nullopt : reduction_of(request.op),
      .count = elements,
      .world_size = size,
      .valid = request.comm != nullptr && (!comm || comm->open) &&
               (request.count == 0 || (request.sendbuff != nullptr && request.recvbuff != nullptr)),
      .known = comm.has_value(),
      .blocking = !comm || comm->blocking,
      .grouped = open_group != nullptr,
  };
  const Entry seen{.call = {.function = request.function,
                            .dtype = call.dtype,
                            .op = scaled_sum ? "scaled sum" : op_name(request.op),
                            .count = elements,
                            .communicator_size = size,
                            .reason = reason_for(call, request.stream)},
                   .totals = shim::passed_totals(request.function, 1, bytes, size)};
  if (open_group != nullptr) {
    open_group->calls.push_back(seen);
  } else {
    state().ledger.add(seen.call, seen.totals);
  }
}

void observe(const Request& request) noexcept {
  if (!InsideNccl::active()) {
    unseen([&] { count(request); });
  }
}

}  // namespace
}  // namespace gradwire::nccl_preload

// A function that is decided on: its parameters as in nccl.h, and the same as a Request. gradwire_X is what
// gradwire/replace/nccl.h calls.
#define COLLECTIVE(name, parameters, arguments, ...)                                        \
  GRADWIRE_NCCL_DECLARE(ncclResult_t, name, parameters)                                     \
  extern "C" ncclResult_t name parameters {                                                 \
    gradwire::nccl_preload::observe({gradwire::shim::Function::__VA_ARGS__, comm, stream}); \
    return GRADWIRE_NCCL_REAL(name) arguments;                                              \
  }                                                                                         \
  GRADWIRE_NCCL_REPLACEMENT(name)

using gradwire::nccl_preload::kNoOp;

COLLECTIVE(ncclAllReduce,
           (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
            ncclComm_t comm, cudaStream_t stream),
           (sendbuff, recvbuff, count, datatype, op, comm, stream),  //
           nccl_all_reduce, sendbuff, recvbuff, count, datatype, op)
COLLECTIVE(ncclReduceScatter,
           (const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op,
            ncclComm_t comm, cudaStream_t stream),
           (sendbuff, recvbuff, recvcount, datatype, op, comm, stream),  //
           nccl_reduce_scatter, sendbuff, recvbuff, recvcount, datatype, op)
COLLECTIVE(ncclReduce,
           (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root,
            ncclComm_t comm, cudaStream_t stream),
           (sendbuff, recvbuff, count, datatype, op, root, comm, stream),  //
           nccl_reduce, sendbuff, recvbuff, count, datatype, op)
COLLECTIVE(ncclAllGather,
           (const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype, ncclComm_t comm,
            cudaStream_t stream),
           (sendbuff, recvbuff, sendcount, datatype, comm, stream),  //
           nccl_all_gather, sendbuff, recvbuff, sendcount, datatype, kNoOp)
COLLECTIVE(ncclBroadcast,
           (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
            cudaStream_t stream),
           (sendbuff, recvbuff, count, datatype, root, comm, stream),  //
           nccl_broadcast, sendbuff, recvbuff, count, datatype, kNoOp)
COLLECTIVE(ncclBcast,
           (void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream),
           (buff, count, datatype, root, comm, stream),  //
           nccl_broadcast, buff, buff, count, datatype, kNoOp)
COLLECTIVE(ncclAlltoAll,
           (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
            cudaStream_t stream),
           (sendbuff, recvbuff, count, datatype, comm, stream),  //
           nccl_all_to_all, sendbuff, recvbuff, count, datatype, kNoOp)
COLLECTIVE(ncclGather,
           (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
            cudaStream_t stream),
           (sendbuff, recvbuff, count, datatype, root, comm, stream),  //
           nccl_gather, sendbuff, recvbuff, count, datatype, kNoOp)
COLLECTIVE(ncclScatter,
           (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
            cudaStream_t stream),
           (sendbuff, recvbuff, count, datatype, root, comm, stream),  //
           nccl_scatter, sendbuff, recvbuff, count, datatype, kNoOp)
COLLECTIVE(ncclSend,
           (const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
            cudaStream_t stream),
           (sendbuff, count, datatype, peer, comm, stream),  //
           nccl_send, sendbuff, sendbuff, count, datatype, kNoOp)
COLLECTIVE(ncclRecv,
           (void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream),
           (recvbuff, count, datatype, peer, comm, stream),  //
           nccl_recv, recvbuff, recvbuff, count, datatype, kNoOp)
