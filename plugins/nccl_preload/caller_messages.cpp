#include "plugins/nccl_preload/caller_messages.hpp"

#include <string>

#include "plugins/nccl_preload/real.hpp"
#include "transport/nccl_types.hpp"

GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclCommCount, (ncclComm_t, int*))
GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclCommCuDevice, (ncclComm_t, int*))
GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t, ncclResult_t*))
GRADWIRE_NCCL_DECLARE(const char*, ncclGetErrorString, (ncclResult_t))
GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclGroupStart, ())
GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclGroupEnd, ())
GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclSend, (const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))
GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclRecv, (void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))
GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclAllGather,
                      (const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t))
GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclAllReduce,
                      (const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t))
GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclReduce,
                      (const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t, cudaStream_t))
GRADWIRE_NCCL_DECLARE(ncclResult_t, ncclReduceScatter,
                      (const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t))

namespace gradwire::nccl_preload {
namespace {

// NCCL does not say whose fault a failure is. Arguments are right here, so the world is taken for the cause.
void check(ncclResult_t result, const std::string& doing) {
  if (result != ncclSuccess) {
    throw Error(ErrorCode::transport,
                doing + ": " + GRADWIRE_NCCL_REAL(ncclGetErrorString)(result) + " (" +
                    std::to_string(static_cast<int>(result)) + "); NCCL_DEBUG=WARN shows more",
                ErrorCause::world);
  }
}

}  // namespace

int CallerMessages::device() const {
  int device = 0;
  check(GRADWIRE_NCCL_REAL(ncclCommCuDevice)(comm_, &device), "ncclCommCuDevice");
  return device;
}

void CallerMessages::begin_group() {
  ncclComm_t child = child_->enter();
  sending_ = child != nullptr ? child : comm_;
  if (const ncclResult_t result = GRADWIRE_NCCL_REAL(ncclGroupStart)(); result != ncclSuccess) {
    child_->leave();
    check(result, "ncclGroupStart");
  }
}

void CallerMessages::end_group() {
  const ncclResult_t result = GRADWIRE_NCCL_REAL(ncclGroupEnd)();
  child_->leave();
  check(result, "ncclGroupEnd");
}

void CallerMessages::send(std::span<const std::byte> bytes, int peer, void* stream) {
  const ncclResult_t result = GRADWIRE_NCCL_REAL(ncclSend)(bytes.data(), bytes.size(), ncclUint8, peer, sending_,
                                                           static_cast<cudaStream_t>(stream));
  if (result != ncclSuccess) {
    check(result, "ncclSend of " + std::to_string(bytes.size()) + " bytes to rank " + std::to_string(peer));
  }
}

void CallerMessages::receive(std::span<std::byte> bytes, int peer, void* stream) {
  const ncclResult_t result = GRADWIRE_NCCL_REAL(ncclRecv)(bytes.data(), bytes.size(), ncclUint8, peer, sending_,
                                                           static_cast<cudaStream_t>(stream));
  if (result != ncclSuccess) {
    check(result, "ncclRecv of " + std::to_string(bytes.size()) + " bytes from rank " + std::to_string(peer));
  }
}

void CallerMessages::all_reduce(void* /*values*/, DType /*dtype*/, std::uint64_t /*count*/, void* /*stream*/) {
  throw Error(ErrorCode::internal, "exact sums are passed to NCCL as the job wrote them, never made here");
}

void CallerMessages::join_node(int /*node*/, int place, std::span<std::byte> /*scratch*/, void* /*stream*/) {
  place_ = place;
  check(GRADWIRE_NCCL_REAL(ncclCommCount)(child_->node(), &places_), "ncclCommCount");
}

// The elements that are left over have a reduction of their own in the group.
void CallerMessages::sum_in_node(const void* from, void* to, DType dtype, std::uint64_t each, std::uint64_t rest,
                                 void* stream) {
  const ncclDataType_t type = transport::nccl_type(dtype);
  check(GRADWIRE_NCCL_REAL(ncclReduceScatter)(from, to, each, type, ncclSum, child_->node(),
                                              static_cast<cudaStream_t>(stream)),
        "ncclReduceScatter inside the node, of " + std::to_string(each) + " elements");
  if (rest > 0) {
    const std::uint64_t before = static_cast<std::uint64_t>(places_) * each * element_bytes(dtype);
    auto* behind = place_ + 1 == places_ ? static_cast<std::byte*>(to) + each * element_bytes(dtype) : nullptr;
    check(GRADWIRE_NCCL_REAL(ncclReduce)(static_cast<const std::byte*>(from) + before, behind, rest, type, ncclSum,
                                         places_ - 1, child_->node(), static_cast<cudaStream_t>(stream)),
          "ncclReduce inside the node, of " + std::to_string(rest) + " elements");
  }
}

void CallerMessages::gather_in_node(void* all, std::uint64_t bytes, void* stream) {
  const std::byte* own = static_cast<std::byte*>(all) + static_cast<std::uint64_t>(place_) * bytes;
  check(
      GRADWIRE_NCCL_REAL(ncclAllGather)(own, all, bytes, ncclUint8, child_->node(), static_cast<cudaStream_t>(stream)),
      "ncclAllGather inside the node, of " + std::to_string(bytes) + " bytes");
}

void CallerMessages::find_largest(std::uint32_t* words, std::size_t count, void* stream) {
  check(GRADWIRE_NCCL_REAL(ncclAllReduce)(words, words, count, ncclUint32, ncclMax, comm_,
                                          static_cast<cudaStream_t>(stream)),
        "ncclAllReduce of " + std::to_string(count) + " words");
}

void CallerMessages::gather(std::byte* all, std::size_t each, void* stream) {
  const std::byte* own = all + static_cast<std::size_t>(rank_) * each;
  check(GRADWIRE_NCCL_REAL(ncclAllGather)(own, all, each, ncclUint8, comm_, static_cast<cudaStream_t>(stream)),
        "ncclAllGather of " + std::to_string(each) + " bytes");
}

void CallerMessages::poll() {
  if (*ended_) {
    throw Error(ErrorCode::aborted, "the job ended the communicator");
  }
  ncclComm_t child = child_->enter();
  ncclResult_t state = ncclSuccess;
  ncclResult_t asked = GRADWIRE_NCCL_REAL(ncclCommGetAsyncError)(comm_, &state);
  if (child != nullptr && asked == ncclSuccess && (state == ncclSuccess || state == ncclInProgress)) {
    asked = GRADWIRE_NCCL_REAL(ncclCommGetAsyncError)(child, &state);
    if (ncclComm_t node = child_->node(); node != nullptr && asked == ncclSuccess && state == ncclSuccess) {
      asked = GRADWIRE_NCCL_REAL(ncclCommGetAsyncError)(node, &state);
    }
  }
  child_->leave();
  check(asked, "ncclCommGetAsyncError");
  if (state != ncclInProgress) {
    check(state, "a call on the communicator failed under way");
  }
}

}  // namespace gradwire::nccl_preload
