// What a session over host memory measures for the choice of codecs: exchanges, reductions, and what encoding drops.
#include <algorithm>
#include <array>
#include <cmath>
#include <thread>
#include <utility>

#include "base/elapsed.hpp"
#include "choice/link_measurement.hpp"
#include "exchange/control.hpp"
#include "policy/stage.hpp"
#include "session/host/bucket_runner.hpp"
#include "session/progress.hpp"

namespace gradwire::session {
namespace {

using codec::kTileElements;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kSampledTiles = 64;  // at most
constexpr std::uint64_t kTilesALook = 16;    // tiles: so that a look costs a sixteenth of an encoding
constexpr std::chrono::milliseconds kPatience{1};

template <typename T>
double squared(const T* values, std::uint32_t count) {
  double sum = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  return sum;
}

std::uint64_t tiles_of(std::uint64_t count) { return (count + kTileElements - 1) / kTileElements; }

// How many of them are looked at.
std::uint64_t looks_at(std::uint64_t tiles) { return std::clamp<std::uint64_t>(tiles / kTilesALook, 1, kSampledTiles); }

}  // namespace

bool BucketRunner::has_native(DType dtype) const { return exchange::native_sum(*transport_).has(dtype); }

double BucketRunner::time_exchange(int to, int from, std::uint64_t bytes) {
  return peers_.time_exchange(to, from, bytes, choice::kExchangePart);
}

// As finish() does: without sleeping at first.
void BucketRunner::advance_eagerly() {
  const Clock::time_point polite = Clock::now() + Progress::kEager;
  for (unsigned looked = 1; advance(Clock::now() > polite ? kPatience : std::chrono::microseconds(0)).empty();
       ++looked) {
    if (looked % Progress::kLooksToYield == 0) {
      std::this_thread::yield();
    }
  }
}

// Residuals and statistics, for the time of a trial.
class BucketRunner::RestoreOnExit {
 public:
  explicit RestoreOnExit(BucketRunner& runner) : runner_(runner), residuals_(std::exchange(runner.residuals_, {})) {
    const std::lock_guard lock(runner_.statistics_mutex_);
    statistics_ = runner_.statistics_;
  }
  ~RestoreOnExit() {
    runner_.residuals_ = std::move(residuals_);
    const std::lock_guard lock(runner_.statistics_mutex_);
    runner_.statistics_ = std::move(statistics_);
  }
  RestoreOnExit(const RestoreOnExit&) = delete;
  RestoreOnExit& operator=(const RestoreOnExit&) = delete;

