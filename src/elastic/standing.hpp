// What a session holds alike on all ranks between two steps, as a rank that comes later has to know it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "session/state/state_file.hpp"

namespace gradwire::session {

struct Standing {
  bool holds = false;  // it is known here; else the rest says nothing
  std::uint64_t step = 0;
  double loss_scale = 1;
  bool loss_scale_set = false;
  bool weighted = false;
  bool flush = false;                              // wanted of the coming step
  bool syncs = false;                              // ranks are in sync_parameters(), and make it again
  double coming_loss_scale = 0;                    // ranks are in set_loss_scale() with it; 0: they are not
  std::vector<std::uint32_t> with_residuals = {};  // tensors of which ranks hold local residuals
  std::vector<std::uint32_t> with_anchors = {};    // tensors under outer momentum that local steps have begun with
  std::vector<SavedState::LocalSteps> local_steps = {};
  std::vector<SavedState::Result> results = {};  // that no step has delivered; values are not told here
  std::vector<SavedState::Late> late = {};       // of which each rank has its own; nor are these, and weights

  [[nodiscard]] bool operator==(const Standing&) const = default;
};

[[nodiscard]] std::string encode_standing(const Standing& standing);
/// Error(corrupt) for what no encode_standing() made.
[[nodiscard]] Standing decode_standing(const std::string& text);

}  // namespace gradwire::session
