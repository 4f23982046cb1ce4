// The interface of a device for a session, besides collectives: the caller's stream, places in the queue that the host
// can poll, copies to and from the host, errors. Implementations: CUDA with NCCL or MPI, and the tests' simulation on
// host memory. One thread at a time, except for abort().
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "exchange/stream/stream_backend.hpp"
#include "exchange/tiers.hpp"
#include "gradwire/error.hpp"
#include "kernels/device/jobs.hpp"
#include "memory/arena.hpp"
#include "memory/peer_windows.hpp"

namespace gradwire::exchange {

class WindowCalls;

class StreamDevice {
 public:
  /// A place in the compute queue: the end of its work at that moment. Later points are larger; 0 is reached at once.
  using Point = std::uint64_t;

  StreamDevice() = default;
  StreamDevice(const StreamDevice&) = delete;
  StreamDevice& operator=(const StreamDevice&) = delete;
  virtual ~StreamDevice() = default;

  [[nodiscard]] virtual StreamBackend& backend() noexcept = 0;
  /// The arena from which backend().acquire() takes memory.
  [[nodiscard]] virtual memory::Arena& arena() noexcept = 0;
  /// Returns the way in which bytes travel, for messages: "nccl", "mpi with staging".
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::uint64_t pinned_bytes() const noexcept = 0;

  /// Whether the library of the messages can sum and gather inside nodes (StreamBackend::sum_in_node()).
  [[nodiscard]] virtual bool sums_in_nodes() const noexcept { return false; }
  /// Prepares the library for sums inside these nodes. Every rank calls it with the same nodes, which have equally many
  /// ranks, and it blocks until all ranks have called it. It must not be called during capture.
  virtual void set_nodes(const Tiers& /*nodes*/) {}

  /// Makes the device current for this thread and returns the value with which leave() undoes that. All other calls
  /// need it.
  [[nodiscard]] virtual int enter() = 0;
  virtual void leave(int previous) noexcept = 0;

  /// Makes later work of the compute queue start after the present work of the caller's stream.
  virtual void follow_caller() = 0;
  /// Makes later work of the caller's stream start after the present work of the compute queue.
  virtual void lead_caller() = 0;
  /// The same, where mark() has just returned `point` and nothing was enqueued since: one event serves both.
  virtual void lead_caller_from(Point /*point*/) { lead_caller(); }
  /// Whether the caller's stream is being captured into a graph.
  [[nodiscard]] virtual bool capturing() = 0;

  /// These five must not be called during capture. mark() returns the present end of the compute queue.
  [[nodiscard]] virtual Point mark() = 0;
  /// Whether the device has reached the point. Never blocks.
  [[nodiscard]] virtual bool reached(Point point) = 0;
  /// Blocks until the point is reached. Error(timeout), and the errors of poll().
  virtual void wait(Point point, std::chrono::milliseconds timeout) = 0;
  /// The same where nothing before the point waits for another rank; it does not check the messages.
  virtual void wait_alone(Point point, std::chrono::milliseconds timeout) = 0;
  /// Copies to the host behind the work of the compute queue, and blocks until that is done. Error(timeout).
  virtual void download(std::span<std::byte> to, const void* from, std::chrono::milliseconds timeout) = 0;

  /// Loads all kernels, so that none is loaded while others run. Must be called before anything runs on the device.
  /// Throws where they were not compiled for this device.
  virtual void load_kernels() = 0;

  // upload() and advance() run on the compute queue.
  /// `from` may change once it returns. Must not be called during capture.
  virtual void upload(void* to, std::span<const std::byte> from) = 0;
  virtual void zero(void* data, std::size_t bytes) = 0;
  /// Ends a step: adds 1, and counts it in nonfinite_steps() if kernels have noted NaN or Inf since the last one.
  virtual void advance(std::uint32_t* step) = 0;

  /// Opens windows, by which one kernel makes an all-reduce (exchange/stream/window_calls.hpp), if the devices of all
  /// ranks can write to each other and a test of that passes. Every rank calls it; kernels will wait `timeout` for a
  /// rank, for ever if it is 0. Returns the same on every rank in meaning: "" if windows() are there, else why they are
  /// not (kSeveralHosts, ...). Blocks, but waits neither for the job's streams nor for the whole device.
  [[nodiscard]] virtual std::string open_windows(const memory::AllGather& /*all_gather*/,
                                                 std::chrono::milliseconds /*timeout*/) {
    return "devices of this kind have no windows";
  }
  [[nodiscard]] virtual const WindowCalls* windows() const noexcept { return nullptr; }

  /// Words that kernels set. The host only reads them, at any time.
  [[nodiscard]] virtual kernels::DeviceStatus& status() noexcept = 0;
  /// The words in which kernels note NaN or Inf (kernels::CallFields), cleared by advance(); null: they do so in
  /// status(). The host looks at neither.
  [[nodiscard]] virtual std::uint32_t* nonfinite() noexcept { return nullptr; }
  /// Steps with NaN or Inf that have ended on the device so far; wraps around.
  [[nodiscard]] virtual std::uint32_t nonfinite_steps() noexcept = 0;
  /// Error(invalid_argument) unless `data` is memory of this device; `what` names it.
  virtual void check(const void* data, const std::string& what) = 0;
  /// Throws the error of the communicator or of the device, if there is one. Never blocks.
  virtual void poll() = 0;
  /// Gives up, tells the other ranks where that is possible, and ends work that waits for them. Any thread may call
  /// this at any time.
  virtual void abort(const Error& error) noexcept = 0;
  /// Call it after abort(), when no message comes any more. Blocks until the device has done all enqueued work, with
  /// arbitrary bytes; from then on its memory can be used and copied as before. Error(timeout). Not during capture.
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
