// Runs the drop-in's reducer under codec = "auto" over the product's CUDA device, with the compiled kernels
// interpreted: ranks are threads, the interpreter's NCCL carries messages, and times are scripted. The kernel inside
// the node must be tested, tried and adopted, and its sums be those of messages.
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <barrier>
#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "exchange/stream/stream_nccl.hpp"
#include "memory/cuda_pool.hpp"
#include "tests/drop_in/device_harness.hpp"

namespace gradwire::drop_in {
namespace {

constexpr int kInterpretedRanks = 2;
constexpr std::uint64_t kInterpretedCount = 5 * 4096 + 77;

// Calls of the library take a millisecond, all others 0.3.
class CallClock final : public DeviceClock {
 public:
  explicit CallClock(const std::uint64_t& called) : called_(called) {}
  [[nodiscard]] Mark mark(void* /*stream*/) override {
    now_ += called_ > seen_ ? 1e-3 : 0.3e-3;
    seen_ = called_;
    times_.push_back(now_);
    return times_.size();
  }
  [[nodiscard]] bool reached(Mark /*mark*/) override { return true; }
  [[nodiscard]] std::optional<double> seconds(Mark begin, Mark end) override {
    return times_[end - 1] - times_[begin - 1];
  }
  void drop(Mark /*mark*/) noexcept override {}

 private:
  const std::uint64_t& called_;
  std::uint64_t seen_ = 0;
  double now_ = 0;
  std::vector<double> times_;
};

class DeviceSource final : public memory::ArenaSource {
 public:
  [[nodiscard]] std::byte* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    return cudaMalloc(&memory, bytes) == cudaSuccess ? static_cast<std::byte*>(memory) : nullptr;
  }
  void free(std::byte* memory) noexcept override { cudaFree(memory); }
  [[nodiscard]] std::string why() const override { return "no memory"; }
};

// Exchanges over the interpreter's NCCL.
class InterpretedGather final : public RankGather {
 public:
  explicit InterpretedGather(exchange::StreamDevice& device) : device_(device) {
    EXPECT_EQ(cudaMalloc(&memory_, kInterpretedRanks * kMostBytes), cudaSuccess);
  }
  ~InterpretedGather() override { cudaFree(memory_); }

  void put(std::span<const std::byte> mine) override {
    each_ = mine.size();
    const std::span<std::byte> to = part(device_.backend().rank());
    EXPECT_EQ(cudaMemcpy(to.data(), mine.data(), mine.size(), cudaMemcpyHostToDevice), cudaSuccess);
  }
  void post() override {
    exchange::StreamBackend& backend = device_.backend();
    const int other = 1 - backend.rank();
    backend.begin_group();
    backend.send(part(backend.rank()), other);
    backend.receive(part(other), other);
    backend.end_group();
  }
  void take(std::span<std::byte> all, std::chrono::milliseconds timeout) override {
    using Queue = exchange::StreamBackend::Queue;
    exchange::StreamBackend& backend = device_.backend();
    backend.wait(Queue::compute, backend.record(Queue::communication));
    device_.download(all, memory_, timeout);
    backend.wait(Queue::communication, backend.record(Queue::compute));
  }

 private:
  [[nodiscard]] std::span<std::byte> part(int rank) const {
    return {static_cast<std::byte*>(memory_) + static_cast<std::size_t>(rank) * each_, each_};
  }

  exchange::StreamDevice& device_;
  void* memory_ = nullptr;
  std::size_t each_ = 0;
};

// The communicator over the interpreter's NCCL, with exchanges of words over the transport.
class InterpretedLink final : public DeviceLink {
 public:
  InterpretedLink(ncclComm_t comm, const std::shared_ptr<Transport>& transport)
      : port_(transport),
        clock_(called),
        lasting_(0),
        device_(exchange::make_nccl_device(comm, nullptr)),
        ranks_(*device_) {}

  [[nodiscard]] exchange::StreamDevice& device() noexcept override { return *device_; }
  void set_caller(void* stream) override { device_->set_caller(static_cast<cudaStream_t>(stream)); }
  void begin_run(bool /*captured*/) override {}
  void end_run(bool /*captured*/) override {}
  [[nodiscard]] RankGather& gather() noexcept override { return ranks_; }
  [[nodiscard]] ExchangePort& exchange_port() noexcept override { return port_; }
  [[nodiscard]] DeviceClock& clock() noexcept override { return clock_; }
  [[nodiscard]] memory::Arena& lasting() noexcept override { return lasting_.arena(); }
  [[nodiscard]] memory::ArenaSource& loans() noexcept override { return loans_; }

  std::uint64_t called = 0;  // calls of the library
  TransportPort port_;

