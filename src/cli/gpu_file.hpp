// The input of `gradwire plan --gpu`: GPUs, their links and their nodes. Format:
// docs/explanation/device-collectives.md.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "exchange/model/device_timeline.hpp"

namespace gradwire::cli {

/// Most cards in all, since a sum has at most so many inputs.
inline constexpr int kMostCards = 1024;

/// Error(invalid_argument) "FILE:LINE:COLUMN: what is wrong; what to write instead".
[[nodiscard]] exchange::DeviceCluster load_gpu_file(const std::filesystem::path& file);
[[nodiscard]] exchange::DeviceCluster parse_gpu_file(std::string_view text, const std::string& source);

}  // namespace gradwire::cli
