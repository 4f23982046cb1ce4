#include "transport/nccl_messages.hpp"

#include <array>
#include <chrono>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "transport/operations.hpp"

namespace gradwire::transport {
namespace {

// A call of NCCL that takes longer than this waits for another rank.
constexpr std::chrono::milliseconds kStuck{500};

const char* name_of(ncclResult_t result) {
  constexpr std::array kNames{"ncclSuccess",         "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError",
                              "ncclInvalidArgument", "ncclInvalidUsage",       "ncclRemoteError", "ncclInProgress"};
  const auto index = static_cast<std::size_t>(result);
  return index < kNames.size() ? kNames.at(index) : "an NCCL error of a newer version";
}

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return ncclFloat32;
    case DType::f16: return ncclFloat16;
    case DType::bf16: return ncclBfloat16;
    case DType::f64: return ncclFloat64;
  }
  throw Error(ErrorCode::unsupported, "NCCL has no dtype " + std::to_string(static_cast<int>(dtype)));
}

// Waits for a call to end: the caller's communicator may be nonblocking, and its calls then go on in the background.
void finish_call(ncclResult_t result, ncclComm_t comm, const std::string& doing) {
  constexpr auto kLimit = std::chrono::minutes(5);
  const auto deadline = std::chrono::steady_clock::now() + kLimit;
  while (result == ncclInProgress) {
    if (std::chrono::steady_clock::now() > deadline) {
      throw Error(ErrorCode::timeout, doing + " took more than 5 minutes; do all ranks make this call?",
                  ErrorCause::world);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    nccl_check(ncclCommGetAsyncError(comm, &result), comm, doing);
  }
  nccl_check(result, comm, doing);
}

// Makes a communicator of the same ranks. Its calls are blocking ones, which return when they have enqueued, since
// later work on the stream must come behind it.
ncclComm_t make_child(ncclComm_t comm, int rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  config.splitShare = 0;  // so that aborting one communicator does not affect the other
  config.commName = "gradwire";
  ncclComm_t child = nullptr;
  finish_call(ncclCommSplit(comm, 0, rank, &child, &config), comm,
              "making a communicator for gradwire (ncclCommSplit)");
  return child;
}

}  // namespace

std::string nccl_text(ncclResult_t result, ncclComm_t comm) {
  std::string text = std::string(ncclGetErrorString(result)) + " (" + name_of(result) + ", " +
                     std::to_string(static_cast<int>(result)) + ")";
  const char* last = ncclGetLastError(comm);
  if (last != nullptr && *last != '\0') {
    text += std::string(": ") + last;
  }
  return text;
}

void nccl_check(ncclResult_t result, ncclComm_t comm, const std::string& doing) {
  if (result == ncclSuccess) {
    return;
  }
  const bool callers = result == ncclInvalidArgument || result == ncclInvalidUsage;
  throw Error(callers ? ErrorCode::invalid_argument : ErrorCode::transport,
              doing + ": " + nccl_text(result, comm) + "; NCCL_DEBUG=WARN shows more",
              callers ? ErrorCause::rank : ErrorCause::world);
}

std::unique_ptr<NcclMessages> NcclMessages::over(ncclComm_t comm) {
  if (comm == nullptr) {
    throw Error(ErrorCode::invalid_argument, "the NCCL communicator is null; make it with ncclCommInitRank first");
  }
  int rank = 0;
  nccl_check(ncclCommUserRank(comm, &rank), comm, "asking the communicator for its rank (ncclCommUserRank)");
  return adopt(make_child(comm, rank));
}

std::unique_ptr<NcclMessages> NcclMessages::adopt(ncclComm_t comm) {
  if (comm == nullptr) {
    throw Error(ErrorCode::invalid_argument, "the NCCL communicator is null; make it with ncclCommInitRank first");
  }
  return std::unique_ptr<NcclMessages>(new NcclMessages(comm));
}

NcclMessages::NcclMessages(ncclComm_t comm) : comm_(comm) {
  check(ncclCommUserRank(comm_, &rank_), "ncclCommUserRank");
  check(ncclCommCount(comm_, &world_size_), "ncclCommCount");
  check(ncclCommCuDevice(comm_, &device_), "ncclCommCuDevice");
}

NcclMessages::~NcclMessages() {
  if (!reason_) {
    ncclCommDestroy(comm_);  // a destructor has no one to report an error to
  }
}

