// Shared by the jobs of this folder: the rank, its communicator, the mean of the loss, and whether ranks agree. A file
// includes its NCCL header before this one: <nccl.h>, or its replacement.
#pragma once

#include <cinttypes>
#include <initializer_list>

#include "network.cuh"

#define NCCL_CHECK(call)                                                                                             \
  do {                                                                                                               \
    const ncclResult_t result = (call);                                                                              \
    if (result != ncclSuccess) {                                                                                     \
      std::fprintf(stderr, "nccl_mlp: %s: %s (%s)\n", #call, ncclGetErrorString(result), ncclGetLastError(nullptr)); \
      std::exit(1);                                                                                                  \
    }                                                                                                                \
  } while (0)

/// Returns the value of the first of these variables that is set; they are those of a shell, Open MPI and MPICH.
static int from_environment(std::initializer_list<const char*> names, int otherwise) {
  for (const char* name : names) {
    if (const char* value = std::getenv(name)) {
      return std::atoi(value);
    }
  }
  return otherwise;
}

struct Job {
  int rank = from_environment({"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"}, 0);
  int world = from_environment({"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}, 1);
  ncclComm_t communicator = nullptr;
  cudaStream_t stream = nullptr;

  Job() {
    int devices = 0;
    CUDA_CHECK(cudaGetDeviceCount(&devices));
    CUDA_CHECK(cudaSetDevice(from_environment({"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"}, rank) %
                             devices));
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (world > 1 && std::getenv("NCCL_COMM_ID") == nullptr) {
      std::fprintf(stderr,
                   "nccl_mlp: set NCCL_COMM_ID=host:port, the same for every rank (the script `launch` does)\n");
      std::exit(1);
    }
    ncclUniqueId id;
    NCCL_CHECK(ncclGetUniqueId(&id));  // made from NCCL_COMM_ID, so equal on every rank
    NCCL_CHECK(ncclCommInitRank(&communicator, world, id, rank));
  }
  ~Job() {
    ncclCommDestroy(communicator);
    cudaStreamDestroy(stream);
  }
};

static float mean_loss(Job& job, Network& network) {
  NCCL_CHECK(ncclAllReduce(network.loss(), network.loss(), 1, ncclFloat, ncclAvg, job.communicator, job.stream));
  float loss = 0;
  CUDA_CHECK(cudaMemcpyAsync(&loss, network.loss(), sizeof loss, cudaMemcpyDeviceToHost, job.stream));
  CUDA_CHECK(cudaStreamSynchronize(job.stream));
  return loss;
}

/// Returns whether every rank has the same parameters, to the bit.
static bool ranks_agree(Job& job, const Network& network) {
  const std::uint64_t own = network.fingerprint();
  std::uint64_t* all = nullptr;
  CUDA_CHECK(cudaMalloc(&all, static_cast<std::size_t>(job.world) * sizeof own));
  CUDA_CHECK(cudaMemcpyAsync(all + job.rank, &own, sizeof own, cudaMemcpyHostToDevice, job.stream));
  NCCL_CHECK(ncclAllGather(all + job.rank, all, 1, ncclUint64, job.communicator, job.stream));
  std::vector<std::uint64_t> fingerprints(static_cast<std::size_t>(job.world));
  CUDA_CHECK(
      cudaMemcpyAsync(fingerprints.data(), all, fingerprints.size() * sizeof own, cudaMemcpyDeviceToHost, job.stream));
  CUDA_CHECK(cudaStreamSynchronize(job.stream));
  CUDA_CHECK(cudaFree(all));
  for (const std::uint64_t fingerprint : fingerprints) {
    if (fingerprint != own) {
      std::fprintf(stderr, "nccl_mlp: rank %d has other parameters than another rank\n", job.rank);
      return false;
    }
  }
  if (job.rank == 0) {
    std::printf("parameters %016" PRIx64 " on every rank\n", own);
  }
  return true;
}
