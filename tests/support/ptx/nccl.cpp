// The functions of libnccl that the product's messages need, for ranks that are threads of one process.
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "tests/support/ptx/nccl_group.hpp"

namespace {

using namespace gradwire::ptx;

thread_local int t_depth = 0;
thread_local Group t_group;

std::shared_ptr<World> world_of(std::uint64_t key, int size) {
  static auto* const worlds = new std::map<std::uint64_t, std::shared_ptr<World>>;
  const std::lock_guard lock(Device::instance().mutex);
  auto& world = (*worlds)[key];
  if (world == nullptr) {
    world = std::make_shared<World>();
    world->size = size;
  }
  return world;
}

template <class Body>
ncclResult_t guarded(Body&& body) {
  return gradwire::ptx::guarded_call(ncclUnhandledCudaError, [&](Device& device) {
    body(device);
    return ncclSuccess;
  });
}

// Every call is within a group, if only its own.
template <class T>
ncclResult_t add_to_group(std::vector<T> Group::*list, const T& call) {
  (t_group.*list).push_back(call);
  t_group.streams.push_back(call.stream);
  return t_depth > 0 ? ncclSuccess : ncclGroupEnd();
}

ncclResult_t add_collective(const Collective& call, ncclRedOp_t operation) {
  if (operation != ncclSum || (call.kind != Kind::gather && call.type != ncclFloat32 && call.type != ncclFloat64)) {
    return guarded([](Device&) { throw Finding("unknown call: a reduction of NCCL that is no sum of f32 or f64"); });
  }
  return add_to_group(&Group::collectives, call);
}

ncclComm_t make(std::uint64_t key, int size, int rank) {
  auto* const comm = new ncclComm;
  comm->world = world_of(key, size);
  comm->key = key;
  comm->rank = rank;
  return comm;
}

}  // namespace

// NVIDIA's names are not repeated.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)
#define API extern "C" __attribute__((visibility("default")))

API ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
API ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<std::uint64_t> next{1};
  *id = {};
  const std::uint64_t key = next++ << 32;
  std::memcpy(id->internal, &key, sizeof key);
  return ncclSuccess;
}
API ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  std::uint64_t key = 0;
  std::memcpy(&key, id.internal, sizeof key);
  *comm = make(key, size, rank);
  return ncclSuccess;
}
// Every rank calls it, on a thread of its own, and waits for the others.
API ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* child, ncclConfig_t*) {
  const std::uint64_t number = ++comm->splits;
  const int size = comm->world->size;
  const ncclResult_t result = guarded([&](Device& device) {
    Split& split = comm->world->splits[number];
    split.asked.resize(static_cast<std::size_t>(size));
    split.asked[static_cast<std::size_t>(comm->rank)] = {color, key};
    ++split.arrived;
    device.expect_others();
    device.run_until([&] { return split.arrived == size; });
  });
  const std::lock_guard lock(Device::instance().mutex);
  if (result != ncclSuccess || Device::instance().failed()) {
    return ncclUnhandledCudaError;
  }
  std::vector<std::pair<int, int>> members;  // key, rank
  for (int rank = 0; rank < size; ++rank) {
    const auto& [other, place] = comm->world->splits[number].asked[static_cast<std::size_t>(rank)];
    if (other == color) {
      members.emplace_back(place, rank);
    }
  }
  std::sort(members.begin(), members.end());
  const auto own = std::find(members.begin(), members.end(), std::pair(key, comm->rank));
  constexpr std::uint64_t kFactor = 1'000'003;
  const std::uint64_t made = (comm->key * kFactor + number) * kFactor + static_cast<std::uint64_t>(color) + 1;
  *child = make(made, static_cast<int>(members.size()), static_cast<int>(own - members.begin()));
  return ncclSuccess;
}
API ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
API ncclResult_t ncclCommAbort(ncclComm_t) { return ncclSuccess; }
API ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
API ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  *count = comm->world->size;
  return ncclSuccess;
}
API ncclResult_t ncclCommCuDevice(ncclComm_t /*comm*/, int* device) {
  *device = 0;
  return ncclSuccess;
}
API ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* state) {
  *state = Device::instance().failed() ? ncclUnhandledCudaError : ncclSuccess;
  return ncclSuccess;
}
API const char* ncclGetErrorString(ncclResult_t) { return "an error of the PTX interpreter's NCCL"; }
API const char* ncclGetLastError(ncclComm_t) { return ""; }

API ncclResult_t ncclGroupStart() {
  ++t_depth;
  return ncclSuccess;
}
API ncclResult_t ncclGroupEnd() {
  if (t_depth > 0 && --t_depth > 0) {
    return ncclSuccess;
  }
  Group group;
  std::swap(group, t_group);
  if (group.streams.empty()) {
    return ncclSuccess;
  }
  return guarded([&](Device& device) {
    const cudaStream_t stream = group.streams[0];
    if (std::any_of(group.streams.begin(), group.streams.end(), [&](cudaStream_t s) { return s != stream; })) {
      throw Finding("a group of NCCL on two streams");
    }
    device.enqueue(device.stream(stream), "a group of NCCL",
                   [group, untaken = std::shared_ptr<std::size_t>()](Device& d, std::uint32_t agent) mutable {
                     return run_group(d, group, agent, untaken);
                   });
  });
}
API ncclResult_t ncclSend(const void* bytes, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                          cudaStream_t stream) {
  return add_to_group(&Group::messages, {comm, stream, peer, const_cast<void*>(bytes), count * bytes_of(type), true});
}
API ncclResult_t ncclRecv(void* bytes, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                          cudaStream_t stream) {
  return add_to_group(&Group::messages, {comm, stream, peer, bytes, count * bytes_of(type), false});
}
API ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  return add_collective({comm, stream, Kind::sum, from, to, count, type}, operation);
}
API ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                                   ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  return add_collective({comm, stream, Kind::sum_parts, from, to, count, type}, operation);
}
API ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                            int root, ncclComm_t comm, cudaStream_t stream) {
  return add_collective({comm, stream, Kind::sum_at_root, from, to, count, type, root}, operation);
}
API ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                               cudaStream_t stream) {
  return add_collective({comm, stream, Kind::gather, from, to, count, type}, ncclSum);
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
