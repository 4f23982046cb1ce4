#include "tests/gpu/ranks_world.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "exchange/host/host_executor.hpp"
#include "tests/gpu/kernel_jobs.hpp"

namespace gradwire::gpu {

World::World()
    : rank_(std::atoi(environment("RANK").c_str())), world_size_(std::atoi(environment("WORLD_SIZE").c_str())) {
  cuda(cudaSetDevice(0), "cudaSetDevice");
  cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  words_ = static_cast<double*>(device_allocate(sizeof(double) * static_cast<std::size_t>(world_size_)));
  nccl(ncclCommInitRank(&communicator_, world_size_, shared_id(rank_), rank_), "ncclCommInitRank");
}

World::~World() {
  ncclCommDestroy(communicator_);
  device_free(words_);
  cudaStreamDestroy(stream_);
}

double World::largest(double mine) const {
  double word = mine;
  cuda(cudaMemcpyAsync(words_, &word, sizeof word, cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync");
  nccl(ncclAllReduce(words_, words_, 1, ncclDouble, ncclMax, communicator_, stream_), "ncclAllReduce of one number");
  cuda(cudaMemcpyAsync(&word, words_, sizeof word, cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
  cuda(cudaStreamSynchronize(stream_), "a barrier of all ranks");
  return word;
}

bool World::agree(std::span<const std::byte> bytes) const {
  std::uint64_t hash = 14695981039346656037ULL;  // FNV-1a, eight bytes at a time
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min(sizeof word, bytes.size() - i));
    hash = (hash ^ word) * 1099511628211ULL;
    hash ^= hash >> 29;
  }
  auto* words = reinterpret_cast<std::uint64_t*>(words_);
  std::vector<std::uint64_t> all(static_cast<std::size_t>(world_size_));
  cuda(cudaMemcpyAsync(words + rank_, &hash, sizeof hash, cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync");
  nccl(ncclAllGather(words + rank_, words, 1, ncclUint64, communicator_, stream_), "ncclAllGather");
  cuda(cudaMemcpyAsync(all.data(), words, all.size() * sizeof hash, cudaMemcpyDeviceToHost, stream_),
       "cudaMemcpyAsync");
  cuda(cudaStreamSynchronize(stream_), "gathering hashes");
  return std::all_of(all.begin(), all.end(), [hash](std::uint64_t other) { return other == hash; });
}

exchange::Schedule AllReduce::schedule(int rank, int world_size) const {
  return exchange::all_reduce(
      algorithm, {.rank = rank, .world_size = world_size, .weighted = weighted, .chunk_bytes = chunk_bytes}, count,
      codecs());
}

std::string AllReduce::name() const {
  return codec.to_string() + " " + std::string(to_string(algorithm)) + " " + std::string(to_string(dtype)) + ", " +
         std::to_string(count) + " elements" + (reduction == Reduction::mean ? ", mean" : ", sum") +
         (weighted ? ", weighted" : "") + (feedback ? ", feedback" : "");
}

Bytes AllReduce::input(int rank, std::uint32_t step) const {
  return tensor(dtype, count, 100 * step + static_cast<unsigned>(rank));
}

// The residuals of one rank: its own part of every element, and those of the shard that it owns.
struct HostReference::OfRank final : exchange::ResidualAccess {
  std::vector<float> local;
  std::vector<float> owner;
  std::uint64_t owner_first = 0;

  [[nodiscard]] const float* load(codec::EncodeSite site, std::uint64_t first, std::uint32_t /*count*/,
                                  float* /*scratch*/) const override {
    return site == codec::EncodeSite::owner ? owner.data() + (first - owner_first) : local.data() + first;
  }
  [[nodiscard]] float* target(codec::EncodeSite site, std::uint64_t first, std::uint32_t /*count*/,
                              float* /*scratch*/) override {
    return site == codec::EncodeSite::owner ? owner.data() + (first - owner_first) : local.data() + first;
  }
  void store(codec::EncodeSite /*site*/, std::uint64_t /*first*/, std::uint32_t /*count*/,
             const float* /*values*/) override {}
  [[nodiscard]] bool holds(codec::EncodeSite site, std::uint64_t first, std::uint32_t count) const override {
    if (site != codec::EncodeSite::local) {
      return false;  // memory there is used in place
    }
    const auto begin = local.begin() + static_cast<std::ptrdiff_t>(first);
    return std::any_of(begin, begin + count, [](float x) { return x != 0; });
  }
  void fold(codec::EncodeSite site, std::uint64_t first, std::uint32_t count, double factor, codec::Working type,
            void* values) override {
    if (site != codec::EncodeSite::local) {
      return;
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      float& residual = local[first + i];
      if (residual != 0 && type == codec::Working::f64) {
        static_cast<double*>(values)[i] += factor * static_cast<double>(residual);
      } else if (residual != 0) {
        static_cast<float*>(values)[i] += static_cast<float>(factor) * residual;
      }
      residual = 0;
    }
  }
};

HostReference::HostReference(AllReduce call, int world_size)
    : call_(call), results_(static_cast<std::size_t>(world_size)) {
  const auto shards = exchange::Partition::even(call_.count, world_size, call_.codecs(), call_.chunk_bytes);
  for (int rank = 0; rank < world_size; ++rank) {
    auto residuals = std::make_unique<OfRank>();
    if (call_.keeps()) {
      residuals->local.resize(call_.count);
      residuals->owner.resize(shards.shard_count(rank));
      residuals->owner_first = shards.shard_first(rank);
    }
    residuals_.push_back(std::move(residuals));
  }
}
HostReference::~HostReference() = default;

const std::vector<float>& HostReference::local(int rank) const {
  return residuals_[static_cast<std::size_t>(rank)]->local;
}
const std::vector<float>& HostReference::owner(int rank) const {
  return residuals_[static_cast<std::size_t>(rank)]->owner;
}

void HostReference::run(std::uint32_t step) {
  const auto transports = make_inproc_world(static_cast<int>(results_.size()));
  std::vector<std::exception_ptr> errors(results_.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < results_.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        results_[rank] = call_.input(static_cast<int>(rank), step);
        exchange::Task task{.tensors = codec::TensorList(call_.dtype, call_.codecs().first.working()),
                            .call = call_.resolved(),
                            .reduction = call_.reduction,
                            .weight = weight_of(static_cast<int>(rank)),
                            .bucket = kRanksBucket,
                            .step = step,
                            .residuals = call_.keeps() ? residuals_[rank].get() : nullptr,
                            .name = "reference"};
        task.tensors.append(results_[rank].data(), results_[rank].data(), call_.count);
        exchange::HostExecutor executor(*transports[rank], {.checksum = false});
        const auto execution =
            executor.start(call_.schedule(static_cast<int>(rank), static_cast<int>(results_.size())), std::move(task));
        executor.wait(*execution);
      } catch (...) {
        errors[rank] = std::current_exception();
        transports[rank]->abort(Error(ErrorCode::internal, "the reference failed"));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::exception_ptr& error : errors) {
    if (error) {
      std::rethrow_exception(error);
    }
  }
}

namespace {

exchange::Partition shards_of(const AllReduce& call, int world_size) {
  return exchange::Partition::even(call.count, world_size, call.codecs(), call.chunk_bytes);
}

Memory zeros(std::size_t bytes) { return Memory(Bytes(bytes)); }

}  // namespace

DeviceSide::DeviceSide(const World& world, AllReduce call, std::uint32_t first_step, bool in_place)
    : world_(world),
      call_(call),
      in_place_(in_place),
      input_(call.input(world.rank(), first_step)),
      output_(in_place ? 0 : input_.bytes()),
      local_(zeros(call.keeps() ? call.count * sizeof(float) : 0)),
      owner_(zeros(call.keeps() ? shards_of(call, world.world_size()).shard_count(world.rank()) * sizeof(float) : 0)),
      owner_first_(shards_of(call, world.world_size()).shard_first(world.rank())),
      owner_count_(owner_.bytes() / sizeof(float)),
      step_(std::as_bytes(std::span(&first_step, 1))),
      status_(zeros(sizeof(kernels::DeviceStatus))) {}

void DeviceSide::load(std::uint32_t step) const { input_.write(call_.input(world_.rank(), step)); }

exchange::StreamTask DeviceSide::task() const {
  return {.input = {input_.data(), 0, call_.count},
          .output = {in_place_ ? input_.data() : output_.data(), 0, call_.count},
          .count = call_.count,
          .dtype = call_.dtype,
          .call = call_.resolved(),
          .reduction = call_.reduction,
          .weight = weight_of(world_.rank()),
          .bucket = kRanksBucket,
          .step = step_.as<std::uint32_t>(),
          .status = status_.as<kernels::DeviceStatus>(),
          .local_residual = {call_.keeps() ? local_.as<float>() : nullptr, 0, call_.keeps() ? call_.count : 0},
          .owner_residual = {call_.keeps() ? owner_.as<float>() : nullptr, owner_first_, owner_count_},
          .name = "check"};
}

void DeviceSide::enqueue(exchange::CudaDevice& device, exchange::StreamExecutor& executor) const {
  device.follow_caller();
  executor.run(call_.schedule(world_.rank(), world_.world_size()), task());
  device.advance(step_.as<std::uint32_t>());
  device.lead_caller();
}

void DeviceSide::compare(Check& check, const HostReference& wanted, const std::string& what) const {
  bool intact = false;
  const Bytes result = (in_place_ ? input_ : output_).read(&intact);
  check.same_elements(call_.dtype, result, wanted.result(world_.rank()), what);
  check.that(intact, what + ": something was written outside of the tensor");
  if (call_.keeps()) {
    check.same_elements(DType::f32, local_.read(), bytes_of(wanted.local(world_.rank())), what + ": local residual");
    check.same_elements(DType::f32, owner_.read(), bytes_of(wanted.owner(world_.rank())), what + ": owner residual");
  }
  check.that(world_.agree(result), what + ": ranks differ");
  kernels::DeviceStatus status;
  std::memcpy(&status, status_.read().data(), sizeof status);
  check.that(status.bad_frames == 0, what + ": bad frames");
}

int rank_main(const char* name, int argc, char** argv, int (*run)(Check&)) {
  Check check(name, argc, argv);
  if (const std::string missing = why_no_device(); !missing.empty()) {
    return check.skip(missing);
  }
  try {
    return run(check);
  } catch (const std::exception& error) {
    check.fail(error.what());
    static_cast<void>(check.finish());
    std::fflush(nullptr);
    std::_Exit(kFailed);  // ending a communicator would wait for ranks that are elsewhere
  }
}

}  // namespace gradwire::gpu
