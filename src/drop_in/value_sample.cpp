#include "drop_in/value_sample.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/elapsed.hpp"
#include "codec/codec.hpp"
#include "codec/tensor_list.hpp"

namespace gradwire::drop_in {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kTile = static_cast<std::uint32_t>(codec::kTileElements);
constexpr std::uint32_t kMostForMedian = 4096;  // evenly spread elements, whose median stands for that of all

template <class Body>
void for_each_tile(std::uint32_t count, const Body& body) {
  for (std::uint32_t first = 0; first < count; first += kTile) {
    body(first, std::min(kTile, count - first));
  }
}

// The median magnitude of the elements that are not zero. `scratch` has room for a tile.
float median_magnitude(const codec::TensorList& tensors, std::uint32_t count, float* scratch) {
  const std::uint32_t step = std::max<std::uint32_t>(1, count / kMostForMedian);
  std::vector<float> some;
  for_each_tile(count, [&](std::uint32_t first, std::uint32_t here) {
    const auto* values = static_cast<const float*>(tensors.load(first, here, scratch));
    for (std::uint32_t i = 0; i < here; i += step) {
      if (std::isfinite(values[i]) && values[i] != 0) {
        some.push_back(std::abs(values[i]));
      }
    }
  });
  if (some.empty()) {
    return 0;
  }
  const auto middle = some.begin() + static_cast<std::ptrdiff_t>(some.size() / 2);
  std::nth_element(some.begin(), middle, some.end());
  return *middle;
}

// NaN and Inf are left out, since codecs do not keep them.
void compare(SampledValues& sampled, const float* values, const float* decoded, std::uint32_t count, float median) {
  for (std::uint32_t i = 0; i < count; ++i) {
    const double value = values[i];
    const double error = decoded[i] - value;
    if (!std::isfinite(error)) {
      continue;
    }
    sampled.squared_norm += value * value;
    sampled.squared_error += error * error;
    sampled.elements += value != 0 ? 1 : 0;
    sampled.zeroed += value != 0 && decoded[i] == 0 ? 1 : 0;
    if (std::abs(values[i]) <= median) {
      sampled.small_squared_norm += value * value;
      sampled.small_squared_error += error * error;
    }
  }
}

}  // namespace

SampledValues sample_values(const CodecSpec& spec, ConstView input, std::size_t most_bytes) {
  const codec::Codec codec(spec, input.dtype);
  const std::size_t each = std::max(element_bytes(input.dtype), sizeof(float));
  const auto count =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(input.count, std::min(most_bytes, kMostSampledBytes) / each));
  if (count == 0 || !codec.lossy() || codec.working() != codec::Working::f32) {
    return {};
  }
  codec::TensorList tensors(input.dtype, codec::Working::f32);
  tensors.append(input.data, nullptr, count);
  std::vector<std::byte> frame(codec.frame_bytes(count));
  std::vector<float> values(count);
  std::vector<float> tile(kTile);
  SampledValues sampled{.samples = 1,
                        .bytes = static_cast<double>(count * element_bytes(input.dtype)),
                        .frame_bytes = static_cast<double>(frame.size())};
  const codec::FrameInfo info{.count = count};

  const Clock::time_point begin = Clock::now();
  codec::FrameWriter writer(codec, info, false, frame);
  for_each_tile(count, [&](std::uint32_t first, std::uint32_t some) {
    writer.write(tensors.load(first, some, tile.data()), nullptr, some);
  });
  writer.finish();
  sampled.encode_seconds = seconds_since(begin);

  const Clock::time_point middle = Clock::now();
  codec::FrameReader reader(codec, info, false, frame, 0);
  for_each_tile(count, [&](std::uint32_t first, std::uint32_t some) { reader.read(values.data() + first, some); });
  sampled.decode_seconds = seconds_since(middle);

  const float median = median_magnitude(tensors, count, tile.data());
  for_each_tile(count, [&](std::uint32_t first, std::uint32_t some) {
    compare(sampled, static_cast<const float*>(tensors.load(first, some, tile.data())), values.data() + first, some,
            median);
  });
  return sampled;
}

}  // namespace gradwire::drop_in
