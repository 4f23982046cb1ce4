// NCCL's names of our dtypes.
#pragma once

#include <nccl.h>

#include <string>

#include "gradwire/dtype.hpp"
#include "gradwire/error.hpp"

namespace gradwire::transport {

/// Error(unsupported) for a dtype that is none.
[[nodiscard]] inline ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return ncclFloat32;
    case DType::f16: return ncclFloat16;
    case DType::bf16: return ncclBfloat16;
    case DType::f64: return ncclFloat64;
  }
  throw Error(ErrorCode::unsupported, "NCCL has no dtype " + std::to_string(static_cast<int>(dtype)));
}

}  // namespace gradwire::transport
