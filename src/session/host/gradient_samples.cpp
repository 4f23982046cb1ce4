#include "session/host/gradient_samples.hpp"

#include <algorithm>
#include <cmath>

#include "memory/paged_vector.hpp"

namespace gradwire::session {
namespace {

using codec::kTileElements;

constexpr std::uint64_t kSampledTiles = 64;  // at most
constexpr std::uint64_t kTilesALook = 16;    // one of so many tiles is sampled, which costs a sixteenth of an encoding

template <typename T>
double squared(const T* values, std::uint32_t count) {
  double sum = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  return sum;
}

std::uint64_t tiles_of(std::uint64_t count) { return (count + kTileElements - 1) / kTileElements; }

// Returns how many of the tiles are looked at.
std::uint64_t looks_at(std::uint64_t tiles) { return std::clamp<std::uint64_t>(tiles / kTilesALook, 1, kSampledTiles); }

}  // namespace

choice::QualitySample sample_quality(const exchange::Task& task) {
  const codec::Codec& codec = task.call.codecs.node;  // between nodes, or the only codec
  if (codec.working() == codec::Working::f64) {
    return {};  // f64 travels exactly
  }
  const std::uint64_t count = task.tensors.count();
  const std::uint64_t tiles = tiles_of(count);
  const std::uint64_t looks = looks_at(tiles);
  memory::ScratchVector<float> values(kTileElements);
  memory::ScratchVector<float> residual(kTileElements);
  memory::ScratchVector<float> scratch(kTileElements);
  memory::ScratchVector<std::byte> frame(codec.frame_bytes(kTileElements));
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
    if (task.call.preconditioned) {  // the values as the codec sees them
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
    codec::FrameWriter writer(codec, info, false, std::span(frame.data(), frame.size()).first(codec.frame_bytes(n)));
    writer.write(values.data(), residual.data(), n);
    writer.finish();
    dropped2 += squared(residual.data(), n);
  }
  if (!std::isfinite(encoded2) || encoded2 == 0 || gradient2 == 0) {
    return {};  // such a step says nothing
  }
  return {.nmse = dropped2 / encoded2, .residual_ratio = std::sqrt(before2 / gradient2)};
}

double squared_norm(const codec::TensorList& tensors) {
  const std::uint64_t count = tensors.count();
  const std::uint64_t tiles = tiles_of(count);
  const std::uint64_t looks = count == 0 ? 0 : looks_at(tiles);
  memory::ScratchVector<double> scratch(kTileElements);  // f64 is the largest
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
