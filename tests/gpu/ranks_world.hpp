// One rank of an NCCL world of processes, and the host executor's result of the same collective.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "exchange/collectives.hpp"
#include "exchange/stream/stream_cuda_device.hpp"
#include "exchange/stream/stream_executor.hpp"
#include "gradwire/reduction.hpp"
#include "tests/gpu/check.hpp"
#include "tests/gpu/device.hpp"
#include "tests/gpu/nccl_rank.hpp"
#include "transport/nccl_messages.hpp"

namespace gradwire::gpu {

/// The world that RANK, WORLD_SIZE and GRADWIRE_ID_FILE of the environment describe (tests/gpu/ranks), on device 0.
class World {
 public:
  World();
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int world_size() const { return world_size_; }
  [[nodiscard]] ncclComm_t communicator() const { return communicator_; }
  [[nodiscard]] cudaStream_t stream() const { return stream_; }

  /// Returns the largest of all ranks' numbers, on every rank; it is also a barrier.
  [[nodiscard]] double largest(double mine) const;
  /// Returns whether these bytes are the same on every rank.
  [[nodiscard]] bool agree(std::span<const std::byte> bytes) const;

 private:
  int rank_ = 0;
  int world_size_ = 1;
  ncclComm_t communicator_ = nullptr;
  cudaStream_t stream_ = nullptr;
  double* words_ = nullptr;  // device memory with one word per rank
};

/// The main() of a program that each rank runs: it skips without a GPU; an exception of `run` is a failure.
int rank_main(const char* name, int argc, char** argv, int (*run)(Check&));

/// The parameters of an all-reduce, on which all ranks agree.
struct AllReduce {
  CodecSpec codec;
  DType dtype = DType::f32;
  std::uint64_t count = 0;
  Algorithm algorithm = Algorithm::two_shot;
  Reduction reduction = Reduction::sum;
  bool feedback = false;
  bool weighted = false;
  std::uint64_t chunk_bytes = 1 << 14;

  [[nodiscard]] exchange::HopCodecs codecs() const { return exchange::hop_codecs(codec, codec, dtype); }
  [[nodiscard]] bool keeps() const { return feedback && algorithm == Algorithm::two_shot && codecs().first.lossy(); }
  [[nodiscard]] exchange::ResolvedCall resolved() const {
    return {.codecs = codecs(),
            .weighted = weighted,
            .residuals = {.any = keeps(), .keeps = {.local = keeps(), .owner = keeps()}}};
  }
  [[nodiscard]] exchange::Schedule schedule(int rank, int world_size) const;
  [[nodiscard]] std::string name() const;
  [[nodiscard]] Bytes input(int rank, std::uint32_t step) const;
};
[[nodiscard]] inline double weight_of(int rank) { return 1 + 0.5 * rank; }

inline constexpr std::uint32_t kRanksBucket = 9;

/// Plays all ranks of an all-reduce on the host, as threads, and keeps the memory's content after each step.
class HostReference {
 public:
  HostReference(AllReduce call, int world_size);
  ~HostReference();
  HostReference(const HostReference&) = delete;
  HostReference& operator=(const HostReference&) = delete;
  void run(std::uint32_t step);
  [[nodiscard]] const Bytes& result(int rank) const { return results_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const std::vector<float>& local(int rank) const;
  [[nodiscard]] const std::vector<float>& owner(int rank) const;

 private:
  struct OfRank;
  AllReduce call_;
  std::vector<Bytes> results_;
  std::vector<std::unique_ptr<OfRank>> residuals_;
};

/// One rank's side of an all-reduce: its memory on the device and how to enqueue it.
class DeviceSide {
 public:
  DeviceSide(const World& world, AllReduce call, std::uint32_t first_step, bool in_place);
  /// Loads this rank's input of `step`.
  void load(std::uint32_t step) const;
  /// Enqueues the all-reduce between earlier and later work of the caller's stream; the step advances.
  void enqueue(exchange::CudaDevice& device, exchange::StreamExecutor& executor) const;
  /// Compares with the host's results; all ranks must have run.
  void compare(Check& check, const HostReference& wanted, const std::string& what) const;
  [[nodiscard]] Bytes result() const { return (in_place_ ? input_ : output_).read(); }

 private:
  [[nodiscard]] exchange::StreamTask task() const;

  const World& world_;
  AllReduce call_;
  bool in_place_;
  Memory input_;
  Memory output_;
  Memory local_;
  Memory owner_;
  std::uint64_t owner_first_;
  std::uint64_t owner_count_;
  Memory step_;
  Memory status_;
};

/// Compares hierarchical, over two ranks a node, with the host (ranks_tiers.cpp). The world has an even number of
/// ranks.
void check_tiers(Check& check, const World& world, exchange::CudaDevice& device, exchange::StreamExecutor& executor);

}  // namespace gradwire::gpu
