// A device path without a device, for the drop-in over the fake library: it drops enqueued work except for messages,
// which reach the fake, and the other ranks of a communicator say what this one says.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "drop_in/configuration.hpp"
#include "exchange/stream/null_backend.hpp"
#include "exchange/stream/window_calls.hpp"
#include "plugins/nccl_preload/caller_messages.hpp"
#include "plugins/nccl_preload/device_path.hpp"
#include "plugins/nccl_preload/driver_events.hpp"
#include "tests/support/fake_windows.hpp"

// The fake library's streams; it comes with the job.
extern "C" {
__attribute__((weak)) int fake_nccl_record(void* stream);
__attribute__((weak)) void fake_nccl_wait(void* stream, int event);
__attribute__((weak)) void fake_nccl_launch(const char* kernel, void* stream);
__attribute__((weak)) long fake_nccl_calls(const char* name);
}

namespace gradwire::nccl_preload {
namespace {

thread_local int truces = 0;

// This says whether work of our own streams is captured. Such work runs with its graph, in no order with what these
// streams run otherwise, so it has streams of its own here, as if it ran once, as it is captured.
bool captures = false;

// Returns handles of two streams of our own.
void* stream_of(exchange::StreamBackend::Queue queue) {
  static std::array<char, 4> streams{};
  return &streams[(captures ? 2U : 0U) + (queue == exchange::StreamBackend::Queue::compute ? 0U : 1U)];
}

// Behaves as if a thread captured a graph: memory may be allocated and freed only during a truce.
void ask_for_truce(const char* what) {
  if (truces == 0) {
    std::fprintf(stderr, "no truce: %s\n", what);
    std::abort();
  }
}

constexpr std::size_t kAgreement = sizeof(drop_in::RankSettings) + 4 * sizeof(std::uint64_t);

// FAKE_DEVICE_REFUSES="3": the third piece of memory is refused; "3+": all from there on are.
bool refuses() {
  static int asked = 0;
  const char* const text = std::getenv("FAKE_DEVICE_REFUSES");
  const int at = text == nullptr ? 0 : std::atoi(text);
  return ++asked == at || (at > 0 && asked > at && std::strchr(text, '+') != nullptr);
}

void take(const char* what) {
  if (refuses()) {
    throw Error(ErrorCode::out_of_memory, std::string("no memory for ") + what);
  }
}

class FakeBackend final : public exchange::NullBackend {
 public:
  FakeBackend(memory::Arena& arena, CallerMessages& messages)
      : NullBackend(arena, messages.rank(), messages.world_size()), messages_(messages) {}

  void encode(const kernels::EncodeJob& /*job*/) override { fake_nccl_launch("encode", stream_of(Queue::compute)); }
  void decode(const kernels::DecodeJob& /*job*/) override { fake_nccl_launch("decode", stream_of(Queue::compute)); }
  [[nodiscard]] Event record(Queue queue) override { return static_cast<Event>(fake_nccl_record(stream_of(queue))); }
  void wait(Queue queue, Event event) override { fake_nccl_wait(stream_of(queue), static_cast<int>(event)); }
  void begin_group() override { messages_.begin_group(); }
  void send(std::span<const std::byte> bytes, int peer) override {
    messages_.send(bytes, peer, stream_of(Queue::communication));
  }
  void receive(std::span<std::byte> bytes, int peer) override {
    messages_.receive(bytes, peer, stream_of(Queue::communication));
  }
  void all_reduce(void* values, DType dtype, std::uint64_t count) override {
    messages_.all_reduce(values, dtype, count, stream_of(Queue::communication));
  }
  void sum_in_node(const void* from, void* to, DType dtype, std::uint64_t each, std::uint64_t rest) override {
    messages_.sum_in_node(from, to, dtype, each, rest, stream_of(Queue::communication));
  }
  void gather_in_node(void* all, std::uint64_t bytes) override {
    messages_.gather_in_node(all, bytes, stream_of(Queue::communication));
  }
  void end_group() override { messages_.end_group(); }

 private:
  CallerMessages& messages_;
};

class Heap final : public memory::ArenaSource {
 public:
  [[nodiscard]] std::byte* allocate(std::size_t bytes) override {
    ask_for_truce("allocate");
    return refuses() ? nullptr
                     : static_cast<std::byte*>(
                           ::operator new[](bytes, std::align_val_t{memory::Arena::kAlignment}, std::nothrow));
  }
  void free(std::byte* slab) noexcept override {
    ask_for_truce("free");
    ::operator delete[](slab, std::align_val_t{memory::Arena::kAlignment});
  }
  [[nodiscard]] std::string why() const override { return "no memory"; }
};

class FakeDevice final : public exchange::StreamDevice {
 public:
  explicit FakeDevice(std::unique_ptr<CallerMessages> messages)
      : messages_(std::move(messages)), arena_(heap_, 4096), backend_(arena_, *messages_) {}
  // Checks for errors before it ends, like the real one.
  ~FakeDevice() override {
    ask_for_truce("the end of a device");
    try {
      messages_->poll();
    } catch (const Error&) {
    }
  }

