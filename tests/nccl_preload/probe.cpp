// Makes all calls of NCCL that work without a GPU, with good and bad arguments, and prints every result and message.
// The text must be the same from the library alone and through the drop-in: preloaded, linked before NCCL, or by
// gradwire/replace/nccl.h.
#ifdef GRADWIRE_PROBE_REPLACED
#include <gradwire/replace/nccl.h>
#else
#include <nccl.h>
#endif

#include <cstdio>
#include <cstring>
#include <string>

namespace {

std::string last_error(ncclComm_t comm) {
  const char* text = ncclGetLastError(comm);
  return text == nullptr ? "(null)" : text;
}

void show(const char* what, ncclResult_t result) {
  std::printf("%-28s %d %s | %s\n", what, static_cast<int>(result), ncclGetErrorString(result),
              last_error(nullptr).c_str());
}

void management() {
  int value = -1;
  show("GetVersion", ncclGetVersion(&value));
  std::printf("version %d\n", value);
  show("GetVersion(null)", ncclGetVersion(nullptr));
  ncclUniqueId id{};
  show("GetUniqueId", ncclGetUniqueId(&id));
  std::printf("an id: %d\n", static_cast<int>(std::strlen(id.internal) > 0 || id.internal[8] != 0));
  show("GetUniqueId(null)", ncclGetUniqueId(nullptr));
  for (int code = -1; code <= ncclNumResults + 1; ++code) {
    std::printf("error %d: %s\n", code, ncclGetErrorString(static_cast<ncclResult_t>(code)));
  }
  value = -1;
  show("CommCount(null)", ncclCommCount(nullptr, &value));
  show("CommCuDevice(null)", ncclCommCuDevice(nullptr, &value));
  show("CommUserRank(null)", ncclCommUserRank(nullptr, &value));
  std::printf("untouched %d\n", value);
  ncclResult_t async = ncclNumResults;
  show("CommGetAsyncError(null)", ncclCommGetAsyncError(nullptr, &async));
  show("CommFinalize(null)", ncclCommFinalize(nullptr));
  show("CommDestroy(null)", ncclCommDestroy(nullptr));
  show("CommAbort(null)", ncclCommAbort(nullptr));
  show("CommRevoke(null)", ncclCommRevoke(nullptr, 0));
  void* handle = nullptr;
  show("CommRegister(null)", ncclCommRegister(nullptr, &value, sizeof value, &handle));
  show("CommDeregister(null)", ncclCommDeregister(nullptr, handle));
  show("MemFree(null)", ncclMemFree(nullptr));
}

void making(ncclComm_t wrong) {
  ncclUniqueId id{};
  ncclGetUniqueId(&id);
  ncclComm_t comm = nullptr;
  show("CommInitRank(one rank)", ncclCommInitRank(&comm, 1, id, 0));  // fails without a GPU
  if (comm != nullptr) {
    show("CommDestroy", ncclCommDestroy(comm));
    comm = nullptr;
  }
  show("CommInitRank(null)", ncclCommInitRank(nullptr, 1, id, 0));
  show("CommInitRank(rank 2 of 2)", ncclCommInitRank(&comm, 2, id, 2));
  show("CommInitRank(no ranks)", ncclCommInitRank(&comm, 0, id, 0));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.magic = 1;
  show("CommInitRankConfig(bad)", ncclCommInitRankConfig(&comm, 1, id, 0, &config));
  show("CommInitRankScalable(no id)", ncclCommInitRankScalable(&comm, 1, 0, 0, &id, nullptr));
  show("CommInitAll(-1)", ncclCommInitAll(&comm, -1, nullptr));
  show("CommSplit(null)", ncclCommSplit(wrong, 0, 0, &comm, nullptr));
  std::printf("made: %d\n", static_cast<int>(comm != nullptr));
}

void collectives(ncclComm_t wrong) {
  float a[4] = {1, 2, 3, 4};
  float b[4] = {};
  show("AllReduce", ncclAllReduce(a, b, 4, ncclFloat32, ncclSum, wrong, nullptr));
  show("AllReduce(large)", ncclAllReduce(a, b, 1 << 20, ncclFloat32, ncclSum, wrong, nullptr));
  show("AllReduce(count 0)", ncclAllReduce(nullptr, nullptr, 0, ncclFloat32, ncclSum, wrong, nullptr));
  show("AllReduce(type 99)", ncclAllReduce(a, b, 4, static_cast<ncclDataType_t>(99), ncclSum, wrong, nullptr));
  show("ReduceScatter", ncclReduceScatter(a, b, 4, ncclFloat32, ncclSum, wrong, nullptr));
  show("Reduce", ncclReduce(a, b, 4, ncclFloat32, ncclSum, 0, wrong, nullptr));
  show("AllGather", ncclAllGather(a, b, 4, ncclFloat32, wrong, nullptr));
  show("Broadcast", ncclBroadcast(a, b, 4, ncclFloat32, 0, wrong, nullptr));
  show("Bcast", ncclBcast(a, 4, ncclFloat32, 0, wrong, nullptr));
  show("AlltoAll", ncclAlltoAll(a, b, 4, ncclFloat32, wrong, nullptr));
  show("Gather", ncclGather(a, b, 4, ncclFloat32, 0, wrong, nullptr));
  show("Scatter", ncclScatter(a, b, 4, ncclFloat32, 0, wrong, nullptr));
  show("Send", ncclSend(a, 4, ncclFloat32, 0, wrong, nullptr));
  show("Recv", ncclRecv(b, 4, ncclFloat32, 0, wrong, nullptr));
  std::printf("untouched %g\n", static_cast<double>(b[0]));
  ncclRedOp_t op = ncclSum;
  show("RedOpCreatePreMulSum", ncclRedOpCreatePreMulSum(&op, a, ncclFloat32, ncclScalarHostImmediate, wrong));
  show("RedOpDestroy(sum)", ncclRedOpDestroy(ncclSum, wrong));
  show("RedOpDestroy(99)", ncclRedOpDestroy(static_cast<ncclRedOp_t>(99), wrong));
}

void groups() {
  show("GroupEnd(no start)", ncclGroupEnd());
  show("GroupStart", ncclGroupStart());
  show("GroupStart", ncclGroupStart());
  show("GroupEnd", ncclGroupEnd());
  show("GroupEnd", ncclGroupEnd());
  show("GroupEnd(no start)", ncclGroupEnd());
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  show("GroupStart", ncclGroupStart());
  show("GroupSimulateEnd", ncclGroupSimulateEnd(&info));
  float a[4] = {};
  show("GroupStart", ncclGroupStart());
  show("AllReduce in a group", ncclAllReduce(a, a, 4, ncclFloat32, ncclSum, nullptr, nullptr));
  show("GroupEnd after an error", ncclGroupEnd());
}

}  // namespace

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // keeps lines printed before a crash
  management();
  making(nullptr);
  collectives(nullptr);
  groups();
}
