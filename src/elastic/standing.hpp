// The state of a session that is the same on all ranks between two steps, as a rank that joins later has to know it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "session/state/state_file.hpp"

namespace gradwire::session {

struct Standing {
  bool holds = false;  // the state is known here; else the other fields say nothing
  std::uint64_t step = 0;
  double loss_scale = 1;
  bool loss_scale_set = false;
  bool weighted = false;
  bool flush = false;                              // the coming step has to flush
  bool syncs = false;                              // ranks are in sync_parameters(), and repeat it
  double coming_loss_scale = 0;                    // ranks are in set_loss_scale() with this argument; 0: they are not
  std::vector<std::uint32_t> with_residuals = {};  // tensors for which ranks hold local residuals
  std::vector<std::uint32_t> with_anchors = {};    // tensors under outer momentum for which local steps have begun
  std::vector<SavedState::LocalSteps> local_steps = {};
  std::vector<SavedState::Result> results = {};  // results that no step has delivered, without values
  std::vector<SavedState::Late> late =
      {};  // late gradients, without values and weights, which each rank has for itself

  [[nodiscard]] bool operator==(const Standing&) const = default;
};

[[nodiscard]] std::string encode_standing(const Standing& standing);
/// Error(corrupt) for text that encode_standing() did not make.
[[nodiscard]] Standing decode_standing(const std::string& text);

}  // namespace gradwire::session
