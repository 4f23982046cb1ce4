// Measures for one rank what the choices of codec = "auto" on a communicator need: times of trials and of steps, which
// it reads when the device has come so far. It holds the memory in which a trial's second call works. That memory is
// taken for one comparison, and given back while the job runs: it may be several times as large as a model's gradients.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <utility>

#include "choice/device_gate.hpp"
#include "drop_in/device_clock.hpp"
#include "drop_in/device_exchange.hpp"
#include "exchange/stream/stream_device.hpp"
#include "memory/arena.hpp"

namespace gradwire::drop_in {

/// Its calls need the device to be current. The destructor does not: it may run on any thread, where a job ends.
class DeviceTrials {
 public:
  /// Returns the bytes of device memory, in one piece, that the rival's calls take besides the copy.
  using Needs = std::function<std::uint64_t(const choice::DeviceGate::Asked& asked)>;

  /// All must outlive it. `memory` frees at its own end what is left; until then it is asked to free a piece only when
  /// the device does not use it any more.
  DeviceTrials(exchange::StreamDevice& device, DeviceClock& clock, DeviceExchange& exchange,
               memory::ArenaSource& memory, Needs needs)
      : device_(device), clock_(clock), exchange_(exchange), memory_(memory), needs_(std::move(needs)) {}
  DeviceTrials(const DeviceTrials&) = delete;
  DeviceTrials& operator=(const DeviceTrials&) = delete;
  ~DeviceTrials();

  [[nodiscard]] choice::DeviceGate& gate() noexcept { return gate_; }

  /// The caller calls it where the exchange has new values, before the call from which on they count.
  void hear() { gate_.heard(exchange_.agreed(DeviceExchange::kGate)); }
  /// The caller calls it before the exchange's end_call(). The work of earlier trials must come before later work of
  /// the compute queue.
  void end_call();
  /// Gives back what the latest end_call() has left. Waits for the device, or throws Error(timeout).
  void give_back(std::chrono::milliseconds timeout);
  /// The step with this number begins with what is enqueued on `stream` next.
  void begin_step(std::uint64_t step, void* stream);

  /// Makes both calls of a trial on `stream` and times them. Each returns the library's code; if one of them fails, the
  /// times do not count, the other call is not made, and the code is returned.
  using Make = std::function<int()>;
  [[nodiscard]] int make(const choice::DeviceGate::Trial& trial, void* stream, const Make& for_the_job,
                         const Make& rival);
  /// Return memory while the gate needs it: for the copy of a trial's larger buffer, and for the rival's messages.
  [[nodiscard]] std::byte* copy() const noexcept { return copy_; }
  [[nodiscard]] std::span<std::byte> frames() const noexcept { return frames_; }

 private:
  struct Times {
    choice::DeviceGate::Trial trial;
    DeviceClock::Mark begin = 0;
    DeviceClock::Mark middle = 0;
    DeviceClock::Mark end = 0;
  };
  struct Step {
    std::uint64_t number = 0;
    DeviceClock::Mark begin = 0;
  };
  // The device may use this memory until it has reached the point.
  struct Leaving {
    exchange::StreamDevice::Point until;
    std::byte* memory;
  };
  void read_times();
  void read_steps();
  void drop(const Times& times) noexcept;
  [[nodiscard]] bool take_memory(const choice::DeviceGate::Asked& asked) noexcept;
  void leave_memory();
  void free_left();

  exchange::StreamDevice& device_;
  DeviceClock& clock_;
  DeviceExchange& exchange_;
  memory::ArenaSource& memory_;
  Needs needs_;
  choice::DeviceGate gate_;
  std::deque<Times> trials_;  // whose times are not known yet, oldest first
  std::deque<Step> steps_;    // likewise
  std::byte* copy_ = nullptr;
  std::span<std::byte> frames_;
  std::deque<Leaving> leaving_;  // oldest first
};

}  // namespace gradwire::drop_in
