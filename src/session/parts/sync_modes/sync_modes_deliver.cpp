// Delivers the results of sync modes: to the gradients of a later step, or to parameters.
#include <algorithm>
#include <utility>
#include <vector>

#include "session/parts/sync_modes/sync_modes.hpp"

namespace gradwire::session {
namespace {

constexpr std::size_t kSpares = 2;  // the next step needs the memory of the results that this one delivers

}  // namespace

bool SyncModes::deliver(std::span<const TensorMemory> memory, double scale) {
  bool nonfinite = false;
  for (SyncBucket& entry : entries_) {
    std::vector<SyncJobPtr> due;
    bool had_turn = false;
    {
      const MutexLock lock(mutex_);
      if (!entry.had_turn && memory.empty()) {
        continue;  // between steps there is no gradient to write to
      }
      had_turn = std::exchange(entry.had_turn, false);
      entry.ran = false;
      entry.anchor.count();
      if (had_turn && entry.bucket.sync.mode == Sync::Mode::every) {
        entry.moved = !memory.empty();  // the optimizer, which comes next, changes parameters
      }
      const std::size_t may_lag = had_turn ? std::exchange(entry.may_lag, 0) : 0;
      Lateness& ages = ages_[entry.bucket.group];
      while (entry.results.size() > may_lag) {
        due.push_back(std::move(entry.results.front()));
        entry.results.pop_front();
        if (entry.bucket.sync.mode == Sync::Mode::async && had_turn) {
          const std::uint64_t age = entry.turns - due.back()->turn;
          ++ages.results;
          ages.steps += age;
          ages.oldest = std::max(ages.oldest, age);
        }
      }
    }
    std::vector<SyncJobPtr> gradients;
    bool synced = false;
    for (const SyncJobPtr& job : due) {
      nonfinite = nonfinite || job->nonfinite;
      if (job->carries_parameters) {
        entry.deliver_parameters(*job);
        synced = true;
      } else {
        gradients.push_back(job);
      }
    }
    const bool replaces = had_turn && entry.bucket.sync.mode == Sync::Mode::async;
    if (replaces || !gradients.empty()) {
      entry.deliver_gradients(gradients, memory, scale, replaces);
    }
    const MutexLock lock(mutex_);
    entry.synced = synced;
    for (const SyncJobPtr& job : due) {
      for (SyncValues* memory_of : {&job->values, &job->input}) {
        if (!memory_of->empty() && entry.spare.size() < kSpares) {
          entry.spare.push_back(std::move(*memory_of));
        }
      }
    }
    if (had_turn && schedule_.of(entry.bucket.id).staleness > 0) {
      release_due(entry, schedule_.of(entry.bucket.id).staleness - 1);  // travels while the next step is computed
    }
  }
  return nonfinite;
}

}  // namespace gradwire::session
