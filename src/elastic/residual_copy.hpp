// What a rank holds of residuals, as bytes that another rank keeps for it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "session/state/state_file.hpp"
#include "wire/bytes.hpp"

namespace gradwire::session {

struct ResidualCopy {
  double loss_scale = 1;  // that residuals are in
  std::vector<SavedState::Residual> residuals = {};
};

/// `exact`: in fp32; else rounded to bf16.
[[nodiscard]] wire::Bytes encode_copy(const std::vector<SavedState::Residual>& residuals, double loss_scale,
                                      bool exact);
/// Error(corrupt) for what no encode_copy() made.
[[nodiscard]] ResidualCopy decode_copy(std::span<const std::byte> bytes);

}  // namespace gradwire::session
