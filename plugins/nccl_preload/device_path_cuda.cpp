// The device path over CUDA: two streams of the communicator's device, joined to the job's by events; the CUDA runtime
// is linked in and shares the job's primary context.
#include <cuda_runtime_api.h>

#include "exchange/stream/stream_cuda_device.hpp"
#include "memory/cuda_check.hpp"
#include "memory/cuda_pool.hpp"
#include "plugins/nccl_preload/caller_messages.hpp"
#include "plugins/nccl_preload/cuda_exchange.hpp"
#include "plugins/nccl_preload/cuda_gather.hpp"
#include "plugins/nccl_preload/cuda_loans.hpp"
#include "plugins/nccl_preload/device_path.hpp"
#include "plugins/nccl_preload/driver_events.hpp"
#include "plugins/nccl_preload/state.hpp"
#include "session/device/cuda_share.hpp"

namespace gradwire::nccl_preload {
namespace {

// NCCL asks for memory that it needs at once, and for more with the first messages.
constexpr std::size_t kFreeForChild = std::size_t{256} << 20;

exchange::CudaShare share() { return session::share_of(state().configuration.planner.policy().device); }

class CudaLink final : public drop_in::DeviceLink {
 public:
  CudaLink(std::unique_ptr<CallerMessages> messages, int device, std::shared_ptr<drop_in::RankGather> gather)
      : messages_(*messages),
        gather_(std::move(gather)),
        port_(*messages, device),
        lasting_(device),
        loans_(device),
        device_(std::move(messages), device, nullptr, share()) {
    messages_.child().set_memory_check([] {
      std::size_t available = 0;
      std::size_t all = 0;
      return cudaMemGetInfo(&available, &all) == cudaSuccess && available >= kFreeForChild;
    });
  }

  [[nodiscard]] exchange::StreamDevice& device() noexcept override { return device_; }
  void set_caller(void* stream) override { device_.set_caller(static_cast<cudaStream_t>(stream)); }
  // The event is that of the latest run. In a graph its records and waits belong to each replay, as those of NCCL's own
  // event for a communicator do.
  void begin_run(bool captured) override {
    replayed_ = replayed_ || captured;
    if (replayed_) {
      memory::cuda_check(cudaStreamWaitEvent(compute(), latest_.get(), captured ? cudaEventWaitExternal : 0),
                         "waiting for an event of the latest call");
    }
  }
  void end_run(bool captured) override {
    memory::cuda_check(cudaEventRecordWithFlags(latest_.get(), compute(), captured ? cudaEventRecordExternal : 0),
                       "recording an event of the latest call");
  }
  [[nodiscard]] drop_in::RankGather& gather() noexcept override { return *gather_; }
  [[nodiscard]] drop_in::OwnCommunicator* own_communicator() noexcept override { return &messages_.child(); }
  [[nodiscard]] drop_in::ExchangePort& exchange_port() noexcept override { return port_; }
  [[nodiscard]] drop_in::DeviceClock& clock() noexcept override { return clock_; }
  [[nodiscard]] memory::Arena& lasting() noexcept override { return lasting_.arena(); }
  [[nodiscard]] memory::ArenaSource& loans() noexcept override { return loans_; }

 private:
  [[nodiscard]] cudaStream_t compute() const noexcept {
    return device_.stream(exchange::StreamBackend::Queue::compute);
  }

  CallerMessages& messages_;  // the device's
  std::shared_ptr<drop_in::RankGather> gather_;
  CudaExchange port_;  // it uses the messages only while calls are made
  EventClock clock_;
  memory::CudaPool lasting_;
  CudaLoans loans_;
  exchange::CudaDevice device_;  // its end comes before that of the memory above, and waits for work that uses it
  exchange::CudaEvent latest_;
  bool replayed_ = false;  // there may be replays
};

}  // namespace

bool has_device_path() noexcept { return true; }

std::shared_ptr<drop_in::RankGather> make_gather(ncclComm_t comm, int rank, int size,
                                                 std::shared_ptr<const std::atomic<bool>> ended,
                                                 std::shared_ptr<ChildCommunicator> child) {
  return std::make_shared<CudaGather>(
      std::make_unique<CallerMessages>(comm, rank, size, std::move(ended), std::move(child)));
}

std::unique_ptr<drop_in::DeviceLink> make_link(ncclComm_t comm, int rank, int size, const Reserved& reserved) {
  auto messages = std::make_unique<CallerMessages>(comm, rank, size, reserved.ended, reserved.child);
  const int device = messages->device();
  const exchange::OnCudaDevice current(device);  // events belong to the device that is current
  return std::make_unique<CudaLink>(std::move(messages), device, reserved.gather);
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
