// The interface of a device for messages that a thread of the host sends: copies to and from the host, and two counters
// by which a stream and that thread wait for each other. Implementations: CUDA, and the tests' streams of host threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gradwire::transport {

/// Streams are cudaStream_t. The thread that enqueues makes these calls, one at a time, unless said otherwise.
class StreamPort {
 public:
  /// Numbers rise by one and wrap around.
  using Number = std::uint32_t;

  StreamPort() = default;
  StreamPort(const StreamPort&) = delete;
  StreamPort& operator=(const StreamPort&) = delete;
  virtual ~StreamPort() = default;

  /// Called once, on the thread of the host, before anything else there.
  virtual void enter() = 0;

  /// Host memory for copies. Error(out_of_memory).
  [[nodiscard]] virtual std::byte* acquire(std::size_t bytes) = 0;
  virtual void release(std::byte* staging) noexcept = 0;
  /// Leaves memory unused for ever, since something may still write to it.
  virtual void leak(std::byte* staging) noexcept = 0;
  [[nodiscard]] virtual std::uint64_t pinned_bytes() const noexcept = 0;

  /// Throws Error(unsupported) where the stream is being captured into a graph.
  virtual void require_no_capture(void* stream) = 0;

  // These four are enqueued on the stream.
  virtual void copy_to_host(void* stream, std::byte* staging, std::span<const std::byte> device) = 0;
  virtual void copy_to_device(void* stream, std::span<std::byte> device, const std::byte* staging) = 0;
  /// Makes told() return `number` once the stream reaches this place.
  virtual void tell_host(void* stream, Number number) = 0;
  /// Makes the stream wait until tell_stream() has been called with `number` or a later one.
  virtual void wait_for_host(void* stream, Number number) = 0;

  // Any thread may call these at any time; they do not block.
  /// The last number that the stream has reached; at first the one before the first. Everything that the device wrote
  /// before it is visible.
  [[nodiscard]] virtual Number told() const noexcept = 0;
  /// Lets the stream go on; everything that this thread wrote before is visible to it.
  virtual void tell_stream(Number number) noexcept = 0;
};

}  // namespace gradwire::transport
