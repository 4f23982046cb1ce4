// Where error feedback keeps what encoding dropped: fp32, by tensor and encode site, never by bucket, so that residuals
// survive another bucket layout, codec, collective or world size. Stays empty while no codec in use needs error
// feedback.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "codec/codec.hpp"

namespace gradwire::plan {

struct ResidualKey {
  std::uint32_t tensor = 0;  // order of add
  codec::EncodeSite site = codec::EncodeSite::none;
  friend auto operator<=>(const ResidualKey&, const ResidualKey&) = default;  // NOLINT(modernize-use-nullptr): false
};

class ResidualStore {
 public:
  /// Keeps `count` floats, zero at first, for elements [offset, offset + count) of the tensor at this site: all of it
  /// at `local`, the owned part at `owner`. Replaces what was kept there.
  void keep(const ResidualKey& key, std::uint64_t offset, std::uint64_t count);
  /// Residuals of elements [offset, offset + count), owned by the store; null where they are not kept, or not all.
  [[nodiscard]] float* slice(const ResidualKey& key, std::uint64_t offset, std::uint64_t count);
  [[nodiscard]] bool empty() const noexcept { return kept_.empty(); }

 private:
  struct Range {
    std::uint64_t offset;
    std::vector<float> values;
  };
  std::map<ResidualKey, Range> kept_;
};

}  // namespace gradwire::plan
