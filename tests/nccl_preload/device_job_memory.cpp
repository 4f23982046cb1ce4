// Makes communicators where the device and its host refuse memory (FAKE_DEVICE_REFUSES).
#include <algorithm>
#include <span>

#include "nccl_preload/device_job.hpp"

namespace gradwire::test {
namespace {

void short_of_memory() {
  ncclComm_t comm = nullptr;
  std::printf("made: %d\n", ncclCommInitRank(&comm, 2, {}, 0));
  if (comm == nullptr) {
    std::printf("alive: %d\n", fake_nccl_alive());
    return;
  }
  for (int call = 0; call < 3; ++call) {
    std::printf("call %d: %d\n", call, reduce(comm));
  }
  ncclCommDestroy(comm);
  ncclGroupStart();
  ncclCommInitRank(&comm, 3, {}, 0);
  ncclGroupEnd();
  reduce(comm);
  ncclCommDestroy(comm);
}

int left_of(std::span<const ncclComm_t> made) {
  return static_cast<int>(std::count_if(made.begin(), made.end(), [](ncclComm_t comm) { return comm != nullptr; }));
}

void short_of_memory_for_one_of_several() {
  ncclComm_t several[3] = {};
  const ncclResult_t made = ncclCommInitAll(several, 3, nullptr);
  std::printf("several: %d %d left %d alive\n", made, left_of(several), fake_nccl_alive());
}

void short_of_memory_for_one_of_a_group() {
  ncclComm_t parent = init();
  ncclComm_t children[3] = {};
  ncclGroupStart();
  for (ncclComm_t& child : children) {
    ncclCommSplit(parent, 0, 0, &child, nullptr);
  }
  const ncclResult_t made = ncclGroupEnd();
  std::printf("group: %d %d left %d alive\n", made, left_of(children), fake_nccl_alive());
}

}  // namespace

Scenarios scenarios_of_memory() {
  return {{"short_of_memory", short_of_memory},
          {"short_of_memory_for_one_of_several", short_of_memory_for_one_of_several},
          {"short_of_memory_for_one_of_a_group", short_of_memory_for_one_of_a_group}};
}

}  // namespace gradwire::test
