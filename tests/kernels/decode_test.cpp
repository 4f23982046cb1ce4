// Compares emulated decoding with the host's frame reader, and tests damaged frames.
#include "device_support.hpp"
#include "gradwire/error.hpp"
#include "kernels/topk.hpp"

namespace gradwire {
namespace {

using namespace test;

constexpr std::size_t kDecodeCounts[] = {0, 1, 129, 255, 256, 257, 4095, 4096, 4097};

class Decode : public ::testing::TestWithParam<Case> {};

// Returns the values that FrameReader decodes from `frame`, as elements of `dtype`.
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

// One bit of every word of the header is flipped in turn: all values are NaN, and the status names the sender of the
// frame.
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

// Any payload decodes to some values, without writing outside of them.
TEST_P(Decode, AnyPayloadIsDecodedLikeOnTheHost) {
  if (GetParam().k != 0) {
    return;  // the checks refuse its indices
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

// Each bit of the indices of a frame is flipped: a frame that the host refuses is NaN here, even if it is to be added;
// one that the host accepts gives the same values here.
TEST(DecodeTopk, RefusesIndicesThatTheHostRefuses) {
  struct Shape {
    std::size_t count;
    std::uint16_t k;
  };
  unsigned refused = 0;
  unsigned accepted = 0;
  for (const Shape& shape : {Shape{300, 41}, Shape{4096, 41}, Shape{2000, 900}, Shape{130, 3000}, Shape{1, 1}}) {
    const codec::Codec codec({codec::find_codec("int8")->id, shape.k}, DType::f32);
    const Frame good = encode(codec, Values(codec.working(), gauss(shape.count, 4)), nullptr, false);
    const auto count = static_cast<std::uint32_t>(shape.count);
    const std::size_t bits = std::size_t{8} * kernels::EliasFano::bytes(count, kernels::selected_count(shape.k, count));
    for (std::size_t bit = 0; bit<bits; bit += bits> 500 ? 7 : 1) {
      SCOPED_TRACE(testing::Message() << shape.k << " of " << count << ", bit " << bit);
      Frame frame = good;
      frame.bytes[wire::kHeaderBytes + bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      const bool add = bit % 2 == 0;
      const std::vector<std::byte> before = as_tensor(DType::f32, gauss(count, 9));
      const Values onto = working_values(codec, DType::f32, before);
      std::optional<Values> wanted;
      try {
        wanted = decode(codec, frame, count, add ? &onto : nullptr, false);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::corrupt);
      }
      Memory bytes(frame.bytes);
      Memory values(before);
      Call call(codec);
      kernels::decode(
          {.call = call.fields, .frame = place_of(bytes, count, 0, 0, 2), .values = values.data(), .add = add},
          nullptr);
      const auto got = values.to<float>();
      EXPECT_EQ(call.status.bad_frames, wanted ? 0U : 1U);
      EXPECT_EQ(call.status.first_bad, wanted ? 0U : 3U);
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_TRUE(wanted ? got[i] == (*wanted)[i] : std::isnan(got[i])) << i;
      }
      ++(wanted ? accepted : refused);
    }
  }
  EXPECT_GT(refused, 100U);
  EXPECT_GT(accepted, 100U);
}

}  // namespace
}  // namespace gradwire
