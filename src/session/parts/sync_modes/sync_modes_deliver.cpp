// How sync modes deliver what has come back: to the gradients of a later step, or to parameters.
#include <algorithm>
#include <utility>
#include <vector>

#include "codec/codec.hpp"
#include "codec/tensor_list.hpp"
#include "session/parts/sync_modes/bytes.hpp"
#include "session/parts/sync_modes/sync_modes.hpp"

namespace gradwire::session {
namespace {

using codec::kTileElements;

constexpr std::size_t kSpares = 2;  // what one step delivers, the next one needs

// to = factor x from, or to += it, in working precision. One multiplication: factor - 1 added to what is there would
// cancel where the factor is small.
enum class Scaled : std::uint8_t { replaces, adds };
void put_scaled(Scaled how, const View& to, const void* from, double factor) {
  const codec::Working working = to.dtype == DType::f64 ? codec::Working::f64 : codec::Working::f32;
  codec::TensorList sum(to.dtype, working);
  sum.append(to.data, to.data, to.count);
  codec::TensorList more(to.dtype, working);
  more.append(from, nullptr, to.count);
  std::vector<double> scratch(3 * kTileElements);
  const auto add = [&]<typename T>(T /*type*/) {
    for (std::uint64_t first = 0; first < to.count; first += kTileElements) {
      const auto count = static_cast<std::uint32_t>(std::min(kTileElements, to.count - first));
      const auto* a = static_cast<const T*>(sum.load(first, count, scratch.data()));
      const auto* b = static_cast<const T*>(more.load(first, count, scratch.data() + kTileElements));
      auto* target = static_cast<T*>(sum.target(first, count, scratch.data() + 2 * kTileElements));
      for (std::uint32_t i = 0; i < count; ++i) {
        const T scaled = static_cast<T>(factor) * b[i];
        target[i] = how == Scaled::adds ? a[i] + scaled : scaled;
      }
      sum.store(first, count, target);
    }
  };
  working == codec::Working::f64 ? add(double{}) : add(float{});
}

// SGD with Nesterov momentum, as in Sutskever et al. (2013), over the mean change.
template <typename T>
void outer_step(const Sync::Outer& outer, std::byte* anchor_bytes, std::byte* momentum_bytes,
                const std::byte* change_bytes, std::uint64_t count) {
  auto* anchor = reinterpret_cast<T*>(anchor_bytes);
  auto* momentum = reinterpret_cast<T*>(momentum_bytes);
  const auto* change = reinterpret_cast<const T*>(change_bytes);
  const auto rate = static_cast<T>(outer.learning_rate);
  const auto keep = static_cast<T>(outer.momentum);
  for (std::uint64_t i = 0; i < count; ++i) {
    momentum[i] = keep * momentum[i] + change[i];
    anchor[i] -= rate * (change[i] + keep * momentum[i]);
  }
}

}  // namespace

bool SyncModes::deliver(std::span<const TensorMemory> memory, double scale) {
  bool nonfinite = false;
  for (Entry& entry : entries_) {
    std::vector<JobPtr> due;
    bool had_turn = false;
    {
      const MutexLock lock(mutex_);
      if (!entry.had_turn && memory.empty()) {
        continue;  // between steps: nothing to write to
      }
      had_turn = std::exchange(entry.had_turn, false);
      entry.ran = false;
      entry.anchor_counts = entry.anchored;
      if (had_turn && entry.bucket->sync.mode == Sync::Mode::every) {
        entry.moved = !memory.empty();  // by the optimizer, which comes next
      }
      const std::size_t may_lag = had_turn ? std::exchange(entry.may_lag, 0) : 0;
      Lateness& ages = ages_[entry.bucket->group];
      while (entry.results.size() > may_lag) {
        due.push_back(std::move(entry.results.front()));
        entry.results.pop_front();
        if (entry.bucket->sync.mode == Sync::Mode::async && had_turn) {
          const std::uint64_t age = entry.turns - due.back()->turn;
          ++ages.results;
          ages.steps += age;
          ages.oldest = std::max(ages.oldest, age);
        }
      }
    }
    std::vector<JobPtr> gradients;
    bool synced = false;
    for (const JobPtr& job : due) {
      nonfinite = nonfinite || job->nonfinite;
      if (job->of_parameters) {
        deliver_parameters(entry, *job);
        synced = true;
      } else {
        gradients.push_back(job);
      }
    }
    const bool replaces = had_turn && entry.bucket->sync.mode == Sync::Mode::async;
    if (replaces || !gradients.empty()) {
      deliver_gradients(entry, gradients, memory, scale, replaces);
    }
    const MutexLock lock(mutex_);
    entry.synced = synced;
    for (const JobPtr& job : due) {
      for (std::vector<std::byte>* memory_of : {&job->values, &job->input}) {
        if (!memory_of->empty() && entry.spare.size() < kSpares) {
          entry.spare.push_back(std::move(*memory_of));
        }
      }
    }
    if (undoable_ && had_turn && schedule_.of(entry.bucket->id).staleness > 0) {
      release_due(entry, schedule_.of(entry.bucket->id).staleness - 1);  // while the next step is computed
    }
  }
  return nonfinite;
}

// Zeros before the first result; the sum where several are due. `replaces`: else it comes on top of what the step
// itself has brought.
void SyncModes::deliver_gradients(const Entry& entry, std::span<const JobPtr> due, std::span<const TensorMemory> memory,
                                  double scale, bool replaces) {
  const std::size_t element = element_bytes(entry.bucket->dtype);
  for (const plan::Bucket::Part& part : entry.bucket->parts) {
    const View& gradient = memory[part.tensor].gradient;
    bool overwrite = replaces;
    for (const JobPtr& job : due) {
      const std::byte* values = job->values.data() + part.offset * element;
      const bool replace = std::exchange(overwrite, false);
      if (replace && job->scale == scale) {
        copy_bytes(bytes_at(gradient), values, part.count * element);
      } else {
        put_scaled(replace ? Scaled::replaces : Scaled::adds, gradient, values, scale / job->scale);
      }
    }
    if (overwrite) {
      std::fill_n(bytes_at(gradient), part.count * element, std::byte{0});
    }
  }
}

void SyncModes::deliver_parameters(Entry& entry, const Job& job) const {
  const plan::Bucket& bucket = *entry.bucket;
  entry.sent.some = job.step;
  entry.sent.all = job.info.flush ? job.step : entry.sent.all;
  const std::byte* from = job.values.data();
  std::size_t states = bucket.parameters;
  if (bucket.sync.outer) {
    (bucket.dtype == DType::f64 ? outer_step<double> : outer_step<float>)(*bucket.sync.outer, entry.anchor.data(),
                                                                          entry.momentum.data(), from, bucket.count);
    from = entry.anchor.data();
    states = 1;
  }
  write_parameters(bucket, from, states);
}

void SyncModes::write_parameters(const plan::Bucket& bucket, const std::byte* from, std::size_t states) const {
  for (std::size_t which = 0; which < states; ++which) {
    for (const plan::Bucket::Part& part : bucket.parts) {
      const std::uint64_t bytes = part.count * element_bytes(bucket.dtype);
      copy_bytes(bytes_at(parameters_[part.tensor][which]), from, bytes);
      from += bytes;
    }
  }
}

}  // namespace gradwire::session
