#include "transport/nccl_messages.hpp"

#include <array>
#include <chrono>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "transport/nccl_types.hpp"
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

// Makes a communicator of the ranks that give the same `color`, in the order of `key`. Its calls are blocking ones,
// which return when they have enqueued, since later work on the stream must come behind it.
ncclComm_t make_child(ncclComm_t comm, int color, int key) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  config.splitShare = 0;  // so that aborting one communicator does not affect the other
  config.commName = "gradwire";
  ncclComm_t child = nullptr;
  finish_call(ncclCommSplit(comm, color, key, &child, &config), comm,
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
  return adopt(make_child(comm, 0, rank));
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
  if (!reason_) {  // a destructor has no one to report an error to
    if (node_comm_ != nullptr) {
      ncclCommDestroy(node_comm_);
    }
    ncclCommDestroy(comm_);
  }
}

template <class Body>
void NcclMessages::in_group(const Body& body) {
  begin_group();
  try {
    body();
  } catch (const Error&) {
    ncclGroupEnd();  // the first error is the one to report
    leave();
    throw;
  }
  end_group();
}

void NcclMessages::connect(std::span<std::byte> scratch, void* stream) {
  if (world_size_ == 1) {
    return;
  }
  in_group([&] {
    for (int distance = 1; distance < world_size_; ++distance) {
      const int to = (rank_ + distance) % world_size_;
      const int from = (rank_ + world_size_ - distance) % world_size_;
      send(scratch.subspan(static_cast<std::size_t>(world_size_), 1), to, stream);
      receive(scratch.subspan(static_cast<std::size_t>(from), 1), from, stream);
    }
  });
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

void NcclMessages::join_node(int node, int place, std::span<std::byte> scratch, void* stream) {
  if (node_comm_ != nullptr) {
    check(ncclCommDestroy(std::exchange(node_comm_, nullptr)), "leaving a node (ncclCommDestroy)");
  }
  enter();
  ncclComm_t made = nullptr;
  try {
    made = make_child(comm_, node, place);
  } catch (const Error&) {
    leave();
    throw_if_aborted();
    throw;
  }
  node_comm_ = made;
  leave();
  check(ncclCommUserRank(made, &place_), "ncclCommUserRank");
  check(ncclCommCount(made, &places_), "ncclCommCount");
  // Sums and gathers of two sizes, since NCCL has several algorithms.
  const auto places = static_cast<std::uint64_t>(places_);
  const std::uint64_t most = scratch.size() / 2 / sizeof(float) / places;  // floats of a part
  for (const std::uint64_t each : {std::uint64_t{1}, most - 1}) {
    auto* from = scratch.data();
    auto* to = scratch.data() + scratch.size() / 2 / sizeof(float) * sizeof(float);
    in_group([&] { sum_in_node(from, to, DType::f32, each, 1, stream); });
    in_group([&] { gather_in_node(scratch.data(), each, stream); });
  }
}

// The elements that are left over have a reduction of their own in the group.
void NcclMessages::sum_in_node(const void* from, void* to, DType dtype, std::uint64_t each, std::uint64_t rest,
                               void* stream) {
  const ncclDataType_t type = nccl_type(dtype);
  const std::string of = " of " + std::to_string(each) + " elements of " + std::string(to_string(dtype));
  call([&] { return ncclReduceScatter(from, to, each, type, ncclSum, node_comm_, static_cast<cudaStream_t>(stream)); },
       "summing inside the node (ncclReduceScatter)" + of);
  if (rest > 0) {
    const std::uint64_t before = static_cast<std::uint64_t>(places_) * each * element_bytes(dtype);
    const bool mine = place_ + 1 == places_;
    auto* behind = mine ? static_cast<std::byte*>(to) + each * element_bytes(dtype) : nullptr;
    call(
        [&] {
          return ncclReduce(static_cast<const std::byte*>(from) + before, behind, rest, type, ncclSum, places_ - 1,
                            node_comm_, static_cast<cudaStream_t>(stream));
        },
        "summing inside the node (ncclReduce) of " + std::to_string(rest) + " elements");
  }
}

void NcclMessages::gather_in_node(void* all, std::uint64_t bytes, void* stream) {
  const std::byte* own = static_cast<std::byte*>(all) + static_cast<std::uint64_t>(place_) * bytes;
  call([&] { return ncclAllGather(own, all, bytes, ncclUint8, node_comm_, static_cast<cudaStream_t>(stream)); },
       "gathering inside the node (ncclAllGather) " + std::to_string(bytes) + " bytes of each rank");
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
  if (node_comm_ != nullptr) {
    call([&] { return ncclCommGetAsyncError(node_comm_, &state); }, "asking for errors (ncclCommGetAsyncError)");
    if (state != ncclSuccess && state != ncclInProgress) {
      check(state, "a collective inside the node failed under way");
    }
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
  if (node_comm_ != nullptr) {
    ncclCommAbort(node_comm_);
  }
  ncclCommAbort(comm_);
}

}  // namespace gradwire::transport
