// A folder of recorded gradients: step-K/NAME.npy, and index.json, which says what they are:
//   {"schema": "gradwire.gradients.1", "rank": 0, "ranks": 4,
//    "gradients": [{"name": "head.weight", "step": 12, "file": "step-12/head.weight.npy", "dtype": "f32", "count": 9}]}
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "record/gradient_files.hpp"

namespace gradwire::record {

inline constexpr std::string_view kIndexFile = "index.json";
inline constexpr std::string_view kIndexSchema = "gradwire.gradients.1";

/// See list_gradients().
[[nodiscard]] Listing list_folder(const std::filesystem::path& folder, std::optional<DType> raw);

}  // namespace gradwire::record
