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

struct CopyForm {
  bool exact = false;   // fp32; otherwise values are rounded to bf16
  bool packed = false;  // by byte planes, which needs libzstd (codec::require_zstd)
};

[[nodiscard]] wire::Bytes encode_copy(const std::vector<SavedResidual>& residuals, double loss_scale, CopyForm form);
/// Error(corrupt) for bytes that encode_copy() did not make.
[[nodiscard]] ResidualCopy decode_copy(std::span<const std::byte> bytes);

}  // namespace gradwire::session
