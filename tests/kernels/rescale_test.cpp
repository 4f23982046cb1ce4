// Compares the emulated kernels of preconditioned encoding with the host's core (codec/preconditioner.hpp): how a scale
// is rounded, and values divided and multiplied by it, bit for bit.
#include <cmath>

#include "codec/preconditioner.hpp"
#include "device_support.hpp"
#include "kernels/scale.hpp"

namespace gradwire {
namespace {

using namespace test;

// Returns values over many orders of magnitude; the special kind also has invalid scales, borders of rounding and a
// tile of zeros.
std::vector<float> scale_of(std::size_t count, Kind kind) {
  std::vector<float> scale(count);
  for (std::size_t i = 0; i < count; ++i) {
    scale[i] = static_cast<float>(std::exp(5 * std::sin(1.3 * static_cast<double>(i))));
  }
  if (kind == Kind::special) {
    const float infinity = std::numeric_limits<float>::infinity();
    const float odd[] = {0.0F,
                         -0.0F,
                         -1.0F,
                         infinity,
                         -infinity,
                         1e-30F,
                         1e-42F,
                         std::numeric_limits<float>::quiet_NaN(),
                         0x1p-16F,
                         0x1p-17F,
                         -1e30F,
                         std::nextafter(std::sqrt(2.0F), 0.0F),
                         std::sqrt(2.0F),
                         -1e-42F,
                         0x1.6a09e6p-3F,
                         1.0F};
    for (std::size_t i = 0; i < count; ++i) {
      scale[i] = i / 4096 == 1 ? 0.0F : odd[(i + i / 4096) % std::size(odd)];
    }
    for (std::size_t i = 4095; i < count; i += 3 * 4096) {  // only the last one of its tile is large
      scale[i] = std::numeric_limits<float>::max();
    }
  }
  return scale;
}

// Returns the host's reciprocals: 1 / s as powers of two.
std::vector<float> host_reciprocals(const std::vector<float>& scale) {
  codec::Preconditioner preconditioner;
  preconditioner.append(scale.data(), scale.size());
  std::vector<float> reciprocals(scale.size());
  for_each_tile(scale.size(),
                [&](std::size_t i, std::uint32_t n) { preconditioner.load_reciprocals(i, n, reciprocals.data() + i); });
  return reciprocals;
}

Memory powers_of(const std::vector<float>& scale, std::size_t shift) {
  Memory device(scale, shift * sizeof(float));
  Memory powers(scale.size());
  kernels::measure_scale(device.as<float>(), scale.size(), powers.frame(), nullptr);
  EXPECT_EQ(difference(device.bytes(), Memory(scale).bytes()), "") << "the scale itself";
  return powers;
}

// Mutations tried: the floor counts as the largest; the largest of a warp is used instead of the block's.
TEST(MeasureScale, CountsLikeTheHost) {
  for (const Kind kind : {Kind::plain, Kind::special}) {
    for (const std::size_t count : {1, 255, 256, 257, 2049, 4095, 4096, 4097, 3 * 4096 + 1000}) {
      for (const std::size_t shift : {0, 1}) {
        SCOPED_TRACE(testing::Message() << count << " elements, shift " << shift << ", kind "
                                        << static_cast<int>(kind));
        const std::vector<float> scale = scale_of(count, kind);
        const std::vector<float> wanted = host_reciprocals(scale);
        const auto powers = powers_of(scale, shift).to<std::uint8_t>();
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(kernels::scale_reciprocal(powers[i]), wanted[i]) << i << ": " << scale[i];
        }
      }
    }
  }
}

TEST(MeasureScale, BlocksTakeSeveralTiles) {
  kernels::cap_blocks(2);
  const std::vector<float> scale = scale_of(9 * 4096 + 5, Kind::special);
  const auto powers = powers_of(scale, 0).to<std::uint8_t>();
  kernels::cap_blocks(0);
  const std::vector<float> wanted = host_reciprocals(scale);
  for (std::size_t i = 0; i < scale.size(); ++i) {
    ASSERT_EQ(kernels::scale_reciprocal(powers[i]), wanted[i]) << i;
  }
  kernels::measure_scale(nullptr, 0, nullptr, nullptr);
}

struct Rescaling {
  DType from = DType::f32;
  DType to = DType::f32;
  std::size_t count = 0;
  bool divides = false;
  double factor = 1;
};

// Computes like the host's lanes: weighted, then multiplied by the scale of each tile, then stored.
std::vector<std::byte> host_rescaled(const Rescaling& r, const std::vector<std::byte>& tensor,
                                     const std::vector<float>& scale) {
  const codec::Codec exact({1, 0}, DType::f32);  // for its working type
  Values values = working_values(exact, r.from, tensor);
  codec::Preconditioner preconditioner;
  preconditioner.append(scale.data(), scale.size());
  std::vector<std::byte> out(r.count * element_bytes(r.to));
  codec::TensorList list(r.to, codec::Working::f32);
  list.append(nullptr, out.data(), r.count);
  for_each_tile(r.count, [&](std::size_t i, std::uint32_t n) {
    auto* x = static_cast<float*>(values.at(i));
    if (r.factor != 1) {
      codec::multiply(codec::Working::f32, x, r.factor, x, n);
    }
    std::vector<float> scratch(n);
    codec::TileScale tile(&preconditioner, i, n, scratch.data());
    r.divides ? tile.divide(x) : tile.multiply(x);
    list.store(i, n, x);
  });
  return out;
}

void check(const Rescaling& r, std::size_t shift, bool in_place) {
  SCOPED_TRACE(testing::Message() << to_string(r.from) << " to " << to_string(r.to) << " x " << r.count << ", shift "
                                  << shift << (r.divides ? ", divided" : ", multiplied") << " after " << r.factor);
  const std::vector<std::byte> tensor = as_tensor(r.from, inputs(r.count, 11, Kind::special));
  const std::vector<float> scale = scale_of(r.count, Kind::special);
  Memory powers = powers_of(scale, 0);
  Memory in(tensor, shift * element_bytes(r.from));
  Memory apart(in_place ? 0 : r.count * element_bytes(r.to), 2 * shift * element_bytes(r.to));
  Memory& out = in_place ? in : apart;
  kernels::DeviceStatus status;
  kernels::rescale({.from = in.data(),
                    .from_dtype = r.from,
                    .factor = r.factor,
                    .to = out.data(),
                    .to_dtype = r.to,
                    .powers = powers.frame(),
                    .count = r.count,
                    .divides = r.divides,
                    .status = &status},
                   nullptr);
  const std::vector<std::byte> wanted = host_rescaled(r, tensor, scale);
  EXPECT_EQ(difference(r.to, out.bytes(), wanted), "");
  const bool narrow = r.to == DType::f16 || r.to == DType::bf16;
  EXPECT_EQ(status.nonfinite != 0, narrow && !codec::all_finite(r.to, wanted.data(), r.count));
  EXPECT_EQ(status.bad_frames, 0U);
}

TEST(Rescale, EqualsTheHostInEveryType) {
  for (const DType from : kDTypes) {
    for (const DType to : kDTypes) {
      for (const bool divides : {false, true}) {
        check({from, to, 2 * 4096 + 300, divides, divides ? 1.7 : 1.0}, from == to ? 1 : 0, false);
      }
    }
  }
}

TEST(Rescale, InPlaceAtEveryBorder) {
  for (const std::size_t count : {0, 1, 255, 256, 257, 4096, 4097}) {
    check({.count = count, .divides = true, .factor = 0.3}, 0, true);
    check({.count = count, .divides = false}, 1, true);
  }
}

TEST(Rescale, WhatIsDividedComesBackToTheBit) {
  const std::vector<float> values = gauss(3 * 4096 + 77, 5);
  Memory powers = powers_of(scale_of(values.size(), Kind::special), 0);
  Memory memory(values);
  kernels::RescaleJob job{.from = memory.data(), .to = memory.data(), .powers = powers.frame(), .count = values.size()};
  job.divides = true;
  kernels::rescale(job, nullptr);
  EXPECT_NE(memory.to<float>(), values);
  job.divides = false;
  kernels::rescale(job, nullptr);
  EXPECT_EQ(memory.to<float>(), values);
}

// Runs one codec as a hop does: values and residual are in units of the scale before the encoder, and the residual is
// in those of the gradient after it.
class PreconditionedEncode : public ::testing::TestWithParam<Case> {};

struct Hop {
  std::size_t count;
  Kind kind = Kind::plain;
  bool residual = true;
  double weight = 1;
};

Frame host_hop(const codec::Codec& codec, const Hop& h, const std::vector<std::byte>& tensor,
               const std::vector<float>& scale, std::vector<float>& residual) {
  codec::Preconditioner preconditioner;
  preconditioner.append(scale.data(), scale.size());
  Values values = working_values(codec, DType::f32, tensor);
  Frame frame;
  frame.bytes.resize(codec.frame_bytes(h.count));
  codec::FrameWriter writer(codec, info_for(h.count), false, frame.bytes);
  for_each_tile(h.count, [&](std::size_t i, std::uint32_t n) {
    std::vector<float> scratch(n);
    codec::TileScale tile(&preconditioner, i, n, scratch.data());
    auto* x = static_cast<float*>(values.at(i));
    if (h.weight != 1) {
      codec::multiply(codec::Working::f32, x, h.weight, x, n);
    }
    tile.divide(x);
    if (h.residual) {
      tile.divide(residual.data() + i);
    }
    writer.write(x, h.residual ? residual.data() + i : nullptr, n);
    if (h.residual) {
      tile.multiply(residual.data() + i);
    }
  });
  frame.nonfinite = writer.finish();
  return frame;
}

void check(const codec::Codec& codec, const Hop& h) {
  SCOPED_TRACE(testing::Message() << h.count << " elements, residual " << h.residual << ", weight " << h.weight);
  const std::vector<std::byte> tensor = as_tensor(DType::f32, inputs(h.count, 21, h.kind));
  const std::vector<float> scale = scale_of(h.count, h.kind);
  std::vector<float> residual = gauss(h.count, 22, 0.003);
  Memory values(tensor);
  Memory kept(residual);
  Memory scaled(h.count * sizeof(float));
  Memory powers = powers_of(scale, 0);
  const Frame wanted = host_hop(codec, h, tensor, scale, residual);

  Memory frame(codec.frame_bytes(h.count));
  Call call(codec);
  kernels::RescaleJob units{.from = values.data(),
                            .factor = h.weight,
                            .to = scaled.data(),
                            .powers = powers.frame(),
                            .count = h.count,
                            .divides = true};
  kernels::rescale(units, nullptr);
  units.factor = 1;
  units.from = units.to = kept.data();
  if (h.residual) {
    kernels::rescale(units, nullptr);
  }
  kernels::encode({.call = call.fields,
                   .frame = place_of(frame, h.count),
                   .values = scaled.data(),
                   .residual = h.residual ? kept.as<float>() : nullptr},
                  nullptr);
  units.divides = false;
  if (h.residual) {
    kernels::rescale(units, nullptr);
  }
  EXPECT_EQ(difference(frame.bytes(), wanted.bytes), "");
  EXPECT_EQ(difference(kept.bytes(), Memory(residual).bytes()), "") << "residual";
  EXPECT_EQ(difference(values.bytes(), tensor), "") << "values";
  EXPECT_EQ(call.status.nonfinite != 0, wanted.nonfinite);
}

TEST_P(PreconditionedEncode, EqualsTheHost) {
  const codec::Codec codec = GetParam().codec();
  if (codec.working() == codec::Working::f64) {
    return;  // scaled values are sent as f32
  }
  for (const std::size_t count : {1, 257, 4096 + 300}) {
    check(codec, {.count = count});
  }
  check(codec, {.count = 3 * 4096 + 1000, .kind = Kind::special, .weight = 2.5});
  check(codec, {.count = 4096 + 1000, .kind = Kind::special, .residual = false, .weight = 0.3});
}

INSTANTIATE_TEST_SUITE_P(Codecs, PreconditionedEncode, ::testing::ValuesIn(device_cases()), case_name);

}  // namespace
}  // namespace gradwire
