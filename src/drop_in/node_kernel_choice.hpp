// Chooses for one rank and communicator, under a named codec, which calls one kernel inside the node makes and which go
// by messages: it measures what choice::EqualWays needs, on the device's clock.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "choice/equal_ways.hpp"
#include "drop_in/device_clock.hpp"
#include "drop_in/step_tracker.hpp"

namespace gradwire::drop_in {

class NodeKernelChoice {
 public:
  /// Calls that are compared together.
  struct Kind {
    Signature call;
    std::string codec;                                            // with that of the second hop, if it is another one
    friend auto operator<=>(const Kind&, const Kind&) = default;  // NOLINT(modernize-use-nullptr): takes <=> for 0
  };

  explicit NodeKernelChoice(DeviceClock& clock) : clock_(clock) {}
  NodeKernelChoice(const NodeKernelChoice&) = delete;
  NodeKernelChoice& operator=(const NodeKernelChoice&) = delete;
  ~NodeKernelChoice();

  /// Returns how the next call of the kind is made: `second` by the kernel. Every rank asks for the same calls.
  [[nodiscard]] choice::EqualWays::Turn next(const Kind& kind);
  /// Returns whether the kernel was found to be faster: for calls that do not count, as captured ones.
  [[nodiscard]] bool takes(const Kind& kind) const;
  /// Makes a call and notes its time on `stream`.
  void time(const choice::EqualWays::Timed& call, void* stream, const std::function<void()>& make);

  /// See EqualWays. These are for the ranks' exchange.
  [[nodiscard]] bool asks() const noexcept { return ways_.asks(); }
  void say(std::span<std::uint32_t> words);
  void heard(std::span<const std::uint32_t> words) { ways_.heard(words); }

 private:
  struct Marks {
    choice::EqualWays::Timed call;
    DeviceClock::Mark begin = 0;
    DeviceClock::Mark end = 0;
  };
  void drop(const Marks& marks) noexcept;

  DeviceClock& clock_;
  choice::EqualWays ways_;
  std::map<Kind, std::size_t> kinds_;
  std::deque<Marks> marks_;  // of calls whose times are not known yet, oldest first
};

}  // namespace gradwire::drop_in
