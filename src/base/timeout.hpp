// The limits of a caller's timeouts.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>

#include "gradwire/error.hpp"

namespace gradwire {

/// Ten years: clocks can represent times that far from now, and twice as far.
inline constexpr std::chrono::milliseconds kLongestTimeout{std::chrono::hours{24 * 365 * 10}};

/// `given`, but at most the longest timeout. Error(invalid_argument) where it is not above 0, since every wait would
/// fail at once. `whose` begins the message.
[[nodiscard]] inline std::chrono::milliseconds checked_timeout(std::chrono::milliseconds given,
                                                               const std::string& whose) {
  if (given.count() <= 0) {
    throw Error(ErrorCode::invalid_argument,
                whose + ": the timeout is " + std::to_string(given.count()) + " ms; it must be above 0");
  }
  return std::min(given, kLongestTimeout);
}

/// The same for the timeout of options.
template <class Options>
[[nodiscard]] Options with_checked_timeout(Options options, const std::string& whose) {
  options.timeout = checked_timeout(options.timeout, whose);
  return options;
}

}  // namespace gradwire
