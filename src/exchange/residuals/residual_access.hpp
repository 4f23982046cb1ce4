// The interface through which encoders load and store residuals. Residuals belong to (tensor, offset) and an encode
// site, never to a bucket; the store knows the tensors, the executor knows the elements. Local residuals are in units
// of w x g, owner residuals in units of the result.
#pragma once

#include <cstdint>

#include "codec/codec.hpp"

namespace gradwire::exchange {

class ResidualAccess {
 public:
  ResidualAccess() = default;
  ResidualAccess(const ResidualAccess&) = delete;
  ResidualAccess& operator=(const ResidualAccess&) = delete;
  virtual ~ResidualAccess() = default;

  /// The residual of elements [first, first + count) of the bucket at `site` as fp32; `scratch` holds count floats.
  /// Null: no residual is kept there.
  [[nodiscard]] virtual const float* load(codec::EncodeSite site, std::uint64_t first, std::uint32_t count,
                                          float* scratch) const = 0;
  /// Where the only encoder of these elements writes their new residual: the memory of load(), other memory, or
  /// `scratch`, whose content store() takes afterwards. To be called only where load() returns values.
  [[nodiscard]] virtual float* target(codec::EncodeSite site, std::uint64_t first, std::uint32_t count,
                                      float* scratch) = 0;
  virtual void store(codec::EncodeSite site, std::uint64_t first, std::uint32_t count, const float* values) = 0;
  /// Whether any residual of these elements at `site` is not zero.
  [[nodiscard]] virtual bool holds(codec::EncodeSite site, std::uint64_t first, std::uint32_t count) const = 0;
  /// values += factor x residual, which is zero afterwards. `values` are working values.
  virtual void fold(codec::EncodeSite site, std::uint64_t first, std::uint32_t count, double factor,
                    codec::Working type, void* values) = 0;
};

}  // namespace gradwire::exchange
