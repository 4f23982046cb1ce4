// Checkpoints of a job in one directory that all ranks see: a folder for each, with every rank's state
// (rank-R-of-N.gradwire) and the parameters, which are the same on all ranks and which rank 0 writes.
// docs/reference/state-format.md has the names and the bytes. Ranks need not communicate: a checkpoint is complete once
// all its files are there, and each file is either whole or absent.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/dtype.hpp"
#include "session/state/state_file.hpp"
#include "wire/bytes.hpp"

namespace gradwire::session {

inline constexpr std::string_view kParametersFile = "parameters.gradwire";

struct CheckpointName {
  std::uint64_t step = 0;
  int world_size = 0;
  std::uint64_t hash = 0;  // of the parameters, so that two runs do not mix their files of one step

  /// Returns a name such as step-000000000100-of-4-0123456789abcdef.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] static std::optional<CheckpointName> parse(const std::string& text);
  friend bool operator==(const CheckpointName&, const CheckpointName&) = default;
};

/// Returns the XXH3 of sizes, types and values.
[[nodiscard]] std::uint64_t hash_of(std::span<const ConstView> parameters);

/// Both functions write a file to the disk before it gets its name. They throw Error(invalid_argument) if it cannot be
/// written, and Error(unsupported) if it is to be packed and there is no libzstd.
void write_checkpoint_state(const std::filesystem::path& directory, const CheckpointName& name,
                            const SavedState& state);
void write_checkpoint_parameters(const std::filesystem::path& directory, const CheckpointName& name,
                                 std::span<const ConstView> parameters, bool packed);
/// Removes all but the `keep` newest complete checkpoints, everything older than these, and, with a warning,
/// checkpoints that never became complete.
void rotate_checkpoints(const std::filesystem::path& directory, int keep);

/// Returns the complete checkpoints, the newest first; none if there is no such directory.
[[nodiscard]] std::vector<CheckpointName> complete_checkpoints(const std::filesystem::path& directory);
/// Returns the largest step of any checkpoint, complete or not; 0 if there is none.
[[nodiscard]] std::uint64_t latest_checkpoint_step(const std::filesystem::path& directory);
/// Renames checkpoints of steps after `step`, from which no rank continues, to NAME.unusable.
void set_aside_later_checkpoints(const std::filesystem::path& directory, std::uint64_t step);

/// Returns the values that write_checkpoint_parameters() wrote for views of the same sizes and types. Throws
/// Error(mismatch) if these differ, Error(corrupt) for damage, and Error(invalid_argument) if the file cannot be read.
[[nodiscard]] std::vector<wire::Bytes> read_checkpoint_parameters(const std::filesystem::path& directory,
                                                                  const CheckpointName& name,
                                                                  std::span<const View> parameters);

}  // namespace gradwire::session
