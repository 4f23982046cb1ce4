#include "tests/device/counted_device.hpp"

#include <chrono>
#include <utility>

#include "exchange/stream/stream_nccl.hpp"
#include "exchange/stream/window_calls.hpp"
#include "kernels/device/window_operations.hpp"
#include "session/device/cuda_share.hpp"
#include "tests/support/fake_windows.hpp"

namespace gradwire::test {

std::shared_ptr<exchange::StreamDevice> make_counted_device(int rank, int world_size, const Policy::Device& share) {
  ncclComm_t comm = nullptr;
  transport::nccl_check(ncclCommInitRank(&comm, world_size, {}, rank), comm, "making a communicator");
  return exchange::make_nccl_device(comm, nullptr, session::share_of(share));
}

void give_windows(exchange::StreamDevice& device, int rank, int world_size) {
  static kernels::WindowWords words;
  const kernels::WindowShape shape{.ranks = static_cast<std::uint32_t>(world_size),
                                   .rank = static_cast<std::uint32_t>(rank),
                                   .blocks = kernels::kMostWindowBlocks,
                                   .slot_bytes = exchange::kWindowSlotBytes};
  auto windows = std::make_unique<FakeWindows>(std::make_shared<WindowMemory>(world_size, 1));  // nothing is written
  kernels::load_window_kernels();
  dynamic_cast<exchange::CudaDevice&>(device).adopt_windows(
      std::make_unique<exchange::WindowCalls>(std::move(windows), shape, words, std::chrono::milliseconds(1000)));
}

}  // namespace gradwire::test
