// A job without gradwire, over the fake library. fake_job SCENARIO prints the results of its calls and how often each
// arrived: the same lines with and without the drop-in.
#include <cuda.h>
#include <dlfcn.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "nccl_preload/fake_nccl.hpp"

// Answers like the driver of a machine with a GPU; the drop-in looks this function up by name.
extern "C" CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  *status =
      stream == reinterpret_cast<CUstream>(0x70) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return stream == reinterpret_cast<CUstream>(0x71) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

namespace {

constexpr std::size_t kLarge = 1 << 20;
float buffer[4];  // no data is moved

ncclComm_t init(int ranks, int rank = 0) {
  ncclComm_t comm = nullptr;
  ncclCommInitRank(&comm, ranks, {}, rank);
  return comm;
}

ncclComm_t init_nonblocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  ncclCommInitRankConfig(&comm, 4, {}, 0, &config);
  return comm;
}

void show(const char* what, ncclResult_t result) { std::printf("%s: %d\n", what, static_cast<int>(result)); }

ncclResult_t reduce(ncclComm_t comm, std::size_t count = kLarge, ncclDataType_t type = ncclFloat32,
                    ncclRedOp_t op = ncclSum, cudaStream_t stream = nullptr) {
  return ncclAllReduce(buffer, buffer, count, type, op, comm, stream);
}

void eligible() {
  ncclComm_t comm = init(4);
  show("f32", reduce(comm));
  show("f32", reduce(comm));
  show("f16", reduce(comm, kLarge, ncclFloat16, ncclAvg));
  show("bf16", reduce(comm, kLarge, ncclBfloat16));
  show("at the floor", reduce(comm, 16384));
  show("reduce-scatter", ncclReduceScatter(buffer, buffer, 4096, ncclFloat32, ncclSum, comm, nullptr));
}

void ineligible() {
  ncclComm_t comm = init(4);
  show("below the floor", reduce(comm, 16383));
  show("none", reduce(comm, 0));
  show("none, no buffers", ncclAllReduce(nullptr, nullptr, 0, ncclFloat32, ncclSum, comm, nullptr));
  show("reduce-scatter below the floor", ncclReduceScatter(buffer, buffer, 4095, ncclFloat32, ncclSum, comm, nullptr));
  for (const ncclDataType_t type : {ncclInt8, ncclInt32, ncclUint64, ncclFloat64, ncclFloat8e4m3, ncclFloat8e5m2}) {
    show("type", reduce(comm, kLarge, type));
  }
  for (const ncclRedOp_t op : {ncclProd, ncclMax, ncclMin}) {
    show("operation", reduce(comm, kLarge, ncclFloat32, op));
  }
  ncclRedOp_t scaled{};
  show("create", ncclRedOpCreatePreMulSum(&scaled, buffer, ncclFloat32, ncclScalarHostImmediate, comm));
  show("scaled", reduce(comm, kLarge, ncclFloat32, scaled));
  show("destroy", ncclRedOpDestroy(scaled, comm));
  show("dangling", reduce(comm, kLarge, ncclFloat32, scaled));
  show("create", ncclRedOpCreatePreMulSum(&scaled, buffer, ncclFloat32, ncclScalarDevice, comm));
  show("scaled on the device", reduce(comm, kLarge, ncclFloat32, scaled));
  show("destroy", ncclRedOpDestroy(scaled, comm));
  show("captured", reduce(comm, kLarge, ncclFloat32, ncclSum, reinterpret_cast<cudaStream_t>(0x70)));
  show("implicitly", reduce(comm, kLarge, ncclFloat32, ncclSum, reinterpret_cast<cudaStream_t>(0x71)));
  show("alone", reduce(init(1)));
  show("null communicator", reduce(nullptr));
  show("null buffer", ncclAllReduce(nullptr, buffer, kLarge, ncclFloat32, ncclSum, comm, nullptr));
  ncclComm_t unseen = nullptr;
  pncclCommInitRank(&unseen, 4, {}, 0);
  show("unknown", reduce(unseen));
}

void nonblocking() {
  ncclComm_t parent = init_nonblocking();
  show("parent", reduce(parent));
  ncclComm_t child = nullptr;
  show("split", ncclCommSplit(parent, 0, 0, &child, nullptr));
  show("child as its parent", reduce(child));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  show("split", ncclCommSplit(parent, 0, 0, &child, &config));
  show("child of its own kind", reduce(child));
  setenv("NCCL_COMM_BLOCKING", "0", 1);  // NOLINT(concurrency-mt-unsafe)
  show("by the environment", reduce(init(4)));
}

void others() {
  ncclComm_t comm = init(4);
  ncclBroadcast(buffer, buffer, kLarge, ncclFloat32, 0, comm, nullptr);
  ncclBcast(buffer, kLarge, ncclFloat32, 0, comm, nullptr);
  ncclAllGather(buffer, buffer, kLarge, ncclFloat32, comm, nullptr);
  ncclReduce(buffer, buffer, kLarge, ncclFloat32, ncclSum, 0, comm, nullptr);
  ncclAlltoAll(buffer, buffer, kLarge, ncclFloat32, comm, nullptr);
  ncclGather(buffer, buffer, kLarge, ncclFloat32, 0, comm, nullptr);
  ncclScatter(buffer, buffer, kLarge, ncclFloat32, 0, comm, nullptr);
  ncclSend(buffer, kLarge, ncclFloat32, 1, comm, nullptr);
  ncclRecv(buffer, kLarge, ncclFloat32, 1, comm, nullptr);
  reduce(comm);  // after ncclBcast: the guard is open again
}

