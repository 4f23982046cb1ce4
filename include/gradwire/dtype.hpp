// Element types of tensors, and views of memory that the caller owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gradwire {

/// Element type of a tensor. The numbers are the `dtype` byte of a frame and never change.
enum class DType : std::uint8_t { f32 = 1, f16 = 2, bf16 = 3, f64 = 4 };

/// Bytes of one element; 0 for a value that is no DType.
[[nodiscard]] constexpr std::size_t element_bytes(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32: return 4;
    case DType::f16:
    case DType::bf16: return 2;
    case DType::f64: return 8;
  }
  return 0;
}

/// How the residuals of error feedback are stored. The numbers are those of saved states and never change.
enum class ResidualDType : std::uint8_t {
  f32 = 1,
  bf16 = 3,  // rounded stochastically, so that nothing is lost in the mean
  int8 = 5,  // likewise, 64 elements with a common scale in 65 bytes
};

/// "f32", "f16", "bf16" or "f64".
[[nodiscard]] std::string_view to_string(DType dtype) noexcept;
/// The inverse of to_string; throws Error(invalid_argument).
[[nodiscard]] DType parse_dtype(std::string_view text);

/// A view of `count` contiguous elements of host memory that the caller owns. Null data is allowed only with count 0.
struct View {
  void* data = nullptr;
  std::uint64_t count = 0;
  DType dtype = DType::f32;
};

/// Like View, but read-only.
struct ConstView {
  const void* data = nullptr;
  std::uint64_t count = 0;
  DType dtype = DType::f32;

  ConstView() = default;
  ConstView(const void* d, std::uint64_t c, DType t) : data(d), count(c), dtype(t) {}
  ConstView(const View& v) : data(v.data), count(v.count), dtype(v.dtype) {}  // NOLINT: a View reads as one
};

[[nodiscard]] inline View view(float* data, std::uint64_t count) { return {data, count, DType::f32}; }
[[nodiscard]] inline View view(double* data, std::uint64_t count) { return {data, count, DType::f64}; }
[[nodiscard]] inline View view(void* data, std::uint64_t count, DType dtype) { return {data, count, dtype}; }
[[nodiscard]] inline ConstView view(const float* data, std::uint64_t count) { return {data, count, DType::f32}; }
[[nodiscard]] inline ConstView view(const double* data, std::uint64_t count) { return {data, count, DType::f64}; }
[[nodiscard]] inline ConstView view(const void* data, std::uint64_t count, DType dtype) { return {data, count, dtype}; }

}  // namespace gradwire
