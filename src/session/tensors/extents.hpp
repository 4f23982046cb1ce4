// Extents knows the memory of a session's tensors, so that no memory is added twice: memory that two tensors share
// would be reduced twice.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "gradwire/dtype.hpp"

namespace gradwire::session {

class Extents {
 public:
  /// The tensor that owns the memory, and what it uses the memory for.
  struct Owner {
    std::uint32_t tensor = 0;
    std::uint32_t part = kGradient;
  };
  static constexpr std::uint32_t kGradient = 0;
  static constexpr std::uint32_t kParameter = 1;  // its optimizer state i, counted from 1, is kParameter + i
  static constexpr std::uint32_t kScale = UINT32_MAX;

  /// Returns "the gradient", "the parameter", "state 2" or "the scale".
  [[nodiscard]] static std::string name_of(std::uint32_t part);

  /// Returns an owner of added memory that `view` overlaps, if there is one. Scales may overlap each other, since
  /// nothing writes to them. O(log n).
  [[nodiscard]] std::optional<Owner> overlapped(const View& view, std::uint32_t part) const;
  /// Adds memory that overlapped() has found to be free. O(log n).
  void add(const View& view, const Owner& owner);

 private:
  struct Extent {
    std::uintptr_t end;
    Owner owner;
  };
  using ByBegin = std::map<std::uintptr_t, Extent>;  // disjoint

  [[nodiscard]] static ByBegin::const_iterator find(const ByBegin& extents, const View& view);

  ByBegin written_;
  ByBegin read_;  // scales; scales that overlap are merged into one extent
};

}  // namespace gradwire::session
