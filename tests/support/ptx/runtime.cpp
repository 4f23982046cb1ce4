// The functions of libcudart that the product and its tests call, over Device: kernels and memory. It is a
// libcudart.so.13 to link, or to put in front by LD_LIBRARY_PATH, so that a program built with nvcc runs as it is, if
// its PTX is not compressed.
#include "tests/support/ptx/runtime.hpp"

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "tests/support/ptx/binaries.hpp"

namespace {

using gradwire::ptx::Device;
using gradwire::ptx::give;
using gradwire::ptx::guarded;
using gradwire::ptx::Kernel;
using gradwire::ptx::Launch;
using gradwire::ptx::state_of;

cudaError_t allocate(void** to, std::size_t bytes, const char* kind, bool defined) {
  return guarded([&](Device& device) {
    static std::uint64_t count = 0;
    *to = nullptr;
    if (bytes == 0) {
      return cudaSuccess;
    }
    const std::size_t whole = (bytes + 511) / 256 * 256;
    *to = std::aligned_alloc(256, whole);
    if (*to == nullptr) {
      return cudaErrorMemoryAllocation;
    }
    std::memset(*to, 0xCD, whole);
    device.memory.add(*to, bytes, std::string(kind) + " " + std::to_string(++count), defined);
    return cudaSuccess;
  });
}

cudaError_t release(void* memory) {
  if (memory == nullptr) {
    return cudaSuccess;
  }
  Device& device = Device::instance();
  guarded([](Device& d) {
    d.synchronize_all();  // as a free does on a GPU
    return cudaSuccess;
  });
  const std::lock_guard lock(device.mutex);
  if (!device.memory.remove(memory)) {
    device.note("a free of memory that was not allocated");
    return give(cudaErrorInvalidValue);
  }
  std::free(memory);
  return state_of(device);
}

cudaError_t launch(Kernel& kernel, dim3 blocks, dim3 threads, void** arguments, std::size_t shared,
                   cudaStream_t stream) {
  return guarded([&](Device& device) {
    Launch job;
    job.kernel = &kernel;
    job.dynamic_shared = shared;
    const unsigned sizes[2][3] = {{blocks.x, blocks.y, blocks.z}, {threads.x, threads.y, threads.z}};
    for (int d = 0; d < 3; ++d) {
      if (sizes[0][d] == 0 || sizes[1][d] == 0) {
        return cudaErrorInvalidConfiguration;
      }
      job.blocks[d] = sizes[0][d];
      job.threads[d] = sizes[1][d];
    }
    if (threads.x * threads.y * threads.z > 1024) {
      return cudaErrorInvalidConfiguration;
    }
    job.parameters.resize(kernel.parameter_bytes);
    for (std::size_t i = 0; i < kernel.parameters.size(); ++i) {
      std::memcpy(job.parameters.data() + kernel.parameters[i].offset, arguments[i], kernel.parameters[i].bytes);
    }
    device.launch(device.stream(stream), std::move(job));
    return cudaSuccess;
  });
}

struct PushedLaunch {
  dim3 blocks, threads;
  std::size_t shared;
  cudaStream_t stream;
};
thread_local std::vector<PushedLaunch> t_pushed;

}  // namespace

// NVIDIA's names are not repeated.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name,bugprone-reserved-identifier)

// What nvcc's host code calls.
GRADWIRE_PTX_API void** __cudaRegisterFatBinary(void* binary) { return gradwire::ptx::register_binary(binary); }
GRADWIRE_PTX_API void __cudaRegisterFatBinaryEnd(void**) {}
GRADWIRE_PTX_API void __cudaUnregisterFatBinary(void**) {}
GRADWIRE_PTX_API void __cudaRegisterFunction(void** binary, const char* host, char*, const char* name, int, uint3*,
                                             uint3*, dim3*, dim3*, int*) {
  gradwire::ptx::register_kernel(binary, host, name);
}
GRADWIRE_PTX_API cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  return guarded([&](Device&) {
    *kernel = reinterpret_cast<cudaKernel_t>(&gradwire::ptx::registered_kernel(host));
    return cudaSuccess;
  });
}
GRADWIRE_PTX_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 blocks, dim3 threads, void** arguments,
                                                std::size_t shared, cudaStream_t stream) {
  return launch(*reinterpret_cast<Kernel*>(kernel), blocks, threads, arguments, shared, stream);
}
GRADWIRE_PTX_API unsigned __cudaPushCallConfiguration(dim3 blocks, dim3 threads, std::size_t shared,
                                                      cudaStream_t stream) {
  t_pushed.push_back({blocks, threads, shared, stream});
  return 0;
}
GRADWIRE_PTX_API cudaError_t __cudaPopCallConfiguration(dim3* blocks, dim3* threads, std::size_t* shared,
                                                        void* stream) {
  if (t_pushed.empty()) {
    return cudaErrorMissingConfiguration;
  }
  const PushedLaunch pushed = t_pushed.back();
  t_pushed.pop_back();
  *blocks = pushed.blocks;
  *threads = pushed.threads;
  *shared = pushed.shared;
  *static_cast<cudaStream_t*>(stream) = pushed.stream;
  return cudaSuccess;
}

