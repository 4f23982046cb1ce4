#include "watch/timeline/critical_path.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "watch/timeline/rank_index.hpp"

namespace gradwire::watch::timeline {
namespace {

/// Walks one step back.
class Walk {
 public:
  Walk(const Recording& recording, const std::vector<RankIndex>& ranks, std::uint32_t step)
      : recording_(recording), ranks_(ranks), step_(step) {}

  std::vector<Segment> from(std::uint32_t rank, std::int64_t end) {
    rank_ = rank;
    time_ = end;
    // A message may seem to take no time, so that a round only changes the rank; this bounds the number of such rounds.
    const std::size_t most = 2 * ranks_.size() + 8;
    for (std::size_t idle = 0; time_ > start() && idle < most;) {
      const std::int64_t before = time_;
      step_back();
      idle = time_ < before ? 0 : idle + 1;
    }
    add_clamped(Work::other, start(), observe::kNoBucket);
    return std::move(path_);
  }

 private:
  [[nodiscard]] const RankIndex& here() const { return ranks_[rank_]; }
  [[nodiscard]] std::int64_t start() const { return here().start(step_); }

  // The path ends where a rank has no record of a step and none before it.
  void add(Work work, std::int64_t begin, std::uint32_t bucket, std::int32_t peer = -1,
           std::optional<std::uint32_t> rank = std::nullopt) {
    begin = std::min(begin, time_);
    if (begin < time_ && begin != RankIndex::kNoStart) {
      path_.push_back({rank.value_or(rank_), peer, work, bucket, begin, time_});
      time_ = begin;
    }
  }
  void add_clamped(Work work, std::int64_t begin, std::uint32_t bucket) { add(work, std::max(begin, start()), bucket); }

  // Finds the event for which the activity that begins at `time_` waited: the last one to end of the work before it,
  // the rank's last wait, and the moment when the job handed over the bucket.
  void step_back() {
    const Activity* const work = here().last_work(time_);
    const Activity* const wait = here().last_wait(time_);
    const Activity* const sum = here().last_sum(time_, step_, bucket_);
    const std::int64_t worked = std::max(work != nullptr ? work->end : start(), start());
    const std::int64_t waited = std::max(wait != nullptr ? wait->end : start(), start());
    const auto entered = bucket_ == observe::kNoBucket ? std::nullopt : here().entered(step_, bucket_);
    if (entered && *entered <= time_ && *entered >= std::max(worked, waited)) {
      compute_until(*entered);
    } else if (sum != nullptr && sum->end > worked && (sum->begin >= worked || waited > worked)) {
      through_sum(*sum);
    } else if (waited > worked) {
      through_wait(*wait);
    } else if (work != nullptr && worked > start()) {
      through_work(*work);
    } else {
      compute_until(time_);
    }
  }

  void through_work(const Activity& work) {
    add_clamped(Work::other, work.end, bucket_);
    add_clamped(RankIndex::work_of(work), work.begin, work.bucket);
    bucket_ = work.bucket;
    lane_ = work.lane;
  }

  // In a native sum all ranks wait for the rank that comes last.
  void through_sum(const Activity& sum) {
    const std::uint32_t bucket = sum.bucket;
    add_clamped(Work::other, sum.end, bucket);
    std::uint32_t latest = rank_;
    std::int64_t begin = sum.begin;
    for (std::uint32_t other = 0; other < ranks_.size(); ++other) {
      const Activity* const theirs = ranks_[other].sum_of(sum.step, bucket);
      if (theirs != nullptr && theirs->begin > begin && theirs->begin < time_) {
        latest = other;
        begin = theirs->begin;
      }
    }
    add(Work::sum, std::max(begin, start()), bucket);
    rank_ = latest;
    bucket_ = bucket;
    lane_ = sum.lane;
  }

