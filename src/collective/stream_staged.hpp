// Messages between devices through pinned host memory and a transport, such as MPI without CUDA: the communication
// stream copies what a group sends to the host, calls a host function that exchanges it, and copies what came to the
// device; the compute stream works on meanwhile. What is staged is compressed already.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collective/stream_cuda.hpp"
#include "gradwire/transport.hpp"
#include "memory/cuda_pinned.hpp"
#include "transport/device_messages.hpp"

namespace gradwire::collective {

class StagedMessages final : public transport::DeviceMessages {
 public:
  /// Only this uses `transport` from now on, on a thread of CUDA's: Error(unsupported) where a transport is bound to
  /// the thread that made it.
  StagedMessages(std::shared_ptr<Transport> transport, int device, std::chrono::milliseconds timeout);
  ~StagedMessages() override;

  [[nodiscard]] std::string name() const override { return transport_->name() + ", staged through pinned memory"; }
  [[nodiscard]] int rank() const noexcept override { return transport_->rank(); }
  [[nodiscard]] int world_size() const noexcept override { return transport_->world_size(); }
  void begin_group() override;
  void send(std::span<const std::byte> bytes, int peer, void* stream) override;
  void receive(std::span<std::byte> bytes, int peer, void* stream) override;
  /// Error(unsupported): two_shot over exact values moves fewer bytes through the host.
  void all_reduce(void* values, DType dtype, std::uint64_t count, void* stream) override;
  void end_group() override;
  void poll() override;
  void abort(ErrorCode code, const std::string& message) noexcept override;
  [[nodiscard]] std::uint64_t pinned_bytes() const noexcept override { return pinned_.bytes(); }

 private:
  struct Message {
    bool sends;
    std::byte* device;  // of this rank
    std::byte* staging;
    std::uint64_t bytes;
    int peer;
  };
  // What one host function exchanges; it frees it.
  struct Group {
    StagedMessages* messages;
    std::vector<Message> parts;
  };
  struct Staged {
    std::unique_ptr<CudaEvent> event;  // after the last copy
    std::vector<Message> parts;
  };

  static void run(void* group) noexcept;
  void exchange(const Group& group);
  void add(bool sends, std::byte* device, std::uint64_t bytes, int peer, void* stream);
  void require_no_capture(cudaStream_t stream) const;
  void sweep();
  void fail(const Error& error) noexcept;

  std::shared_ptr<Transport> transport_;
  std::chrono::milliseconds timeout_;
  memory::PinnedPool pinned_;
  std::vector<Message> group_;
  cudaStream_t stream_ = nullptr;
  std::deque<Staged> staged_;                     // still in use by the stream
  std::map<std::pair<int, bool>, Tag> next_tag_;  // by peer and direction; of the host functions
  mutable std::mutex mutex_;
  std::optional<Error> failure_;
  std::vector<std::byte*> leaked_;  // staging memory that the transport may still use
};

}  // namespace gradwire::collective
