#include "exchange/calls/call_checks.hpp"

#include <string>

#include "gradwire/error.hpp"
#include "memory/device_pointer.hpp"

namespace gradwire::exchange {

void check_view(const ConstView& view, const char* what) {
  if (element_bytes(view.dtype) == 0) {
    throw Error(ErrorCode::invalid_argument, std::string(what) + ": unknown dtype " +
                                                 std::to_string(static_cast<int>(view.dtype)) +
                                                 "; use f32, f16, bf16 or f64");
  }
  if (view.data == nullptr && view.count > 0) {
    throw Error(ErrorCode::invalid_argument,
                std::string(what) + ": null data with count " + std::to_string(view.count));
  }
  memory::require_host_memory(view.data, what);
}

void check_same_type(const ConstView& input, const ConstView& output) {
  if (input.dtype != output.dtype) {
    throw Error(ErrorCode::invalid_argument, "input is " + std::string(to_string(input.dtype)) + " but output is " +
                                                 std::string(to_string(output.dtype)) + "; they must be equal");
  }
}

void check_count(const char* what, std::uint64_t got, std::uint64_t wanted) {
  if (got != wanted) {
    throw Error(ErrorCode::invalid_argument, std::string(what) + " has " + std::to_string(got) +
                                                 " elements but must have " + std::to_string(wanted));
  }
}

void check_overlap(const ConstView& whole, const ConstView& part, const void* allowed) {
  const std::byte* begin = at(whole.data, 0, whole.dtype);
  const std::byte* part_begin = at(part.data, 0, part.dtype);
  if (whole.count == 0 || part.count == 0 || part.data == allowed) {
    return;
  }
  if (part_begin < begin + whole.count * element_bytes(whole.dtype) &&
      begin < part_begin + part.count * element_bytes(part.dtype)) {
    throw Error(ErrorCode::invalid_argument,
                "input and output overlap; give separate memory, or the same place exactly");
  }
}

}  // namespace gradwire::exchange
