#include "session/parts/sync_modes/sync_bucket.hpp"

#include <algorithm>
#include <utility>

#include "codec/codec.hpp"
#include "codec/tensor_list.hpp"
#include "session/parts/sync_modes/bytes.hpp"

namespace gradwire::session {
namespace {

using codec::kTileElements;

std::uint64_t bytes_of(const plan::Bucket& bucket) { return bucket.count * element_bytes(bucket.dtype); }

template <typename T>
void subtract(std::byte* anchor_minus, const std::byte* anchor, std::uint64_t count) {
  auto* change = reinterpret_cast<T*>(anchor_minus);
  const auto* from = reinterpret_cast<const T*>(anchor);
  for (std::uint64_t i = 0; i < count; ++i) {
    change[i] = from[i] - change[i];
  }
}

// Returns a bucket of the parameters and then each state, one after another. Its parts refer to their places in a job's
// memory.
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

// Computes to = factor x from, or to += factor x from, in working precision. It multiplies once: adding (factor - 1) x
// from would cancel if the factor is small.
enum class Scaled : std::uint8_t { replaces, adds };
void put_scaled(Scaled how, const View& to, const void* from, double factor) {
  const codec::Working working = to.dtype == DType::f64 ? codec::Working::f64 : codec::Working::f32;
  codec::TensorList sum(to.dtype, working);
  sum.append(to.data, to.data, to.count);
  codec::TensorList more(to.dtype, working);
  more.append(from, nullptr, to.count);
  memory::ScratchVector<double> scratch(3 * kTileElements);
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

SyncJobPtr new_job(const plan::Bucket& bucket, const plan::Bucket& travels, SyncValues memory_of_values,
                   const StepInfo& info, std::uint64_t step) {
  auto job = std::make_shared<SyncJob>();
  job->bucket = bucket.id;
  job->travels = &travels;
  job->info = info;
  job->info.choices = {};
  job->info.sample = job->info.norms = false;  // only groups of mode `step` have these
  job->info.background = true;
  job->step = step;
  job->values = std::move(memory_of_values);
  job->values.resize(bytes_of(travels));
  return job;
}

}  // namespace

void SyncJob::travel_again(const plan::Bucket& of, std::size_t tensors, const LateGradient& late) {
  travels = &of;
  info = {.step = static_cast<std::uint32_t>(late.step),
          .weighted = late.weighted,
          .weight = late.weight,
          .background = true};
  memory.resize(tensors);
  for (const plan::Bucket::Part& part : of.parts) {
    std::byte* to = values.data() + part.offset * element_bytes(of.dtype);
    memory[part.tensor] = {{to, part.count, of.dtype}, false};
  }
}

bool OuterAnchor::drop(std::size_t bytes) {
  if (std::exchange(dropped_, true)) {
    return false;
  }
  parameters.resize(bytes);
  momentum.resize(0);
  momentum.resize(bytes);  // zeros
  return true;
}

void OuterAnchor::step(const plan::Bucket& bucket, const std::byte* change) {
  (bucket.dtype == DType::f64 ? outer_step<double> : outer_step<float>)(*bucket.sync.outer, parameters.data(),
                                                                        momentum.data(), change, bucket.count);
}

SyncBucket::SyncBucket(const plan::Bucket& of, const std::vector<std::vector<View>>& parameters)
    : bucket(of), parameters_(parameters) {
  if (bucket.sync.mode == Sync::Mode::every && !bucket.sync.outer) {
    average_ = average_of(bucket);
  }
}

SyncJobPtr SyncBucket::copy_gradients(SyncValues memory_of_values, std::span<const TensorMemory> memory,
                                      const StepInfo& info, std::uint64_t step, bool undoable) const {
  SyncJobPtr job = new_job(bucket, bucket, std::move(memory_of_values), info, step);
  job->counts = !undoable;
  job->memory.resize(memory.size());
  for (const plan::Bucket::Part& part : bucket.parts) {
    std::byte* to = job->values.data() + part.offset * element_bytes(bucket.dtype);
    const TensorMemory& tensor = memory[part.tensor];
    const std::uint64_t bytes = part.count * element_bytes(bucket.dtype);
    job->memory[part.tensor] = {{to, part.count, bucket.dtype}, tensor.zero && !undoable};
    if (!tensor.zero) {
      copy_bytes(to, bytes_at(tensor.gradient), bytes);
    } else if (undoable) {  // another world may have to be told of it
      std::fill_n(to, bytes, std::byte{0});
    }
  }
  return job;
}

void SyncBucket::read_parameters(std::size_t which, std::byte* to) const {
  for (const plan::Bucket::Part& part : bucket.parts) {
    const std::uint64_t bytes = part.count * element_bytes(bucket.dtype);
    copy_bytes(to, bytes_at(parameters_[part.tensor][which]), bytes);
    to += bytes;
  }
}

void SyncBucket::drop_anchor() {
  if (anchor.drop(bytes_of(bucket))) {
    read_parameters(0, anchor.parameters.data());
  }
}

SyncJobPtr SyncBucket::copy_parameters(SyncValues memory_of_values, const StepInfo& info, std::uint64_t step) const {
  const bool changes = bucket.sync.outer.has_value();
  SyncJobPtr job = new_job(bucket, changes ? bucket : average_, std::move(memory_of_values), info, step);
  job->carries_parameters = true;
  job->info.weighted = false;  // the parameters of all ranks count alike
  job->info.weight = 1;
  job->info.plain = !changes;
  for (std::size_t which = 0; which < (changes ? 1 : bucket.parameters); ++which) {
    read_parameters(which, job->values.data() + which * bytes_of(bucket));
  }
  if (changes && bucket.dtype == DType::f64) {
    subtract<double>(job->values.data(), anchor.parameters.data(), bucket.count);
  } else if (changes) {
    subtract<float>(job->values.data(), anchor.parameters.data(), bucket.count);
  }
  job->memory.resize(changes ? parameters_.size() : job->travels->parts.size());
  for (const plan::Bucket::Part& part : job->travels->parts) {
    std::byte* values = job->values.data() + part.offset * element_bytes(bucket.dtype);
    job->memory[part.tensor] = {{values, part.count, bucket.dtype}, false};
  }
  return job;
}

// Writes zeros before the first result, and the sum if several results are due. Without `replaces`, results are added
// to what the step itself has brought.
void SyncBucket::deliver_gradients(std::span<const SyncJobPtr> due, std::span<const TensorMemory> memory, double scale,
                                   bool replaces) const {
  const std::size_t element = element_bytes(bucket.dtype);
  for (const plan::Bucket::Part& part : bucket.parts) {
    const View& gradient = memory[part.tensor].gradient;
    bool overwrite = replaces;
    for (const SyncJobPtr& job : due) {
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

void SyncBucket::deliver_parameters(const SyncJob& job) {
  sent.some = job.step;
  sent.all = job.info.flush ? job.step : sent.all;
  const std::byte* from = job.values.data();
  std::size_t states = bucket.parameters;
  if (bucket.sync.outer) {
    anchor.step(bucket, from);
    from = anchor.parameters.data();
    states = 1;
  }
  write_parameters(from, states);
}

void SyncBucket::write_parameters(const std::byte* from, std::size_t states) const {
  for (std::size_t which = 0; which < states; ++which) {
    for (const plan::Bucket::Part& part : bucket.parts) {
      const std::uint64_t bytes = part.count * element_bytes(bucket.dtype);
      copy_bytes(bytes_at(parameters_[part.tensor][which]), from, bytes);
      from += bytes;
    }
  }
}

}  // namespace gradwire::session
