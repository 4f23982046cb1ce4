#include "choice/codec_effect.hpp"

#include <algorithm>
#include <cmath>

namespace gradwire::choice {
namespace {

constexpr auto kPieceTile = static_cast<std::uint32_t>(codec::kTileElements);

double ratio_of_norms(double error, double norm) { return norm > 0 ? std::sqrt(error / norm) : 0; }

}  // namespace

TrialFrame::TrialFrame(const CodecSpec& spec, ConstView values, std::uint32_t first_tile, std::uint32_t step)
    : given_(values),
      codec_(spec, values.dtype),
      values_(values.dtype, codec_.working()),
      frame_(codec_.frame_bytes(values.count)),
      room_(codec_.room_bytes(values.count)),
      scratch_(kPieceTile * sizeof(double)) {
  values_.append(values.data, nullptr, values.count);
  info_.count = static_cast<std::uint32_t>(values.count);
  info_.first_tile = first_tile;
  info_.step = step;
}

template <typename PerTile>
void TrialFrame::for_each_tile(const PerTile& per_tile) const {
  for (std::uint32_t first = 0; first < info_.count; first += kPieceTile) {
    per_tile(first, std::min(kPieceTile, info_.count - first));
  }
}

void TrialFrame::encode(float* residual) {
  codec::FrameWriter writer(codec_, info_, false, frame_);
  for_each_tile([&](std::uint32_t first, std::uint32_t count) {
    if (codec_.lossy()) {
      float* const kept = residual == nullptr ? nullptr : residual + first;
      writer.write(values_.load(first, count, scratch_.data()), kept, count);
    } else {
      writer.write_verbatim(values_.load_verbatim(first, count, scratch_.data()), count);
    }
  });
  writer.finish();
  bytes_ = writer.bytes();
}

void TrialFrame::decode_and_add(float* sum) {
  codec::FrameReader reader(codec_, info_, false, std::span(frame_).first(bytes_), 0, room_);
  for_each_tile([&](std::uint32_t first, std::uint32_t count) {
    if (codec_.lossy() || codec_.dtype() == DType::f32) {
      reader.add(sum + first, count);
    } else {
      reader.read_verbatim(scratch_.data(), count);
    }
  });
}

void TrialFrame::load(float* out) const {
  codec::TensorList as_float(given_.dtype, codec::Working::f32);
  as_float.append(given_.data, nullptr, given_.count);
  for_each_tile([&](std::uint32_t first, std::uint32_t count) {
    const auto* tile = static_cast<const float*>(as_float.load(first, count, out + first));
    if (tile != out + first) {
      std::copy_n(tile, count, out + first);
    }
  });
}

void CodecEffect::add(const CodecEffect& other) noexcept {
  nonfinite += other.nonfinite;
  norm += other.norm;
  error += other.error;
  mean_norm += other.mean_norm;
  mean_error += other.mean_error;
}

double CodecEffect::relative_error() const noexcept { return ratio_of_norms(error, norm); }
double CodecEffect::relative_mean_error() const noexcept { return ratio_of_norms(mean_error, mean_norm); }

CodecEffect measure_effect(const CodecSpec& spec, DType dtype, std::uint32_t count, std::span<const void* const> steps,
                           std::uint32_t first_tile, bool feedback) {
  CodecEffect effect;
  std::vector<float> values(count);
  std::vector<float> decoded(count);
  std::vector<float> residual(count, 0.0F);
  std::vector<double> exact_sum(count, 0.0);
  // The sum over the steps of decoded minus exact values. With `feedback` each step adds the previous residual.
  std::vector<double> error_sum(count, 0.0);
  for (std::size_t step = 0; step < steps.size(); ++step) {
    TrialFrame frame(spec, {steps[step], count, dtype}, first_tile, static_cast<std::uint32_t>(step));
    frame.load(values.data());
    const auto decode = [&](float* kept) {
      std::fill(decoded.begin(), decoded.end(), 0.0F);
      frame.encode(kept);
      frame.decode_and_add(decoded.data());
    };
    if (frame.lossy()) {
      decode(nullptr);
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      const double value = values[i];
      const double difference = frame.lossy() ? decoded[i] - value : 0;
      if (std::isfinite(value) && std::isfinite(difference)) {
        effect.norm += value * value;
        effect.error += difference * difference;
      }
      effect.nonfinite += std::isfinite(value) ? 0 : 1;
      exact_sum[i] += value;
    }
    if (frame.lossy()) {
      if (feedback) {  // otherwise `decoded` has the step's values already
        decode(residual.data());
      }
      for (std::uint32_t i = 0; i < count; ++i) {
        error_sum[i] += static_cast<double>(decoded[i]) - values[i];
      }
    }
  }
  const double each = 1.0 / static_cast<double>(std::max<std::size_t>(1, steps.size()));
  for (std::uint32_t i = 0; i < count; ++i) {
    const double value = exact_sum[i] * each;
    const double difference = error_sum[i] * each;
    if (std::isfinite(value) && std::isfinite(difference)) {
      effect.mean_norm += value * value;
      effect.mean_error += difference * difference;
    }
  }
  return effect;
}

}  // namespace gradwire::choice