 private:
  CallClock clock_;
  memory::CudaPool lasting_;
  DeviceSource loans_;
  std::unique_ptr<exchange::CudaDevice> device_;
  InterpretedGather ranks_;
};

class CountingLibrary final : public DeviceLibrary {
 public:
  [[nodiscard]] int start_group() override { return 0; }
  [[nodiscard]] int end_group() override { return 0; }
  [[nodiscard]] int failed() const noexcept override { return 1; }
  void say(const std::string& text) override { said.push_back(text); }
  std::vector<std::string> said;
};

// One rank with one buffer.
class InterpretedRank {
 public:
  InterpretedRank(const Configuration& configuration, const std::shared_ptr<Transport>& transport,
                  const ncclUniqueId& id, std::barrier<>& between)
      : rank_(transport->rank()), between_(between) {
    ncclComm_t comm = nullptr;  // lives as long as the process
    EXPECT_EQ(ncclCommInitRank(&comm, kInterpretedRanks, id, rank_), ncclSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&buffer_, kInterpretedCount * sizeof(float)), cudaSuccess);
    auto link = std::make_unique<InterpretedLink>(comm, transport);
    link_ = link.get();
    reducer_ =
        std::make_shared<DeviceReducer>(configuration, ledger, std::move(link), 1 + static_cast<std::uint64_t>(rank_));
    reach_agreement(std::vector{reducer_}, nccl);
  }
  InterpretedRank(const InterpretedRank&) = delete;
  InterpretedRank& operator=(const InterpretedRank&) = delete;
  ~InterpretedRank() { reducer_.reset(); }

  // Returns whether the call was compressed; the library's own leaves the buffer as it is.
  bool call() {
    const std::uint64_t called = link_->called;
    const Call what{.function = Function::nccl_all_reduce,
                    .dtype = DType::f32,
                    .reduction = Reduction::sum,
                    .count = kInterpretedCount,
                    .world_size = kInterpretedRanks};
    const auto library_call = [this] {
      ++link_->called;
      return 0;
    };
    const DeviceCall made{
        .reducer = reducer_,
        .call = what,
        .decided = reducer_->decide(what),
        .op = "sum",
        .reduce = {.send = buffer_, .receive = buffer_, .count = kInterpretedCount, .stream = stream_},
        .bytes = kInterpretedCount * sizeof(float),
        .forward = library_call,
        .native = [=](const void* /*send*/, void* /*receive*/) { return library_call(); }};
    EXPECT_EQ(issue({&made, 1}, nccl), 0);
    const bool ours = link_->called == called;
    meet_others();
    return ours;
  }
  void load() {
    std::vector<float> values(kInterpretedCount);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i % 97) / 97 + static_cast<float>(rank_) / 7;
    }
    EXPECT_EQ(cudaMemcpyAsync(buffer_, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice, stream_),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }
  [[nodiscard]] std::vector<float> result() {
    std::vector<float> values(kInterpretedCount);
    EXPECT_EQ(cudaMemcpyAsync(values.data(), buffer_, values.size() * sizeof(float), cudaMemcpyDeviceToHost, stream_),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    return values;
  }
  [[nodiscard]] int trials() const { return link_->port_.met; }

  Ledger ledger;
  CountingLibrary nccl;

 private:
  // When a grid has read another one's flags, the interpreter's race detector does not order later grids of its stream
  // behind that other grid. So the hosts let all ranks' grids end before the next call. They wait only once all grids
  // are enqueued: a thread that waits runs grids, and lets no other thread enqueue any while one of them polls.
  void meet_others() {
    between_.arrive_and_wait();
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    between_.arrive_and_wait();
  }

  int rank_;
  std::barrier<>& between_;
  cudaStream_t stream_ = nullptr;
  float* buffer_ = nullptr;
  InterpretedLink* link_ = nullptr;
  std::shared_ptr<DeviceReducer> reducer_;
};

using Sums = std::vector<std::vector<float>>;  // by rank

// Lets each rank make calls until one is compressed.
Sums run_until_compressed(const Configuration& configuration, const std::string& algorithm, int trials) {
  Sums sums(kInterpretedRanks);
  ncclUniqueId id{};
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::barrier between(kInterpretedRanks);
  test::run_ranks(kInterpretedRanks, [&](const std::shared_ptr<Transport>& transport) {
    InterpretedRank rank(configuration, transport, id, between);
    rank.load();
    int calls = 1;
    while (!rank.call() && calls < 700) {
      ++calls;
    }
    sums[static_cast<std::size_t>(transport->rank())] = rank.result();
    EXPECT_EQ(rank.trials(), trials) << calls << " calls";
    std::uint64_t found = 0;
    for (const auto& [what, totals] : rank.ledger.classes()) {
      found += totals.compressed_calls > 0 && totals.algorithm == algorithm ? 1 : 0;
    }
    EXPECT_EQ(found, 1U);
    EXPECT_TRUE(rank.nccl.said.empty()) << rank.nccl.said.front();
  });
  return sums;
}

TEST(PtxDropIn, TheKernelInsideTheNodeIsAdoptedAndItsSumsAreThoseOfMessages) {
  const Sums wanted = run_until_compressed(configuration_of("[defaults]\ncodec = \"int8\"\n"), "two_shot", 0);
  Configuration automatic = configuration_of("[defaults]\ncodec = \"auto\"\nallow = [\"int8\"]\n");
  automatic.timeout = std::chrono::seconds(60);
  const Sums got = run_until_compressed(automatic, "node_kernel", 8);
  for (int rank = 0; rank < kInterpretedRanks; ++rank) {
    EXPECT_TRUE(got[static_cast<std::size_t>(rank)] == wanted[static_cast<std::size_t>(rank)]) << "rank " << rank;
  }
  EXPECT_TRUE(got[0] == got[1]);
}

}  // namespace
}  // namespace gradwire::drop_in
