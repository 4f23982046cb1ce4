// A tensor in a file: what it is, and where its values lie. All numbers in such a file come from outside, so a reader
// checks each of them against the size of the file before it is used.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/regular_file.hpp"
#include "gradwire/dtype.hpp"

namespace gradwire::record {

struct StoredGradient {
  std::string name;
  std::uint64_t step = 0;
  DType dtype = DType::f32;
  std::vector<std::uint64_t> shape;
  std::uint64_t count = 0;  // elements
  std::filesystem::path file;
  std::uint64_t offset = 0;  // of its first byte in the file; little endian, in row-major order
};

/// A file under its name for messages, of which a reader takes the first bytes one after the other.
class GradientFile {
 public:
  explicit GradientFile(const std::filesystem::path& path) : path_(path), file_(path, "gradient file") {}

  /// Throws Error(invalid_argument): "FILE: `place`: `what`"; without a place "FILE: `what`".
  [[noreturn]] void refuse(std::string_view place, std::string_view what) const;
  /// Reads exactly so many bytes at `offset`, which `part` names in the error if the file ends before.
  void read(std::uint64_t offset, void* to, std::size_t bytes, std::string_view part);
  template <typename Number>
  [[nodiscard]] Number number(std::uint64_t offset, std::string_view part) {
    Number value{};
    read(offset, &value, sizeof value, part);
    return value;
  }
  [[nodiscard]] std::uint64_t size() const noexcept { return file_.size(); }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
  RegularFile file_;
};

/// The product of the sides. Refuses a tensor with more elements than `file` could hold.
[[nodiscard]] std::uint64_t elements_of(const GradientFile& file, std::string_view place,
                                        const std::vector<std::uint64_t>& shape, DType dtype);

}  // namespace gradwire::record
