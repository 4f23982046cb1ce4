// The scenarios of device_job share this: communicators of two ranks, of which one exists in name only.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <string>

#include "nccl_preload/fake_nccl.hpp"

namespace gradwire::test {

using Scenarios = std::map<std::string, std::function<void()>>;
/// Returns the scenarios about the order of work: captured calls and eager ones, and messages on a second
/// communicator.
Scenarios scenarios_of_order();
/// Returns the scenarios in which memory is refused.
Scenarios scenarios_of_memory();

inline constexpr std::size_t kLarge = 1 << 15;
inline float buffer[4];  // no data is moved

inline ncclComm_t init(int ranks = 2) {
  ncclComm_t comm = nullptr;
  ncclCommInitRank(&comm, ranks, {}, 0);
  return comm;
}

inline ncclResult_t reduce(ncclComm_t comm, std::size_t count = kLarge, ncclRedOp_t op = ncclSum,
                           cudaStream_t stream = nullptr) {
  return ncclAllReduce(buffer, buffer, count, ncclFloat32, op, comm, stream);
}

// Prints the calls that reached NCCL since the last time.
inline void show(const char* what) {
  std::printf("%s: ", what);
  fake_nccl_print_order();
}

// Makes a communicator whose ranks have agreed.
inline ncclComm_t agreed(int ranks = 2) {
  ncclComm_t comm = init(ranks);
  reduce(comm, 1);
  return comm;
}

inline cudaStream_t stream(std::uintptr_t number) { return reinterpret_cast<cudaStream_t>(number); }

}  // namespace gradwire::test
