#include "gradwire/dtype.hpp"

#include <string>

#include "gradwire/error.hpp"

namespace gradwire {

std::string_view to_string(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32: return "f32";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::f64: return "f64";
  }
  return "unknown";
}

DType parse_dtype(std::string_view text) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    if (text == to_string(dtype)) {
      return dtype;
    }
  }
  throw Error(ErrorCode::invalid_argument, "unknown dtype \"" + std::string(text) + "\": write f32, f16, bf16 or f64");
}

}  // namespace gradwire
