// The hook's sessions over CUDA devices and NCCL: a shared object of its own, which device_hook.cpp loads.
#include <cuda_runtime_api.h>

#include <utility>

#include "exchange/stream/stream_nccl.hpp"
#include "plugins/torch_c10d/hook_engine.hpp"
#include "plugins/torch_c10d/nccl_join.hpp"
#include "session/device/cuda_share.hpp"
#include "session/device/device_runner.hpp"

namespace gradwire::torch_c10d {
namespace {

// NCCL wants calls on several communicators of a device in one order on all ranks. So the session enqueues its calls in
// post(), which DDP calls on every rank at the same place among its own.
class CudaMember final : public HookMember {
 public:
  explicit CudaMember(int device) : number_(device) {}

  Session make_session(const HookOptions& options, const transport::Rendezvous& store,
                       const std::function<void()>& go_on) override {
    const exchange::OnCudaDevice current(number_);
    auto messages = join_by_nccl(
        store, {.rank = options.rank, .world_size = options.world_size, .timeout = options.timeout, .go_on = go_on},
        "gradwire_torch.Hook", "first backward pass");
    device_ = exchange::make_nccl_device(std::move(messages), stream_, session::share_of(options.policy.device));
    const SessionOptions ours = session_options(options);
    return session::make_session(std::make_unique<session::DeviceRunner>(device_, nullptr, ours), options.policy, ours);
  }

  [[nodiscard]] bool enqueues() const noexcept override { return true; }

  void set_stream(void* stream) override {
    stream_ = static_cast<cudaStream_t>(stream);
    if (device_) {
      device_->set_caller(stream_);
    }
  }

 private:
  int number_;
  cudaStream_t stream_ = nullptr;
  std::shared_ptr<exchange::CudaDevice> device_;  // of the session
};

}  // namespace
}  // namespace gradwire::torch_c10d

extern "C" [[gnu::visibility("default")]] gradwire::torch_c10d::HookEngine* gradwire_torch_make_device_hook_engine(
    const gradwire::torch_c10d::HookOptions& options) {
  namespace own = gradwire::torch_c10d;
  own::check_cuda_device(options.device, "gradwire_torch.Hook");
  return own::make_hook_engine(options, std::make_unique<own::CudaMember>(options.device)).release();
}
