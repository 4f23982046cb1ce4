// The choices that codec = "auto" made in a job, as a file that a later job can follow. Both then compress the same
// calls, and their results are equal bit by bit.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "drop_in/calls.hpp"

namespace gradwire::drop_in {

/// Names a communicator that the same job has again in another run.
struct CommunicatorName {
  std::uint64_t ranks = 0;   // hash of its ranks' numbers in the world, in its own order; of NCCL: of its name
  std::uint32_t size = 0;    // number of ranks
  std::uint32_t first = 0;   // its rank 0's number in the world, or in the job
  std::uint32_t number = 0;  // its place among those of the same ranks, in the order of their first reductions
  // NOLINTNEXTLINE(modernize-use-nullptr): the check warns about the comparison that clang generates
  friend auto operator<=>(const CommunicatorName&, const CommunicatorName&) = default;
};

using ChoicesOfJob = std::map<CommunicatorName, Choices>;

/// `policy` is the policy's fingerprint; choices only hold for the codecs that it allows.
[[nodiscard]] std::string choices_to_text(const ChoicesOfJob& choices, const std::string& policy);
/// Writes that text to `file` completely or not at all, since the next job uses it. Returns why it could not; empty if
/// it could.
[[nodiscard]] std::string write_choices(const std::filesystem::path& file, const std::string& text);
/// Error(invalid_argument) says what is wrong, also if the choices belong to another policy.
[[nodiscard]] ChoicesOfJob choices_from_text(const std::string& text, const std::string& policy);

}  // namespace gradwire::drop_in
