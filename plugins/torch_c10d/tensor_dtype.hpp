// The dtypes of Torch's tensors that gradwire has.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "gradwire/dtype.hpp"

namespace gradwire::torch_c10d {

/// Returns no value for a dtype that gradwire does not have.
[[nodiscard]] inline std::optional<DType> dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat: return DType::f32;
    case at::kHalf: return DType::f16;
    case at::kBFloat16: return DType::bf16;
    case at::kDouble: return DType::f64;
    default: return std::nullopt;
  }
}

}  // namespace gradwire::torch_c10d
