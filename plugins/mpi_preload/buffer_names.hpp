// The names that a job gives to its buffers.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace gradwire::mpi_preload {

/// Keeps the names given or used last: a job may name new buffers in each step and never remove a name.
class BufferNames {
 public:
  /// Sets the name of a buffer; an empty one removes it.
  void set(const void* buffer, const std::string& name);
  /// The name of a buffer; empty where it has none.
  [[nodiscard]] std::string of(const void* buffer);
  [[nodiscard]] bool empty() const noexcept { return young_.empty() && old_.empty(); }

  /// Number of names that are certainly kept; up to twice as many may be.
  static constexpr std::size_t kMostNames = 32768;

 private:
  using Names = std::map<const void*, std::string>;
  Names young_;
  Names old_;  // dropped once there are too many young ones, unless they are used
};

}  // namespace gradwire::mpi_preload
