// Checks the memory that a caller hands to a Communicator.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gradwire/communicator.hpp"
#include "gradwire/dtype.hpp"

namespace gradwire::exchange {

/// Returns the address of an element; null if `data` is null.
[[nodiscard]] inline const std::byte* at(const void* data, std::uint64_t element, DType dtype) {
  return data == nullptr ? nullptr : static_cast<const std::byte*>(data) + element * element_bytes(dtype);
}
[[nodiscard]] inline std::byte* at(void* data, std::uint64_t element, DType dtype) {
  return data == nullptr ? nullptr : static_cast<std::byte*>(data) + element * element_bytes(dtype);
}

// These throw Error(invalid_argument), whose text begins with `what` where there is one.

/// Requires a known dtype, and host memory unless the view is empty.
void check_view(const ConstView& view, const char* what);
void check_same_type(const ConstView& input, const ConstView& output);
void check_count(const char* what, std::uint64_t got, std::uint64_t wanted);
/// `allowed` is the one address inside `whole` at which `part` may lie, for a call in place.
void check_overlap(const ConstView& whole, const ConstView& part, const void* allowed);

}  // namespace gradwire::exchange
