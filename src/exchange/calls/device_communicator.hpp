// All-reduces over device memory without a session: the implementation of gradwire::nccl::Communicator.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "exchange/stream/stream_device.hpp"
#include "exchange/stream/stream_executor.hpp"
#include "gradwire/communicator.hpp"

namespace gradwire::exchange {

class DeviceCommunicator {
 public:
  DeviceCommunicator(std::shared_ptr<StreamDevice> device, const CommunicatorOptions& options);
  DeviceCommunicator(const DeviceCommunicator&) = delete;
  DeviceCommunicator& operator=(const DeviceCommunicator&) = delete;
  ~DeviceCommunicator();

  [[nodiscard]] int rank() const noexcept { return device_->backend().rank(); }
  [[nodiscard]] int world_size() const noexcept { return device_->backend().world_size(); }
  Statistics all_reduce(ConstView input, View output, const CallOptions& options);
  void reserve(std::uint64_t count, DType dtype, const CallOptions& options);
  void wait();

 private:
  [[nodiscard]] std::shared_ptr<const StreamExecution> enqueue(StreamBackend& backend, StreamExecutor& executor,
                                                               const ConstView& input, const View& output,
                                                               const CallOptions& options) const;
  void require_no_capture(const char* call);
  void wait_for_device();
  // Runs `call`; any exception ends the communicator on every rank.
  template <class Call>
  void guarded(Call&& call);

  std::shared_ptr<StreamDevice> device_;
  CommunicatorOptions options_;
  std::unique_ptr<StreamExecutor> executor_;
  std::uint32_t* step_ = nullptr;  // device memory: the number of the call
  bool captured_ = false;          // a call was captured, and may be replayed
};

}  // namespace gradwire::exchange
