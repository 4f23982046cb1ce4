#include "memory/cuda_windows.hpp"

#include <unistd.h>

#include <cstring>
#include <random>
#include <utility>

#include "base/current_error.hpp"
#include "memory/cuda_check.hpp"

namespace gradwire::memory {
namespace {

std::uint64_t key_of_process() {
  static const std::uint64_t key = (std::uint64_t{std::random_device()()} << 32) | std::random_device()();
  return key;
}

}  // namespace

std::string process_text() { return std::to_string(getpid()) + "-" + std::to_string(key_of_process()); }

void clear_window(void* data, std::size_t bytes) {
  cudaStream_t stream = nullptr;
  cuda_check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), "making a stream");
  const cudaError_t cleared = cudaMemsetAsync(data, 0, bytes, stream);
  const cudaError_t ended = cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
  cuda_check(cleared, "clearing a window");
  cuda_check(ended, "clearing a window");
}

std::string device_bus(int device) {
  char bus[64] = {};
  cuda_check(cudaDeviceGetPCIBusId(bus, sizeof bus, device), "asking what device " + std::to_string(device) + " is");
  return bus;
}

CudaPeerWindows::CudaPeerWindows(int device, int rank)
    : device_(device), rank_(rank), windows_(static_cast<std::size_t>(rank) + 1) {}

void CudaPeerWindows::allocate(std::size_t bytes) {
  void* data = nullptr;
  cuda_check(cudaMalloc(&data, bytes), "allocating a window of " + std::to_string(bytes) + " bytes");
  windows_[static_cast<std::size_t>(rank_)].data = static_cast<std::byte*>(data);
  clear_window(data, bytes);
}

CudaPeerWindows::Offer CudaPeerWindows::offer() const {
  Offer offer{
      .process = static_cast<long>(getpid()), .key = key_of_process(), .device = device_, .data = window(rank_)};
  cuda_check(cudaIpcGetMemHandle(&offer.handle, offer.data),
             "offering a window to other processes (cudaIpcGetMemHandle)");
  return offer;
}

void CudaPeerWindows::open_window(int rank, const Offer& offer) {
  Window& window = windows_[static_cast<std::size_t>(rank)];
  if (offer.process != static_cast<long>(getpid()) || offer.key != key_of_process()) {
    void* data = nullptr;
    cuda_check(cudaIpcOpenMemHandle(&data, offer.handle, cudaIpcMemLazyEnablePeerAccess),
               "opening the window of rank " + std::to_string(rank) + " (cudaIpcOpenMemHandle)");
    window = {static_cast<std::byte*>(data), true};
    return;
  }
  if (offer.device != device_) {
    const cudaError_t enabled = cudaDeviceEnablePeerAccess(offer.device, 0);
    if (enabled == cudaErrorPeerAccessAlreadyEnabled) {
      cudaGetLastError();  // otherwise the next launch would report it
    } else {
      cuda_check(enabled, "letting device " + std::to_string(device_) + " write to device " +
                              std::to_string(offer.device) + " (cudaDeviceEnablePeerAccess)");
    }
  }
  window.data = static_cast<std::byte*>(offer.data);
}

// Every step has an exchange behind it, also where it failed, so that all ranks fail together.
std::unique_ptr<CudaPeerWindows> CudaPeerWindows::open(int device, std::size_t bytes, int rank,
                                                       const AllGather& all_gather, std::string& why,
                                                       std::unique_ptr<PeerWindows>* unused) {
  std::unique_ptr<CudaPeerWindows> windows;
  const auto give_up = [&]() -> std::unique_ptr<CudaPeerWindows> {
    if (unused != nullptr) {
      *unused = std::move(windows);
    }
    return nullptr;
  };
  const std::string good = "good";
  std::string offered = "none";
  std::string trouble = good;
  const auto attempt = [&](const auto& step) {
    try {
      step();
    } catch (...) {
      trouble = current_error().what();
    }
  };
  attempt([&] {
    windows.reset(new CudaPeerWindows(device, rank));
    windows->allocate(bytes);
    const Offer offer = windows->offer();
    offered.assign(reinterpret_cast<const char*>(&offer), sizeof offer);
  });
  const std::vector<std::string> offers = all_gather(offered);
  const int world_size = static_cast<int>(offers.size());
  const auto first_without = [&](const auto& has) {
    int number = 0;
    while (number < world_size && has(number)) {
      ++number;
    }
    return number;
  };
  const int silent = first_without([&](int r) { return offers[static_cast<std::size_t>(r)].size() == sizeof(Offer); });
  if (silent < world_size) {
    why = silent == rank ? trouble : "rank " + std::to_string(silent) + " has no window";
    return give_up();
  }
  attempt([&] {
    windows->windows_.resize(offers.size());
    for (int other = 0; other < world_size; ++other) {
      if (other != rank) {
        Offer offer;
        std::memcpy(&offer, offers[static_cast<std::size_t>(other)].data(), sizeof offer);
        windows->open_window(other, offer);
      }
    }
  });
  const std::vector<std::string> troubles = all_gather(trouble);
  const int failed = first_without([&](int r) { return troubles[static_cast<std::size_t>(r)] == good; });
  if (failed < world_size) {
    why = "rank " + std::to_string(failed) + ": " + troubles[static_cast<std::size_t>(failed)];
    return give_up();
  }
  return windows;
}

CudaPeerWindows::~CudaPeerWindows() {
  int previous = device_;
  cudaGetDevice(&previous);
  cudaSetDevice(device_);
  for (const Window& window : windows_) {
    if (window.opened) {
      cudaIpcCloseMemHandle(window.data);
    }
  }
  if (!leaks_) {
    cudaFree(window(rank_));
  }
  cudaSetDevice(previous);
}

}  // namespace gradwire::memory
