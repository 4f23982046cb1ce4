// A link to emulate: its rate and latency, and how they change in time.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace gradwire {

/// A link to feel, over another transport.
struct Link {
  double bytes_per_second = 0;          // 0: unlimited; each rank has a token bucket for egress and one for ingress
  std::chrono::nanoseconds latency{0};  // added to each message

  /// "1Gbit/s" or "1Gbit/s,50us" (also Mbit/s, MB/s, GB/s). Error(invalid_argument) names what is wrong.
  [[nodiscard]] static Link parse(const std::string& text);
  [[nodiscard]] std::string to_string() const;
};

/// A link whose rate is multiplied, interval by interval, by a log-normal factor of mean 1: others use the network too.
struct LinkNoise {
  double sigma = 0;                      // of the factor's logarithm; 0: none
  std::chrono::nanoseconds interval{0};  // of one factor; at least 1 ms where there is noise
  std::uint64_t seed = 0;
};

/// A link until a moment of the schedule's own time.
struct LinkPhase {
  static constexpr std::chrono::nanoseconds kForEver = std::chrono::nanoseconds::max();
  Link link;
  std::chrono::nanoseconds end = kForEver;
};

/// A link that changes. A pure function of time, which starts at 0; a Link is the schedule that never changes.
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

  /// The phase at that time; before 0 the first.
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

}  // namespace gradwire
