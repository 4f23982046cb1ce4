// The input of `gradwire plan`: the layers of a model and the computing time of its step. Format: docs/how-to/plan.md.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/policy.hpp"

namespace gradwire::cli {

struct ModelFile {
  double compute_seconds = 0;      // forward and backward pass of one step, one rank
  double backward = 2.0 / 3;       // the backward pass's share of that
  std::vector<TensorInfo> layers;  // in the order of the forward pass

  /// Error(invalid_argument) "FILE:LINE:COLUMN: what is wrong; what to write instead".
  [[nodiscard]] static ModelFile load(const std::filesystem::path& file);
  [[nodiscard]] static ModelFile parse(std::string_view text, const std::string& source);
};

}  // namespace gradwire::cli