// Kernels.
GRADWIRE_PTX_API cudaError_t cudaLaunchKernel(const void* host, dim3 blocks, dim3 threads, void** arguments,
                                              std::size_t shared, cudaStream_t stream) {
  Kernel* kernel = nullptr;
  const cudaError_t error = guarded([&](Device&) {
    kernel = &gradwire::ptx::registered_kernel(host);
    return cudaSuccess;
  });
  return error != cudaSuccess ? error : launch(*kernel, blocks, threads, arguments, shared, stream);
}
GRADWIRE_PTX_API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* host) {
  return guarded([&](Device&) {
    const Kernel& kernel = gradwire::ptx::registered_kernel(host);
    *attributes = {};
    attributes->sharedSizeBytes = kernel.shared_bytes;
    attributes->localSizeBytes = kernel.local_bytes;
    attributes->maxThreadsPerBlock = 1024;
    attributes->ptxVersion = attributes->binaryVersion = 90;
    return cudaSuccess;
  });
}
// Blocks are resident in turn, so all of them make progress (Settings::most_resident); a processor is said to hold one.
GRADWIRE_PTX_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, std::size_t) {
  *blocks = 1;
  return cudaSuccess;
}
GRADWIRE_PTX_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int,
                                                                                    std::size_t, unsigned) {
  *blocks = 1;
  return cudaSuccess;
}

// Memory.
GRADWIRE_PTX_API cudaError_t cudaMalloc(void** to, std::size_t bytes) {
  return allocate(to, bytes, "allocation", false);
}
GRADWIRE_PTX_API cudaError_t cudaFree(void* memory) { return release(memory); }
GRADWIRE_PTX_API cudaError_t cudaHostAlloc(void** to, std::size_t bytes, unsigned) {
  return allocate(to, bytes, "pinned allocation", true);  // the host may have written it
}
GRADWIRE_PTX_API cudaError_t cudaMallocHost(void** to, std::size_t bytes) { return cudaHostAlloc(to, bytes, 0); }
GRADWIRE_PTX_API cudaError_t cudaFreeHost(void* memory) { return release(memory); }
GRADWIRE_PTX_API cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return cudaSuccess;
}
GRADWIRE_PTX_API cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  return guarded([&](Device& device) {
    device.copy(device.stream(nullptr), to, from, bytes, true);
    return state_of(device);
  });
}
GRADWIRE_PTX_API cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                                             cudaStream_t stream) {
  return guarded([&](Device& device) {
    device.copy(device.stream(stream), to, from, bytes, false);
    return state_of(device);
  });
}
GRADWIRE_PTX_API cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return guarded([&](Device& device) {
    device.fill(device.stream(nullptr), to, value, bytes);
    return cudaSuccess;
  });
}
GRADWIRE_PTX_API cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return guarded([&](Device& device) {
    device.fill(device.stream(stream), to, value, bytes);
    return cudaSuccess;
  });
}
GRADWIRE_PTX_API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return guarded([&](Device& device) {
    const auto* const found = device.memory.find(reinterpret_cast<std::uint64_t>(pointer));
    *attributes = {};
    attributes->type = found == nullptr                    ? cudaMemoryTypeUnregistered
                       : found->name.starts_with("pinned") ? cudaMemoryTypeHost
                                                           : cudaMemoryTypeDevice;
    if (found != nullptr) {
      attributes->devicePointer = const_cast<void*>(pointer);
      attributes->hostPointer = attributes->type == cudaMemoryTypeHost ? const_cast<void*>(pointer) : nullptr;
    }
    return cudaSuccess;
  });
}

// Requests of a test to the interpreter, which programs declare as weak.
GRADWIRE_PTX_API void gradwire_ptx_forbid(const void* from, std::size_t bytes) {
  const std::lock_guard lock(Device::instance().mutex);
  Device::instance().memory.forbid(from, bytes);
}
GRADWIRE_PTX_API std::uint64_t gradwire_ptx_launches(const char* part) {
  const std::lock_guard lock(Device::instance().mutex);
  return Device::instance().launches(part);
}
GRADWIRE_PTX_API void gradwire_ptx_lose(const void* at, std::size_t bytes) {
  const std::lock_guard lock(Device::instance().mutex);
  Device::instance().memory.lose(at, bytes);
}
GRADWIRE_PTX_API void gradwire_ptx_undefine(const void* from, std::size_t bytes) {
  const std::lock_guard lock(Device::instance().mutex);
  Device::instance().memory.undefine(from, bytes);
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name,bugprone-reserved-identifier)
