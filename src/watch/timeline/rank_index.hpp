// An index of one rank's activities in one session or communicator, which finds what came before a moment. Internal to
// critical_path.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "watch/timeline/critical_path.hpp"

namespace gradwire::watch::timeline {

class RankIndex {
 public:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::int64_t kNoStart = std::numeric_limits<std::int64_t>::min();
  struct Window {
    std::int64_t begin = 0;  // the end of the step before; its own begin where that is not known
    std::int64_t end = 0;
    bool ended = false;
    bool whole = false;  // the step before is known
  };

  /// For steps before `first_step` only the end is used.
  RankIndex(const RankLog& log, int stream, bool calls, std::uint32_t first_step,
            const std::unordered_map<std::uint32_t, Place>& senders);

  [[nodiscard]] std::size_t size() const noexcept { return works_.size() + waits_.size() + messages_.size(); }
  [[nodiscard]] const std::map<std::uint32_t, Window>& windows() const noexcept { return windows_; }
  [[nodiscard]] std::int64_t start(std::uint32_t step) const;
  [[nodiscard]] const RankTimes& times() const noexcept { return times_; }
  [[nodiscard]] const Activity& activity(std::uint32_t index) const { return log_->activities[index]; }
  [[nodiscard]] std::optional<Place> sender(std::uint32_t receive) const;

  /// The last work that began before `time` and ended by then; null: none.
  [[nodiscard]] const Activity* last_work(std::int64_t time) const;
  [[nodiscard]] const Activity* last_work_of_job(std::int64_t time) const;  // by the thread that ends steps
  [[nodiscard]] const Activity* last_wait(std::int64_t time) const;
  /// The last native sum of the bucket, or of the whole step where the bucket is kNoBucket.
  [[nodiscard]] const Activity* last_sum(std::int64_t time, std::uint32_t step, std::uint32_t bucket) const;
  [[nodiscard]] const Activity* sum_of(std::uint32_t step, std::uint32_t bucket) const;
  /// The last receive of the lane that ended between `from` and `time`; without one, the last message that did;
  /// otherwise kNone.
  [[nodiscard]] std::uint32_t last_message(std::int64_t time, std::int64_t from, std::uint32_t step,
                                           std::uint32_t bucket, std::uint16_t lane) const;
  /// When the job handed over the bucket.
  [[nodiscard]] std::optional<std::int64_t> entered(std::uint32_t step, std::uint32_t bucket) const;
  [[nodiscard]] static Work work_of(const Activity& activity);

 private:
  using Indices = std::vector<std::uint32_t>;
  void take(const Activity& activity, std::uint32_t index, bool calls);
  void note_window(const Activity& activity, bool calls);
  void note_time(const Activity& activity, bool calls);
  [[nodiscard]] const Activity* last(const Indices& of, std::int64_t time) const;

  const RankLog* log_;
  const std::unordered_map<std::uint32_t, Place>* senders_;
  // Sorted by end.
  Indices works_;
  Indices job_works_;
  Indices waits_;
  Indices sums_;
  Indices messages_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Indices> receives_;  // by step and bucket
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> sum_of_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::int64_t> entered_;
  std::map<std::uint32_t, Window> windows_;
  std::optional<std::uint32_t> job_thread_;
  RankTimes times_;
};

}  // namespace gradwire::watch::timeline
