// Reads gradients from files of several formats: .npy, safetensors, raw elements, the file that char_lm writes, and the
// folders that gradwire records. A listing reads headers alone; values are read piece by piece, so that a file may be
// larger than the memory. Errors are Error(invalid_argument) that names the file, the place in it and what to do.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "record/stored_gradient.hpp"

namespace gradwire::record {

/// The first bytes of a file that char_lm writes: records of u32 name bytes, name, u32 step, u64 count, count x f32.
inline constexpr std::string_view kDumpMagic = "GWGRAD01";

struct Listing {
  std::vector<StoredGradient> gradients;  // of a folder: steps in order
  std::vector<std::string> left_out;      // a line for each tensor that is no gradient
};

/// What a file or a folder holds. The format is told by the first bytes. `raw`: the type of the elements of files that
/// have none of the formats, and are one tensor each, little endian. A folder holds what its index.json lists; without
/// one, its .npy and .safetensors files, and those in folders step-0, step-1 and so on.
[[nodiscard]] Listing list_gradients(const std::filesystem::path& path, std::optional<DType> raw = std::nullopt);

/// The same for a file that is not a folder.
[[nodiscard]] Listing list_file(const std::filesystem::path& path, std::optional<DType> raw = std::nullopt);

/// The values of one tensor.
class GradientValues {
 public:
  explicit GradientValues(const StoredGradient& gradient) : gradient_(gradient), file_(gradient.file) {}
  /// Reads `count` elements from element `first` on, as they are stored. Both lie inside the tensor.
  void read(std::uint64_t first, std::uint64_t count, void* to);

 private:
  const StoredGradient& gradient_;
  GradientFile file_;
};

}  // namespace gradwire::record
