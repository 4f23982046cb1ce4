// Links that are slower than the machine's: a transport over another one, for tests and demonstrations.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/link.hpp"
#include "gradwire/transport.hpp"

namespace gradwire {

/// Emulates a network that others use too: in each interval the rate is multiplied by a log-normal factor of mean 1.
struct LinkNoise {
  double sigma = 0;                      // of the factor's logarithm; 0: none
  std::chrono::nanoseconds interval{0};  // how long one factor holds; at least 1 ms where there is noise
  std::uint64_t seed = 0;
};

/// A link that holds until a moment of the schedule's own time.
struct LinkPhase {
  static constexpr std::chrono::nanoseconds kForEver = std::chrono::nanoseconds::max();
  Link link;
  std::chrono::nanoseconds end = kForEver;
};

/// A link that changes with time: a pure function of time, which starts at 0. A Link is a schedule that never changes.
class LinkSchedule {
 public:
  LinkSchedule() : LinkSchedule(Link{}) {}
  LinkSchedule(const Link& link);  // NOLINT(google-explicit-constructor): a link is a schedule
  /// Ends ascend, and only the last phase has none. Error(invalid_argument) names the phase that is wrong.
  explicit LinkSchedule(std::vector<LinkPhase> phases, const LinkNoise& noise = {});

  /// "1Gbit/s", "100Mbit/s,1ms until 20s, 1Gbit/s", "100Mbit/s until 20s, 1Gbit/s; noise 30% per 100ms seed 7".
  /// Phases are links with an end, the last one without; the noise's seed may be left out. Error(invalid_argument)
  /// names the phase and what is wrong with it.
  [[nodiscard]] static LinkSchedule parse(const std::string& text);
  [[nodiscard]] std::string to_string() const;

  [[nodiscard]] const std::vector<LinkPhase>& phases() const noexcept { return phases_; }
  [[nodiscard]] const LinkNoise& noise() const noexcept { return noise_; }
  [[nodiscard]] bool constant() const noexcept { return phases_.size() == 1 && noise_.sigma == 0; }

  /// The link of the phase at that time; before 0 that of the first phase.
  [[nodiscard]] const Link& link_at(std::chrono::nanoseconds time) const;
  /// Bytes per second, noise included; 0: unlimited.
  [[nodiscard]] double rate_at(std::chrono::nanoseconds time) const;
  /// The first moment after `time` at which the rate or the latency may change; kForEver: none.
  [[nodiscard]] std::chrono::nanoseconds next_change(std::chrono::nanoseconds time) const;
  /// When the last of `bytes`, whose first leaves at `start`, has passed: the rate may change on the way.
  [[nodiscard]] std::chrono::nanoseconds end_of(std::chrono::nanoseconds start, double bytes) const;

 private:
  std::vector<LinkPhase> phases_;
  LinkNoise noise_;
};

/// Slows `inner` down to `link`, without root rights. It reports no native collectives, so that none bypasses it.
/// `start` is the moment at which a schedule's time is 0. By default that is the first use by any rank on this machine:
/// each message tells its receiver when its sender began, and the earliest moment counts, so ranks may differ until
/// then. Give every rank the same `start` where that matters.
[[nodiscard]] std::shared_ptr<Transport> make_throttled(
    std::shared_ptr<Transport> inner, LinkSchedule link,
    std::optional<std::chrono::steady_clock::time_point> start = std::nullopt);

/// This rank's end of an emulated link that several transports use, as communicators share a network card: the
/// transports share one rate for sending and one for receiving. `start` as for make_throttled.
class EmulatedLink {
 public:
  explicit EmulatedLink(LinkSchedule link, std::optional<std::chrono::steady_clock::time_point> start = std::nullopt);

  struct State;

 private:
  friend std::shared_ptr<Transport> make_throttled(std::shared_ptr<Transport> inner, const EmulatedLink& link);
  std::shared_ptr<State> state_;
};
[[nodiscard]] std::shared_ptr<Transport> make_throttled(std::shared_ptr<Transport> inner, const EmulatedLink& link);

/// The same over a link as text, "1Gbit/s,50us", or a schedule of links; empty: `inner` itself.
[[nodiscard]] std::shared_ptr<Transport> make_emulated(std::shared_ptr<Transport> inner, const std::string& link);

}  // namespace gradwire
