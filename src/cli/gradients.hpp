// The gradients that a user names on the command line, as tensors over steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "record/gradient_files.hpp"

namespace gradwire::cli {

/// One tensor, with its gradient in each step.
struct GradientSteps {
  std::string name;
  DType dtype = DType::f32;
  std::uint64_t count = 0;
  std::uint32_t ndim = 1;
  std::vector<record::StoredGradient> steps;  // not empty
};

struct Gradients {
  std::vector<GradientSteps> tensors;  // in the order of the files; not empty
  std::vector<std::string> notes;      // a line for each tensor that was left out
  std::size_t recorded_steps = 0;      // of the tensor with the fewest
};

/// Reads the headers of files and folders. Tensors of the same name are one tensor in successive steps, in the order
/// given. Error(invalid_argument), which names both files, where their sizes or types differ; or where there is no
/// element at all.
[[nodiscard]] Gradients read_gradients(const std::vector<std::string>& files, std::optional<DType> raw = std::nullopt);

}  // namespace gradwire::cli