void NcclMessages::connect(std::span<std::byte> scratch, void* stream) {
  if (world_size_ == 1) {
    return;
  }
  begin_group();
  try {
    for (int distance = 1; distance < world_size_; ++distance) {
      const int to = (rank_ + distance) % world_size_;
      const int from = (rank_ + world_size_ - distance) % world_size_;
      send(scratch.subspan(static_cast<std::size_t>(world_size_), 1), to, stream);
      receive(scratch.subspan(static_cast<std::size_t>(from), 1), from, stream);
    }
  } catch (const Error&) {
    ncclGroupEnd();  // the first error is the one to report
    leave();
    throw;
  }
  end_group();
  for (const std::uint64_t count : {std::uint64_t{1}, scratch.size() / sizeof(float)}) {
    if (count > 0) {
      all_reduce(scratch.data(), DType::f32, count, stream);
    }
  }
}

void NcclMessages::check(ncclResult_t result, const std::string& doing) const {
  if (result != ncclSuccess) {
    throw_if_aborted();  // the error is then a consequence of the abort
  }
  nccl_check(result, comm_, "rank " + std::to_string(rank_) + " of " + std::to_string(world_size_) + ": " + doing);
}

void NcclMessages::throw_if_aborted() const {
  const MutexLock lock(mutex_);
  throw_reason();
}

void NcclMessages::throw_reason() const {
  if (reason_) {
    throw Error(*reason_);
  }
}

std::string NcclMessages::peer_text(const char* what, std::size_t bytes, int peer) const {
  return std::string(what) + " of " + std::to_string(bytes) + " bytes, rank " + std::to_string(peer);
}

void NcclMessages::enter() {
  const MutexLock lock(mutex_);
  throw_reason();
  ++inside_;
}

void NcclMessages::leave() noexcept {
  const MutexLock lock(mutex_);
  --inside_;
  left_.notify_all();
}

template <class Call>
void NcclMessages::call(Call&& enqueue, const std::string& doing) {
  enter();
  const ncclResult_t result = std::forward<Call>(enqueue)();
  leave();
  check(result, doing);
}

void NcclMessages::begin_group() {
  enter();  // until the group ends
  if (const ncclResult_t result = ncclGroupStart(); result != ncclSuccess) {
    leave();
    check(result, "beginning a group (ncclGroupStart)");
  }
}

void NcclMessages::send(std::span<const std::byte> bytes, int peer, void* stream) {
  call([&] { return ncclSend(bytes.data(), bytes.size(), ncclUint8, peer, comm_, static_cast<cudaStream_t>(stream)); },
       peer_text("send (ncclSend)", bytes.size(), peer));
}

void NcclMessages::receive(std::span<std::byte> bytes, int peer, void* stream) {
  call([&] { return ncclRecv(bytes.data(), bytes.size(), ncclUint8, peer, comm_, static_cast<cudaStream_t>(stream)); },
       peer_text("receive (ncclRecv)", bytes.size(), peer));
}

void NcclMessages::all_reduce(void* values, DType dtype, std::uint64_t count, void* stream) {
  call(
      [&] {
        return ncclAllReduce(values, values, count, nccl_type(dtype), ncclSum, comm_,
                             static_cast<cudaStream_t>(stream));
      },
      "ncclAllReduce of " + std::to_string(count) + " elements of " + std::string(to_string(dtype)));
}

// The group is ended after an abort too: an open one would swallow the thread's next calls.
void NcclMessages::end_group() {
  const ncclResult_t result = ncclGroupEnd();
  leave();
  check(result, "enqueueing a group (ncclGroupEnd)");
}

void NcclMessages::poll() {
  ncclResult_t state = ncclSuccess;
  call([&] { return ncclCommGetAsyncError(comm_, &state); }, "asking for errors (ncclCommGetAsyncError)");
  if (state != ncclSuccess && state != ncclInProgress) {
    check(state, "a collective failed under way");
  }
}

// abort() frees the communicator, so it waits for calls and groups under way. A call that is stuck does not end before
// the abort: NCCL lets another thread abort the communicator, and the call then returns with an error.
void NcclMessages::abort(const Error& error) noexcept {
  {
    const MutexLock lock(mutex_);
    if (reason_) {
      return;
    }
    reason_ = error;
    left_.wait_for(mutex_, kStuck, [this]() REQUIRES(mutex_) { return inside_ == 0; });
  }
  ncclCommAbort(comm_);
}

}  // namespace gradwire::transport