  [[nodiscard]] exchange::StreamBackend& backend() noexcept override { return backend_; }
  [[nodiscard]] memory::Arena& arena() noexcept override { return arena_; }
  [[nodiscard]] std::string name() const override { return "fake"; }
  [[nodiscard]] std::uint64_t pinned_bytes() const noexcept override { return 0; }
  [[nodiscard]] bool sums_in_nodes() const noexcept override { return messages_->sums_in_nodes(); }
  void set_nodes(const exchange::Tiers& nodes) override {
    messages_->join_node(nodes.node_of(messages_->rank()), nodes.place_of(messages_->rank()), {}, nullptr);
  }
  [[nodiscard]] int enter() override { return 0; }
  void leave(int /*previous*/) noexcept override {}
  void set_caller(void* stream) noexcept { caller_ = stream; }
  void follow_caller() override { fake_nccl_wait(compute(), fake_nccl_record(caller_)); }
  void lead_caller() override { fake_nccl_wait(caller_, fake_nccl_record(compute())); }
  [[nodiscard]] bool capturing() override { return false; }
  [[nodiscard]] Point mark() override { return 0; }
  [[nodiscard]] bool reached(Point /*point*/) override { return true; }
  void wait(Point /*point*/, std::chrono::milliseconds /*timeout*/) override {}
  void wait_alone(Point /*point*/, std::chrono::milliseconds /*timeout*/) override {}
  void download(std::span<std::byte> to, const void* from, std::chrono::milliseconds /*timeout*/) override {
    std::memcpy(to.data(), from, to.size());
  }
  void upload(void* to, std::span<const std::byte> from) override { std::memcpy(to, from.data(), from.size()); }
  void zero(void* data, std::size_t bytes) override { std::memset(data, 0, bytes); }
  void load_kernels() override {
    if (messages_->world_size() == 12) {
      throw Error(ErrorCode::internal, "kernel was not loaded: no kernel image");
    }
  }
  void advance(std::uint32_t* step) override { ++*step; }
  [[nodiscard]] kernels::DeviceStatus& status() noexcept override { return status_; }
  [[nodiscard]] std::uint32_t nonfinite_steps() noexcept override { return 0; }
  void check(const void* /*data*/, const std::string& /*what*/) override {}
  void poll() override { messages_->poll(); }
  // With FAKE_NODE the ranks have windows, in name only; FAKE_NODE=missing: kernels have waited for rank 1 in vain.
  [[nodiscard]] std::string open_windows(const memory::AllGather& all_gather,
                                         std::chrono::milliseconds timeout) override {
    const char* const node = std::getenv("FAKE_NODE");
    if (node == nullptr) {
      return StreamDevice::open_windows(all_gather, timeout);
    }
    const auto ranks =
        static_cast<std::uint32_t>(all_gather("a text that is longer than what one exchange takes, since "
                                              "such texts travel in several parts of 128 bytes each, "
                                              "one behind the other")
                                       .size());
    calls_ = std::make_unique<exchange::WindowCalls>(
        std::make_unique<test::FakeWindows>(std::make_shared<test::WindowMemory>(ranks, 1)),
        kernels::WindowShape{.ranks = ranks, .rank = 0, .blocks = 1, .slot_bytes = exchange::kWindowSlotBytes}, words_,
        timeout);
    words_.missing = std::strcmp(node, "missing") == 0 ? 2 : 0;
    return "";
  }
  [[nodiscard]] const exchange::WindowCalls* windows() const noexcept override { return calls_.get(); }
  void abort(const Error& error) noexcept override {
    if (calls_ != nullptr) {
      calls_->abort();
      std::fprintf(stderr, "kernels end, behind %ld aborts\n", fake_nccl_calls("ncclCommAbort"));
    }
    messages_->abort(error);
  }
  void end_messages(std::chrono::milliseconds /*timeout*/) override {}

 private:
  [[nodiscard]] static void* compute() { return stream_of(exchange::StreamBackend::Queue::compute); }

