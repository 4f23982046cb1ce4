// Opens the windows of a CUDA device: ranks agree on their size and number of blocks, map each other's memory, and test
// it before anything relies on it.
#include <algorithm>
#include <new>

#include "exchange/stream/stream_cuda_device.hpp"
#include "kernels/device/window_operations.hpp"
#include "memory/cuda_nccl_windows.hpp"
#include "memory/cuda_windows.hpp"
#include "transport/tcp/tcp_socket.hpp"

namespace gradwire::exchange {
namespace {

constexpr std::chrono::milliseconds kTestTimeout{30'000};

}  // namespace

std::string CudaDevice::open_windows(const memory::AllGather& all_gather, std::chrono::milliseconds timeout) {
  const int world_size = messages_->world_size();
  const int rank = messages_->rank();
  if (world_size < 2 || world_size > static_cast<int>(kernels::kMostWindowRanks)) {
    return "windows are for 2 to " + std::to_string(kernels::kMostWindowRanks) + " ranks";
  }
  kernels::load_window_kernels();
  // The pinned words are allocated before any kernel waits for another rank, because CUDA may let an allocation wait
  // for running kernels.
  auto* words = new (pinned_->acquire(sizeof(kernels::WindowWords))) kernels::WindowWords;
  const std::string host = transport::tcp::host_identity() + " ";
  const std::string own = host + memory::device_bus(device_);
  const std::vector<std::string> places = all_gather(own);
  if (!std::all_of(places.begin(), places.end(), [&](const std::string& text) { return text.starts_with(host); })) {
    return "not all ranks are on one host";
  }
  const auto sharing = static_cast<std::uint32_t>(std::count(places.begin(), places.end(), own));
  std::uint32_t fits = window_blocks(kernels::resident_window_blocks(), sharing);
  if (const std::uint32_t bound = backend_->most_blocks(); bound != 0) {
    fits = std::min(fits, bound);
  }
  const std::vector<std::string> fitting = all_gather(std::to_string(fits));
  std::uint32_t blocks = kernels::kMostWindowBlocks;
  for (const std::string& text : fitting) {
    blocks = std::min(blocks, static_cast<std::uint32_t>(std::stoul(text)));
  }
  if (blocks == 0) {
    return "the kernels of all ranks that share a GPU do not fit on it at once";
  }
  const kernels::WindowShape shape{.ranks = static_cast<std::uint32_t>(world_size),
                                   .rank = static_cast<std::uint32_t>(rank),
                                   .blocks = blocks,
                                   .slot_bytes = kWindowSlotBytes};
  std::string why;
  const std::uint64_t bytes = kernels::window_bytes(shape);
  std::unique_ptr<memory::PeerWindows> windows = memory::CudaPeerWindows::open(device_, bytes, rank, all_gather, why);
  if (void* communicator = messages_->nccl_communicator(); windows == nullptr && communicator != nullptr) {
    std::string by_nccl;
    windows = memory::NcclPeerWindows::open(communicator, bytes, rank, all_gather, by_nccl);
    why += "; " + by_nccl;
  }
  if (windows == nullptr) {
    return why;
  }
  auto calls = std::make_unique<WindowCalls>(std::move(windows), shape, *words, timeout);
  const std::vector<std::string> verdicts = all_gather(test_windows(*calls, timeout) ? "good" : "bad");
  const auto bad = std::find(verdicts.begin(), verdicts.end(), "bad");
  if (bad != verdicts.end()) {
    return "rank " + std::to_string(bad - verdicts.begin()) + " did not find in its window what others wrote to it";
  }
  adopt_windows(std::move(calls));
  return "";
}

bool CudaDevice::test_windows(const WindowCalls& calls, std::chrono::milliseconds timeout) {
  kernels::WindowPlaces places = calls.places();
  const std::chrono::milliseconds patience = std::min(timeout, kTestTimeout);
  places.timeout_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(patience).count());
  kernels::check_windows(places, compute());
  wait_alone(mark(), 2 * patience);
  return std::atomic_ref(places.words->tested).load() == kernels::all_tested_words(places.shape);
}

void CudaDevice::adopt_windows(std::unique_ptr<WindowCalls> calls) {
  calls_ = std::move(calls);
  to_abort_ = calls_.get();
}

}  // namespace gradwire::exchange
