// The state of a session between two steps. A file holds it, and the session of the next world gets it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "exchange/residuals/residual_store.hpp"
#include "gradwire/policy.hpp"
#include "gradwire/reduction.hpp"
#include "table/saved_rows.hpp"

namespace gradwire::session {

/// What the caller has set for the coming steps.
struct SavedTerms {
  double loss_scale = 1;
  bool loss_scale_set = false;
  bool weighted = false;

  [[nodiscard]] bool operator==(const SavedTerms&) const = default;
};

/// A residual of this rank, with the range of the tensor that it covers.
struct SavedResidual {
  exchange::ResidualKey key;
  exchange::ResidualStore::Range range;
};

/// The anchor of a tensor under outer momentum, in the tensor's dtype; the same on every rank.
struct SavedAnchor {
  std::uint32_t tensor = 0;
  std::vector<std::byte> parameters = {};  // at the last synchronisation
  std::vector<std::byte> momentum = {};

  [[nodiscard]] bool operator==(const SavedAnchor&) const = default;
};

/// A reduced gradient that no step has delivered yet, in the tensor's dtype; the same on every rank.
struct SavedResult {
  std::uint32_t tensor = 0;
  std::uint64_t step = 0;  // the step of the gradients
  double scale = 1;        // the loss scale of the gradients
  bool nonfinite = false;
  std::vector<std::byte> values = {};

  [[nodiscard]] bool operator==(const SavedResult&) const = default;
};

/// This rank's own late gradient, whose reduction does not count yet. It is handed from one world to the next and never
/// written to a file.
struct LateGradient {
  std::uint32_t tensor = 0;
  std::uint64_t step = 0;
  double scale = 1;
  bool weighted = false;
  double weight = 1;
  std::vector<std::byte> values = {};

  [[nodiscard]] bool operator==(const LateGradient&) const = default;
};

/// The local steps of a tensor under sync = { every = N, ... }; the same on every rank.
struct SavedLocalSteps {
  std::uint32_t tensor = 0;
  std::uint64_t put_off_to = 0;  // the step at which they begin; 0 if that is the policy's
  bool moved = false;            // local steps changed the parameters since the last synchronisation

  [[nodiscard]] bool operator==(const SavedLocalSteps&) const = default;
};

/// What sync modes keep between steps.
struct SavedSyncModes {
  std::vector<SavedAnchor> anchors = {};
  std::vector<SavedResult> results = {};
  std::vector<LateGradient> late = {};
  std::vector<SavedLocalSteps> local_steps = {};

  /// Whether the tensor has an anchor, so that its residuals are of parameter changes.
  [[nodiscard]] bool has_anchor(std::uint32_t tensor) const {
    return std::any_of(anchors.begin(), anchors.end(),
                       [&](const SavedAnchor& anchor) { return anchor.tensor == tensor; });
  }
  [[nodiscard]] bool operator==(const SavedSyncModes&) const = default;
};

struct SavedState {
  int rank = 0;
  int world_size = 1;
  std::uint64_t step = 0;  // the coming one
  SavedTerms terms = {};
  Reduction reduction = Reduction::mean;
  std::string fingerprint = {};          // the plan's
  std::vector<TensorInfo> tensors = {};  // name, count, dtype; in order of add
  std::vector<SavedResidual> residuals = {};
  SavedSyncModes sync_modes = {};
  std::vector<table::SavedTable> tables = {};  // in order of add_table
  bool packed = false;                         // files of it are packed by libzstd
};

}  // namespace gradwire::session
