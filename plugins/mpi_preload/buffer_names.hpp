// What the job calls its buffers.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace gradwire::mpi_preload {

/// Keeps the names given or asked for last: a job may name new buffers in each step and never take a name away.
class BufferNames {
 public:
  /// An empty name takes it away.
  void set(const void* buffer, const std::string& name);
  /// Empty where it has none.
  [[nodiscard]] std::string of(const void* buffer);
  [[nodiscard]] bool empty() const noexcept { return young_.empty() && old_.empty(); }

  /// Names that are kept for certain; up to twice as many are.
  static constexpr std::size_t kMostNames = 32768;

 private:
  using Names = std::map<const void*, std::string>;
  Names young_;
  Names old_;  // forgotten once the young are too many, unless asked for
};

}  // namespace gradwire::mpi_preload
