// Shared by programs that call CUDA themselves.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

namespace gradwire::gpu {

inline void cuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error));
  }
}

/// Measures the milliseconds between two events of a stream.
class Stopwatch {
 public:
  Stopwatch() {
    cuda(cudaEventCreate(&begin_), "cudaEventCreate");
    cuda(cudaEventCreate(&end_), "cudaEventCreate");
  }
  ~Stopwatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  template <class Body>
  [[nodiscard]] float time(cudaStream_t stream, Body&& body) {
    cuda(cudaEventRecord(begin_, stream), "cudaEventRecord");
    body();
    cuda(cudaEventRecord(end_, stream), "cudaEventRecord");
    cuda(cudaEventSynchronize(end_), "cudaEventSynchronize");
    float milliseconds = 0;
    cuda(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
    return milliseconds;
  }

 private:
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace gradwire::gpu
