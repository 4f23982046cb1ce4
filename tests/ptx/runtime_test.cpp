// The interpreter's runtime: what orders the work of streams, and what is an error. A finding ends the process with 3.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

namespace {

constexpr std::size_t kBytes = 1024;

struct TwoStreams {
  TwoStreams() {
    cudaMalloc(&memory, kBytes);
    cudaMalloc(&other, kBytes);
    cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  }
  void* memory = nullptr;
  void* other = nullptr;
  cudaStream_t first = nullptr;
  cudaStream_t second = nullptr;
  cudaEvent_t event = nullptr;
};

// Runs `body` in a process that then ends by exit(0), or by a finding.
#define EXPECT_FINDING(text, body) \
  EXPECT_EXIT(                     \
      {                            \
        body;                      \
        std::exit(0);              \
      },                           \
      testing::ExitedWithCode(3), text)
#define EXPECT_CLEAN(body) \
  EXPECT_EXIT(             \
      {                    \
        body;              \
        std::exit(0);      \
      },                   \
      testing::ExitedWithCode(0), "0 findings")

void fill_and_copy(bool waits) {
  TwoStreams on;
  cudaMemsetAsync(on.memory, 7, kBytes, on.first);
  cudaEventRecord(on.event, on.first);
  if (waits) {
    cudaStreamWaitEvent(on.second, on.event, 0);
  }
  cudaMemcpyAsync(on.other, on.memory, kBytes, cudaMemcpyDeviceToDevice, on.second);
  cudaDeviceSynchronize();
  std::vector<char> got(kBytes);
  cudaMemcpy(got.data(), on.other, kBytes, cudaMemcpyDeviceToHost);
  if (waits && got != std::vector<char>(kBytes, 7)) {
    std::abort();
  }
}

void copy_behind(bool waits) {
  TwoStreams on;
  cudaMemsetAsync(on.memory, 7, kBytes, on.first);
  if (waits) {
    cudaStreamSynchronize(on.first);
  }
  std::vector<char> got(kBytes);
  cudaMemcpy(got.data(), on.memory, kBytes, cudaMemcpyDeviceToHost);  // does not wait for a non-blocking stream
}

TEST(PtxRuntimeDeathTest, AnEventOrdersTwoStreams) {
  EXPECT_CLEAN(fill_and_copy(true));
  EXPECT_FINDING("race: a copy|race: a fill", fill_and_copy(false));
}

TEST(PtxRuntimeDeathTest, TheHostWaitsBeforeItReads) {
  EXPECT_CLEAN(copy_behind(true));
  EXPECT_FINDING("race: a copy|race: a fill", copy_behind(false));
}

TEST(PtxRuntimeDeathTest, CopiesStayInsideOfAllocations) {
  EXPECT_FINDING("stray access", {
    TwoStreams on;
    cudaMemset(on.memory, 0, kBytes + 1);
    cudaDeviceSynchronize();
  });
}

TEST(PtxRuntimeDeathTest, AFreeOfOtherMemoryIsFound) {
  EXPECT_FINDING("free of memory that was not allocated", {
    TwoStreams on;
    cudaFree(static_cast<char*>(on.memory) + 16);
  });
}

TEST(PtxRuntimeDeathTest, CallsFailAfterAFinding) {
  EXPECT_FINDING("stray access", {
    TwoStreams on;
    cudaMemset(on.memory, 0, kBytes + 1);
    if (cudaDeviceSynchronize() != cudaErrorLaunchFailure || cudaGetLastError() != cudaErrorLaunchFailure) {
      std::abort();
    }
  });
}

}  // namespace
