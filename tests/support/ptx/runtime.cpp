// The functions of libcudart that the product and its tests call, over Device. It is a libcudart.so.13 to link, or to
// put in front by LD_LIBRARY_PATH, so that a program built with nvcc runs as it is, if its PTX is not compressed.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "tests/support/ptx/binaries.hpp"
#include "tests/support/ptx/queues.hpp"

namespace {

using gradwire::ptx::Device;
using gradwire::ptx::EventState;
using gradwire::ptx::Finding;
using gradwire::ptx::Kernel;
using gradwire::ptx::Launch;

thread_local cudaError_t t_last = cudaSuccess;

cudaError_t give(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) {
    t_last = error;
  }
  return error;
}

// Runs a call under the lock of the device. After a finding all calls fail.
template <class Body>
cudaError_t guarded(Body&& body) {
  Device& device = Device::instance();
  ++device.callers;
  const std::lock_guard lock(device.mutex);
  --device.callers;
  if (device.failed()) {
    return give(cudaErrorLaunchFailure);
  }
  try {
    return give(body(device));
  } catch (const Finding& finding) {
    device.note(finding.what());
  } catch (const std::exception& error) {
    device.note(std::string("the interpreter failed: ") + error.what());
  }
  return give(cudaErrorLaunchFailure);
}

cudaError_t state_of(const Device& device) { return device.failed() ? cudaErrorLaunchFailure : cudaSuccess; }

std::shared_ptr<EventState>& state_of(cudaEvent_t event) {
  return *reinterpret_cast<std::shared_ptr<EventState>*>(event);
}

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

#define API extern "C" __attribute__((visibility("default")))

// What nvcc's host code calls.
API void** __cudaRegisterFatBinary(void* binary) { return gradwire::ptx::register_binary(binary); }
API void __cudaRegisterFatBinaryEnd(void**) {}
API void __cudaUnregisterFatBinary(void**) {}
API void __cudaRegisterFunction(void** binary, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*,
                                dim3*, int*) {
  gradwire::ptx::register_kernel(binary, host, name);
}
API cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  return guarded([&](Device&) {
    *kernel = reinterpret_cast<cudaKernel_t>(&gradwire::ptx::registered_kernel(host));
    return cudaSuccess;
  });
}
API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 blocks, dim3 threads, void** arguments, std::size_t shared,
                                   cudaStream_t stream) {
  return launch(*reinterpret_cast<Kernel*>(kernel), blocks, threads, arguments, shared, stream);
}
API unsigned __cudaPushCallConfiguration(dim3 blocks, dim3 threads, std::size_t shared, cudaStream_t stream) {
  t_pushed.push_back({blocks, threads, shared, stream});
  return 0;
}
API cudaError_t __cudaPopCallConfiguration(dim3* blocks, dim3* threads, std::size_t* shared, void* stream) {
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
API cudaError_t cudaLaunchKernel(const void* host, dim3 blocks, dim3 threads, void** arguments, std::size_t shared,
                                 cudaStream_t stream) {
  Kernel* kernel = nullptr;
  const cudaError_t error = guarded([&](Device&) {
    kernel = &gradwire::ptx::registered_kernel(host);
    return cudaSuccess;
  });
  return error != cudaSuccess ? error : launch(*kernel, blocks, threads, arguments, shared, stream);
}
API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* host) {
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
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, std::size_t) {
  *blocks = 1;
  return cudaSuccess;
}

// Memory.
API cudaError_t cudaMalloc(void** to, std::size_t bytes) { return allocate(to, bytes, "allocation", false); }
API cudaError_t cudaFree(void* memory) { return release(memory); }
API cudaError_t cudaHostAlloc(void** to, std::size_t bytes, unsigned) {
  return allocate(to, bytes, "pinned allocation", true);  // the host may have written it
}
API cudaError_t cudaMallocHost(void** to, std::size_t bytes) { return cudaHostAlloc(to, bytes, 0); }
API cudaError_t cudaFreeHost(void* memory) { return release(memory); }
API cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return cudaSuccess;
}
API cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  return guarded([&](Device& device) {
    device.copy(device.stream(nullptr), to, from, bytes, true);
    return state_of(device);
  });
}
API cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return guarded([&](Device& device) {
    device.copy(device.stream(stream), to, from, bytes, false);
    return state_of(device);
  });
}
API cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return guarded([&](Device& device) {
    device.fill(device.stream(nullptr), to, value, bytes);
    return cudaSuccess;
  });
}
API cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return guarded([&](Device& device) {
    device.fill(device.stream(stream), to, value, bytes);
    return cudaSuccess;
  });
}
API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return guarded([&](Device& device) {
    const auto* const found = device.memory.find(reinterpret_cast<std::uint64_t>(pointer));
    *attributes = {};
    attributes->type = found == nullptr                           ? cudaMemoryTypeUnregistered
                       : found->name.compare(0, 6, "pinned") == 0 ? cudaMemoryTypeHost
                                                                  : cudaMemoryTypeDevice;
    if (found != nullptr) {
      attributes->devicePointer = const_cast<void*>(pointer);
      attributes->hostPointer = attributes->type == cudaMemoryTypeHost ? const_cast<void*>(pointer) : nullptr;
    }
    return cudaSuccess;
  });
}