  // The rank had nothing to do until a message arrived or was sent: the message of its lane, or else the last of all.
  void through_wait(const Activity& wait) {
    const std::uint32_t index = here().last_message(time_, wait.begin, step_, bucket_, lane_);
    if (index == RankIndex::kNone) {
      add_clamped(Work::other, wait.end, bucket_);
      add_clamped(Work::wait, wait.begin, bucket_);
      return;
    }
    const Activity& message = here().activity(index);
    add_clamped(Work::other, message.end, message.bucket);
    bucket_ = message.bucket;
    lane_ = message.lane;
    if (message.kind == EventKind::all_reduce) {
      through_sum(message);
    } else if (message.kind == EventKind::send) {
      add(Work::travel, std::max({message.begin, wait.begin, start()}), message.bucket, message.peer);
    } else if (const auto from = here().sender(index)) {
      const Activity& send = ranks_[from->rank].activity(from->index);
      const std::int64_t begin = std::max(send.begin, ranks_[from->rank].start(step_));
      add(Work::travel, begin, message.bucket, recording_.ranks[rank_].rank, from->rank);
      rank_ = from->rank;
    } else {
      add_clamped(Work::wait, wait.begin, message.bucket);
    }
  }

  // Adds the rest of the step on this rank as computing, except for communication by the same thread.
  void compute_until(std::int64_t entered) {
    add_clamped(Work::other, entered, bucket_);
    while (time_ > start()) {
      const Activity* const work = here().last_work_of_job(time_);
      if (work == nullptr || work->end <= start()) {
        break;
      }
      add_clamped(Work::compute, work->end, observe::kNoBucket);
      add_clamped(RankIndex::work_of(*work), work->begin, work->bucket);
    }
    add_clamped(Work::compute, start(), observe::kNoBucket);
  }

  const Recording& recording_;
  const std::vector<RankIndex>& ranks_;
  std::uint32_t step_;
  std::uint32_t rank_ = 0;
  std::int64_t time_ = 0;
  std::uint32_t bucket_ = observe::kNoBucket;  // the bucket of the activity that begins at time_
  std::uint16_t lane_ = 0;
  std::vector<Segment> path_;
};

StreamPaths paths_of(const Recording& recording, const std::vector<std::unordered_map<std::uint32_t, Place>>& senders,
                     int stream) {
  StreamPaths paths;
  paths.stream = stream;
  paths.calls = recording.streams[static_cast<std::size_t>(stream)].kind != observe::Source::Kind::session;
  std::vector<RankIndex> ranks;
  for (std::uint32_t rank = 0; rank < recording.ranks.size(); ++rank) {
    ranks.emplace_back(recording.ranks[rank], stream, paths.calls, recording.first_step, senders[rank]);
    paths.ranks.push_back(ranks.back().times());
  }
  std::map<std::uint32_t, std::pair<std::int64_t, std::uint32_t>> ends;  // by step: the last end, and its rank
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
    for (const auto& [step, window] : ranks[rank].windows()) {
      if (!window.ended || step < recording.first_step) {
        continue;
      }
      const auto [at, fresh] = ends.try_emplace(step, window.end, rank);
      if (!fresh && window.end > at->second.first) {
        at->second = {window.end, rank};
      }
    }
  }
  const auto whole = [&](const auto& end) { return ranks[end.second.second].windows().at(end.first).whole; };
  const bool any = std::any_of(ends.begin(), ends.end(), whole);
  for (const auto& end : ends) {
    if (!whole(end) && (any || !paths.calls)) {
      paths.truncated_steps.push_back(end.first);
      continue;
    }
    const auto& [step, last] = end;
    const auto& [time, rank] = last;
    const std::int64_t took = time - ranks[rank].start(step);
    paths.steps.push_back({step, rank, took, Walk(recording, ranks, step).from(rank, time)});
  }
  return paths;
}

}  // namespace

std::string_view to_string(Work work) noexcept {
  constexpr std::string_view kNames[] = {"compute", "encode", "reduce", "decode", "native",
                                         "travel",  "sum",    "wait",   "other"};
  static_assert(std::size(kNames) == kWorks);
  return kNames[static_cast<std::size_t>(work)];
}

std::vector<StreamPaths> critical_paths(const Recording& recording, const Matching& matching) {
  std::vector<std::unordered_map<std::uint32_t, Place>> senders(recording.ranks.size());
  for (const Message& message : matching.messages) {
    senders[message.receive.rank][message.receive.index] = message.send;
  }
  std::vector<StreamPaths> all;
  for (std::size_t stream = 0; stream < recording.streams.size(); ++stream) {
    if (!recording.streams[stream].whole) {
      continue;
    }
    StreamPaths paths = paths_of(recording, senders, static_cast<int>(stream));
    if (!paths.steps.empty() || !paths.truncated_steps.empty()) {
      all.push_back(std::move(paths));
    }
  }
  return all;
}

}  // namespace gradwire::watch::timeline
