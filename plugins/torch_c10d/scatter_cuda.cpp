// Makes FSDP's reduce-scatters over CUDA devices and NCCL, in the shared object that device_hook.cpp loads.
#include <cuda_runtime_api.h>

#include <utility>

#include "exchange/stream/stream_nccl.hpp"
#include "plugins/torch_c10d/nccl_join.hpp"
#include "plugins/torch_c10d/scatter_device.hpp"

namespace gradwire::torch_c10d {
namespace {

class CudaScatter final : public ScatterEngine {
 public:
  explicit CudaScatter(std::unique_ptr<exchange::CudaDevice> device, const CodecSpec& codec)
      : device_(*device), scatter_(std::move(device), codec) {}

  void reduce_scatter(const ScatterCall& call) override {
    device_.set_caller(static_cast<cudaStream_t>(call.stream));
    scatter_.reduce_scatter(call);
  }

 private:
  exchange::CudaDevice& device_;
  DeviceScatter scatter_;
};

}  // namespace
}  // namespace gradwire::torch_c10d

extern "C" [[gnu::visibility("default")]] gradwire::torch_c10d::ScatterEngine*
gradwire_torch_make_device_scatter_engine(const gradwire::torch_c10d::ScatterOptions& options) {
  namespace own = gradwire::torch_c10d;
  own::check_cuda_device(options.device, own::kScatterName);
  const gradwire::exchange::OnCudaDevice current(options.device);
  auto messages = own::join_by_nccl(
      options.store, {.rank = options.rank, .world_size = options.world_size, .timeout = options.timeout, .go_on = {}},
      own::kScatterName, "first reduce-scatter");
  return std::make_unique<own::CudaScatter>(
             gradwire::exchange::make_nccl_device(std::move(messages), nullptr, gradwire::exchange::CudaShare{}),
             options.codec)
      .release();
}
