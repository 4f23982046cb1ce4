// Pinned memory and two words in it through which a CUDA stream and a thread of the host wait for each other: the
// stream writes and waits by memory operations of its own (cuStreamWriteValue32, cuStreamWaitValue32), so no thread of
// CUDA's is held, and the host's thread may call CUDA.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "memory/cuda_pinned.hpp"
#include "transport/stream_port.hpp"

namespace gradwire::exchange {

class CudaPort final : public transport::StreamPort {
 public:
  /// Error(unsupported) without a driver that has memory operations of streams.
  explicit CudaPort(int device);

  void enter() override;
  [[nodiscard]] std::byte* acquire(std::size_t bytes) override { return pinned_.acquire(bytes); }
  void release(std::byte* staging) noexcept override { pinned_.release(staging); }
  void leak(std::byte* staging) noexcept override { pinned_.leak(staging); }
  [[nodiscard]] std::uint64_t pinned_bytes() const noexcept override { return pinned_.bytes(); }
  void require_no_capture(void* stream) override;
  void copy_to_host(void* stream, std::byte* staging, std::span<const std::byte> device) override;
  void copy_to_device(void* stream, std::span<std::byte> device, const std::byte* staging) override;
  void tell_host(void* stream, Number number) override;
  void wait_for_host(void* stream, Number number) override;
  [[nodiscard]] Number told() const noexcept override;
  void tell_stream(Number number) noexcept override;

 private:
  using Operation = CUresult (*)(CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned flags);
  struct Words {
    alignas(64) Number told = 0;  // in a cache line of its own, since each side polls one word
    alignas(64) Number go = 0;
  };

  [[nodiscard]] static CUdeviceptr seen_by_device(Number& word);

  int device_;
  memory::PinnedPool pinned_;
  Words* words_ = nullptr;
  Operation write_ = nullptr;
  Operation wait_ = nullptr;
  unsigned wait_flags_ = CU_STREAM_WAIT_VALUE_GEQ;  // works with numbers that wrap around
};

}  // namespace gradwire::exchange
