// What codec = "auto" chose in a job, as a file that a later job can follow: then both compress the same calls, and
// their results are equal bit by bit.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "drop_in/calls.hpp"

namespace gradwire::drop_in {

/// A communicator that the same job has again in another run.
struct CommunicatorName {
  std::uint64_t ranks = 0;   // hash of its ranks' numbers in the world, in its own order
  std::uint32_t size = 0;    // ranks
  std::uint32_t first = 0;   // the number in the world of its rank 0
  std::uint32_t number = 0;  // among those of the same ranks, in the order of their first reductions
  // NOLINTNEXTLINE(modernize-use-nullptr): of what clang makes of it
  friend auto operator<=>(const CommunicatorName&, const CommunicatorName&) = default;
};

using ChoicesOfJob = std::map<CommunicatorName, Choices>;

/// `policy`: its fingerprint; choices hold for the codecs that it allows.
[[nodiscard]] std::string choices_to_text(const ChoicesOfJob& choices, const std::string& policy);
/// Error(invalid_argument) that says what is wrong, and for choices of another policy.
[[nodiscard]] ChoicesOfJob choices_from_text(const std::string& text, const std::string& policy);

}  // namespace gradwire::drop_in
