// What messages that a thread of the host sends ask of a device: copies to and from the host, and two counters through
// which a stream and that thread wait for each other. Implementations: CUDA, and the tests' streams of host threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gradwire::transport {

/// Streams are cudaStream_t. Calls of the thread that enqueues, one at a time, unless said otherwise.
class StreamPort {
 public:
  /// Numbers rise by one and wrap around.
  using Number = std::uint32_t;

  StreamPort() = default;
  StreamPort(const StreamPort&) = delete;
  StreamPort& operator=(const StreamPort&) = delete;
  virtual ~StreamPort() = default;

  /// Once, on the thread of the host, before anything else there.
  virtual void enter() = 0;

  /// Host memory for copies. Error(out_of_memory).
  [[nodiscard]] virtual std::byte* acquire(std::size_t bytes) = 0;
  virtual void release(std::byte* staging) noexcept = 0;
  /// Never freed and never used again: something may still write to it.
  virtual void leak(std::byte* staging) noexcept = 0;
  [[nodiscard]] virtual std::uint64_t pinned_bytes() const noexcept = 0;

  /// Error(unsupported) where the stream is being captured into a graph.
  virtual void require_no_capture(void* stream) = 0;

  // Enqueued.
  virtual void copy_to_host(void* stream, std::byte* staging, std::span<const std::byte> device) = 0;
  virtual void copy_to_device(void* stream, std::span<std::byte> device, const std::byte* staging) = 0;
  /// told() is `number` once the stream comes here.
  virtual void tell_host(void* stream, Number number) = 0;
  /// The stream goes on once tell_stream() has been called with `number` or a later one.
  virtual void wait_for_host(void* stream, Number number) = 0;

  // Any thread, any time; they do not block.
  /// The last number that the stream has come to; at first the one before the first. What the device wrote before is
  /// there.
  [[nodiscard]] virtual Number told() const noexcept = 0;
  /// What this thread wrote before is there for the stream.
  virtual void tell_stream(Number number) noexcept = 0;
};

}  // namespace gradwire::transport
