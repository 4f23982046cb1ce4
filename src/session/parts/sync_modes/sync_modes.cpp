#include "session/parts/sync_modes/sync_modes.hpp"

#include <algorithm>
#include <utility>

#include "policy/sync.hpp"

namespace gradwire::session {

SyncModes::SyncModes(const plan::Plan& plan, const SyncSchedule& schedule,
                     const std::vector<std::vector<View>>& parameters, bool undoable)
    : plan_(plan), schedule_(schedule), parameters_(parameters), undoable_(undoable), ages_(plan.groups.size()) {
  entries_.reserve(plan.buckets.size());  // jobs refer to entries
  for (const plan::Bucket& bucket : plan.buckets) {
    entries_.emplace_back(bucket, parameters);
  }
}

bool SyncModes::enqueue(const plan::Bucket& bucket, std::span<const TensorMemory> memory, const StepInfo& info,
                        std::uint64_t step, double scale) {
  SyncBucket& entry = entries_[bucket.id];
  const Sync& sync = schedule_.of(bucket.id);
  if (!policy::active(sync, step)) {
    return false;
  }
  if (sync.mode == Sync::Mode::async) {
    const SyncJobPtr job = entry.copy_gradients(take_spare_memory(entry), memory, info, step, undoable_);
    job->scale = scale;
    add(entry, job, info.flush ? 0 : sync.staleness);
    return true;
  }
  const bool syncs = entry.moved && (info.flush || policy::syncs_parameters(sync, bucket.sync_offset, step));
  add(entry, syncs ? entry.copy_parameters(take_spare_memory(entry), info, step) : nullptr, 0);
  return true;
}

bool SyncModes::enqueue_all_parameters(std::uint64_t step) {
  bool any = false;
  for (SyncBucket& entry : entries_) {
    if (entry.moved) {
      const StepInfo info{.step = static_cast<std::uint32_t>(step), .flush = true};
      add(entry, entry.copy_parameters(take_spare_memory(entry), info, step), 0);
      any = true;
    }
  }
  return any;
}

SyncValues SyncModes::take_spare_memory(SyncBucket& bucket) {
  const MutexLock lock(mutex_);
  if (bucket.spare.empty()) {
    return {};
  }
  SyncValues memory = std::move(bucket.spare.back());
  bucket.spare.pop_back();
  return memory;
}

void SyncModes::add(SyncBucket& entry, const SyncJobPtr& job, std::size_t may_lag) {
  const MutexLock lock(mutex_);
  entry.had_turn = true;
  entry.synced = false;
  entry.may_lag = may_lag;
  ++entry.turns;
  if (job) {
    job->turn = entry.turns;
    entry.results.push_back(job);
    if (job->carries_parameters || job->counts) {
      release(job);
    } else {
      release_due(entry, may_lag);
    }
  }
}

void SyncModes::release(const SyncJobPtr& job) {
  if (!std::exchange(job->released, true)) {
    waiting_.push_back(job);
  }
}

void SyncModes::release_due(SyncBucket& entry, std::size_t may_lag) {
  for (std::size_t i = 0; i + may_lag < entry.results.size(); ++i) {
    release(entry.results[i]);
  }
}

void SyncModes::release_all(std::optional<double> weight) {
  const MutexLock lock(mutex_);
  for (SyncBucket& entry : entries_) {
    for (const SyncJobPtr& job : entry.results) {
      if (!job->released && !job->info.weighted) {
        job->weight = weight;
      }
    }
    release_due(entry, 0);
  }
}

void SyncModes::released_count(std::uint64_t step) {
  const MutexLock lock(mutex_);
  for (SyncBucket& entry : entries_) {
    for (const SyncJobPtr& job : entry.results) {
      if (job->released && !job->carries_parameters && !std::exchange(job->counts, true)) {
        entry.sent.some = step;  // the residuals are those with which this step begins
        job->input = {};
      }
    }
    entry.ran = false;
  }
}

// Only one job of a bucket runs at a time, since the next begins with the residuals that this one leaves.
void SyncModes::start(Buckets& buckets) {
  for (;;) {
    SyncJobPtr job;
    bool keeps_input = false;
    {
      const MutexLock lock(mutex_);
      if (waiting_.empty() || entries_[waiting_.front()->bucket].flying) {
        return;
      }
      job = std::move(waiting_.front());
      waiting_.pop_front();
      SyncBucket& entry = entries_[job->bucket];
      entry.flying = job;
      job->info.again = std::exchange(entry.ran, true);
      keeps_input = !job->carries_parameters && !job->counts;
      if (keeps_input && !entry.spare.empty()) {
        job->input = std::move(entry.spare.back());
        entry.spare.pop_back();
      }
    }
    if (keeps_input) {
      job->input = job->values;
    }
    StepInfo info = job->info;
    if (job->weight) {
      info.weighted = true;
      info.weight = *job->weight;
    }
    buckets.start(plan_, *job->travels, job->memory, info);
  }
}

void SyncModes::ended(const Buckets::Ended& ended) {
  const MutexLock lock(mutex_);
  const SyncJobPtr job = std::exchange(entries_[ended.bucket].flying, nullptr);
  job->done = true;
  job->nonfinite = ended.nonfinite;
}

bool SyncModes::arrived(std::uint32_t bucket) const {
  const MutexLock lock(mutex_);
  const SyncBucket& entry = entries_[bucket];
  return entry.had_turn &&
         (entry.results.size() <= entry.may_lag || entry.results[entry.results.size() - entry.may_lag - 1]->done);
}

bool SyncModes::synced(std::uint32_t bucket) const {
  const MutexLock lock(mutex_);
  return entries_[bucket].synced;
}

bool SyncModes::busy() const {
  const MutexLock lock(mutex_);
  return !waiting_.empty() ||
         std::any_of(entries_.begin(), entries_.end(), [](const SyncBucket& entry) { return entry.flying != nullptr; });
}

bool SyncModes::has_uncounted() const {
  const MutexLock lock(mutex_);
  return std::any_of(entries_.begin(), entries_.end(), [](const SyncBucket& entry) {
    return std::any_of(entry.results.begin(), entry.results.end(),
                       [](const SyncJobPtr& job) { return !job->carries_parameters && !job->counts; });
  });
}

std::vector<Lateness> SyncModes::ages() const {
  const MutexLock lock(mutex_);
  return ages_;
}

void SyncModes::reset_ages() {
  const MutexLock lock(mutex_);
  std::fill(ages_.begin(), ages_.end(), Lateness{});
}

}  // namespace gradwire::session
