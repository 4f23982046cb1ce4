// A rank's residuals, as bytes that another rank keeps for it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "session/state/state_file.hpp"
#include "wire/bytes.hpp"

namespace gradwire::session {

struct ResidualCopy {
  double loss_scale = 1;  // the scale of the residuals
  std::vector<SavedResidual> residuals = {};
};

/// Encodes the residuals: in fp32 if `exact`, else rounded to bf16.
[[nodiscard]] wire::Bytes encode_copy(const std::vector<SavedResidual>& residuals, double loss_scale, bool exact);
/// Error(corrupt) for bytes that encode_copy() did not make.
[[nodiscard]] ResidualCopy decode_copy(std::span<const std::byte> bytes);

}  // namespace gradwire::session
