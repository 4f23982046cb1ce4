// Checkpoints of a job in one directory that all ranks see: a folder for each, with every rank's state
// (rank-R-of-N.gradwire) and the parameters, which all ranks hold alike and rank 0 writes. docs/state-format.md has the
// names and the bytes. Nobody asks other ranks anything: a checkpoint is complete once all its files are there, and
// each file is whole or not there.
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
  std::uint64_t hash = 0;  // of the parameters, so that what two runs wrote of one step is not mixed

  /// step-000000000100-of-4-0123456789abcdef
  [[nodiscard]] std::string text() const;
  [[nodiscard]] static std::optional<CheckpointName> parse(const std::string& text);
  friend bool operator==(const CheckpointName&, const CheckpointName&) = default;
};

/// XXH3 of sizes, types and values.
[[nodiscard]] std::uint64_t hash_of(std::span<const ConstView> parameters);
/// The bytes of a file of parameters.
[[nodiscard]] wire::Bytes encode_parameters(std::span<const ConstView> parameters, std::uint64_t step);

/// Both bring the file to the disk before it has its name. Error(invalid_argument) where it cannot be written.
void write_checkpoint_state(const std::filesystem::path& directory, const CheckpointName& name,
                            const SavedState& state);
void write_checkpoint_parameters(const std::filesystem::path& directory, const CheckpointName& name,
                                 const wire::Bytes& parameters);
/// Removes all but the `keep` newest complete checkpoints, whatever is older than these, and, with a warning, what
/// never became complete.
void rotate_checkpoints(const std::filesystem::path& directory, int keep);

/// The newest first; none where there is no such directory.
[[nodiscard]] std::vector<CheckpointName> complete_checkpoints(const std::filesystem::path& directory);
/// The largest step of any checkpoint, complete or not; 0: there is none.
[[nodiscard]] std::uint64_t latest_checkpoint_step(const std::filesystem::path& directory);
/// Renames what is of a later step, which no rank goes on from, to NAME.unusable.
void set_aside_later_checkpoints(const std::filesystem::path& directory, std::uint64_t step);

/// What encode_parameters() made of views of the same sizes and types: Error(mismatch) where they are others,
/// Error(corrupt) for damage, Error(invalid_argument) where the file cannot be read.
[[nodiscard]] std::vector<wire::Bytes> read_checkpoint_parameters(const std::filesystem::path& directory,
                                                                  const CheckpointName& name,
                                                                  std::span<const View> parameters);

}  // namespace gradwire::session
