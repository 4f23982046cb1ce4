// The file format of a session's state. Little-endian: "gradwire", u32 version, u32 zero, u64 bytes of the body, the
// body, u64 XXH3 of all bytes before it. docs/reference/state-format.md describes the body.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <istream>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "session/state/saved_state.hpp"
#include "table/saved_rows.hpp"

namespace gradwire::session {

using table::RowSink;
/// Returns where the residuals of a tensor go while a state is read; null: into memory.
using ResidualSpills = std::function<exchange::ResidualValues::Spill(std::uint32_t tensor)>;

/// Writes the state, and allocates no memory for rows of tables. Throws Error(invalid_argument) if the stream fails.
void write_state(const SavedState& state, std::ostream& stream);
/// Reads a state. `source` is for messages. The rows of tables go to `rows`, or are skipped if it is null; residuals go
/// where `spills` says, piece by piece, or into memory if it is empty. Throws
/// Error(corrupt) for anything that write_state() did not write; rows that `rows` got by then must be dropped.
[[nodiscard]] SavedState read_state(std::istream& stream, const std::string& source, RowSink* rows = nullptr,
                                    const ResidualSpills& spills = {});

/// Reads the step of a state from its first bytes alone. Returns nothing if they are no state or cannot be read.
[[nodiscard]] std::optional<std::uint64_t> read_step(std::istream& stream);

/// A directory and the step of its files that this rank loaded or saved. As far as this rank knows, every rank has a
/// file of that step there.
struct KnownFiles {
  std::filesystem::path directory;
  std::uint64_t step;
};

/// Returns "rank-R-of-N.gradwire".
[[nodiscard]] std::string state_file_name(int rank, int world_size);
/// Writes DIRECTORY/rank-R-of-N.gradwire, which has another name until it is complete.
void write_state_file(const SavedState& state, const std::filesystem::path& directory,
                      const std::optional<KnownFiles>& known);
/// Reads the files that rank `rank` of a world of `world_size` needs from a directory: its own file, or the files of
/// all ranks if they are of a world of another size. With `rows` it reads the files of all ranks in any case, and
/// returns the rank's own state first if the size is the same. Throws Error(corrupt) if the rows of tables lay on other
/// ranks when one file was written than when another was.
[[nodiscard]] std::vector<SavedState> read_state_files(const std::filesystem::path& directory, int rank, int world_size,
                                                       RowSink* rows = nullptr, const ResidualSpills& spills = {});

}  // namespace gradwire::session
