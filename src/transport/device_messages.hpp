// Messages between devices, which are enqueued on a stream and never block. A StreamBackend over CUDA sends with them.
// Implementations: NCCL, and MPI with device tensors. Streams are cudaStream_t, memory is the device's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "gradwire/dtype.hpp"
#include "gradwire/error.hpp"

namespace gradwire::transport {

/// One rank's end. One thread at a time, except for abort().
class DeviceMessages {
 public:
  DeviceMessages() = default;
  DeviceMessages(const DeviceMessages&) = delete;
  DeviceMessages& operator=(const DeviceMessages&) = delete;
  virtual ~DeviceMessages() = default;

  /// "nccl", "mpi with staging"
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int world_size() const noexcept = 0;

  /// Messages that are enqueued between these two calls are one operation that cannot deadlock. Messages between two
  /// ranks match by their order and have the same size at both ends. All messages of a group are on one stream.
  virtual void begin_group() = 0;
  virtual void send(std::span<const std::byte> bytes, int peer, void* stream) = 0;
  virtual void receive(std::span<std::byte> bytes, int peer, void* stream) = 0;
  /// Sums over all ranks in place, in the library's own order. It needs a group of its own.
  virtual void all_reduce(void* values, DType dtype, std::uint64_t count, void* stream) = 0;
  virtual void end_group() = 0;

  /// Throws an error that has happened since, or Error(aborted) after abort(). Never blocks.
  virtual void poll() = 0;
  /// Ends messages under way on this rank, and tells the other ranks where that is possible. The first abort wins. Any
  /// thread, any time.
  virtual void abort(const Error& error) noexcept = 0;
  [[nodiscard]] virtual std::uint64_t pinned_bytes() const noexcept { return 0; }
};

}  // namespace gradwire::transport
