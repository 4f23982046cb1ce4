// The state of a session that is the same on all ranks between two steps, as a rank that joins later has to know it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "session/state/saved_state.hpp"

namespace gradwire::session {

struct Standing {
  bool holds = false;  // the state is known here; else the other fields say nothing
  std::uint64_t step = 0;
  SavedTerms terms = {};
  bool flush = false;                              // the coming step has to flush
  bool syncs = false;                              // ranks are in sync_parameters(), and repeat it
  double coming_loss_scale = 0;                    // ranks are in set_loss_scale() with this argument; 0: they are not
  std::vector<std::uint32_t> with_residuals = {};  // tensors for which ranks hold local residuals
  SavedSyncModes sync_modes = {};                  // without values, and without the weights of late gradients

  [[nodiscard]] bool operator==(const Standing&) const = default;
};

[[nodiscard]] std::string encode_standing(const Standing& standing);
/// Error(corrupt) for text that encode_standing() did not make.
[[nodiscard]] Standing decode_standing(const std::string& text);

}  // namespace gradwire::session
