// The functions of libnccl that the product's messages need, for ranks that are threads of one process. A group is one
// piece of work of its stream: it posts its sends, takes what peers posted, and ends when all of it has been taken.
// Sums add in the order of the ranks.
#include <nccl.h>

#include <cstring>
#include <deque>

#include "tests/support/ptx/queues.hpp"

namespace {

using gradwire::ptx::Device;
using gradwire::ptx::Finding;

struct Sent {
  const void* bytes;
  std::size_t count;
  std::uint32_t agent;
  std::shared_ptr<std::size_t> untaken;  // of the sender's group
};

struct Sum {
  std::vector<void*> values;
  std::vector<std::uint32_t> agents;
  int arrived = 0;
  std::size_t bytes = 0;
  bool done = false;
};

// What the ranks of a communicator share.
struct World {
  int size = 0;
  std::map<std::pair<int, int>, std::deque<Sent>> posted;  // by sender and receiver
  std::map<std::uint64_t, Sum> sums;                       // by their number
};

}  // namespace

struct ncclComm {
  std::shared_ptr<World> world;
  std::uint64_t key = 0;
  int rank = 0;
  std::uint64_t sums = 0;
  std::uint64_t children = 0;
};

namespace {

struct Message {
  ncclComm_t comm;
  cudaStream_t stream;
  int peer;
  void* bytes;
  std::size_t count;
  bool sends;
  bool taken = false;
};

thread_local int t_depth = 0;
thread_local std::vector<Message> t_group;

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

std::size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    default: return 8;
  }
}

// Does what can be done of a group; returns whether all of it has been.
bool run_group(Device& device, std::vector<Message>& group, std::uint32_t agent,
               std::shared_ptr<std::size_t>& untaken) {
  if (untaken == nullptr) {
    untaken = std::make_shared<std::size_t>(0);
    for (const Message& message : group) {
      if (message.sends) {
        ++*untaken;
        message.comm->world->posted[{message.comm->rank, message.peer}].push_back(
            {message.bytes, message.count, agent, untaken});
      }
    }
  }
  bool all = true;
  for (Message& message : group) {
    if (message.sends || message.taken) {
      continue;
    }
    auto& posted = message.comm->world->posted[{message.peer, message.comm->rank}];
    if (posted.empty()) {
      all = false;
      continue;
    }
    const Sent sent = posted.front();
    posted.pop_front();
    if (sent.count != message.count) {
      throw Finding("ncclRecv of " + std::to_string(message.count) + " bytes meets ncclSend of " +
                    std::to_string(sent.count));
    }
    device.memory.note_copy(sent.bytes, false, sent.count, sent.agent, device.order, "a send");
    device.memory.note_copy(message.bytes, true, sent.count, agent, device.order, "a receive");
    std::memmove(message.bytes, sent.bytes, sent.count);
    device.memory.copy_state(message.bytes, sent.bytes, sent.count);
    --*sent.untaken;
    message.taken = true;
  }
  return all && *untaken == 0;
}

template <class T>
void add_all(const Sum& sum) {
  const std::size_t count = sum.bytes / sizeof(T);
  for (std::size_t i = 0; i < count; ++i) {
    T total = static_cast<const T*>(sum.values[0])[i];
    for (std::size_t rank = 1; rank < sum.values.size(); ++rank) {
      total += static_cast<const T*>(sum.values[rank])[i];
    }
    for (void* values : sum.values) {
      static_cast<T*>(values)[i] = total;
    }
  }
}

bool run_sum(Device& device, ncclComm_t comm, void* values, std::size_t bytes, ncclDataType_t type, std::uint32_t agent,
             std::uint64_t& number) {
  World& world = *comm->world;
  const int rank = comm->rank;
  const bool arrives = number == 0;
  number = arrives ? ++comm->sums : number;  // as it begins, since a graph may be replayed
  Sum& sum = world.sums[number];
  if (arrives) {
    sum.values.resize(static_cast<std::size_t>(world.size));
    sum.agents.resize(static_cast<std::size_t>(world.size));
    sum.values[static_cast<std::size_t>(rank)] = values;
    sum.agents[static_cast<std::size_t>(rank)] = agent;
    if (sum.arrived++ != 0 && sum.bytes != bytes) {
      throw Finding("ncclAllReduce of " + std::to_string(bytes) + " bytes meets one of " + std::to_string(sum.bytes));
    }
    sum.bytes = bytes;
    if (sum.arrived == world.size) {
      for (std::size_t i = 0; i < sum.values.size(); ++i) {
        device.memory.note_copy(sum.values[i], true, bytes, sum.agents[i], device.order, "an all-reduce");
      }
      type == ncclFloat32 ? add_all<float>(sum) : add_all<double>(sum);
      sum.done = true;
    }
  }
  return sum.done;
}

ncclResult_t add_message(const Message& message) {
  t_group.push_back(message);
  return t_depth > 0 ? ncclSuccess : ncclGroupEnd();
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
// All ranks pass the same color; ranks keep their order.
API ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* child, ncclConfig_t*) {
  if (color != 0 || key != comm->rank) {
    return ncclInvalidArgument;
  }
  *child = make(comm->key + ++comm->children, comm->world->size, comm->rank);
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
  std::vector<Message> group;
  group.swap(t_group);
  if (group.empty()) {
    return ncclSuccess;
  }
  return guarded([&](Device& device) {
    for (const Message& message : group) {
      if (message.stream != group[0].stream) {
        throw Finding("a group of NCCL on two streams");
      }
    }
    device.enqueue(device.stream(group[0].stream), "a group of NCCL",
                   [group, untaken = std::shared_ptr<std::size_t>()](Device& d, std::uint32_t agent) mutable {
                     return run_group(d, group, agent, untaken);
                   });
  });
}
API ncclResult_t ncclSend(const void* bytes, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                          cudaStream_t stream) {
  return add_message({comm, stream, peer, const_cast<void*>(bytes), count * bytes_of(type), true});
}
API ncclResult_t ncclRecv(void* bytes, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                          cudaStream_t stream) {
  return add_message({comm, stream, peer, bytes, count * bytes_of(type), false});
}
API ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  return guarded([&](Device& device) {
    if (from != to || operation != ncclSum || (type != ncclFloat32 && type != ncclFloat64)) {
      throw Finding("unknown call: ncclAllReduce that is no sum of f32 or f64 in place");
    }
    device.enqueue(device.stream(stream), "an all-reduce of NCCL",
                   [comm, to, count, type, number = std::uint64_t{0}](Device& d, std::uint32_t agent) mutable {
                     return run_sum(d, comm, to, count * bytes_of(type), type, agent, number);
                   });
  });
}
// Sessions link these for tiers, which no program under the interpreter has.
API ncclResult_t ncclReduceScatter(const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                                   cudaStream_t) {
  return guarded([](Device&) { throw Finding("unknown call: ncclReduceScatter"); });
}
API ncclResult_t ncclReduce(const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t,
                            cudaStream_t) {
  return guarded([](Device&) { throw Finding("unknown call: ncclReduce"); });
}
API ncclResult_t ncclAllGather(const void*, void*, std::size_t, ncclDataType_t, ncclComm_t, cudaStream_t) {
  return guarded([](Device&) { throw Finding("unknown call: ncclAllGather"); });
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
