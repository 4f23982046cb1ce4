// A device on host memory for sessions: what is enqueued runs only when somebody waits for it, in order, with the
// host's codecs; messages go over a transport. Ranks are threads. A captured step is a list that can be enqueued again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "collective/stream_device.hpp"
#include "gradwire/transport.hpp"

namespace gradwire::test {

class HostDevice final : public collective::StreamDevice, private collective::StreamBackend {
 public:
  using Work = std::vector<std::function<void()>>;

  /// `limit`: bytes of memory that it has.
  explicit HostDevice(std::shared_ptr<Transport> transport, std::size_t limit = ~std::size_t{0},
                      std::size_t slab_bytes = std::size_t{1} << 16);
  ~HostDevice() override;

  /// Runs all that is enqueued, as cudaStreamSynchronize would wait for it.
  void synchronize();
  /// The caller's stream is captured from here on.
  void begin_capture();
  [[nodiscard]] Work end_capture();
  /// Enqueues a captured step.
  void replay(const Work& graph);

  // What a test looks at, or breaks.
  std::uint64_t followed = 0;               // calls of follow_caller()
  std::uint64_t led = 0;                    // and of lead_caller()
  std::uint64_t allocations = 0;            // slabs taken
  std::uint64_t gathers = 0;                // enqueued
  std::set<const void*> foreign;            // not this device's memory
  std::optional<Error> asynchronous_error;  // of the communicator
  bool damage_next_frame = false;           // that is received
  /// Operations enqueued and not run yet.
  [[nodiscard]] std::size_t waiting() const noexcept { return queue_.size() - done_; }

  [[nodiscard]] collective::StreamBackend& backend() noexcept override { return *this; }
  [[nodiscard]] memory::Arena& arena() noexcept override { return arena_; }
  [[nodiscard]] std::string name() const override { return "host device over " + transport_->name(); }
  [[nodiscard]] std::uint64_t pinned_bytes() const noexcept override { return 0; }
  [[nodiscard]] int enter() override;
  void leave(int previous) noexcept override;
  void follow_caller() override;
  void lead_caller() override;
  [[nodiscard]] bool capturing() override { return capturing_; }
  [[nodiscard]] Point mark() override;
  [[nodiscard]] bool reached(Point point) override { return point <= done_; }
  void wait(Point point, std::chrono::milliseconds timeout) override;
  void download(std::span<std::byte> to, const void* from, std::chrono::milliseconds timeout) override;
  void upload(void* to, std::span<const std::byte> from) override;
  void zero(void* data, std::size_t bytes) override;
  void advance(std::uint32_t* step) override;
  [[nodiscard]] kernels::DeviceStatus& status() noexcept override { return status_; }
  void check(const void* data, const std::string& what) override;
  void poll() override;
  void abort(ErrorCode code, const std::string& message) noexcept override { transport_->abort(code, message); }

 private:
  class Source final : public memory::ArenaSource {
   public:
    Source(HostDevice& device, std::size_t limit) : device_(device), left_(limit) {}
    [[nodiscard]] std::byte* allocate(std::size_t bytes) override;
    void free(std::byte* slab) noexcept override;
    [[nodiscard]] std::string why() const override { return "the host device is full"; }

   private:
    HostDevice& device_;
    std::size_t left_;
  };
  struct Message {
    bool sends;
    std::byte* data;
    std::uint64_t bytes;
    int peer;
  };

  [[nodiscard]] int rank() const noexcept override { return transport_->rank(); }
  [[nodiscard]] int world_size() const noexcept override { return transport_->world_size(); }
  [[nodiscard]] std::byte* acquire(std::size_t bytes) override { return arena_.acquire(bytes); }
  void release(std::byte* memory) noexcept override { arena_.release(memory); }
  [[nodiscard]] Event record(Queue /*queue*/) override { return 0; }  // one queue runs both
  void wait(Queue /*queue*/, Event /*event*/) override {}
  void encode(const kernels::EncodeJob& job) override;
  void decode(const kernels::DecodeJob& job) override;
  void reduce(const kernels::ReduceJob& job) override;
  void fold(float* residual, double factor, const double* device_factor, void* values, DType dtype,
            std::uint64_t count) override;
  void convert(const void* from, DType from_dtype, void* to, DType to_dtype, std::uint64_t count, double factor,
               const double* device_factor, double divisor, const double* device_divisor) override;
  void gather(std::span<const kernels::CopyPiece> pieces, DType tensors, void* run, DType run_dtype) override;
  void scatter(std::span<const kernels::CopyPiece> pieces, DType tensors, const void* run, DType run_dtype) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  void sum_weights(std::span<const double* const> weights, double own, double* totals) override;
  void store_weight(double weight, double* to) override;
  void begin_group() override { group_.clear(); }
  void send(std::span<const std::byte> bytes, int peer) override;
  void receive(std::span<std::byte> bytes, int peer) override;
  void all_reduce(void* values, DType dtype, std::uint64_t count) override;
  void end_group() override;

  void push(std::function<void()> work);
  void run_until(std::size_t end);
  void exchange(const std::vector<Message>& messages);

  std::shared_ptr<Transport> transport_;
  Source source_;
  memory::Arena arena_;
  kernels::DeviceStatus status_;
  Work queue_;
  std::size_t done_ = 0;
  Work graph_;
  bool capturing_ = false;
  bool joined_ = false;  // the compute queue is part of the capture
  int entered_ = 0;
  std::vector<Message> group_;
  std::map<std::pair<int, bool>, Tag> next_tag_;  // by peer and direction
};

}  // namespace gradwire::test
