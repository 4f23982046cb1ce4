// What a rank holds of residuals, as bytes that another rank keeps for it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "session/checkpoint/state_file.hpp"
#include "wire/bytes.hpp"

namespace gradwire::session {

/// `exact`: in fp32; else rounded to bf16.
[[nodiscard]] wire::Bytes encode_copy(const std::vector<SavedState::Residual>& residuals, bool exact);
/// Error(corrupt) for what no encode_copy() made.
[[nodiscard]] std::vector<SavedState::Residual> decode_copy(std::span<const std::byte> bytes);

}  // namespace gradwire::session
