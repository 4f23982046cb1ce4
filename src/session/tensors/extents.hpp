// Which memory a session's tensors have, so that none is added twice: memory that two tensors share would be reduced
// twice.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "gradwire/dtype.hpp"

namespace gradwire::session {

class Extents {
 public:
  /// What the memory is to its tensor.
  struct Owner {
    std::uint32_t tensor = 0;
    std::uint32_t part = kGradient;
  };
  static constexpr std::uint32_t kGradient = 0;
  static constexpr std::uint32_t kParameter = 1;  // and of its optimizer state i, counted from 1: kParameter + i
  static constexpr std::uint32_t kScale = UINT32_MAX;

  /// "the gradient", "the parameter", "state 2" or "the scale"
  [[nodiscard]] static std::string name_of(std::uint32_t part);

  /// Whose memory `view` overlaps, of that which was added; scales may overlap each other, since nothing writes to
  /// them. O(log n).
  [[nodiscard]] std::optional<Owner> overlapped(const View& view, std::uint32_t part) const;
  /// Memory that overlaps none. O(log n).
  void add(const View& view, const Owner& owner);

 private:
  struct Extent {
    std::uintptr_t end;
    Owner owner;
  };
  using ByBegin = std::map<std::uintptr_t, Extent>;  // disjoint

  [[nodiscard]] static ByBegin::const_iterator find(const ByBegin& extents, const View& view);

  ByBegin written_;
  ByBegin read_;  // scales; those that overlap are one extent
};

}  // namespace gradwire::session
