// What a session asks of a device besides collectives: the caller's stream, places in the queue that the host can look
// at, copies to and from the host, errors. Implementations: CUDA with NCCL or MPI, and the tests' simulation on host
// memory. One thread at a time but for abort().
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "exchange/stream/stream_backend.hpp"
#include "gradwire/error.hpp"
#include "kernels/device/jobs.hpp"
#include "memory/arena.hpp"

namespace gradwire::exchange {

class StreamDevice {
 public:
  /// The end of what the compute queue held when it was made; later ones are larger, 0 is reached at once.
  using Point = std::uint64_t;

  StreamDevice() = default;
  StreamDevice(const StreamDevice&) = delete;
  StreamDevice& operator=(const StreamDevice&) = delete;
  virtual ~StreamDevice() = default;

  [[nodiscard]] virtual StreamBackend& backend() noexcept = 0;
  /// The memory behind backend().acquire().
  [[nodiscard]] virtual memory::Arena& arena() noexcept = 0;
  /// "nccl", "mpi with staging": how bytes travel.
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::uint64_t pinned_bytes() const noexcept = 0;

  /// Makes the device current for this thread and returns what leave() takes to undo that. Around all other calls.
  [[nodiscard]] virtual int enter() = 0;
  virtual void leave(int previous) noexcept = 0;

  /// The compute queue's work from now on starts after what the caller's stream holds now.
  virtual void follow_caller() = 0;
  /// The caller's stream's work from now on starts after what the compute queue holds now.
  virtual void lead_caller() = 0;
  /// Whether the caller's stream is being captured into a graph.
  [[nodiscard]] virtual bool capturing() = 0;

  /// None of these five during capture.
  [[nodiscard]] virtual Point mark() = 0;
  /// Never blocks.
  [[nodiscard]] virtual bool reached(Point point) = 0;
  /// Blocks until reached. Error(timeout), and whatever poll() throws.
  virtual void wait(Point point, std::chrono::milliseconds timeout) = 0;
  /// The same where nothing before the point waits for another rank: what became of messages is not looked at.
  virtual void wait_alone(Point point, std::chrono::milliseconds timeout) = 0;
  /// Blocks until what the compute queue holds is done and copied. Error(timeout).
  virtual void download(std::span<std::byte> to, const void* from, std::chrono::milliseconds timeout) = 0;

  /// Before anything runs on it: loads all kernels, so that none is loaded while others run. An error where they were
  /// not compiled for this device.
  virtual void load_kernels() = 0;

  // On the compute queue.
  /// `from` may change when it returns. Not during capture.
  virtual void upload(void* to, std::span<const std::byte> from) = 0;
  virtual void zero(void* data, std::size_t bytes) = 0;
  /// Ends a step: adds 1, and counts it in nonfinite_steps() if kernels have noted NaN or Inf since the last one.
  virtual void advance(std::uint32_t* step) = 0;

  /// Words that kernels set. The host only reads them, at any time: bad_frames counts, first_bad is one of them.
  [[nodiscard]] virtual kernels::DeviceStatus& status() noexcept = 0;
  /// Steps with NaN or Inf that have ended on the device so far; wraps around.
  [[nodiscard]] virtual std::uint32_t nonfinite_steps() noexcept = 0;
  /// Error(invalid_argument) unless `data` is memory of this device; `what` names it.
  virtual void check(const void* data, const std::string& what) = 0;
  /// Throws what went wrong in the communicator or on the device. Never blocks.
  virtual void poll() = 0;
  /// Gives up, and tells the other ranks where that is possible; ends what waits for them. Any thread, any time.
  virtual void abort(ErrorCode code, const std::string& message) noexcept = 0;
  /// After abort(): no message comes any more. Blocks until the device has done what was enqueued, with whatever bytes
  /// there were; from then on its memory can be used and copied as before. Error(timeout). Not during capture.
  virtual void end_messages(std::chrono::milliseconds timeout) = 0;
};

/// Scope in which the device is current.
class CurrentDevice {
 public:
  explicit CurrentDevice(StreamDevice& device) : device_(device), previous_(device.enter()) {}
  ~CurrentDevice() { device_.leave(previous_); }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  StreamDevice& device_;
  int previous_;
};

}  // namespace gradwire::exchange
