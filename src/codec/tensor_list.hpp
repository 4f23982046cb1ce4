// A bucket's memory as one sequence of elements: tensors of one dtype, end to end, wherever they lie. Codecs read and
// write tiles of it in place where they can; a tile that spans tensors or has another type goes through a scratch tile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "codec/codec.hpp"
#include "gradwire/dtype.hpp"

namespace gradwire::codec {

class TensorList {
 public:
  /// `working` is f64 only over f64 tensors.
  TensorList(DType dtype, Working working);

  /// Appends a tensor. `input` null: zeros. `output` null: nothing is stored for these elements. Not owned.
  void append(const void* input, void* output, std::uint64_t count);

  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] Working working() const noexcept { return working_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return count_ * element_bytes(dtype_); }

  /// Returns elements [first, first + count) of the inputs as working values: a pointer into a tensor where that is
  /// possible, otherwise `scratch`, which holds count working values. count <= kTileElements.
  [[nodiscard]] const void* load(std::uint64_t first, std::uint32_t count, void* scratch) const;
  /// Returns where to write working values for [first, first + count) of the outputs: the output itself, or `scratch`.
  [[nodiscard]] void* target(std::uint64_t first, std::uint32_t count, void* scratch) const;
  /// Stores working values to the outputs, unless `values` is the output itself. f64 -> f16 and the like round to
  /// nearest even.
  void store(std::uint64_t first, std::uint32_t count, const void* values) const;
  /// Returns the output if the list is one tensor whose elements are working values; otherwise null.
  [[nodiscard]] std::byte* whole_output() const noexcept;
  /// Whether the outputs of these elements are finite.
  [[nodiscard]] bool finite_outputs(std::uint64_t first, std::uint32_t count) const;
  /// The same three in bytes of the tensors' own dtype, untouched; `scratch` holds count elements of it.
  [[nodiscard]] const void* load_verbatim(std::uint64_t first, std::uint32_t count, void* scratch) const;
  [[nodiscard]] void* target_verbatim(std::uint64_t first, std::uint32_t count, void* scratch) const;
  void store_verbatim(std::uint64_t first, std::uint32_t count, const void* bytes) const;

 private:
  enum class Form : std::uint8_t { working, verbatim };  // the form of the caller's values
  struct Segment {
    const std::byte* input;
    std::byte* output;
    std::uint64_t first;
    std::uint64_t count;
  };
  [[nodiscard]] std::size_t unit(Form form) const noexcept;  // bytes of one element in that form
  [[nodiscard]] bool converts(Form form) const noexcept;     // whether it differs from how tensors are stored
  [[nodiscard]] std::vector<Segment>::const_iterator segment_at(std::uint64_t first, std::uint32_t count) const;
  // Calls body(input or null, output or null, offset inside the range, count) for each tensor that the range touches.
  template <class Body>
  void for_each_piece(std::uint64_t first, std::uint32_t count, Body body) const;
  [[nodiscard]] const void* load(Form form, std::uint64_t first, std::uint32_t count, void* scratch) const;
  [[nodiscard]] void* target(Form form, std::uint64_t first, std::uint32_t count, void* scratch) const;
  void store(Form form, std::uint64_t first, std::uint32_t count, const void* values) const;

  std::vector<Segment> segments_;
  std::uint64_t count_ = 0;
  DType dtype_;
  Working working_;
};

}  // namespace gradwire::codec
