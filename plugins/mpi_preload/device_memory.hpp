// Buffers in a GPU's memory, which jobs with a CUDA-aware MPI pass. They are compressed from a copy in host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace gradwire::mpi_preload {

/// Whether it is memory of an NVIDIA GPU, as far as this process has loaded CUDA.
[[nodiscard]] bool is_device_memory(const void* data) noexcept;

/// A buffer of the job as host memory: the buffer itself, or a copy of GPU memory. CUDA is used only where the process
/// has loaded it; gradwire does not link it.
class HostBuffer {
 public:
  /// `read`: fills the copy from the GPU. Error(transport) where CUDA refuses to copy.
  HostBuffer(void* data, std::uint64_t bytes, bool read);
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return copy_ ? copy_.get() : static_cast<std::byte*>(data_); }
  /// Writes the first `bytes` of a copy back.
  void write_back(std::uint64_t bytes) const;

 private:
  void* data_;
  std::unique_ptr<std::byte[]> copy_;
};

}  // namespace gradwire::mpi_preload
