// Critical paths in numbers: the ranks, buckets and stages through which steps ran.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "watch/timeline/critical_path.hpp"
#include "watch/timeline/messages.hpp"
#include "watch/timeline/recording.hpp"

namespace gradwire::watch::timeline {

/// Segments of one rank, peer, work and, in one step's path, bucket.
struct PathShare {
  std::uint32_t rank = 0;  // index into Recording::ranks
  std::int32_t peer = -1;
  Work work = Work::other;
  std::uint32_t bucket = observe::kNoBucket;
  std::int64_t nanoseconds = 0;
  double share = 0;  // share of all segments
};

/// The shares, the largest first.
[[nodiscard]] std::vector<PathShare> shares_of(const std::vector<const StepPath*>& steps, bool by_bucket);

struct TypicalSteps {
  const StepPath* median = nullptr;  // for an even number the shorter of the two in the middle
  const StepPath* worst = nullptr;
};
[[nodiscard]] TypicalSteps typical_steps(const StreamPaths& paths);

/// "session 0", "communicator 1 (mpi)"
[[nodiscard]] std::string stream_name(const Recording& recording, int stream);
/// "rank 3", "rank 3 (mpi)" where there are several parts.
[[nodiscard]] std::string rank_name(const Recording& recording, std::size_t rank);

struct Read {
  Recording recording;
  Matching matching;
  Alignment alignment;
  std::string folder;
};

void write_summary(const Read& read, const std::vector<StreamPaths>& paths, std::ostream& out);
void write_summary_json(const Read& read, const std::vector<StreamPaths>& paths, std::ostream& out);

}  // namespace gradwire::watch::timeline
