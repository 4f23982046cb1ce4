// A bucket's view of the residuals: elements of the bucket to (tensor, offset), and back.
#pragma once

#include <cstdint>
#include <vector>

#include "collective/partition.hpp"
#include "collective/residuals.hpp"
#include "collective/tiers.hpp"
#include "plan/residual_store.hpp"

namespace gradwire::plan {

/// `count` elements of a tensor, `offset` elements into the bucket.
struct BucketPart {
  std::size_t tensor = 0;    // order of add
  std::uint64_t offset = 0;  // elements before it in the bucket
  std::uint64_t count = 0;   // elements; may be 0
};

/// What a call keeps in place.
struct ResidualCall {
  struct Range {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
  };
  [[nodiscard]] bool keeps() const noexcept { return local || intra || owner; }
  /// What rank `rank` encodes second, and, where there are tiers, of which shards it encodes the sum over its node.
  void set_shards(const collective::Partition& shards, int rank, const collective::Tiers* tiers);

  bool local = false;                              // the first encoding keeps what it drops
  bool intra = false;                              // so does that of a node's sum
  bool owner = false;                              // and the second
  std::uint64_t local_first = 0, local_count = 0;  // what this rank encodes first
  std::uint64_t owned_first = 0, owned_count = 0;  // and second
  std::vector<Range> summed = {};                  // and for its node
};

class BucketResiduals final : public collective::Residuals {
 public:
  /// Parts in the order of the bucket, end to end. `store` must outlive this.
  BucketResiduals(ResidualStore& store, std::vector<BucketPart> parts);

  /// Whether any rank may hold residuals of this bucket: the same answer on every rank that made the same calls.
  [[nodiscard]] bool held() const;
  /// Before a call. With error feedback makes room for what its encoders keep.
  void begin(const ResidualCall& call);
  /// After a call that encoded every element of the bucket: forgets what it has folded in.
  void end(const ResidualCall& call);
  /// Whether such a call folds owner residuals in on any rank.
  [[nodiscard]] bool folds_owner(const ResidualCall& call) const;

  [[nodiscard]] float* load(codec::EncodeSite site, std::uint64_t first, std::uint32_t count, float* scratch) override;
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
};

}  // namespace gradwire::plan
