// A fake library that behaves like the real one: ncclX is a weak name of pncclX, ncclBcast calls the public
// ncclBroadcast, ncclCommSplit in a group writes its child at the end, and a freed communicator's address is used
// again.
#include "nccl_preload/fake_nccl.hpp"

#include <nccl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

struct ncclComm {
  int ranks = 0, rank = 0;
  bool blocking = true;
};

namespace {

std::mutex mutex;
std::map<std::string, long> calls;  // guarded by mutex
std::vector<std::string> order;     // guarded by mutex
std::set<ncclComm_t> alive;         // guarded by mutex
std::vector<ncclComm_t> freed;      // guarded by mutex
bool refuse_end = false;            // guarded by mutex
bool refuse_send = false;           // guarded by mutex
bool refuse_split = false;          // guarded by mutex
// Says by number which calls have to end before another begins. The mutex guards it.
using Front = std::vector<bool>;
std::map<void*, Front> streams;
std::map<ncclComm_t, Front> communicators;
std::vector<Front> events;
std::vector<std::pair<std::string, Front>> made;  // the calls
std::size_t shown = 0;                            // calls before the last time that the order was printed
thread_local int depth = 0;
thread_local std::vector<std::pair<ncclComm_t*, ncclComm>> unborn;

void note(const char* name) {
  const std::lock_guard lock(mutex);
  ++calls[name];
  order.emplace_back(name);
}

ncclComm_t make(const ncclComm& as) {
  const std::lock_guard lock(mutex);
  ncclComm_t comm = nullptr;
  if (freed.empty()) {
    comm = new ncclComm;
  } else {
    comm = freed.back();
    freed.pop_back();
  }
  *comm = as;
  communicators.erase(comm);
  alive.insert(comm);
  return comm;
}

void join(Front& front, const Front& other) {
  front.resize(std::max(front.size(), other.size()));
  for (std::size_t i = 0; i < other.size(); ++i) {
    front[i] = front[i] || other[i];
  }
}

// Adds a call behind those before and returns what later ones come behind; the caller holds the lock.
const Front& add(const char* name, Front behind, void* stream) {
  made.emplace_back(name, behind);
  behind.resize(made.size());
  behind.back() = true;
  return streams[stream] = std::move(behind);
}

ncclResult_t enqueue(const char* name, ncclComm_t comm, void* stream) {
  const std::lock_guard lock(mutex);
  if (!alive.contains(comm)) {
    return ncclInvalidArgument;
  }
  Front behind = streams[stream];
  join(behind, communicators[comm]);
  communicators[comm] = add(name, std::move(behind), stream);
  return ncclSuccess;
}

// Distinguishes calls of one function.
void note_count(std::size_t count) {
  const std::lock_guard lock(mutex);
  order.back() += ":" + std::to_string(count);
}

ncclResult_t check(ncclComm_t comm) {
  const std::lock_guard lock(mutex);
  return alive.contains(comm) ? ncclSuccess : ncclInvalidArgument;
}

bool fails_once(bool& fails) {
  const std::lock_guard lock(mutex);
  return std::exchange(fails, false);
}

ncclResult_t end(ncclComm_t comm) {
  const std::lock_guard lock(mutex);
  if (std::exchange(refuse_end, false) || alive.erase(comm) == 0) {
    return ncclInvalidArgument;
  }
  freed.push_back(comm);
  return ncclSuccess;
}

ncclResult_t init(ncclComm_t* comm, int ranks, int rank, const ncclConfig_t* config) {
  if (comm == nullptr || rank < 0 || rank >= ranks) {
    return ncclInvalidArgument;
  }
  const bool blocking = (config == nullptr || config->blocking != 0) && std::getenv("NCCL_COMM_BLOCKING") == nullptr;
  *comm = make({.ranks = ranks, .rank = rank, .blocking = blocking});
  return blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t child(ncclComm_t parent, ncclComm_t* where, const ncclConfig_t* config) {
  if (where == nullptr || check(parent) != ncclSuccess) {
    return ncclInvalidArgument;
  }
  ncclComm as = *parent;
  as.blocking = config == nullptr ? parent->blocking : config->blocking != 0;
  *where = nullptr;
  if (depth > 0) {
    unborn.emplace_back(where, as);
    return ncclSuccess;
  }
  *where = make(as);
  return ncclSuccess;  // also for a quick nonblocking call
}

ncclResult_t group_end() {
  if (depth == 0) {
    return ncclInvalidUsage;
  }
  if (--depth == 0) {
    for (const auto& [where, as] : std::exchange(unborn, {})) {
      *where = make(as);
    }
  }
  return ncclSuccess;
}

}  // namespace

long fake_nccl_calls(const char* name) {
  const std::lock_guard lock(mutex);
  return calls[name];
}

void fake_nccl_print_order() {
  const std::lock_guard lock(mutex);
  for (const std::string& call : order) {
    std::printf("%s ", call.c_str());
  }
  std::printf("\n");
  order.clear();
  shown = made.size();
}

int fake_nccl_record(void* stream) {
  const std::lock_guard lock(mutex);
  events.push_back(streams[stream]);
  return static_cast<int>(events.size() - 1);
}

void fake_nccl_wait(void* stream, int event) {
  const std::lock_guard lock(mutex);
  join(streams[stream], events.at(static_cast<std::size_t>(event)));
}

void fake_nccl_launch(const char* kernel, void* stream) {
  const std::lock_guard lock(mutex);
  add(kernel, streams[stream], stream);
}

int fake_nccl_behind(const char* later, const char* earlier) {
  const std::lock_guard lock(mutex);
  const auto latest = std::find_if(made.rbegin(), made.rend(), [=](const auto& call) { return call.first == later; });
  if (latest == made.rend()) {
    return -1;
  }
  int calls = 0;
  for (std::size_t number = shown; number < latest->second.size(); ++number) {
    calls += latest->second[number] && made[number].first == earlier ? 1 : 0;
  }
  return calls;
}

int fake_nccl_alive() {
  const std::lock_guard lock(mutex);
  return static_cast<int>(alive.size());
}

void fake_nccl_refuse_end() {
  const std::lock_guard lock(mutex);
  refuse_end = true;
}

void fake_nccl_refuse_split() {
  const std::lock_guard lock(mutex);
  refuse_split = true;
}

void fake_nccl_refuse_send() {
  const std::lock_guard lock(mutex);
  refuse_send = true;
}

#define FAKE(name, parameters, ...)            \
  extern "C" ncclResult_t p##name parameters { \
    note(#name);                               \
    __VA_ARGS__                                \
  }                                            \
  extern "C" __attribute__((weak, alias("p" #name))) decltype(p##name) name;

FAKE(ncclGetVersion, (int* version), {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
})
FAKE(ncclCommInitRank, (ncclComm_t * comm, int ranks, ncclUniqueId, int rank),
     { return init(comm, ranks, rank, nullptr); })
FAKE(ncclCommInitRankConfig, (ncclComm_t * comm, int ranks, ncclUniqueId, int rank, ncclConfig_t* config),
     { return init(comm, ranks, rank, config); })
FAKE(ncclCommInitRankScalable, (ncclComm_t * comm, int ranks, int rank, int, ncclUniqueId*, ncclConfig_t* config),
     { return init(comm, ranks, rank, config); })
FAKE(ncclCommInitAll, (ncclComm_t * comm, int ndev, const int*), {
  for (int i = 0; i < ndev; ++i) {
    init(comm + i, ndev, i, nullptr);
  }
  return ncclSuccess;
})
FAKE(ncclCommSplit, (ncclComm_t comm, int, int, ncclComm_t* newcomm, ncclConfig_t* config),
     { return fails_once(refuse_split) ? ncclUnhandledCudaError : child(comm, newcomm, config); })
FAKE(ncclGetUniqueId, (ncclUniqueId * id), {
  std::memset(id, 1, sizeof *id);
  return ncclSuccess;
})
FAKE(ncclCommShrink, (ncclComm_t comm, int*, int, ncclComm_t* newcomm, ncclConfig_t* config, int),
     { return child(comm, newcomm, config); })
FAKE(ncclCommFinalize, (ncclComm_t comm), { return check(comm); })
FAKE(ncclCommRevoke, (ncclComm_t comm, int), { return check(comm); })
FAKE(ncclCommDestroy, (ncclComm_t comm), { return end(comm); })
FAKE(ncclCommAbort, (ncclComm_t comm), { return end(comm); })
FAKE(ncclCommCount, (ncclComm_t comm, int* count), {
  *count = comm->ranks;
  return check(comm);
})
FAKE(ncclCommUserRank, (ncclComm_t comm, int* rank), {
  *rank = comm->rank;
  return check(comm);
})
FAKE(ncclRedOpCreatePreMulSum, (ncclRedOp_t * op, void*, ncclDataType_t, ncclScalarResidence_t, ncclComm_t comm), {
  *op = static_cast<ncclRedOp_t>(ncclNumOps + 3);
  return check(comm);
})
FAKE(ncclRedOpDestroy, (ncclRedOp_t, ncclComm_t comm), { return check(comm); })
FAKE(ncclGroupStart, (), {
  ++depth;
  return ncclSuccess;
})
FAKE(ncclGroupEnd, (), { return group_end(); })
FAKE(ncclGroupSimulateEnd, (ncclSimInfo_t*), { return group_end(); })

FAKE(ncclAllReduce,
     (const void*, void*, size_t count, ncclDataType_t, ncclRedOp_t, ncclComm_t comm, cudaStream_t stream), {
       note_count(count);
       return enqueue("ncclAllReduce", comm, stream);
     })
FAKE(ncclReduceScatter, (const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t comm, cudaStream_t stream),
     { return enqueue("ncclReduceScatter", comm, stream); })
FAKE(ncclReduce, (const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t comm, cudaStream_t stream),
     { return enqueue("ncclReduce", comm, stream); })
FAKE(ncclAllGather, (const void*, void*, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream), {
  if (type == ncclUint8) {  // the ranks' exchange; the job has no bytes
    note_count(count);
  }
  return enqueue(type == ncclUint8 ? "exchange" : "ncclAllGather", comm, stream);
})
FAKE(ncclBroadcast, (const void*, void*, size_t, ncclDataType_t, int, ncclComm_t comm, cudaStream_t stream),
     { return enqueue("ncclBroadcast", comm, stream); })
FAKE(ncclBcast, (void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream),
     { return ncclBroadcast(buffer, buffer, count, type, root, comm, stream); })
FAKE(ncclAlltoAll, (const void*, void*, size_t, ncclDataType_t, ncclComm_t comm, cudaStream_t), { return check(comm); })
FAKE(ncclGather, (const void*, void*, size_t, ncclDataType_t, int, ncclComm_t comm, cudaStream_t),
     { return check(comm); })
FAKE(ncclScatter, (const void*, void*, size_t, ncclDataType_t, int, ncclComm_t comm, cudaStream_t),
     { return check(comm); })
FAKE(ncclSend, (const void*, size_t count, ncclDataType_t, int, ncclComm_t comm, cudaStream_t stream), {
  note_count(count);
  return fails_once(refuse_send) ? ncclSystemError : enqueue("ncclSend", comm, stream);
})
FAKE(ncclRecv, (void*, size_t, ncclDataType_t, int, ncclComm_t comm, cudaStream_t stream),
     { return enqueue("ncclRecv", comm, stream); })
FAKE(ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t* error), {
  *error = ncclSuccess;
  return check(comm);
})