  std::unique_ptr<CallerMessages> messages_;
  void* caller_ = nullptr;
  Heap heap_;
  memory::Arena arena_;
  FakeBackend backend_;
  kernels::DeviceStatus status_;
  kernels::WindowWords words_;
  std::unique_ptr<exchange::WindowCalls> calls_;
};

// The library is asked, and this rank's own words are the answer.
class FakeGather final : public drop_in::RankGather {
 public:
  explicit FakeGather(std::unique_ptr<CallerMessages> messages) : messages_(std::move(messages)) {
    if (refuses()) {  // the device
      nccl_preload::take("an exchange, of the device or of the host");
    }
  }
  ~FakeGather() override { ask_for_truce("the end of an exchange"); }
  void put(std::span<const std::byte> mine) override { mine_.assign(mine.begin(), mine.end()); }
  void post() override {
    messages_->gather(mine_.data(), mine_.size(), stream_of(exchange::StreamBackend::Queue::communication));
  }
  void take(std::span<std::byte> all, std::chrono::milliseconds /*timeout*/) override {
    for (std::size_t rank = 0; rank * mine_.size() < all.size(); ++rank) {
      std::byte* answer = all.data() + rank * mine_.size();
      std::copy(mine_.begin(), mine_.end(), answer);
      if (mine_.size() == kAgreement) {  // each rank has a process of its own
        answer[sizeof(drop_in::RankSettings)] ^= static_cast<std::byte>(rank);
      }
    }
  }

 private:
  std::unique_ptr<CallerMessages> messages_;
  std::vector<std::byte> mine_;
};

class FakePort final : public drop_in::ExchangePort {
 public:
  explicit FakePort(CallerMessages& messages) : messages_(messages) {}
  void open() override { nccl_preload::take("words"); }
  void begin(std::span<const std::uint32_t> mine, void* stream) override {
    words_.assign(mine.begin(), mine.end());
    messages_.find_largest(words_.data(), words_.size(), stream);
  }
  [[nodiscard]] bool arrived() override { return true; }
  void finish(std::span<std::uint32_t> largest, std::chrono::milliseconds /*timeout*/) override {
    std::copy(words_.begin(), words_.end(), largest.begin());
  }
  void meet(void* stream) override { messages_.find_largest(&word_, 1, stream); }

 private:
  CallerMessages& messages_;
  std::vector<std::uint32_t> words_;
  std::uint32_t word_ = 0;
};

class FakeLink final : public drop_in::DeviceLink {
 public:
  FakeLink(std::unique_ptr<CallerMessages> messages, std::shared_ptr<drop_in::RankGather> gather)
      : messages_(*messages), gather_(std::move(gather)), port_(*messages), device_(std::move(messages)) {
    take("streams");
    messages_.child().set_memory_check([] { return std::getenv("FAKE_DEVICE_IS_FULL") == nullptr; });
  }
  [[nodiscard]] exchange::StreamDevice& device() noexcept override { return device_; }
  void set_caller(void* stream) override {
    captures = stream == reinterpret_cast<void*>(0x70);
    device_.set_caller(stream);
  }
  // It does the same as the link over CUDA.
  void begin_run(bool captured) override {
    replayed_ = replayed_ || captured;
    if (replayed_ && latest_) {
      fake_nccl_wait(stream_of(exchange::StreamBackend::Queue::compute), *latest_);
    }
  }
  void end_run(bool /*captured*/) override {
    latest_ = fake_nccl_record(stream_of(exchange::StreamBackend::Queue::compute));
  }
  [[nodiscard]] drop_in::RankGather& gather() noexcept override { return *gather_; }
  [[nodiscard]] drop_in::OwnCommunicator* own_communicator() noexcept override { return &messages_.child(); }
  [[nodiscard]] drop_in::ExchangePort& exchange_port() noexcept override { return port_; }
  [[nodiscard]] drop_in::DeviceClock& clock() noexcept override { return clock_; }
  [[nodiscard]] memory::Arena& lasting() noexcept override { return lasting_; }
  [[nodiscard]] memory::ArenaSource& loans() noexcept override { return heap_; }

 private:
  CallerMessages& messages_;  // the device's
  std::shared_ptr<drop_in::RankGather> gather_;
  FakePort port_;
  EventClock clock_;
  Heap heap_;
  memory::Arena lasting_{heap_, 4096};
  FakeDevice device_;
  std::optional<int> latest_;
  bool replayed_ = false;
};

}  // namespace

bool has_device_path() noexcept { return true; }

std::shared_ptr<drop_in::RankGather> make_gather(ncclComm_t comm, int rank, int size,
                                                 std::shared_ptr<const std::atomic<bool>> ended,
                                                 std::shared_ptr<ChildCommunicator> child) {
  ask_for_truce("make_gather");
  return std::make_shared<FakeGather>(
      std::make_unique<CallerMessages>(comm, rank, size, std::move(ended), std::move(child)));
}

std::unique_ptr<drop_in::DeviceLink> make_link(ncclComm_t comm, int rank, int size, const Reserved& reserved) {
  ask_for_truce("make_link");
  if (size == 13) {
    throw Error(ErrorCode::out_of_memory, "no memory on the device");
  }
  return std::make_unique<FakeLink>(std::make_unique<CallerMessages>(comm, rank, size, reserved.ended, reserved.child),
                                    reserved.gather);
}

CaptureTruce::CaptureTruce() noexcept : previous_(truces++) {}
CaptureTruce::~CaptureTruce() { truces = previous_; }

}  // namespace gradwire::nccl_preload
