// NumPy's format for one array (.npy), versions 1.0, 2.0 and 3.0: "\x93NUMPY", two bytes of version, the length of the
// header (2 bytes; 4 from 2.0 on), the header, which is a dict in Python's syntax, and the elements
// (numpy.lib.format in NumPy's reference).
#pragma once

#include <string>
#include <string_view>

#include "record/stored_gradient.hpp"

namespace gradwire::record {

inline constexpr std::string_view kNpyMagic = "\x93NUMPY";

/// The array of the file, named after it. Refuses what is no array of floats in row-major order, little endian. bf16,
/// which NumPy does not know, is stored as 2 bytes without a type (V2), or as uint16.
[[nodiscard]] StoredGradient list_npy(GradientFile& file);

/// What stands before the elements of an array of one dimension: version 1.0, a multiple of 64 bytes.
[[nodiscard]] std::string npy_header(DType dtype, std::uint64_t count);

}  // namespace gradwire::record