// Streams and events.
API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return guarded([&](Device& device) {
    *stream = device.add_stream((flags & cudaStreamNonBlocking) == 0);
    return cudaSuccess;
  });
}
API cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }
API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
API cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return guarded([&](Device& device) {
    device.remove_stream(stream);
    return cudaSuccess;
  });
}
API cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return guarded([&](Device& device) {
    device.synchronize(device.stream(stream));
    return state_of(device);
  });
}
API cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return guarded([&](Device& device) {
    auto& asked = device.stream(stream);
    device.run_some();
    if (!asked.work.empty()) {
      return cudaErrorNotReady;
    }
    device.synchronize(asked);
    return state_of(device);
  });
}
// GRADWIRE_PTX_DROP_WAIT=N drops the wait that each thread makes N-th, for mutation tests.
API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  static const char* const dropped = std::getenv("GRADWIRE_PTX_DROP_WAIT");
  thread_local std::uint64_t waits = 0;
  ++waits;
  return guarded([&](Device& device) {
    if (dropped == nullptr || waits != std::strtoull(dropped, nullptr, 0)) {
      device.wait(device.stream(stream), state_of(event));
    }
    device.count_waits(waits);
    return cudaSuccess;
  });
}
API cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
API cudaError_t cudaStreamGetDevice(cudaStream_t, int* device) {
  *device = 0;
  return cudaSuccess;
}
API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return guarded([&](Device& device) {
    device.call(device.stream(stream), [function, data] { function(data); });
    return cudaSuccess;
  });
}
API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new std::shared_ptr<EventState>(std::make_shared<EventState>()));
  return cudaSuccess;
}
API cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
API cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete reinterpret_cast<std::shared_ptr<EventState>*>(event);
  return cudaSuccess;
}
API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return guarded([&](Device& device) {
    state_of(event) = std::make_shared<EventState>();
    device.record(device.stream(stream), state_of(event));
    return cudaSuccess;
  });
}
API cudaError_t cudaEventQuery(cudaEvent_t event) {
  return guarded([&](Device& device) {
    device.run_some();
    if (!state_of(event)->done) {
      return cudaErrorNotReady;
    }
    device.synchronize(*state_of(event));
    return state_of(device);
  });
}
API cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return guarded([&](Device& device) {
    device.synchronize(*state_of(event));
    return state_of(device);
  });
}
API cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = static_cast<float>(state_of(end)->milliseconds - state_of(begin)->milliseconds);
  return cudaSuccess;
}

// The device.
API cudaError_t cudaDeviceSynchronize() {
  return guarded([&](Device& device) {
    device.synchronize_all();
    return state_of(device);
  });
}
API cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
API cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
API cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : give(cudaErrorInvalidDevice); }
API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "PTX interpreter");
  properties->major = 9;
  properties->multiProcessorCount = 132;
  properties->totalGlobalMem = std::size_t{1} << 30;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  return cudaSuccess;
}
API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrMultiProcessorCount      ? 132
           : attribute == cudaDevAttrComputeCapabilityMajor ? 9
           : attribute == cudaDevAttrWarpSize               ? 32
                                                            : 0;
  return cudaSuccess;
}
API cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
API cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
API cudaError_t cudaGetLastError() {
  const cudaError_t last = t_last;
  t_last = cudaSuccess;
  return Device::instance().failed() ? cudaErrorLaunchFailure : last;
}
API cudaError_t cudaPeekAtLastError() { return Device::instance().failed() ? cudaErrorLaunchFailure : t_last; }
API const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaSuccess              ? "cudaSuccess"
         : error == cudaErrorLaunchFailure ? "cudaErrorLaunchFailure"
         : error == cudaErrorNotReady      ? "cudaErrorNotReady"
         : error == cudaErrorInvalidValue  ? "cudaErrorInvalidValue"
                                           : "cudaError";
}
API const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorLaunchFailure ? "the PTX interpreter found an error, see its text on standard error"
                                         : "an error of the PTX interpreter's runtime";
}

// Of the driver: found by dlopen("libcuda.so.1"), which is another name of this library.
API CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned) {
  const cudaError_t error = guarded([&](Device& device) {
    device.write_word(device.stream(stream), reinterpret_cast<std::uint32_t*>(word), value);
    return cudaSuccess;
  });
  return error == cudaSuccess ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED;
}
API CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned flags) {
  const cudaError_t error = guarded([&](Device& device) {
    if ((flags & 3U) != CU_STREAM_WAIT_VALUE_GEQ) {
      throw Finding("unknown call: cuStreamWaitValue32 with another comparison than >=");
    }
    device.wait_for_word(device.stream(stream), reinterpret_cast<const std::uint32_t*>(word), value);
    return cudaSuccess;
  });
  return error == cudaSuccess ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED;
}

// Requests of a test to the interpreter, which programs declare as weak.
API void gradwire_ptx_forbid(const void* from, std::size_t bytes) {
  const std::lock_guard lock(Device::instance().mutex);
  Device::instance().memory.forbid(from, bytes);
}
API void gradwire_ptx_undefine(const void* from, std::size_t bytes) {
  const std::lock_guard lock(Device::instance().mutex);
  Device::instance().memory.undefine(from, bytes);
}
