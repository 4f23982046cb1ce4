// A session's state as bytes. Little-endian: "gradwire", u32 version, u32 zero, u64 bytes of the body, the body, u64
// XXH3 of all before it. docs/state-format.md has the body.
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
  /// Of a tensor under outer momentum, in its dtype; the same on every rank.
  struct Anchor {
    std::uint32_t tensor = 0;
    std::vector<std::byte> parameters = {};  // when last synchronised
    std::vector<std::byte> momentum = {};
  };
  /// A reduced gradient that no step has delivered yet, in the tensor's dtype; the same on every rank.
  struct Result {
    std::uint32_t tensor = 0;
    std::uint64_t step = 0;  // whose gradients they were
    double scale = 1;        // their loss scale
    bool nonfinite = false;
    std::vector<std::byte> values = {};

    [[nodiscard]] bool operator==(const Result&) const = default;
  };
  /// This rank's own late gradient, the reduction of which does not count yet; from one world to the next, never
  /// written.
  struct Late {
    std::uint32_t tensor = 0;
    std::uint64_t step = 0;
    double scale = 1;
    bool weighted = false;
    double weight = 1;
    std::vector<std::byte> values = {};

    [[nodiscard]] bool operator==(const Late&) const = default;
  };
  /// Of a tensor under sync = { every = N, ... }; the same on every rank.
  struct LocalSteps {
    std::uint32_t tensor = 0;
    std::uint64_t put_off_to = 0;  // 0: they begin as the policy says
    bool moved = false;            // since the last synchronisation

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
  std::string fingerprint;          // of the plan
  std::vector<TensorInfo> tensors;  // name, count, dtype; in order of add
  std::vector<Residual> residuals;
  std::vector<Anchor> anchors = {};
  std::vector<Result> results = {};
  std::vector<Late> late = {};
  std::vector<LocalSteps> local_steps = {};
  std::vector<Table> tables = {};  // in order of add_table

  /// Whether what it holds of the tensor is of parameter changes.
  [[nodiscard]] bool has_anchor(std::uint32_t tensor) const {
    return std::any_of(anchors.begin(), anchors.end(), [&](const Anchor& anchor) { return anchor.tensor == tensor; });
  }
};

using table::RowSink;

/// Takes no memory for rows of tables. Error(invalid_argument) where the stream fails.
void write_state(const SavedState& state, std::ostream& stream);
/// `source` is for messages; without `rows` those of tables are passed over. Error(corrupt) for anything that
/// write_state() did not write: rows that were handed to `rows` are worth nothing then.
[[nodiscard]] SavedState read_state(std::istream& stream, const std::string& source, RowSink* rows = nullptr);

/// The step of a state, by its head alone; nothing where it is none or cannot be read.
[[nodiscard]] std::optional<std::uint64_t> read_step(std::istream& stream);

/// The files of this step in this directory are all ranks', as far as this rank knows: loaded, or saved.
struct KnownFiles {
  std::filesystem::path directory;
  std::uint64_t step;
};

/// rank-R-of-N.gradwire
[[nodiscard]] std::string state_file_name(int rank, int world_size);
/// DIRECTORY/rank-R-of-N.gradwire, under another name until it is complete.
void write_state_file(const SavedState& state, const std::filesystem::path& directory,
                      const std::optional<KnownFiles>& known);
/// What rank `rank` of a world of `world_size` needs of a directory: its own file, or those of all ranks of another
/// world. With `rows`: those of all ranks in any case, its own one first. Error(corrupt) where rows of tables lay
/// otherwise when one was written than when another was.
[[nodiscard]] std::vector<SavedState> read_state_files(const std::filesystem::path& directory, int rank, int world_size,
                                                       RowSink* rows = nullptr);

}  // namespace gradwire::session
