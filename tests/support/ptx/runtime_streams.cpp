// The functions of libcudart for streams, events and the device, and those of libcuda.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/support/ptx/runtime.hpp"

namespace {

using GraphHandle = std::shared_ptr<gradwire::ptx::Graph>;
using gradwire::ptx::Device;
using gradwire::ptx::EventState;
using gradwire::ptx::Finding;
using gradwire::ptx::give;
using gradwire::ptx::guarded;
using gradwire::ptx::state_of;
using gradwire::ptx::t_last;

// GRADWIRE_PTX_DROP_WAIT=N drops the wait that each thread makes N-th, for mutation tests; 0 is none.
std::uint64_t dropped_wait() {
  static const std::uint64_t dropped = [] {
    const char* const number = std::getenv("GRADWIRE_PTX_DROP_WAIT");
    return number == nullptr ? 0 : std::strtoull(number, nullptr, 0);
  }();
  return dropped;
}

std::shared_ptr<EventState>& state_of(cudaEvent_t event) {
  return *reinterpret_cast<std::shared_ptr<EventState>*>(event);
}

}  // namespace

// NVIDIA's names are not repeated.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name,bugprone-reserved-identifier)

// Streams and events.
GRADWIRE_PTX_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return guarded([&](Device& device) {
    *stream = device.add_stream((flags & cudaStreamNonBlocking) == 0);
    return cudaSuccess;
  });
}
GRADWIRE_PTX_API cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }
GRADWIRE_PTX_API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
GRADWIRE_PTX_API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
GRADWIRE_PTX_API cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return guarded([&](Device& device) {
    device.remove_stream(stream);
    return cudaSuccess;
  });
}
GRADWIRE_PTX_API cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return guarded([&](Device& device) {
    device.synchronize(device.stream(stream));
    return state_of(device);
  });
}
GRADWIRE_PTX_API cudaError_t cudaStreamQuery(cudaStream_t stream) {
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
GRADWIRE_PTX_API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  thread_local std::uint64_t waits = 0;
  ++waits;
  return guarded([&](Device& device) {
    if (waits != dropped_wait()) {
      device.wait(device.stream(stream), state_of(event));
    }
    device.count_waits(waits);
    return cudaSuccess;
  });
}
GRADWIRE_PTX_API cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return guarded([&](Device& device) {
    const bool captures = device.stream(stream).capture != nullptr;
    *status = captures ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
  });
}
GRADWIRE_PTX_API cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  return guarded([&](Device& device) {
    device.begin_capture(device.stream(stream));
    return cudaSuccess;
  });
}
GRADWIRE_PTX_API cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return guarded([&](Device& device) {
    *graph = reinterpret_cast<cudaGraph_t>(new GraphHandle(device.end_capture(device.stream(stream))));
    return cudaSuccess;
  });
}
GRADWIRE_PTX_API cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = reinterpret_cast<cudaGraphExec_t>(new GraphHandle(*reinterpret_cast<GraphHandle*>(graph)));
  return cudaSuccess;
}
GRADWIRE_PTX_API cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return guarded([&](Device& device) {
    device.replay(device.stream(stream), **reinterpret_cast<GraphHandle*>(executable));
    return cudaSuccess;
  });
}
GRADWIRE_PTX_API cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<GraphHandle*>(graph);
  return cudaSuccess;
}
GRADWIRE_PTX_API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete reinterpret_cast<GraphHandle*>(executable);
  return cudaSuccess;
}
GRADWIRE_PTX_API cudaError_t cudaStreamGetDevice(cudaStream_t, int* device) {
  *device = 0;
  return cudaSuccess;
}
GRADWIRE_PTX_API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return guarded([&](Device& device) {
    device.call(device.stream(stream), [function, data] { function(data); });
    return cudaSuccess;
  });
}
GRADWIRE_PTX_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new std::shared_ptr<EventState>(std::make_shared<EventState>()));
  return cudaSuccess;
}
GRADWIRE_PTX_API cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
GRADWIRE_PTX_API cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete reinterpret_cast<std::shared_ptr<EventState>*>(event);
  return cudaSuccess;
}
GRADWIRE_PTX_API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return guarded([&](Device& device) {
    state_of(event) = std::make_shared<EventState>();
    device.record(device.stream(stream), state_of(event));
    return cudaSuccess;
  });
}
GRADWIRE_PTX_API cudaError_t cudaEventQuery(cudaEvent_t event) {
  return guarded([&](Device& device) {
    device.run_some();
    if (!state_of(event)->done) {
      return cudaErrorNotReady;
    }
    device.synchronize(*state_of(event));
    return state_of(device);
  });
}
GRADWIRE_PTX_API cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return guarded([&](Device& device) {
    device.synchronize(*state_of(event));
    return state_of(device);
  });
}
GRADWIRE_PTX_API cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = static_cast<float>(state_of(end)->milliseconds - state_of(begin)->milliseconds);
  return cudaSuccess;
}

