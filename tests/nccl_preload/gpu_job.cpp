// Makes a training job's calls on a real GPU, to be run under tests/gpu/ranks with the drop-in preloaded. The job knows
// only the error of int8: sums must be near the exact ones, not equal to them, and the same on every rank. With
// --observed all must be NCCL's own, with --chosen only captured ones. Exits with 77 without a GPU.
#include <cuda_runtime.h>
#include <nccl.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tests/gpu/nccl_rank.hpp"

namespace {

using gradwire::gpu::cuda;
using gradwire::gpu::environment;
using gradwire::gpu::nccl;
using gradwire::gpu::shared_id;

constexpr std::size_t kCount = (1 << 20) + 4096 + 7;  // received by each rank

int failures = 0;

void that(bool good, const std::string& what) {
  if (!good) {
    ++failures;
    std::printf("gpu_job: FAILED: %s\n", what.c_str());
  }
}

double input(std::size_t i, int rank, int salt) {
  return std::sin(0.37 * static_cast<double>(i % 100003) + rank + 0.1 * salt);
}

struct Job {
  bool observed = false;  // nothing is compressed
  bool chosen = false;    // codec = "auto" compresses all calls but captured ones
  int rank = std::stoi(environment("RANK"));
  int world = std::stoi(environment("WORLD_SIZE"));
  ncclComm_t comm = nullptr;

  // Returns the elements of a buffer on each rank.
  [[nodiscard]] std::vector<float> values(std::size_t count, int salt) const {
    std::vector<float> all(count);
    for (std::size_t i = 0; i < count; ++i) {
      all[i] = static_cast<float>(input(i, rank, salt));
    }
    return all;
  }

  // `got` must hold the sum of the elements from `first` on, times `scale`; with `passed`, as NCCL itself computes it.
  void check(const std::vector<float>& got, std::size_t first, int salt, double scale, bool passed,
             const std::string& what) const {
    const bool exact = passed || observed;
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      double sum = 0;
      for (int r = 0; r < world; ++r) {
        sum += static_cast<double>(static_cast<float>(input(first + i, r, salt)));
      }
      const double error = std::abs(static_cast<double>(got[i]) - scale * sum);
      worst = std::isfinite(error) ? std::max(worst, error) : 1e9;
    }
    // The bound is each rank's and the owner's rounding, in steps of 1/127 of the largest value.
    that(worst < (exact ? 1e-5 : scale * 2 * world / 127.0), what + ": off by " + std::to_string(worst));
    that(exact || worst > 1e-4, what + ": exact, so it was not compressed: is the drop-in built with device code?");
  }

  // Checks that all ranks hold the same bytes.
  void same_everywhere(const std::vector<float>& got, const std::string& what) const {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const float value : got) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      hash = (hash ^ bits) * 0x100000001b3;
    }
    std::uint64_t* words = nullptr;
    std::vector<std::uint64_t> all(static_cast<std::size_t>(world));
    cuda(cudaMalloc(&words, all.size() * sizeof hash), "cudaMalloc");
    cuda(cudaMemcpy(words + rank, &hash, sizeof hash, cudaMemcpyHostToDevice), "cudaMemcpy");
    nccl(ncclAllGather(words + rank, words, 1, ncclUint64, comm, nullptr), "ncclAllGather");
    cuda(cudaMemcpy(all.data(), words, all.size() * sizeof hash, cudaMemcpyDeviceToHost), "cudaMemcpy");
    cudaFree(words);
    that(std::count(all.begin(), all.end(), hash) == world, what + ": ranks differ");
  }
};

float* on_device(const std::vector<float>& values) {
  float* memory = nullptr;
  cuda(cudaMalloc(&memory, values.size() * sizeof(float)), "cudaMalloc");
  cuda(cudaMemcpy(memory, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice), "cudaMemcpy");
  cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");  // other streams may read it now
  return memory;
}

// Copies after `stream` and nothing else, so that a result that was not joined to the stream is noticed.
std::vector<float> from_device(const float* memory, std::size_t count, cudaStream_t stream) {
  std::vector<float> values(count);
  cuda(cudaMemcpyAsync(values.data(), memory, count * sizeof(float), cudaMemcpyDeviceToHost, stream),
       "cudaMemcpyAsync");
  cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return values;
}

