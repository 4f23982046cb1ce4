#include "session/parts/sync_modes/sync_modes.hpp"

#include <algorithm>
#include <utility>

#include "policy/sync.hpp"
#include "session/parts/sync_modes/bytes.hpp"

namespace gradwire::session {
namespace {

std::uint64_t bytes_of(const plan::Bucket& bucket) { return bucket.count * element_bytes(bucket.dtype); }

template <typename T>
void subtract(std::byte* anchor_minus, const std::byte* anchor, std::uint64_t count) {
  auto* change = reinterpret_cast<T*>(anchor_minus);
  const auto* from = reinterpret_cast<const T*>(anchor);
  for (std::uint64_t i = 0; i < count; ++i) {
    change[i] = from[i] - change[i];
  }
}

// Parameters, then each state, one after another; its parts stand for their places in a job's memory.
plan::Bucket average_of(const plan::Bucket& bucket) {
  plan::Bucket average = bucket;
  average.parts.clear();
  average.count = 0;
  for (std::uint32_t which = 0; which < bucket.parameters; ++which) {
    for (const plan::Bucket::Part& part : bucket.parts) {
      average.parts.push_back({average.parts.size(), average.count, part.count});
      average.count += part.count;
    }
  }
  return average;
}

}  // namespace

SyncModes::SyncModes(const plan::Plan& plan, const SyncSchedule& schedule,
                     const std::vector<std::vector<View>>& parameters, bool undoable)
    : plan_(plan),
      schedule_(schedule),
      parameters_(parameters),
      undoable_(undoable),
      entries_(plan.buckets.size()),
      ages_(plan.groups.size()) {
  for (const plan::Bucket& bucket : plan.buckets) {
    entries_[bucket.id].bucket = &bucket;
    if (bucket.sync.mode == Sync::Mode::every && !bucket.sync.outer) {
      entries_[bucket.id].average = average_of(bucket);
    }
  }
}

bool SyncModes::enqueue(const plan::Bucket& bucket, std::span<const TensorMemory> memory, const StepInfo& info,
                        std::uint64_t step, double scale) {
  Entry& entry = entries_[bucket.id];
  const Sync& sync = schedule_.of(bucket.id);
  if (!policy::active(sync, step)) {
    return false;
  }
  if (sync.mode == Sync::Mode::async) {
    const JobPtr job = gradients(entry, memory, info, step);
    job->scale = scale;
    add(entry, job, info.flush ? 0 : sync.staleness);
    return true;
  }
  const bool syncs = entry.moved && (info.flush || policy::syncs_parameters(sync, bucket.sync_offset, step));
  add(entry, syncs ? parameters(entry, info, step) : nullptr, 0);
  return true;
}

bool SyncModes::enqueue_all_parameters(std::uint64_t step) {
  bool any = false;
  for (Entry& entry : entries_) {
    if (entry.moved) {
      add(entry, parameters(entry, {.step = static_cast<std::uint32_t>(step), .flush = true}, step), 0);
      any = true;
    }
  }
  return any;
}

SyncModes::JobPtr SyncModes::new_job(Entry& entry, const plan::Bucket& travels, const StepInfo& info,
                                     std::uint64_t step) {
  auto job = std::make_shared<Job>();
  job->bucket = entry.bucket->id;
  job->travels = &travels;
  job->info = info;
  job->info.choices = {};
  job->info.sample = job->info.norms = false;  // of `step` groups only
  job->info.background = true;
  job->step = step;
  {
    const MutexLock lock(mutex_);
    if (!entry.spare.empty()) {
      job->values = std::move(entry.spare.back());
      entry.spare.pop_back();
    }
  }
  job->values.resize(bytes_of(travels));
  return job;
}

SyncModes::JobPtr SyncModes::gradients(Entry& entry, std::span<const TensorMemory> memory, const StepInfo& info,
                                       std::uint64_t step) {
  const plan::Bucket& bucket = *entry.bucket;
  JobPtr job = new_job(entry, bucket, info, step);
  job->memory.resize(memory.size());
  for (const plan::Bucket::Part& part : bucket.parts) {
    std::byte* to = job->values.data() + part.offset * element_bytes(bucket.dtype);
    const TensorMemory& tensor = memory[part.tensor];
    const std::uint64_t bytes = part.count * element_bytes(bucket.dtype);
    job->memory[part.tensor] = {{to, part.count, bucket.dtype}, tensor.zero && !undoable_};
    if (!tensor.zero) {
      copy_bytes(to, bytes_at(tensor.gradient), bytes);
    } else if (undoable_) {  // it may have to be told to another world
      std::fill_n(to, bytes, std::byte{0});
    }
  }
  return job;
}

void SyncModes::copy_parameters(const plan::Bucket& bucket, std::size_t which, std::byte* to) const {
  for (const plan::Bucket::Part& part : bucket.parts) {
    const std::uint64_t bytes = part.count * element_bytes(bucket.dtype);
    copy_bytes(to, bytes_at(parameters_[part.tensor][which]), bytes);
    to += bytes;
  }
}

void SyncModes::drop_anchor(Entry& entry) const {
  if (!std::exchange(entry.anchored, true)) {
    entry.anchor.resize(bytes_of(*entry.bucket));
    copy_parameters(*entry.bucket, 0, entry.anchor.data());
    entry.momentum.assign(entry.anchor.size(), std::byte{0});
  }
}

SyncModes::JobPtr SyncModes::parameters(Entry& entry, const StepInfo& info, std::uint64_t step) {
  const plan::Bucket& bucket = *entry.bucket;
  const bool changes = bucket.sync.outer.has_value();
  JobPtr job = new_job(entry, changes ? bucket : entry.average, info, step);
  job->of_parameters = true;
  job->info.weighted = false;  // a rank's parameters are worth as much as another's
  job->info.weight = 1;
  job->info.plain = !changes;
  for (std::size_t which = 0; which < (changes ? 1 : bucket.parameters); ++which) {
    copy_parameters(bucket, which, job->values.data() + which * bytes_of(bucket));
  }
  if (changes && bucket.dtype == DType::f64) {
    subtract<double>(job->values.data(), entry.anchor.data(), bucket.count);
  } else if (changes) {
    subtract<float>(job->values.data(), entry.anchor.data(), bucket.count);
  }
  job->memory.resize(changes ? parameters_.size() : job->travels->parts.size());
  for (const plan::Bucket::Part& part : job->travels->parts) {
    std::byte* values = job->values.data() + part.offset * element_bytes(bucket.dtype);
    job->memory[part.tensor] = {{values, part.count, bucket.dtype}, false};
  }
  return job;
}

void SyncModes::add(Entry& entry, const JobPtr& job, std::size_t may_lag) {
  const MutexLock lock(mutex_);
  entry.had_turn = true;
  entry.synced = false;
  entry.may_lag = may_lag;
  ++entry.turns;
  if (job) {
    job->turn = entry.turns;
    entry.results.push_back(job);
    if (undoable_ && !job->of_parameters) {
      release_due(entry, may_lag);
    } else {
      release(job);
    }
  }
}

void SyncModes::release(const JobPtr& job) {
  if (!std::exchange(job->released, true)) {
    waiting_.push_back(job);
  }
}

void SyncModes::release_due(Entry& entry, std::size_t may_lag) {
  for (std::size_t i = 0; i + may_lag < entry.results.size(); ++i) {
    release(entry.results[i]);
  }
}

void SyncModes::release_all(std::optional<double> weight) {
  const MutexLock lock(mutex_);
  for (Entry& entry : entries_) {
    for (const JobPtr& job : entry.results) {
      if (!job->released && !job->info.weighted) {
        job->weight = weight;
      }
    }
    release_due(entry, 0);
  }
}

void SyncModes::released_count(std::uint64_t step) {
  const MutexLock lock(mutex_);
  for (Entry& entry : entries_) {
    for (const JobPtr& job : entry.results) {
      if (job->released && !job->of_parameters && !std::exchange(job->counts, true)) {
        entry.sent.some = step;  // residuals are those that this step begins with
        job->input = {};
      }
    }
    entry.ran = false;
  }
}

// One of a bucket at a time: the next begins with the residuals that this one leaves.
void SyncModes::start(Buckets& buckets) {
  for (;;) {
    JobPtr job;
    {
      const MutexLock lock(mutex_);
      if (waiting_.empty() || entries_[waiting_.front()->bucket].flying) {
        return;
      }
      job = std::move(waiting_.front());
      waiting_.pop_front();
      Entry& entry = entries_[job->bucket];
      entry.flying = job;
      job->info.again = std::exchange(entry.ran, true);
      if (undoable_ && !job->of_parameters && !entry.spare.empty()) {
        job->input = std::move(entry.spare.back());
        entry.spare.pop_back();
      }
    }
    if (undoable_ && !job->of_parameters) {
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
  const JobPtr job = std::exchange(entries_[ended.bucket].flying, nullptr);
  job->done = true;
  job->nonfinite = ended.nonfinite;
}

bool SyncModes::arrived(std::uint32_t bucket) const {
  const MutexLock lock(mutex_);
  const Entry& entry = entries_[bucket];
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
         std::any_of(entries_.begin(), entries_.end(), [](const Entry& entry) { return entry.flying != nullptr; });
}

bool SyncModes::has_uncounted() const {
  const MutexLock lock(mutex_);
  return undoable_ && std::any_of(entries_.begin(), entries_.end(), [](const Entry& entry) {
           return std::any_of(entry.results.begin(), entry.results.end(),
                              [](const JobPtr& job) { return !job->of_parameters && !job->counts; });
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
