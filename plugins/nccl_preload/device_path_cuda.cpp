// The device path over CUDA: two streams of the communicator's device, joined to the job's by events; the CUDA runtime
// is linked in and shares the job's primary context.
#include <cuda_runtime_api.h>

#include "exchange/stream/stream_cuda_device.hpp"
#include "memory/cuda_pool.hpp"
#include "plugins/nccl_preload/caller_messages.hpp"
#include "plugins/nccl_preload/cuda_exchange.hpp"
#include "plugins/nccl_preload/cuda_loans.hpp"
#include "plugins/nccl_preload/device_path.hpp"
#include "plugins/nccl_preload/driver_events.hpp"
#include "plugins/nccl_preload/state.hpp"
#include "session/device/cuda_share.hpp"

namespace gradwire::nccl_preload {
namespace {

exchange::CudaShare share() { return session::share_of(state().configuration.planner.policy().device); }

class CudaLink final : public drop_in::DeviceLink {
 public:
  CudaLink(std::unique_ptr<CallerMessages> messages, int device)
      : port_(*messages, device),
        lasting_(device),
        loans_(device),
        device_(std::move(messages), device, nullptr, share()) {}

  [[nodiscard]] exchange::StreamDevice& device() noexcept override { return device_; }
  void set_caller(void* stream) override { device_.set_caller(static_cast<cudaStream_t>(stream)); }
  [[nodiscard]] drop_in::ExchangePort& exchange_port() noexcept override { return port_; }
  [[nodiscard]] drop_in::DeviceClock& clock() noexcept override { return clock_; }
  [[nodiscard]] memory::Arena& lasting() noexcept override { return lasting_.arena(); }
  [[nodiscard]] memory::ArenaSource& loans() noexcept override { return loans_; }

 private:
  CudaExchange port_;  // it uses the messages only while calls are made
  EventClock clock_;
  memory::CudaPool lasting_;
  CudaLoans loans_;
  exchange::CudaDevice device_;  // its end comes first, and waits for work that uses the memory above
};

}  // namespace

bool has_device_path() noexcept { return true; }

std::unique_ptr<drop_in::DeviceLink> make_link(ncclComm_t comm, int rank, int size,
                                               std::shared_ptr<const std::atomic<bool>> ended) {
  auto messages = std::make_unique<CallerMessages>(comm, rank, size, std::move(ended));
  const int device = messages->device();
  return std::make_unique<CudaLink>(std::move(messages), device);
}

CaptureTruce::CaptureTruce() noexcept {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  previous_ = cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess ? static_cast<int>(mode)
                                                                        : static_cast<int>(cudaStreamCaptureModeGlobal);
}

CaptureTruce::~CaptureTruce() {
  auto mode = static_cast<cudaStreamCaptureMode>(previous_);
  cudaThreadExchangeStreamCaptureMode(&mode);
}

}  // namespace gradwire::nccl_preload
