// Values that a lossy codec without error feedback rounds to 0 beside larger ones, step after step: a session looks for
// them now and then, and says once which tensor has them and what mends it.
#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "base/log.hpp"
#include "base/units.hpp"
#include "codec/small_values.hpp"
#include "session/host/bucket_runner.hpp"

namespace gradwire::session {
namespace {

using codec::kTileElements;

constexpr std::uint64_t kMostTiles = 4;           // of a bucket
constexpr std::uint32_t kFirstLook = 8;           // a step; then at twice as many, and so on
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

void BucketRunner::look_at_small_values(const plan::Plan& plan, const plan::Bucket& bucket,
                                        const exchange::Task& task) {
  const codec::Codec& codec = task.call.codecs.node;
  const std::uint64_t count = task.tensors.count();
  if (told_small_values_ || info().rank != 0 || count == 0 || !looks_at(task.step) || task.call.residuals.any ||
      task.call.preconditioned || !codec.lossy() || codec.spec().k != 0 || codec.working() == codec::Working::f64) {
    return;
  }
  const std::uint64_t tiles = (count + kTileElements - 1) / kTileElements;
  const std::uint64_t looks = std::min(tiles, kMostTiles);
  std::vector<float> scratch(kTileElements);
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
  told_small_values_ = true;
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
