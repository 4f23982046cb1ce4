// A session's state and its file format. Little-endian: "gradwire", u32 version, u32 zero, u64 bytes of the body, the
// body, u64 XXH3 of all bytes before it. docs/reference/state-format.md describes the body.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <istream>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "exchange/residuals/residual_store.hpp"
#include "gradwire/policy.hpp"
#include "gradwire/reduction.hpp"
#include "table/saved_rows.hpp"

namespace gradwire::session {

struct SavedState {
  struct Residual {
    exchange::ResidualKey key;
    exchange::ResidualStore::Range range;
  };
  /// The anchor of a tensor under outer momentum, in the tensor's dtype; the same on every rank.
  struct Anchor {
    std::uint32_t tensor = 0;
    std::vector<std::byte> parameters = {};  // at the last synchronisation
    std::vector<std::byte> momentum = {};
  };
  /// A reduced gradient that no step has delivered yet, in the tensor's dtype; the same on every rank.
  struct Result {
    std::uint32_t tensor = 0;
    std::uint64_t step = 0;  // the step of the gradients
    double scale = 1;        // the loss scale of the gradients
    bool nonfinite = false;
    std::vector<std::byte> values = {};

    [[nodiscard]] bool operator==(const Result&) const = default;
  };
  /// This rank's own late gradient, whose reduction does not count yet. It is handed from one world to the next and
  /// never written to a file.
  struct Late {
    std::uint32_t tensor = 0;
    std::uint64_t step = 0;
    double scale = 1;
    bool weighted = false;
    double weight = 1;
    std::vector<std::byte> values = {};

    [[nodiscard]] bool operator==(const Late&) const = default;
  };
  /// The local steps of a tensor under sync = { every = N, ... }; the same on every rank.
  struct LocalSteps {
    std::uint32_t tensor = 0;
    std::uint64_t put_off_to = 0;  // the step at which they begin; 0 if that is the policy's
    bool moved = false;            // local steps changed the parameters since the last synchronisation

    [[nodiscard]] bool operator==(const LocalSteps&) const = default;
  };
  using Table = table::SavedTable;
  int rank = 0;
  int world_size = 1;
  std::uint64_t step = 0;
  double loss_scale = 1;
  bool loss_scale_set = false;
  Reduction reduction = Reduction::mean;
  bool weighted = false;
  std::string fingerprint;          // the plan's
  std::vector<TensorInfo> tensors;  // name, count, dtype; in order of add
  std::vector<Residual> residuals;
  std::vector<Anchor> anchors = {};
  std::vector<Result> results = {};
  std::vector<Late> late = {};
  std::vector<LocalSteps> local_steps = {};
  std::vector<Table> tables = {};  // in order of add_table

  /// Whether the tensor has an anchor, so that its residuals are of parameter changes.
  [[nodiscard]] bool has_anchor(std::uint32_t tensor) const {
    return std::any_of(anchors.begin(), anchors.end(), [&](const Anchor& anchor) { return anchor.tensor == tensor; });
  }
};

using table::RowSink;

/// Writes the state, and allocates no memory for rows of tables. Throws Error(invalid_argument) if the stream fails.
void write_state(const SavedState& state, std::ostream& stream);
/// Reads a state. `source` is for messages. The rows of tables go to `rows`, or are skipped if it is null. Throws
/// Error(corrupt) for anything that write_state() did not write; rows that `rows` got by then must be dropped.
[[nodiscard]] SavedState read_state(std::istream& stream, const std::string& source, RowSink* rows = nullptr);

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
                                                       RowSink* rows = nullptr);

}  // namespace gradwire::session
