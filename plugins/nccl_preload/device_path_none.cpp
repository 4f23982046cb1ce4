// For builds without device code: calls are counted and forwarded.
#include "plugins/nccl_preload/device_path.hpp"

namespace gradwire::nccl_preload {

bool has_device_path() noexcept { return false; }

std::shared_ptr<drop_in::RankGather> make_gather(ncclComm_t /*comm*/, int /*rank*/, int /*size*/,
                                                 std::shared_ptr<const std::atomic<bool>> /*ended*/,  // NOLINT
                                                 std::shared_ptr<ChildCommunicator> /*child*/) {      // NOLINT
  return nullptr;
}

std::unique_ptr<drop_in::DeviceLink> make_link(ncclComm_t /*comm*/, int /*rank*/, int /*size*/,
                                               const Reserved& /*reserved*/) {
  return nullptr;
}

CaptureTruce::CaptureTruce() noexcept = default;
CaptureTruce::~CaptureTruce() = default;

}  // namespace gradwire::nccl_preload
