// The state that sync modes keep between steps: anchors of outer momentum, and results that no step has delivered.
#include <algorithm>
#include <cstring>

#include "plan/hash.hpp"
#include "policy/sync.hpp"
#include "session/parts/sync_modes/sync_modes.hpp"

namespace gradwire::session {

bool SyncModes::has_outer() const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const SyncBucket& entry) { return entry.bucket.sync.outer.has_value(); });
}

bool SyncModes::begins_outer(std::uint64_t step) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const SyncBucket& entry) {
    return entry.bucket.sync.outer && !entry.anchor.dropped() && schedule_.active(entry.bucket.id, step);
  });
}

void SyncModes::drop_anchors(std::uint64_t step) {
  for (SyncBucket& entry : entries_) {
    if (entry.bucket.sync.outer && schedule_.active(entry.bucket.id, step)) {
      entry.drop_anchor();
    }
  }
}

std::uint64_t SyncModes::outer_hash() const {
  std::uint64_t hash = 0;
  for (const SyncBucket& entry : entries_) {
    const plan::Bucket& bucket = entry.bucket;
    if (!bucket.sync.outer) {
      continue;
    }
    if (entry.anchor.dropped()) {
      hash = plan::hash_of(entry.anchor.parameters.data(), entry.anchor.parameters.size(), hash);
      continue;
    }
    for (const plan::Bucket::Part& part : bucket.parts) {
      const View& parameter = parameters_[part.tensor][0];
      hash = plan::hash_of(parameter.data, parameter.count * element_bytes(parameter.dtype), hash);
    }
  }
  return hash;
}

SyncModes::Sent SyncModes::sent(std::uint32_t bucket, std::uint64_t step, Sent by_steps) const {
  const Sync& sync = schedule_.of(bucket);
  const Sent& sent = entries_[bucket].sent;
  if (sync.mode != Sync::Mode::every || !policy::active(sync, step)) {
    return {std::max(sent.some, by_steps.some), by_steps.all};
  }
  const std::uint64_t begins = sync.from_step > 0 ? sync.from_step - 1 : 0;  // it sent the residuals of gradients
  return {std::max(sent.some, begins), std::max(sent.all, begins)};
}

std::vector<SavedLocalSteps> SyncModes::local_steps() const {
  std::vector<SavedLocalSteps> local_steps;
  for (const SyncBucket& entry : entries_) {
    const Sync& sync = schedule_.of(entry.bucket.id);
    if (sync.mode == Sync::Mode::every && !policy::is_step(sync)) {
      const bool late = sync.from_step != entry.bucket.sync.from_step;
      for (const plan::Bucket::Part& part : entry.bucket.parts) {
        local_steps.push_back({static_cast<std::uint32_t>(part.tensor), late ? sync.from_step : 0, entry.moved});
      }
    }
  }
  return local_steps;
}

std::vector<View> SyncModes::alike() {
  const MutexLock lock(mutex_);
  std::vector<View> views;
  for (SyncBucket& entry : entries_) {
    const auto add = [&](SyncValues& values) {
      views.push_back({values.data(), entry.bucket.count, entry.bucket.dtype});
    };
    if (entry.anchor.counts()) {
      add(entry.anchor.parameters);
      add(entry.anchor.momentum);
    }
    for (const SyncJobPtr& job : entry.results) {
      if (job->counts) {
        add(job->values);
      }
    }
  }
  return views;
}

void SyncModes::go_to_anchors() {
  for (const SyncBucket& entry : entries_) {
    if (entry.anchor.counts()) {
      entry.write_parameters(entry.anchor.parameters.data(), 1);
    }
  }
}

bool SyncModes::have_moved() const {
  return std::any_of(entries_.begin(), entries_.end(), [](const SyncBucket& entry) { return entry.moved; });
}

