// Emulated decoding against the host's frame reader, and what becomes of damaged frames.
#include "device_support.hpp"
#include "gradwire/error.hpp"

namespace gradwire {
namespace {

using namespace test;

constexpr std::size_t kDecodeCounts[] = {0, 1, 129, 255, 256, 257, 4095, 4096, 4097};

class Decode : public ::testing::TestWithParam<Case> {};

// What FrameReader makes of `frame`, in elements of `dtype`.
std::vector<std::byte> host_values(const codec::Codec& codec, const Frame& frame, std::size_t count, DType dtype,
                                   const Values* onto) {
  std::vector<std::byte> tensor(count * element_bytes(dtype));
  if (onto == nullptr && !codec.lossy() && codec.dtype() == dtype) {
    codec::FrameReader reader(codec, info_for(count), false, frame.bytes, 1);
    for_each_tile(count, [&](std::size_t i, std::uint32_t n) {
      reader.read_verbatim(tensor.data() + i * element_bytes(dtype), n);
    });
    return tensor;
  }
  const Values values = decode(codec, frame, count, onto, false);
  codec::TensorList list(dtype, codec.working());
  list.append(nullptr, tensor.data(), count);
  for_each_tile(count, [&](std::size_t i, std::uint32_t n) { list.store(i, n, values.at(i)); });
  return tensor;
}

void check(const Case& c, std::size_t count, DType dtype, bool add, Kind kind, std::size_t shift) {
  SCOPED_TRACE(testing::Message() << count << " elements of " << to_string(dtype) << ", shift " << shift << ", add "
                                  << add << ", kind " << static_cast<int>(kind));
  const codec::Codec codec = c.codec();
  const Frame frame = encode(codec, Values(codec.working(), inputs(count, 4, kind)), nullptr, false);
  const std::vector<std::byte> before = as_tensor(dtype, inputs(count, 9, Kind::special));
  const Values onto = working_values(codec, dtype, before);
  const std::vector<std::byte> wanted = host_values(codec, frame, count, dtype, add ? &onto : nullptr);

  Memory values(before, shift * element_bytes(dtype));
  Memory bytes(frame.bytes);
  Call call(codec);
  kernels::decode({.call = call.fields,
                   .frame = place_of(bytes, count),
                   .values = values.data(),
                   .values_dtype = dtype,
                   .add = add},
                  nullptr);
  EXPECT_EQ(difference(dtype, values.bytes(), wanted), "");
  EXPECT_EQ(difference(bytes.bytes(), frame.bytes), "") << "frame";
  EXPECT_EQ(call.status.bad_frames, 0U);
  if (frame.nonfinite) {
    EXPECT_NE(call.status.nonfinite, 0U);
  }
}

DType working_dtype(const Case& c) { return c.codec().working() == codec::Working::f64 ? DType::f64 : DType::f32; }

TEST_P(Decode, EqualsTheHostAtEveryBorder) {
  for (const std::size_t count : kDecodeCounts) {
    check(GetParam(), count, GetParam().dtype, false, Kind::plain, 0);
  }
}

TEST_P(Decode, AddsLikeTheHost) {
  for (const std::size_t count : {1, 257, 4096 + 300}) {
    check(GetParam(), count, working_dtype(GetParam()), true, Kind::plain, 0);
  }
}

TEST_P(Decode, EqualsTheHostOnSpecialValues) {
  const std::size_t count = 3 * 4096 + 1000;
  check(GetParam(), count, GetParam().dtype, false, Kind::special, 0);
  check(GetParam(), count, working_dtype(GetParam()), true, Kind::special, 1);
}

TEST_P(Decode, StoresEveryDtype) {
  if (working_dtype(GetParam()) == DType::f64) {
    return;
  }
  for (const DType dtype : kDTypes) {
    check(GetParam(), 4096 + 300, dtype, false, Kind::special, 1);
  }
}

// A bit of every word of the header, in turn: all values are NaN and the status says whose frame it was.
TEST_P(Decode, AFrameWithAnotherHeaderIsNan) {
  const codec::Codec codec = GetParam().codec();
  const std::size_t count = 300;
  const Frame frame = encode(codec, Values(codec.working(), gauss(count, 4)), nullptr, false);
  for (std::size_t byte = 0; byte < wire::kHeaderBytes; byte += 3) {
    Memory bytes(frame.bytes);
    bytes.data()[byte] ^= std::byte{0x10};
    Memory values(as_tensor(GetParam().dtype, gauss(count, 9)));
    Call call(codec);
    kernels::decode({.call = call.fields,
                     .frame = place_of(bytes, count, 0, 0, 6),
                     .values = values.data(),
                     .values_dtype = GetParam().dtype},
                    nullptr);
    const Values got = working_values(codec, GetParam().dtype, values.bytes());
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_TRUE(std::isnan(got[i])) << "byte " << byte << ", element " << i;
    }
    EXPECT_EQ(call.status.bad_frames, 1U) << byte;
    EXPECT_EQ(call.status.first_bad, 7U);
    EXPECT_NE(call.status.nonfinite, 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, Decode, ::testing::ValuesIn(device_cases()), case_name);

TEST(DecodeFrame, WithACrcIsBad) {
  const codec::Codec codec({codec::find_codec("int8")->id, 0}, DType::f32);
  const Frame frame = encode(codec, Values(codec.working(), gauss(10, 4)), nullptr, true);
  Memory bytes(frame.bytes);
  Memory values(40);
  Call call(codec);
  kernels::decode({.call = call.fields, .frame = place_of(bytes, 10), .values = values.data()}, nullptr);
  EXPECT_EQ(call.status.bad_frames, 1U);
}

// Any payload decodes to something, inside the values.
TEST_P(Decode, AnyPayloadIsDecodedLikeOnTheHost) {
  if (GetParam().k != 0) {
    return;  // whose indices are checked
  }
  const codec::Codec codec = GetParam().codec();
  const std::size_t count = 4096 + 130;
  Frame frame = encode(codec, Values(codec.working(), gauss(count, 4)), nullptr, false);
  std::mt19937 random(3);
  for (std::size_t i = wire::kHeaderBytes; i < frame.bytes.size(); ++i) {
    frame.bytes[i] = static_cast<std::byte>(random());
  }
  const DType dtype = GetParam().dtype;
  Memory bytes(frame.bytes);
  Memory values(count * element_bytes(dtype));
  Call call(codec);
  kernels::decode(
      {.call = call.fields, .frame = place_of(bytes, count), .values = values.data(), .values_dtype = dtype}, nullptr);
  EXPECT_EQ(difference(dtype, values.bytes(), host_values(codec, frame, count, dtype, nullptr)), "");
}

void set_index(std::vector<std::byte>& frame, std::size_t j, std::uint32_t index) {
  auto* at = reinterpret_cast<std::uint8_t*>(frame.data()) + wire::kHeaderBytes + j / 2 * 3;
  if (j % 2 == 0) {
    at[0] = static_cast<std::uint8_t>(index);
    at[1] = static_cast<std::uint8_t>((at[1] & 0xF0U) | index >> 8);
  } else {
    at[1] = static_cast<std::uint8_t>((at[1] & 0x0FU) | (index & 15U) << 4);
    at[2] = static_cast<std::uint8_t>(index >> 4);
  }
}

// Indices twice, out of order, beyond a short tile, with bits set behind an odd last one: the host refuses each, here
// the tile is NaN, also where it is to be added.
TEST(DecodeTopk, RefusesIndicesThatTheHostRefuses) {
  const codec::Codec codec({codec::find_codec("int8")->id, 41}, DType::f32);
  const std::size_t count = 300;  // keeps 3
  const Frame good = encode(codec, Values(codec.working(), gauss(count, 4)), nullptr, false);
  const std::vector<std::vector<std::uint32_t>> damages = {{7, 7, 9}, {9, 7, 20}, {1, 2, 300}, {1, 2, 4095}, {1, 2, 0}};
  for (std::size_t d = 0; d <= damages.size(); ++d) {
    Frame frame = good;
    if (d < damages.size()) {
      for (std::size_t j = 0; j < 3; ++j) {
        set_index(frame.bytes, j, damages[d][j]);
      }
    } else {
      frame.bytes[wire::kHeaderBytes + 4] |= std::byte{0x10};
    }
    EXPECT_THROW(decode(codec, frame, count, nullptr, false), Error) << d;
    for (const bool add : {false, true}) {
      Memory bytes(frame.bytes);
      Memory values(as_tensor(DType::f32, gauss(count, 9)));
      Call call(codec);
      kernels::decode(
          {.call = call.fields, .frame = place_of(bytes, count, 0, 0, 2), .values = values.data(), .add = add},
          nullptr);
      const auto got = values.to<float>();
      EXPECT_TRUE(std::all_of(got.begin(), got.end(), [](float x) { return std::isnan(x); })) << d;
      EXPECT_EQ(call.status.bad_frames, 1U) << d;
      EXPECT_EQ(call.status.first_bad, 3U);
    }
  }
}

}  // namespace
}  // namespace gradwire
