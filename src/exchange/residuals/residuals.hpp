// Where an encoder leaves what it dropped. Residuals belong to (tensor, offset) and an encode site, never to a bucket;
// who stores them knows the tensors, the executor knows the elements. Local residuals are in units of w x g, owner
// residuals in units of the result.
#pragma once

#include <cstdint>

#include "codec/codec.hpp"

namespace gradwire::exchange {

class Residuals {
 public:
  Residuals() = default;
  Residuals(const Residuals&) = delete;
  Residuals& operator=(const Residuals&) = delete;
  virtual ~Residuals() = default;

  /// Residual of elements [first, first + count) of the bucket at `site` as fp32; `scratch` holds count floats. Null:
  /// none is kept there.
  [[nodiscard]] virtual const float* load(codec::EncodeSite site, std::uint64_t first, std::uint32_t count,
                                          float* scratch) const = 0;
  /// Where the one encoder of these elements writes all of it anew: what load() gave, or other memory; or `scratch`,
  /// which store() takes afterwards. Null where load() says so.
  [[nodiscard]] virtual float* target(codec::EncodeSite site, std::uint64_t first, std::uint32_t count,
                                      float* scratch) = 0;
  virtual void store(codec::EncodeSite site, std::uint64_t first, std::uint32_t count, const float* values) = 0;
  /// Whether anything but zeros is kept of these elements at `site`.
  [[nodiscard]] virtual bool holds(codec::EncodeSite site, std::uint64_t first, std::uint32_t count) const = 0;
  /// values += factor x residual, which is zero afterwards. `values` are working values.
  virtual void fold(codec::EncodeSite site, std::uint64_t first, std::uint32_t count, double factor,
                    codec::Working type, void* values) = 0;
};

}  // namespace gradwire::exchange