SavedSyncModes SyncModes::save(std::uint64_t step, Values values) const {
  const MutexLock lock(mutex_);
  SavedSyncModes saved{.local_steps = local_steps()};
  for (const SyncBucket& entry : entries_) {
    for (const plan::Bucket::Part& part : entry.bucket.parts) {
      const auto first = static_cast<std::ptrdiff_t>(part.offset * element_bytes(entry.bucket.dtype));
      const auto last = first + static_cast<std::ptrdiff_t>(part.count * element_bytes(entry.bucket.dtype));
      const auto slice = [&](const SyncValues& of_bucket) {
        return values == Values::left_out ? std::vector<std::byte>()
                                          : std::vector<std::byte>(of_bucket.begin() + first, of_bucket.begin() + last);
      };
      const auto tensor = static_cast<std::uint32_t>(part.tensor);
      if (entry.anchor.counts()) {
        saved.anchors.push_back({tensor, slice(entry.anchor.parameters), slice(entry.anchor.momentum)});
      }
      for (const SyncJobPtr& job : entry.results) {
        if (job->carries_parameters || job->step >= step) {
          continue;  // the job belongs to a step that was not delivered
        }
        if (!job->counts) {
          const SyncValues& own = job->input.empty() ? job->values : job->input;
          saved.late.push_back({tensor, job->step, job->scale, job->info.weighted, job->info.weight, slice(own)});
        } else {
          saved.results.push_back({tensor, job->step, job->scale, job->nonfinite, slice(job->values)});
        }
      }
    }
  }
  return saved;
}

void SyncModes::load(const SavedSyncModes& saved, std::uint64_t step) {
  for (SyncBucket& entry : entries_) {
    const plan::Bucket& bucket = entry.bucket;
    const bool active = schedule_.active(bucket.id, step);
    const auto put = [&](SyncValues& values, std::uint32_t tensor, const std::vector<std::byte>& slice) {
      const auto part = std::find_if(bucket.parts.begin(), bucket.parts.end(),
                                     [&](const plan::Bucket::Part& p) { return p.tensor == tensor; });
      values.resize(bucket.count * element_bytes(bucket.dtype));
      std::copy(slice.begin(), slice.end(),
                values.begin() + static_cast<std::ptrdiff_t>(part->offset * element_bytes(bucket.dtype)));
    };
    const auto here = [&](std::uint32_t tensor) { return plan_.tensors[tensor].bucket == bucket.id; };
    entry.anchor.forget();
    for (const SavedAnchor& anchor : saved.anchors) {
      if (bucket.sync.outer && active && here(anchor.tensor)) {
        entry.drop_anchor();  // tensors of the bucket without an anchor in the saved plan begin here
        put(entry.anchor.parameters, anchor.tensor, anchor.parameters);
        put(entry.anchor.momentum, anchor.tensor, anchor.momentum);
      }
    }
    entry.anchor.count();
    const bool local = active && bucket.sync.mode == Sync::Mode::every;
    entry.moved = local && (bucket.sync.outer ? entry.anchor.dropped() : step > schedule_.of(bucket.id).from_step);
    std::size_t told = 0;  // older states do not say whether parameters have moved
    std::size_t moved = 0;
    for (const SavedLocalSteps& local_steps : saved.local_steps) {
      told += here(local_steps.tensor) ? 1 : 0;
      moved += here(local_steps.tensor) && local_steps.moved ? 1 : 0;
    }
    entry.moved = entry.moved && (told == 0 || moved > 0);
    entry.synced = false;
    entry.results.clear();
    const auto job_of = [&](std::uint64_t of_step, double scale) {
      const auto at = std::find_if(entry.results.begin(), entry.results.end(),
                                   [&](const SyncJobPtr& known) { return known->step >= of_step; });
      if (at != entry.results.end() && (*at)->step == of_step) {
        return *at;
      }
      SyncJobPtr job = *entry.results.insert(at, std::make_shared<SyncJob>());
      job->bucket = bucket.id;
      job->step = of_step;
      job->scale = scale;
      return job;
    };
    for (const SavedResult& result : saved.results) {
      if (here(result.tensor)) {
        const SyncJobPtr job = job_of(result.step, result.scale);
        job->released = job->counts = job->done = true;
        job->nonfinite = job->nonfinite || result.nonfinite;
        put(job->values, result.tensor, result.values);
      }
    }
    for (const LateGradient& late : saved.late) {
      if (here(late.tensor)) {
        const SyncJobPtr job = job_of(late.step, late.scale);
        put(job->values, late.tensor, late.values);
        job->travel_again(bucket, plan_.tensors.size(), late);
      }
    }
    entry.turns = 0;
    for (const SyncJobPtr& job : entry.results) {
      job->turn = ++entry.turns;
    }
  }
}

}  // namespace gradwire::session
