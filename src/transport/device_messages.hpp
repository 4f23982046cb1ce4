// How bytes travel between devices: enqueued on a stream, never waited for. What a StreamBackend over CUDA sends with;
// implementations: NCCL, and MPI with device tensors. Streams are cudaStream_t, memory is the device's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "gradwire/dtype.hpp"
#include "gradwire/error.hpp"

namespace gradwire::transport {

/// One rank's end. One thread at a time but for abort().
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

  /// What is enqueued between these two happens in one step that cannot deadlock. Messages between two ranks match in
  /// their order and have the same size at both ends. All of a group are for one stream.
  virtual void begin_group() = 0;
  virtual void send(std::span<const std::byte> bytes, int peer, void* stream) = 0;
  virtual void receive(std::span<std::byte> bytes, int peer, void* stream) = 0;
  /// Sum over all ranks in place, in the library's own order. In a group of its own.
  virtual void all_reduce(void* values, DType dtype, std::uint64_t count, void* stream) = 0;
  virtual void end_group() = 0;

  /// Throws what went wrong since, or Error(aborted) after abort(). Never blocks.
  virtual void poll() = 0;
  /// Ends what is under way on this rank, and tells the others where that is possible. The first one wins. Any thread,
  /// any time.
  virtual void abort(ErrorCode code, const std::string& message) noexcept = 0;
  [[nodiscard]] virtual std::uint64_t pinned_bytes() const noexcept { return 0; }
};

}  // namespace gradwire::transport
