#include "plugins/nccl_preload/cuda_loans.hpp"

#include "base/units.hpp"
#include "exchange/stream/stream_cuda_device.hpp"
#include "gradwire/error.hpp"
#include "memory/cuda_check.hpp"

namespace gradwire::nccl_preload {
namespace {

using memory::cuda_check;

constexpr std::size_t kKeptShare = 16;

}  // namespace

CudaLoans::~CudaLoans() {
  if (pool_ == nullptr) {
    return;
  }
  try {
    const exchange::OnCudaDevice current(device_);
    while (!live_.empty()) {
      free(*live_.begin());
    }
    cudaMemPoolDestroy(pool_);
    cudaStreamDestroy(stream_);
  } catch (...) {  // NOLINT(bugprone-empty-catch): the device is gone, and its memory with it
  }
}

void CudaLoans::open() {
  int pools = 0;
  cuda_check(cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, device_), "asking for memory pools");
  if (pools == 0) {
    throw Error(ErrorCode::unsupported, "the device has no memory pools");
  }
  cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {.type = cudaMemLocationTypeDevice, .id = device_};
  cuda_check(cudaMemPoolCreate(&pool_, &properties), "making a pool of device memory");
}

std::byte* CudaLoans::allocate(std::size_t bytes) {
  try {
    if (pool_ == nullptr) {
      open();
    }
    std::size_t available = 0;
    std::size_t total = 0;
    cuda_check(cudaMemGetInfo(&available, &total), "asking for free device memory");
    if (available < total / kKeptShare || bytes > available - total / kKeptShare) {
      why_ = "of " + format_bytes(available) + " free device memory " + format_bytes(bytes) +
             " would leave the job too little";
      return nullptr;
    }
    void* memory = nullptr;
    cuda_check(cudaMallocFromPoolAsync(&memory, bytes, pool_, stream_), "taking device memory");
    cuda_check(cudaStreamSynchronize(stream_), "taking device memory");
    auto* const taken = static_cast<std::byte*>(memory);
    live_.insert(taken);
    return taken;
  } catch (const Error& error) {
    cudaGetLastError();  // otherwise the next launch would report it
    why_ = error.what();
    return nullptr;
  }
}

void CudaLoans::free(std::byte* memory) noexcept {
  live_.erase(memory);
  cudaFreeAsync(memory, stream_);
  cudaStreamSynchronize(stream_);
  cudaMemPoolTrimTo(pool_, 0);
}

}  // namespace gradwire::nccl_preload
