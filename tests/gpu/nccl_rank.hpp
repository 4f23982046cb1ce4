// Finds the rank of a process under tests/gpu/ranks in the NCCL world.
#pragma once

#include <nccl.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/gpu/device_cuda.hpp"

namespace gradwire::gpu {

inline void nccl(ncclResult_t result, const char* what) {
  if (result != ncclSuccess) {
    throw std::runtime_error(std::string(what) + ": " + ncclGetErrorString(result) + ": " + ncclGetLastError(nullptr));
  }
}

/// Returns the value of a variable that tests/gpu/ranks sets.
inline std::string environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  if (value == nullptr) {
    throw std::runtime_error(std::string(name) + " is not set: run this under tests/gpu/ranks");
  }
  return value;
}

/// Returns rank 0's id on every rank, through the file GRADWIRE_ID_FILE.
inline ncclUniqueId shared_id(int rank) {
  const std::string path = environment("GRADWIRE_ID_FILE");
  ncclUniqueId id;
  if (rank == 0) {
    nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    std::ofstream(path + ".new", std::ios::binary).write(id.internal, sizeof id.internal);
    std::filesystem::rename(path + ".new", path);  // no rank reads an incomplete file
    return id;
  }
  for (int tries = 0; tries < 600; ++tries) {
    if (std::ifstream file(path, std::ios::binary); file && file.read(id.internal, sizeof id.internal)) {
      return id;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  throw std::runtime_error("rank 0 wrote no NCCL id to " + path + " within 30 s");
}

}  // namespace gradwire::gpu