void run(Job& job) {
  cudaStream_t streams[2] = {};
  for (cudaStream_t& stream : streams) {
    cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  float* memory[3] = {};
  for (int i = 0; i < 3; ++i) {
    memory[i] = on_device(job.values(kCount, i));
  }
  float* first = on_device({1.0F});  // the first reduction on a communicator is never compressed
  nccl(ncclAllReduce(first, first, 1, ncclFloat32, ncclSum, job.comm, streams[0]), "ncclAllReduce");
  nccl(ncclAllReduce(memory[0], memory[0], kCount, ncclFloat32, ncclAvg, job.comm, streams[0]), "ncclAllReduce");
  const std::vector<float> mean = from_device(memory[0], kCount, streams[0]);
  job.check(mean, 0, 0, 1.0 / job.world, false, "mean in place");
  job.same_everywhere(mean, "mean in place");

  // There are two streams, and a small sum beside large ones.
  float* small = on_device({1.0F});
  nccl(ncclGroupStart(), "ncclGroupStart");
  nccl(ncclAllReduce(memory[1], memory[1], kCount, ncclFloat32, ncclSum, job.comm, streams[0]), "ncclAllReduce");
  nccl(ncclAllReduce(small, small, 1, ncclFloat32, ncclSum, job.comm, streams[1]), "ncclAllReduce");
  nccl(ncclAllReduce(memory[2], memory[0], kCount, ncclFloat32, ncclSum, job.comm, streams[1]), "ncclAllReduce");
  nccl(ncclGroupEnd(), "ncclGroupEnd");
  that(from_device(small, 1, streams[1])[0] == static_cast<float>(job.world), "a small sum is exact");
  job.check(from_device(memory[1], kCount, streams[0]), 0, 1, 1, false, "in a group");
  const std::vector<float> apart = from_device(memory[0], kCount, streams[1]);
  job.check(apart, 0, 2, 1, false, "in a group, apart");
  job.same_everywhere(apart, "in a group, apart");
  that(from_device(memory[2], kCount, streams[1]) == job.values(kCount, 2), "the input is only read");

  const auto segments = static_cast<std::size_t>(job.world);
  float* wide = on_device(job.values(kCount * segments, 3));
  float* own = wide + kCount * static_cast<std::size_t>(job.rank);
  nccl(ncclReduceScatter(wide, own, kCount, ncclFloat32, ncclSum, job.comm, streams[0]), "ncclReduceScatter");
  job.check(from_device(own, kCount, streams[0]), kCount * static_cast<std::size_t>(job.rank), 3, 1, false,
            "reduce-scatter");

  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  cuda(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  nccl(ncclAllReduce(memory[2], memory[2], kCount, ncclFloat32, ncclSum, job.comm, streams[0]), "captured");
  cuda(cudaStreamEndCapture(streams[0], &graph), "cudaStreamEndCapture");
  cuda(cudaGraphInstantiate(&replay, graph, 0), "cudaGraphInstantiate");
  cuda(cudaGraphLaunch(replay, streams[0]), "cudaGraphLaunch");
  job.check(from_device(memory[2], kCount, streams[0]), 0, 2, 1, job.chosen, "captured");  // as the eager ones
  // ncclCommDestroy waits, possibly for ever, for graphs that hold its calls.
  cuda(cudaGraphExecDestroy(replay), "cudaGraphExecDestroy");
  cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // keeps printed lines if the process is killed
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("gpu_job: skipped: no GPU\n");
    return 77;
  }
  try {
    Job job;
    job.observed = argc > 1 && std::strcmp(argv[1], "--observed") == 0;
    job.chosen = argc > 1 && std::strcmp(argv[1], "--chosen") == 0;
    cuda(cudaSetDevice(0), "cudaSetDevice");
    nccl(ncclCommInitRank(&job.comm, job.world, shared_id(job.rank), job.rank), "ncclCommInitRank");
    run(job);
    nccl(ncclCommDestroy(job.comm), "ncclCommDestroy");
  } catch (const std::exception& error) {
    that(false, error.what());
  }
  std::printf("gpu_job: %d failed\n", failures);
  return failures == 0 ? 0 : 1;
}
