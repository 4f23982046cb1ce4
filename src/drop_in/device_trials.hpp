// One rank's measurements for the choices of codec = "auto" on a communicator: times of trials and of steps, which are
// read when the device has come so far, and the memory in which a trial's second call works.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>

#include "choice/device_gate.hpp"
#include "drop_in/device_clock.hpp"
#include "drop_in/device_exchange.hpp"
#include "exchange/stream/stream_device.hpp"

namespace gradwire::drop_in {

/// Its calls need the device to be current, except for the destructor.
class DeviceTrials {
 public:
  /// All must outlive it.
  DeviceTrials(exchange::StreamDevice& device, DeviceClock& clock, DeviceExchange& exchange)
      : device_(device), clock_(clock), exchange_(exchange) {}
  DeviceTrials(const DeviceTrials&) = delete;
  DeviceTrials& operator=(const DeviceTrials&) = delete;
  ~DeviceTrials();

  [[nodiscard]] choice::DeviceGate& gate() noexcept { return gate_; }

  /// To be called where the exchange has new values, before the call from which on they count.
  void hear() { gate_.heard(exchange_.agreed(DeviceExchange::kGate)); }
  /// To be called before the exchange's end_call(). The work of earlier trials must come before later work of the
  /// compute queue.
  void end_call();
  /// The step with this number begins with what is enqueued on `stream` next.
  void begin_step(std::uint64_t step, void* stream);

  /// Makes both calls of a trial on `stream` and times them. Each returns the library's code; if one of them fails, the
  /// times do not count, the other call is not made, and the code is returned.
  using Make = std::function<int()>;
  [[nodiscard]] int make(const choice::DeviceGate::Trial& trial, void* stream, const Make& for_the_job,
                         const Make& rival);
  /// Device memory for the copies of trials while the gate needs them, of as many bytes as it asked for.
  [[nodiscard]] std::byte* copy() noexcept { return copy_; }

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
  void read_times();
  void read_steps();
  void drop(const Times& times) noexcept;
  [[nodiscard]] bool take_copy(std::uint64_t bytes) noexcept;

  exchange::StreamDevice& device_;
  DeviceClock& clock_;
  DeviceExchange& exchange_;
  choice::DeviceGate gate_;
  std::deque<Times> trials_;  // whose times are not known yet, oldest first
  std::deque<Step> steps_;    // likewise
  std::byte* copy_ = nullptr;
};

}  // namespace gradwire::drop_in
