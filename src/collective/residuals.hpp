// Where an encoder leaves what it dropped. Residuals belong to (tensor, offset) and an encode site, never to a bucket;
// who stores them knows the tensors, the executor knows the elements.
#pragma once

#include <cstdint>

#include "codec/codec.hpp"

namespace gradwire::collective {

class Residuals {
 public:
  Residuals() = default;
  Residuals(const Residuals&) = delete;
  Residuals& operator=(const Residuals&) = delete;
  virtual ~Residuals() = default;

  /// Residual of elements [first, first + count) of the bucket at `site` as fp32, to be read and overwritten by one
  /// encoder; `scratch` holds count floats. Null: none is kept there.
  [[nodiscard]] virtual float* load(codec::EncodeSite site, std::uint64_t first, std::uint32_t count,
                                    float* scratch) = 0;
  /// After encoding: takes what load() returned back, where it was the scratch.
  virtual void store(codec::EncodeSite site, std::uint64_t first, std::uint32_t count, const float* values) = 0;
};

}  // namespace gradwire::collective
