// Times one message size: a session with codec = "auto" against sessions with fixed codecs, an uncompressed one twice,
// and MPI_Allreduce twice, in alternating blocks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/support/placement.hpp"

namespace gradwire::bench {

struct ContestOptions {
  std::vector<std::string> allow{"bf16", "int8", "int4"};
  std::string link;  // emulated; empty: the real one
  Placement placement = Placement::aligned;
  int pairs = 10;
};

struct Contender {
  std::string name;             // "auto", "dense", "dense again", "int8", "MPI_Allreduce", "MPI_Allreduce again"
  std::vector<double> seconds;  // of one call on the slowest rank, by block
};

struct Contest {
  std::uint64_t bytes = 0;
  std::vector<Contender> contenders;
  std::string chosen;  // "auto: int8"
  std::uint64_t switches = 0;
  double deciding = 0;  // share of auto's time, after its warm-up, in which ranks compared and decided

  [[nodiscard]] const Contender& of(const std::string& name) const;
  /// Returns the median over blocks of the ratio of two contenders' times.
  [[nodiscard]] double ratio(const std::string& name, const std::string& against) const;
  /// Returns the fixed codec, or dense, with the least median.
  [[nodiscard]] const Contender& best_fixed() const;
};

/// This is collective over MPI_COMM_WORLD.
[[nodiscard]] Contest hold(const ContestOptions& options, std::uint64_t bytes);

}  // namespace gradwire::bench
