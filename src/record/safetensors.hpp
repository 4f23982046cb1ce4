// The format of safetensors files: 8 bytes with the length of the header, the header, which is JSON, and the values
// (https://github.com/huggingface/safetensors, "Format").
#pragma once

#include <string>
#include <vector>

#include "record/stored_gradient.hpp"

namespace gradwire::record {

/// The tensors of floats in the file, in the order of their bytes. Others are left out, with a line for each.
[[nodiscard]] std::vector<StoredGradient> list_safetensors(GradientFile& file, std::vector<std::string>& left_out);

}  // namespace gradwire::record