// The device.
GRADWIRE_PTX_API cudaError_t cudaDeviceSynchronize() {
  return guarded([&](Device& device) {
    device.synchronize_all();
    return state_of(device);
  });
}
GRADWIRE_PTX_API cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
GRADWIRE_PTX_API cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
GRADWIRE_PTX_API cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : give(cudaErrorInvalidDevice);
}
GRADWIRE_PTX_API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "PTX interpreter");
  properties->major = 9;
  properties->multiProcessorCount = 132;
  properties->totalGlobalMem = std::size_t{1} << 30;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  return cudaSuccess;
}
GRADWIRE_PTX_API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrMultiProcessorCount      ? 132
           : attribute == cudaDevAttrComputeCapabilityMajor ? 9
           : attribute == cudaDevAttrWarpSize               ? 32
                                                            : 0;
  return cudaSuccess;
}
// Device memory is memory of this process, so no other process can open it, and a handle serves nobody.
GRADWIRE_PTX_API cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void*) {
  *handle = {};
  return give(cudaSuccess);
}
GRADWIRE_PTX_API cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned) {
  return give(cudaErrorNotSupported);
}
GRADWIRE_PTX_API cudaError_t cudaIpcCloseMemHandle(void*) { return give(cudaErrorNotSupported); }
GRADWIRE_PTX_API cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return give(cudaErrorNotSupported); }
GRADWIRE_PTX_API cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int) {
  std::snprintf(id, static_cast<std::size_t>(bytes), "0000:00:00.0");
  return cudaSuccess;
}
GRADWIRE_PTX_API cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
GRADWIRE_PTX_API cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
GRADWIRE_PTX_API cudaError_t cudaGetLastError() {
  const cudaError_t last = t_last;
  t_last = cudaSuccess;
  return Device::instance().failed() ? cudaErrorLaunchFailure : last;
}
GRADWIRE_PTX_API cudaError_t cudaPeekAtLastError() {
  return Device::instance().failed() ? cudaErrorLaunchFailure : t_last;
}
GRADWIRE_PTX_API const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaSuccess              ? "cudaSuccess"
         : error == cudaErrorLaunchFailure ? "cudaErrorLaunchFailure"
         : error == cudaErrorNotReady      ? "cudaErrorNotReady"
         : error == cudaErrorInvalidValue  ? "cudaErrorInvalidValue"
                                           : "cudaError";
}
GRADWIRE_PTX_API const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorLaunchFailure ? "the PTX interpreter found an error, see its text on standard error"
                                         : "an error of the PTX interpreter's runtime";
}

// Of the driver: found by dlopen("libcuda.so.1"), which is another name of this library.
GRADWIRE_PTX_API CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned) {
  const cudaError_t error = guarded([&](Device& device) {
    device.write_word(device.stream(stream), reinterpret_cast<std::uint32_t*>(word), value);
    return cudaSuccess;
  });
  return error == cudaSuccess ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED;
}
GRADWIRE_PTX_API CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned flags) {
  const cudaError_t error = guarded([&](Device& device) {
    if ((flags & 3U) != CU_STREAM_WAIT_VALUE_GEQ) {
      throw Finding("unknown call: cuStreamWaitValue32 with another comparison than >=");
    }
    device.wait_for_word(device.stream(stream), reinterpret_cast<const std::uint32_t*>(word), value);
    return cudaSuccess;
  });
  return error == cudaSuccess ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED;
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name,bugprone-reserved-identifier)
