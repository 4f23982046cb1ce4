// Opens the windows of a CUDA device (exchange/stream/window_opening.hpp).
#include <array>
#include <atomic>
#include <new>

#include "exchange/stream/stream_cuda_device.hpp"
#include "exchange/stream/window_opening.hpp"
#include "kernels/device/window_operations.hpp"
#include "memory/cuda_nccl_windows.hpp"
#include "memory/cuda_windows.hpp"
#include "transport/tcp/tcp_socket.hpp"

namespace gradwire::exchange {
namespace {

constexpr std::size_t kMostDevices = 64;

// Returns the sum of the process's reservations on the device. Calls of several communicators may run at once.
std::atomic<std::uint32_t>& reserved_on(int device) {
  static std::array<std::atomic<std::uint32_t>, kMostDevices> blocks{};
  return blocks[static_cast<std::size_t>(device) % kMostDevices];
}

}  // namespace

std::string CudaDevice::open_windows(const memory::AllGather& all_gather, std::chrono::milliseconds timeout) {
  class Source final : public WindowSource {
   public:
    explicit Source(CudaDevice& device) : device_(device) {}

    // CUDA may let an allocation of pinned memory wait for running kernels.
    [[nodiscard]] WindowSeat prepare() override {
      kernels::load_window_kernels();
      words_ = new (device_.pinned_->acquire(sizeof(kernels::WindowWords))) kernels::WindowWords;
      return {.host = transport::tcp::host_identity(),
              .device = memory::device_bus(device_.device_),
              .process = memory::process_text(),
              .blocks = kernels::resident_window_blocks(),
              .allowed = device_.backend_->most_blocks()};
    }
    [[nodiscard]] std::atomic<std::uint32_t>& reserved() override { return reserved_on(device_.device_); }
    [[nodiscard]] kernels::WindowWords& words() override { return *words_; }
    [[nodiscard]] std::unique_ptr<memory::PeerWindows> map(std::uint64_t bytes, const memory::AllGather& all_gather,
                                                           std::string& why) override {
      const int rank = device_.messages_->rank();
      std::unique_ptr<memory::PeerWindows> windows =
          memory::CudaPeerWindows::open(device_.device_, bytes, rank, all_gather, why, &unused_);
      if (void* communicator = device_.messages_->nccl_communicator(); windows == nullptr && communicator != nullptr) {
        std::string by_nccl;
        windows = memory::NcclPeerWindows::open(communicator, bytes, rank, all_gather, by_nccl);
        why += "; " + by_nccl;
      }
      return windows;
    }
    void test(const kernels::WindowPlaces& places) override {
      kernels::check_windows(places, device_.compute());
      device_.wait_alone(device_.mark(), 2 * std::chrono::duration_cast<std::chrono::milliseconds>(
                                                 std::chrono::nanoseconds(places.timeout_ns)));
    }

   private:
    CudaDevice& device_;
    kernels::WindowWords* words_ = nullptr;
    std::unique_ptr<memory::PeerWindows> unused_;  // freed once all ranks have left
  };
  Source source(*this);
  std::string why;
  auto calls = exchange::open_windows(source, messages_->rank(), all_gather, timeout, why);
  if (calls == nullptr) {
    return why;
  }
  adopt_windows(std::move(calls));
  return "";
}

void CudaDevice::adopt_windows(std::unique_ptr<WindowCalls> calls) {
  calls_ = std::move(calls);
  to_abort_ = calls_.get();
}

}  // namespace gradwire::exchange
