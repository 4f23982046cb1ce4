// Lets the ranks of a communicator agree on numbers in the course of its calls: every 64th call enqueues one all-reduce
// of 1 KiB behind itself, which finds the largest value of all ranks for each of 256 words. The result counts from the
// 64th call after that on, on every rank, so that all ranks act on it at the same call although their hosts run ahead
// of their devices by different amounts. It knows no clock, no device and no thread.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace gradwire::drop_in {

/// Sends the messages of an exchange, on a device and the job's communicator. There is one exchange at a time: begin(),
/// then finish().
class ExchangePort {
 public:
  ExchangePort() = default;
  ExchangePort(const ExchangePort&) = delete;
  ExchangePort& operator=(const ExchangePort&) = delete;
  virtual ~ExchangePort() = default;

  /// Takes the memory that exchanges need. It is called once, before all other functions.
  virtual void open() {}
  /// Enqueues on `stream`, a handle of the library that is not being captured: for each word the largest value of all
  /// ranks, and a copy of the result to the host. Never blocks; `mine`, in host memory, may change once it returns.
  /// Must not be called between the start and the end of a group of the library.
  virtual void begin(std::span<const std::uint32_t> mine, void* stream) = 0;
  /// Returns whether the result is on the host. Never blocks.
  [[nodiscard]] virtual bool arrived() = 0;
  /// Waits for the result and copies it to `largest`. Throws Error(timeout), and the errors of the communicator.
  virtual void finish(std::span<std::uint32_t> largest, std::chrono::milliseconds timeout) = 0;
  /// Enqueues on `stream` a message among all ranks, behind which their streams go on at about the same time.
  virtual void meet(void* stream) = 0;
};

class DeviceExchange {
 public:
  static constexpr std::uint64_t kCallsApart = 64;
  static constexpr std::size_t kWords = 256;
  /// The largest value. If one rank has nothing to say, all ranks learn this.
  static constexpr std::uint32_t kNoValue = std::numeric_limits<std::uint32_t>::max();

  /// Words that belong to one user of the exchange.
  struct Section {
    std::size_t first = 0;
    std::size_t count = 0;
  };
  static constexpr Section kGate{.first = 0, .count = 192};    // medians of times in nanoseconds, see DeviceGate
  static constexpr Section kRoles{.first = 192, .count = 64};  // which calls are those of gradients

  /// `port` must outlive it. `timeout` is the longest wait for a result.
  DeviceExchange(ExchangePort& port, std::chrono::milliseconds timeout) : port_(port), timeout_(timeout) {
    mine_.fill(kNoValue);
    agreed_.fill(kNoValue);
  }
  DeviceExchange(const DeviceExchange&) = delete;
  DeviceExchange& operator=(const DeviceExchange&) = delete;

  /// The caller calls it before each call that counts, the same ones on every rank; captured calls do not. Returns
  /// whether agreed() has new values from this call on. It waits for them where they have not arrived.
  [[nodiscard]] bool begin_call();
  /// Returns whether end_call() will enqueue an exchange, so that users have to write their words to mine() now.
  [[nodiscard]] bool due() const noexcept { return due_; }
  /// The caller calls it behind the call, or behind the group in which it was made, with the call's stream.
  void end_call(void* stream);

  /// Returns what this rank says in later exchanges; kNoValue at first.
  [[nodiscard]] std::span<std::uint32_t> mine(Section section) noexcept {
    return std::span(mine_).subspan(section.first, section.count);
  }
  /// Returns the largest values of all ranks in the latest exchange that counts; kNoValue before the first one.
  [[nodiscard]] std::span<const std::uint32_t> agreed(Section section) const noexcept {
    return std::span(agreed_).subspan(section.first, section.count);
  }

  /// Returns how often the host had to wait for a result.
  [[nodiscard]] std::uint64_t waits() const noexcept { return waits_; }

 private:
  ExchangePort& port_;
  std::chrono::milliseconds timeout_;
  std::array<std::uint32_t, kWords> mine_;
  std::array<std::uint32_t, kWords> agreed_;
  std::uint64_t calls_ = 0;
  std::uint64_t begun_at_ = 0;  // number of calls at the latest exchange
  std::uint64_t waits_ = 0;
  bool under_way_ = false;
  bool due_ = false;
};

}  // namespace gradwire::drop_in