void groups() {
  ncclComm_t comm = init(4);
  show("end without start", ncclGroupEnd());
  reduce(comm, kLarge + 1);  // outside the group
  ncclGroupStart();
  ncclGroupStart();
  reduce(comm, kLarge + 2);
  ncclGroupEnd();
  reduce(comm, kLarge + 2);  // still inside the group
  ncclComm_t child = nullptr;
  ncclCommSplit(comm, 0, 0, &child, nullptr);
  ncclGroupEnd();
  reduce(child, kLarge + 3);
  ncclGroupStart();
  reduce(comm, kLarge + 4);
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  ncclGroupSimulateEnd(&info);  // nothing ran
  reduce(comm, kLarge + 5);
}

void lifetime() {
  ncclComm_t comm = init(4);
  reduce(comm, kLarge + 1);
  fake_nccl_refuse_end();
  show("refused", ncclCommDestroy(comm));
  reduce(comm, kLarge + 2);
  show("destroyed", ncclCommDestroy(comm));
  show("dead", reduce(comm, kLarge + 3));
  ncclComm_t again = init(2);
  std::printf("same address: %d\n", static_cast<int>(again == comm));
  reduce(again, kLarge + 4);
  show("aborted", ncclCommAbort(again));
  ncclComm_t other = init(3);
  reduce(other, kLarge + 5);
  show("finalized", ncclCommFinalize(other));
  reduce(other, kLarge + 6);
  ncclComm_t revoked = init(4);
  reduce(revoked, kLarge + 7);
  show("revoked", ncclCommRevoke(revoked, 0));
  reduce(revoked, kLarge + 8);
  ncclComm_t shrunk = nullptr;
  show("shrunk", ncclCommShrink(revoked, nullptr, 0, &shrunk, nullptr, 0));
  reduce(shrunk, kLarge + 9);
  std::printf("alive: %d\n", fake_nccl_alive());
}

void many_classes() {
  ncclComm_t comm = init(4);
  for (std::size_t i = 0; i < 3000; ++i) {
    reduce(comm, kLarge + i);
  }
}

void threads() {
  ncclComm_t shared = init(4);
  std::vector<std::thread> workers;
  workers.reserve(4);
  for (int t = 0; t < 4; ++t) {
    workers.emplace_back([shared] {
      for (int i = 0; i < 500; ++i) {
        ncclComm_t own = init(4);
        ncclGroupStart();  // a group of this thread alone
        reduce(own, kLarge + 1);
        reduce(shared, kLarge + 1);
        ncclGroupEnd();
        reduce(shared, kLarge + 2);
        ncclBcast(buffer, kLarge, ncclFloat32, 0, own, nullptr);
        ncclCommDestroy(own);
      }
    });
  }
  for (std::thread& worker : workers) {
    worker.join();
  }
}

void all_devices() {
  ncclComm_t comms[3] = {};
  ncclCommInitAll(comms, 3, nullptr);
  for (ncclComm_t comm : comms) {
    reduce(comm);
  }
}

void not_first() { reduce(init(4, 2)); }

void forks() {
  reduce(init(4));
  const pid_t child = fork();
  if (child == 0) {
    std::exit(0);  // NOLINT(concurrency-mt-unsafe): runs the exit handlers
  }
  waitpid(child, nullptr, 0);
}

// The fake lacks ncclMemAlloc; it is linked by name, so that the job also starts without the drop-in.
void missing() {
  void* memory = nullptr;
  auto* found = reinterpret_cast<decltype(&ncclMemAlloc)>(dlsym(RTLD_DEFAULT, "ncclMemAlloc"));
  std::printf("ncclMemAlloc: %d\n", found == nullptr ? -1 : static_cast<int>(found(&memory, 1)));
}

void silent() { init(4); }

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<void()>> scenarios = {{"eligible", eligible},
                                                                  {"ineligible", ineligible},
                                                                  {"nonblocking", nonblocking},
                                                                  {"others", others},
                                                                  {"groups", groups},
                                                                  {"lifetime", lifetime},
                                                                  {"many_classes", many_classes},
                                                                  {"threads", threads},
                                                                  {"all_devices", all_devices},
                                                                  {"not_first", not_first},
                                                                  {"forks", forks},
                                                                  {"missing", missing},
                                                                  {"silent", silent}};
  scenarios.at(argc > 1 ? argv[1] : "")();
  for (const char* name : {"ncclAllReduce", "ncclReduceScatter", "ncclReduce", "ncclAllGather", "ncclBroadcast",
                           "ncclBcast", "ncclAlltoAll", "ncclGather", "ncclScatter", "ncclSend", "ncclRecv",
                           "ncclCommInitRank", "ncclCommSplit", "ncclCommDestroy", "ncclGroupStart", "ncclGroupEnd"}) {
    std::printf("%s %ld\n", name, fake_nccl_calls(name));
  }
  std::fprintf(stderr, "asked for size: %ld\n", fake_nccl_calls("ncclCommCount"));
}
