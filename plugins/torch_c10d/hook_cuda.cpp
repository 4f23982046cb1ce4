// The hook's sessions over CUDA devices and NCCL: a shared object of its own, which device_hook.cpp loads.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstring>
#include <string>
#include <utility>

#include "base/units.hpp"
#include "exchange/stream/stream_nccl.hpp"
#include "plugins/torch_c10d/connect.hpp"
#include "plugins/torch_c10d/hook_engine.hpp"
#include "session/device/cuda_share.hpp"
#include "session/device/device_runner.hpp"

namespace gradwire::torch_c10d {
namespace {

using transport::nccl_check;

// NCCL wants calls on several communicators of a device in one order on all ranks. So the session enqueues its calls in
// post(), which DDP calls on every rank at the same place among its own.
class CudaMember final : public HookMember {
 public:
  explicit CudaMember(int device) : number_(device) {}

  Session make_session(const HookOptions& options, const transport::Rendezvous& store,
                       const std::function<void()>& go_on) override {
    const exchange::OnCudaDevice current(number_);
    if (options.rank == 0) {
      ncclUniqueId id;
      nccl_check(ncclGetUniqueId(&id), nullptr, "gradwire_torch.Hook: ncclGetUniqueId");
      store.put("nccl", std::string(id.internal, sizeof(id.internal)));
    }
    // NCCL waits for absent ranks without end, so each rank first sees that all others have come.
    store.put("here/" + std::to_string(options.rank), "1");
    for (int rank = 0; rank < options.world_size; ++rank) {
      try {
        static_cast<void>(get_while(store, "here/" + std::to_string(rank), options.timeout, go_on));
      } catch (const Error&) {
        throw;
      } catch (const std::exception& error) {
        throw Error(ErrorCode::timeout,
                    "rank " + std::to_string(rank) + " has not come to its first backward pass within " +
                        format_duration(options.timeout) + "; does it have the hook, too? (" + error.what() + ")",
                    ErrorCause::world);
      }
    }
    const std::string text = get_while(store, "nccl", options.timeout, go_on);
    ncclUniqueId id{};
    if (text.size() != sizeof(id.internal)) {
      throw Error(ErrorCode::mismatch, "gradwire_torch.Hook: the group's store holds " + std::to_string(text.size()) +
                                           " bytes as NCCL's id; use one version of gradwire on all ranks");
    }
    std::memcpy(id.internal, text.data(), text.size());
    ncclComm_t comm = nullptr;
    nccl_check(ncclCommInitRank(&comm, options.world_size, id, options.rank), nullptr,
               "gradwire_torch.Hook: ncclCommInitRank");
    device_ = exchange::make_nccl_device(transport::NcclMessages::adopt(comm), stream_,
                                         session::share_of(options.policy.device));
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
  const int devices = gradwire::exchange::cuda_devices();  // its error names a missing driver
  if (options.device < 0 || options.device >= devices) {
    throw gradwire::Error(gradwire::ErrorCode::invalid_argument, "gradwire_torch.Hook: there is no CUDA device " +
                                                                     std::to_string(options.device) + "; there are " +
                                                                     std::to_string(devices));
  }
  return own::make_hook_engine(options, std::make_unique<own::CudaMember>(options.device)).release();
}
