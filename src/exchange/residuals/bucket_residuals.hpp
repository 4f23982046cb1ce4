// A bucket's view of the residuals: it maps elements of the bucket to (tensor, offset), and back.
#pragma once

#include <cstdint>
#include <vector>

#include "exchange/residuals/residual_access.hpp"
#include "exchange/residuals/residual_store.hpp"
#include "exchange/resolved_call.hpp"

namespace gradwire::exchange {

/// The `count` elements of a tensor that begin at element `offset` of the bucket.
struct BucketPart {
  std::size_t tensor = 0;    // order of add
  std::uint64_t offset = 0;  // elements before it in the bucket
  std::uint64_t count = 0;   // elements; may be 0
};

class BucketResiduals final : public ResidualAccess {
 public:
  /// `parts` are in the order of the bucket, end to end. `store` must outlive this. load() and fold() multiply
  /// residuals by `decay`; that happens once in a call, which encodes each element once at a site. `step` tells the
  /// calls of a store apart: see ResidualStore::write().
  BucketResiduals(ResidualStore& store, std::vector<BucketPart> parts, double decay = 1, std::uint64_t step = 0);

  /// The residuals of this bucket that any rank may hold.
  [[nodiscard]] HeldResiduals held() const;
  /// Makes room, before a call, for the residuals that its encoders keep.
  void begin(const ResidualUse& use);
  /// Drops the residuals that were folded in, after a call that encoded every element of the bucket.
  void end(const ResidualUse& use);

  [[nodiscard]] const float* load(codec::EncodeSite site, std::uint64_t first, std::uint32_t count,
                                  float* scratch) const override;
  [[nodiscard]] float* target(codec::EncodeSite site, std::uint64_t first, std::uint32_t count,
                              float* scratch) override;
  void store(codec::EncodeSite site, std::uint64_t first, std::uint32_t count, const float* values) override;
  [[nodiscard]] bool holds(codec::EncodeSite site, std::uint64_t first, std::uint32_t count) const override;
  void fold(codec::EncodeSite site, std::uint64_t first, std::uint32_t count, double factor, codec::Working type,
            void* values) override;

 private:
  // Calls body(part, offset in its tensor, offset in the range, count) for each tensor that the range touches.
  template <class Body>
  void for_each_piece(std::uint64_t first, std::uint64_t count, Body body) const;

  ResidualStore& store_;
  std::vector<BucketPart> parts_;
  float decay_;
  std::uint64_t step_;
};

}  // namespace gradwire::exchange
