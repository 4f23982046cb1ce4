#include "watch/timeline/rank_index.hpp"

#include <algorithm>

#include "watch/timeline/bounded.hpp"

namespace gradwire::watch::timeline {

RankIndex::RankIndex(const RankLog& log, int stream, bool calls, std::uint32_t first_step,
                     const std::unordered_map<std::uint32_t, Place>& senders)
    : log_(&log), senders_(&senders) {
  for (const Activity& activity : log.activities) {
    if (activity.stream == stream && activity.kind == (calls ? EventKind::bucket_end : EventKind::step_end)) {
      job_thread_ = activity.thread;
    }
  }
  for (std::uint32_t i = 0; i < log.activities.size(); ++i) {
    const Activity& activity = log.activities[i];
    if (activity.stream != stream) {
      continue;
    }
    note_window(activity, calls);
    if (activity.step >= first_step) {
      take(activity, i, calls);
    }
  }
  const auto by_end = [&](Indices& list) {
    std::stable_sort(list.begin(), list.end(), [&](std::uint32_t a, std::uint32_t b) {
      return log_->activities[a].end < log_->activities[b].end;
    });
  };
  for (Indices* list : {&works_, &job_works_, &waits_, &sums_, &messages_}) {
    by_end(*list);
  }
  for (auto& [key, list] : receives_) {
    by_end(list);
  }
  for (auto window = windows_.begin(); window != windows_.end(); ++window) {
    if (window == windows_.begin()) {
      continue;
    }
    const auto& before = *std::prev(window);
    if (before.first + 1 == window->first && before.second.ended && before.second.end <= window->second.begin) {
      window->second.begin = before.second.end;
      window->second.whole = true;
    }
  }
}

void RankIndex::take(const Activity& activity, std::uint32_t index, bool calls) {
  note_time(activity, calls);
  const std::pair key(activity.step, activity.bucket);
  switch (activity.kind) {
    case EventKind::encode:
    case EventKind::reduce:
    case EventKind::decode:
    case EventKind::native:
      works_.push_back(index);
      if (activity.thread == job_thread_) {
        job_works_.push_back(index);
      }
      break;
    case EventKind::wait: waits_.push_back(index); break;
    case EventKind::all_reduce:
      sums_.push_back(index);
      sum_of_.try_emplace(key, index);
      messages_.push_back(index);
      break;
    case EventKind::receive:
      receives_[key].push_back(index);
      messages_.push_back(index);
      break;
    case EventKind::send: messages_.push_back(index); break;
    case EventKind::bucket_begin: entered_.try_emplace(key, activity.begin); break;
    default: break;
  }
}

// Notes when steps begin and end: with the first gradient and finish(); a call begins and ends with its only bucket.
void RankIndex::note_window(const Activity& activity, bool calls) {
  if (activity.kind == (calls ? EventKind::bucket_begin : EventKind::step_begin)) {
    windows_.try_emplace(activity.step, Window{.begin = activity.begin, .end = activity.begin});
  } else if (activity.kind == (calls ? EventKind::bucket_end : EventKind::step_end)) {
    Window& window =
        windows_.try_emplace(activity.step, Window{.begin = activity.begin, .end = activity.end}).first->second;
    window.begin = std::min(window.begin, activity.begin);
    window.end = activity.end;
    window.ended = true;
  }
}

void RankIndex::note_time(const Activity& activity, bool calls) {
  const auto add = [took = bounded(activity.end - activity.begin)](std::int64_t& sum) { sum = bounded(sum + took); };
  switch (activity.kind) {
    case EventKind::encode: add(times_.encode); break;
    case EventKind::reduce: add(times_.reduce); break;
    case EventKind::decode: add(times_.decode); break;
    case EventKind::native: add(times_.native); break;
    case EventKind::wait: add(times_.wait); break;
    case EventKind::step_end:
    case EventKind::bucket_end:
      if ((activity.kind == EventKind::bucket_end) == calls) {
        add(times_.exposed);
        ++times_.steps;
      }
      break;
    default: break;
  }
}

// The start of a step; if the rank recorded neither of its ends, the start of the one before.
std::int64_t RankIndex::start(std::uint32_t step) const {
  const auto after = windows_.upper_bound(step);
  if (after == windows_.begin()) {
    return kNoStart;
  }
  const auto& [number, window] = *std::prev(after);
  return number == step ? window.begin : window.end;
}

std::optional<Place> RankIndex::sender(std::uint32_t receive) const {
  const auto at = senders_->find(receive);
  return at == senders_->end() ? std::nullopt : std::optional(at->second);
}

const Activity* RankIndex::last(const Indices& of, std::int64_t time) const {
  auto at = std::upper_bound(of.begin(), of.end(), time, [this](std::int64_t value, std::uint32_t index) {
    return value < log_->activities[index].end;
  });
  while (at != of.begin()) {
    const Activity& activity = log_->activities[*--at];
    if (activity.begin < time) {
      return &activity;
    }
  }
  return nullptr;
}

const Activity* RankIndex::last_work(std::int64_t time) const { return last(works_, time); }
const Activity* RankIndex::last_work_of_job(std::int64_t time) const { return last(job_works_, time); }
const Activity* RankIndex::last_wait(std::int64_t time) const { return last(waits_, time); }

const Activity* RankIndex::last_sum(std::int64_t time, std::uint32_t step, std::uint32_t bucket) const {
  const auto after =
      std::upper_bound(sums_.begin(), sums_.end(), time,
                       [this](std::int64_t value, std::uint32_t index) { return value < log_->activities[index].end; });
  for (auto at = after; at != sums_.begin();) {
    const Activity& sum = log_->activities[*--at];
    if (sum.step < step) {
      break;
    }
    if (sum.step == step && sum.begin < time && (bucket == observe::kNoBucket || sum.bucket == bucket)) {
      return &sum;
    }
  }
  return nullptr;
}

const Activity* RankIndex::sum_of(std::uint32_t step, std::uint32_t bucket) const {
  const auto at = sum_of_.find({step, bucket});
  return at == sum_of_.end() ? nullptr : &log_->activities[at->second];
}

std::uint32_t RankIndex::last_message(std::int64_t time, std::int64_t from, std::uint32_t step, std::uint32_t bucket,
                                      std::uint16_t lane) const {
  const auto find = [&](const Indices& list, auto&& fits) {
    auto at = std::upper_bound(list.begin(), list.end(), time, [this](std::int64_t value, std::uint32_t index) {
      return value < log_->activities[index].end;
    });
    while (at != list.begin()) {
      const Activity& message = log_->activities[*--at];
      if (message.end < from) {
        break;
      }
      if (fits(message)) {
        return *at;
      }
    }
    return kNone;
  };
  if (const auto own = receives_.find({step, bucket}); own != receives_.end()) {
    const std::uint32_t index = find(own->second, [&](const Activity& message) { return message.lane == lane; });
    if (index != kNone) {
      return index;
    }
  }
  return find(messages_, [](const Activity&) { return true; });
}

std::optional<std::int64_t> RankIndex::entered(std::uint32_t step, std::uint32_t bucket) const {
  const auto at = entered_.find({step, bucket});
  return at == entered_.end() ? std::nullopt : std::optional(at->second);
}

Work RankIndex::work_of(const Activity& activity) {
  switch (activity.kind) {
    case EventKind::encode: return Work::encode;
    case EventKind::reduce: return Work::reduce;
    case EventKind::decode: return Work::decode;
    default: return Work::native;
  }
}

}  // namespace gradwire::watch::timeline
