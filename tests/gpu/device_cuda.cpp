#include "tests/gpu/device_cuda.hpp"

#include "tests/gpu/device.hpp"

// Functions of the PTX interpreter's runtime; they are null with CUDA's own runtime.
extern "C" {
[[gnu::weak]] void gradwire_ptx_forbid(const void* from, std::size_t bytes);
[[gnu::weak]] void gradwire_ptx_lose(const void* at, std::size_t bytes);
[[gnu::weak]] void gradwire_ptx_undefine(const void* from, std::size_t bytes);
}

namespace gradwire::gpu {

std::string why_no_device() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess) {
    return std::string("no GPU: cudaGetDeviceCount: ") + cudaGetErrorName(error) + ": " + cudaGetErrorString(error);
  }
  return devices == 0 ? "no GPU: cudaGetDeviceCount counts none" : "";
}

std::string describe_device() {
  cudaDeviceProp properties{};
  int driver = 0;
  int runtime = 0;
  cuda(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  cuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  cuda(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  return std::string(properties.name) + ", sm_" + std::to_string(properties.major) + std::to_string(properties.minor) +
         ", " + std::to_string(properties.multiProcessorCount) + " SMs, " +
         std::to_string(properties.totalGlobalMem >> 20) + " MiB, CUDA runtime " + std::to_string(runtime) +
         ", driver for " + std::to_string(driver);
}

void* device_allocate(std::size_t bytes) {
  void* memory = nullptr;
  cuda(cudaMalloc(&memory, bytes), "cudaMalloc");
  return memory;
}
void device_free(void* memory) noexcept { cudaFree(memory); }

void upload(void* to, const void* from, std::size_t bytes) {
  synchronize();
  if (bytes != 0) {
    cuda(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy to the device");
    cuda(cudaStreamSynchronize(nullptr), "cudaMemcpy to the device");  // it may return before the last bytes are there
  }
}
void download(void* to, const void* from, std::size_t bytes) {
  synchronize();
  if (bytes != 0) {
    cuda(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy from the device");
  }
}

void synchronize() {
  cuda(cudaGetLastError(), "a kernel could not be launched");
  cuda(cudaDeviceSynchronize(), "a kernel failed");
}

void forbid(const void* from, std::size_t bytes) {
  if (gradwire_ptx_forbid != nullptr) {
    gradwire_ptx_forbid(from, bytes);
  }
}
bool lose(const void* at, std::size_t bytes) {
  if (gradwire_ptx_lose == nullptr) {
    return false;
  }
  gradwire_ptx_lose(at, bytes);
  return true;
}
void undefine(const void* from, std::size_t bytes) {
  if (gradwire_ptx_undefine != nullptr) {
    gradwire_ptx_undefine(from, bytes);
  }
}

void* make_stream() {
  cudaStream_t stream = nullptr;
  cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return stream;
}
void free_stream(void* stream) noexcept { cudaStreamDestroy(static_cast<cudaStream_t>(stream)); }

}  // namespace gradwire::gpu
