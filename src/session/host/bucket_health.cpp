#include "session/host/bucket_health.hpp"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "base/units.hpp"
#include "codec/small_values.hpp"
#include "memory/paged_vector.hpp"
#include "policy/stage.hpp"
#include "session/host/gradient_samples.hpp"

namespace gradwire::session {
namespace {

using codec::kTileElements;

constexpr std::uint64_t kMostTiles = 4;           // tiles of a bucket in one look
constexpr std::uint32_t kFirstLook = 8;           // the first step with a look; then each power of 2
constexpr std::uint32_t kMostBetween = 1U << 12;  // steps

bool looks_at(std::uint32_t step) {
  return step >= kFirstLook && (std::has_single_bit(step) || step % kMostBetween == 0);
}

const std::string& tensor_at(const plan::Plan& plan, const plan::Bucket& bucket, std::uint64_t element) {
  std::size_t part = 0;
  for (std::uint64_t end = 0; part + 1 < bucket.parts.size(); ++part) {
    end += bucket.parts[part].count;
    if (element < end) {
      break;
    }
  }
  return plan.tensors[bucket.parts[part].tensor].info.name;
}

}  // namespace

bool BucketHealth::due(const plan::Plan& plan, std::uint32_t bucket) const {
  constexpr std::chrono::seconds kInterval{1};
  return bucket == next_look_ % plan.buckets.size() &&
         (!looked_ || std::chrono::steady_clock::now() - *looked_ >= kInterval);
}

void BucketHealth::look(const plan::Plan& plan, const exchange::Task& task,
                        const std::optional<choice::QualitySample>& sampled, const observe::Knowledge::Memory& memory) {
  next_look_ = task.bucket + 1;
  const bool lossy = task.call.codecs.node.lossy();
  const choice::QualitySample sample = sampled ? *sampled : lossy ? sample_quality(task) : choice::QualitySample{};
  if (lossy || next_look_ == plan.buckets.size()) {
    looked_ = std::chrono::steady_clock::now();  // otherwise the next bucket has its turn at once
  }
  const MutexLock lock(mutex_);
  memory_ = memory;
  if (lossy) {
    health_[task.bucket] = sample;
  } else {
    health_.erase(task.bucket);
  }
}

observe::Knowledge BucketHealth::known(const plan::Plan& plan) const {
  observe::Knowledge known;
  const MutexLock lock(mutex_);
  known.memory = memory_;
  std::map<std::size_t, std::pair<choice::QualitySample, double>> sums;  // by group: the sums and the number of buckets
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

void SmallValueWatch::look(const plan::Plan& plan, const plan::Bucket& bucket, const exchange::Task& task) {
  const codec::Codec& codec = task.call.codecs.node;
  const std::uint64_t count = task.tensors.count();
  if (told_ || count == 0 || !looks_at(task.step) || task.call.residuals.any || task.call.preconditioned ||
      !codec.lossy() || codec.spec().k != 0 || codec.working() == codec::Working::f64) {
    return;
  }
  const std::uint64_t tiles = (count + kTileElements - 1) / kTileElements;
  const std::uint64_t looks = std::min(tiles, kMostTiles);
  memory::ScratchVector<float> scratch(kTileElements);
  codec::SmallValues all;
  std::uint64_t worst = 0;  // the first element of the tile that loses most
  std::uint64_t most = 0;
  for (std::uint64_t look = 0; look < looks; ++look) {
    const std::uint64_t first = (look * tiles / looks + task.step) % tiles * kTileElements;
    const auto n = static_cast<std::uint32_t>(std::min(kTileElements, count - first));
    const auto* values = static_cast<const float*>(task.tensors.load(first, n, scratch.data()));
    const codec::SmallValues found = codec::find_small_values(codec, {values, n});
    all.add(found);
    if (found.zeroed > most) {
      most = found.zeroed;
      worst = first;
    }
  }
  if (!all.lost()) {
    return;
  }
  told_ = true;
  const std::string& name = tensor_at(plan, bucket, worst);
  log(LogLevel::warning,
      "step " + std::to_string(task.step) + ": " + format_number(100 * all.zeroed_share(), 3) +
          "% of the gradients in a sample of bucket " + std::to_string(bucket.id) + " decode to 0 by " +
          codec.spec().to_string() + " beside larger ones of their block (NMSE of the smaller half " +
          format_number(all.small_nmse(), 2) +
          "), without error feedback, so what they stand for is not trained; write in the policy: [[rule]] match = \"" +
          (name.empty() ? "*" : name) + "\" error_feedback = \"on\" (or codec = \"bf16\"). Told once");
}

}  // namespace gradwire::session