 private:
  BucketRunner& runner_;
  exchange::ResidualStore residuals_;
  std::vector<Statistics> statistics_;
};

double BucketRunner::time_reduction(const plan::Plan& trial, const TensorMemory& memory, const TrialStep& step) {
  using By = TrialStep::By;
  const BucketChoice choice{.level = 0, .native = step.by != By::frames, .chunk_bytes = trial.host_chunk_bytes()};
  const StepInfo info{.weighted = step.weighted,
                      .choices = std::span(&choice, 1),
                      .in_call = step.by == By::in_call ? StepInfo::InCall::waits : StepInfo::InCall::no};
  const RestoreOnExit kept(*this);  // also where another rank ends meanwhile
  peers_.barrier();
  const Clock::time_point start = Clock::now();
  if (step.by == By::at_once) {
    SmallSums(*transport_, options_.reduction, options_.timeout, {.crowded = this->info().crowded})
        .reduce(trial, std::span(&memory, 1), info);
    executor_.skip(1);
  } else {
    BucketRunner::start(trial, trial.buckets[0], std::span(&memory, 1), info);
    advance_eagerly();
  }
  return seconds_since(start);
}

choice::QualitySample BucketRunner::sample_quality(const exchange::Task& task) {
  const codec::Codec& codec = task.call.codecs.node;  // between nodes; elsewhere the only one
  if (codec.working() == codec::Working::f64) {
    return {};  // what travels of f64 is exact
  }
  const std::uint64_t count = task.tensors.count();
  const std::uint64_t tiles = tiles_of(count);
  const std::uint64_t looks = looks_at(tiles);
  std::vector<float> values(kTileElements);
  std::vector<float> residual(kTileElements);
  std::vector<float> scratch(kTileElements);
  std::vector<std::byte> frame(codec.frame_bytes(kTileElements));
  const double weight = task.call.weighted ? task.weight : 1;
  double gradient2 = 0;
  double before2 = 0;
  double encoded2 = 0;
  double dropped2 = 0;
  for (std::uint64_t look = 0; look < looks && count > 0; ++look) {
    const std::uint64_t tile = look * tiles / looks;
    const std::uint64_t first = tile * kTileElements;
    const auto n = static_cast<std::uint32_t>(std::min(kTileElements, count - first));
    const auto* loaded = static_cast<const float*>(task.tensors.load(first, n, scratch.data()));
    codec::multiply(codec::Working::f32, loaded, weight, values.data(), n);
    std::fill(residual.begin(), residual.end(), 0.0F);
    if (task.residuals != nullptr && task.call.residuals.keeps.local) {
      if (const float* kept = task.residuals->load(codec::EncodeSite::local, first, n, scratch.data())) {
        std::copy_n(kept, n, residual.begin());
      }
    }
    if (task.call.preconditioned) {  // as the codec sees them
      codec::TileScale scale(&*task.preconditioner, first, n, scratch.data());
      scale.divide(values.data());
      scale.divide(residual.data());
    }
    gradient2 += squared(values.data(), n);
    before2 += squared(residual.data(), n);
    for (std::uint32_t i = 0; i < n; ++i) {
      scratch[i] = values[i] + residual[i];
    }
    encoded2 += squared(scratch.data(), n);
    const codec::FrameInfo info{
        .count = n, .first_tile = static_cast<std::uint32_t>(tile), .bucket = task.bucket, .step = task.step};
    codec::FrameWriter writer(codec, info, false, std::span(frame).first(codec.frame_bytes(n)));
    writer.write(values.data(), residual.data(), n);
    writer.finish();
    dropped2 += squared(residual.data(), n);
  }
  if (!std::isfinite(encoded2) || encoded2 == 0 || gradient2 == 0) {
    return {};  // of such a step nothing can be said
  }
  return {.nmse = dropped2 / encoded2, .residual_ratio = std::sqrt(before2 / gradient2)};
}

void BucketRunner::look_at_health(const plan::Plan& plan, const exchange::Task& task,
                                  const std::optional<choice::QualitySample>& sampled) {
  constexpr std::chrono::seconds kInterval{1};
  const Clock::time_point now = Clock::now();
  if (task.bucket != next_look_ % plan.buckets.size() || (looked_ && now - *looked_ < kInterval)) {
    return;
  }
  next_look_ = task.bucket + 1;
  const bool lossy = task.call.codecs.node.lossy();
  const choice::QualitySample sample = sampled ? *sampled : lossy ? sample_quality(task) : choice::QualitySample{};
  if (lossy || next_look_ == plan.buckets.size()) {
    looked_ = now;  // else the next bucket has its turn at once
  }
  const observe::Knowledge::Memory memory{
      .residual_bytes = residuals_.bytes(),
      .frame_bytes = executor_.pool().peak_bytes() + background_.pool().peak_bytes()};
  const std::lock_guard lock(statistics_mutex_);
  memory_ = memory;
  if (lossy) {
    health_[task.bucket] = sample;
  } else {
    health_.erase(task.bucket);
  }
}

observe::Knowledge BucketRunner::known(const plan::Plan& plan) const {
  observe::Knowledge known;
  const std::lock_guard lock(statistics_mutex_);
  known.memory = memory_;
  std::map<std::size_t, std::pair<choice::QualitySample, double>> sums;  // of groups, and how many buckets
  for (const auto& [bucket, sample] : health_) {
    auto& [sum, count] = sums[plan.buckets.at(bucket).group];
    sum.nmse += sample.nmse;
    sum.residual_ratio += sample.residual_ratio;
    ++count;
  }
  for (const auto& [group, sum] : sums) {
    known.health.push_back({.group = plan.groups[group].name,
                            .codec = policy::codec_text(plan.groups[group].policy),
                            .nmse = sum.first.nmse / sum.second,
                            .residual_ratio = sum.first.residual_ratio / sum.second});
  }
  return known;
}

double BucketRunner::squared_norm(const codec::TensorList& tensors) {
  const std::uint64_t count = tensors.count();
  const std::uint64_t tiles = tiles_of(count);
  const std::uint64_t looks = count == 0 ? 0 : looks_at(tiles);
  std::vector<double> scratch(kTileElements);  // f64 is the largest
  double sum = 0;
  for (std::uint64_t look = 0; look < looks; ++look) {
    const std::uint64_t first = look * tiles / looks * kTileElements;
    const auto n = static_cast<std::uint32_t>(std::min(kTileElements, count - first));
    const void* values = tensors.load(first, n, scratch.data());
    sum += tensors.working() == codec::Working::f64 ? squared(static_cast<const double*>(values), n)
                                                    : squared(static_cast<const float*>(values), n);
  }
  return sum;
}

}  // namespace gradwire::session
