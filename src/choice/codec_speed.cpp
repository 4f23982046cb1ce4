#include "choice/codec_speed.hpp"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "choice/quickest.hpp"
#include "codec/codec.hpp"

namespace gradwire::choice {
namespace {

constexpr auto kTile = static_cast<std::uint32_t>(codec::kTileElements);

std::vector<float> gaussian(std::uint32_t count) {
  std::mt19937 random(1);  // NOLINT(cert-msc51-cpp): the same on every rank and run
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  std::generate(values.begin(), values.end(), [&] { return normal(random); });
  return values;
}

}  // namespace

exchange::CodecCost measure_codec(const CodecSpec& spec, bool feedback, std::chrono::nanoseconds budget,
                                  std::uint32_t tiles) {
  const std::uint32_t elements = tiles * kTile;
  const codec::Codec codec(spec, DType::f32);
  std::vector<float> values = gaussian(elements);
  std::vector<float> residual(elements, 0.0F);
  std::vector<std::byte> frame(codec.frame_bytes(elements));
  std::vector<std::byte> room(codec.room_bytes(elements));
  codec::FrameInfo info{.count = elements};
  std::uint64_t bytes = 0;
  const double encode = quickest_seconds(budget / 2, [&] {
    codec::FrameWriter writer(codec, info, false, frame);
    for (std::uint32_t first = 0; first < elements; first += kTile) {
      writer.write(values.data() + first, feedback ? residual.data() + first : nullptr, kTile);
    }
    writer.finish();
    bytes = writer.bytes();
  });
  const double decode = quickest_seconds(budget / 2, [&] {
    codec::FrameReader reader(codec, info, false, std::span(frame).first(bytes), 0, room);
    for (std::uint32_t first = 0; first < elements; first += kTile) {
      reader.add(values.data() + first, kTile);
    }
  });
  return {.bytes = static_cast<double>(bytes) / elements,
          .encode_seconds = encode / elements,
          .decode_seconds = decode / elements};
}

}  // namespace gradwire::choice
