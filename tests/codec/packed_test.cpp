// Tests exact+zstd: every element comes back bit by bit, no frame is larger than that of exact, and damage is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "codec/byte_planes.hpp"
#include "codec/zstd.hpp"
#include "codec/zstd_functions.hpp"
#include "codec_support.hpp"
#include "gradwire/error.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/small_stack.hpp"

#if __has_include(<zstd.h>)
#include <zstd.h>
#endif

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const CodecSpec kPackedExact = CodecSpec::parse("exact+zstd");

// Bytes of elements as a tensor stores them.
using Stored = std::vector<std::byte>;

struct Written {
  Stored frame;
  std::uint64_t most = 0;  // the bytes that the writer was given
};

Written write(CodecSpec spec, DType dtype, const Stored& elements, bool checksum = true) {
  const codec::Codec codec(spec, dtype);
  const std::size_t count = elements.size() / element_bytes(dtype);
  Written written{Stored(codec.frame_bytes(count)), codec.frame_bytes(count)};
  codec::FrameWriter writer(codec, info_for(count), checksum, written.frame);
  for_each_tile(count, [&](std::size_t first, std::uint32_t n) {
    writer.write_verbatim(elements.data() + first * element_bytes(dtype), n);
  });
  writer.finish();
  written.frame.resize(writer.bytes());
  return written;
}

Stored read(DType dtype, const Stored& frame, std::size_t count, std::span<std::byte> room = {}, bool checksum = true) {
  const codec::Codec codec(kPackedExact, dtype);
  Stored elements(count * element_bytes(dtype));
  codec::FrameReader reader(codec, info_for(count), checksum, frame, 1, room);
  for_each_tile(count, [&](std::size_t first, std::uint32_t n) {
    reader.read_verbatim(elements.data() + first * element_bytes(dtype), n);
  });
  return elements;
}

// Elements of a kind, as bytes of the dtype.
struct Kind {
  const char* name;
  std::function<double(std::mt19937_64&)> next;
  bool shrinks;  // in frames of thousands of elements
};
const std::vector<Kind>& kinds() {
  static std::normal_distribution<double> normal;
  static const std::vector<Kind> all{
      {"gauss", [](std::mt19937_64& random) { return 1e-3 * normal(random); }, true},
      {"zeros", [](std::mt19937_64&) { return 0.0; }, true},
      {"half of them zeros", [](std::mt19937_64& random) { return random() % 2 == 0 ? 0.0 : 1e-3 * normal(random); },
       true},
      {"one of two values", [](std::mt19937_64& random) { return random() % 2 == 0 ? 1.0 : -3.0; }, true},
  };
  return all;
}

Stored stored(const Kind& kind, DType dtype, std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  const codec::Codec exact(CodecSpec::exact(), dtype);
  Values values(exact.working(), count);
  for (std::size_t i = 0; i < count; ++i) {
    values.set(i, kind.next(random));
  }
  Stored elements = encode(exact, values, nullptr, false).payload();
  elements.resize(count * element_bytes(dtype));
  return elements;
}

Stored noise(std::size_t bytes, unsigned seed) {
  std::mt19937_64 random(seed);
  Stored all(bytes);
  std::generate(all.begin(), all.end(), [&] { return static_cast<std::byte>(random()); });
  return all;
}

bool is_packed(const Stored& frame) { return (std::to_integer<int>(frame[6]) & wire::kFlagLength) != 0; }

// Mutation tried: split() drops the last plane.
TEST(Packed, EveryElementComesBackAndNoFrameIsLargerThanExact) {
  for (const DType dtype : kDTypes) {
    for (const Kind& kind : kinds()) {
      for (const std::size_t count : {0U, 1U, 2U, 31U, 255U, 4095U, 4096U, 4097U, 14'336U, 100'003U}) {
        SCOPED_TRACE(std::string(kind.name) + ", " + std::string(to_string(dtype)) + ", " + std::to_string(count));
        const Stored elements = stored(kind, dtype, count, 12);
        const Stored frame = write(kPackedExact, dtype, elements).frame;
        const Stored exact = write(CodecSpec::exact(), dtype, elements).frame;
        EXPECT_EQ(read(dtype, frame, count), elements);
        EXPECT_LE(frame.size(), exact.size());
        EXPECT_EQ(is_packed(frame), frame.size() < exact.size());
        EXPECT_TRUE(count < 4095 || !kind.shrinks || is_packed(frame));
      }
    }
  }
}

TEST(Packed, GaussianGradientsShrinkByTheirExponents) {
  const auto ratio = [](DType dtype, std::size_t which) {
    const Written written = write(kPackedExact, dtype, stored(kinds()[which], dtype, 14'336, 5));
    return static_cast<double>(written.most) / static_cast<double>(written.frame.size());
  };
  // Mutation tried: zstd takes matches of 5 bytes, as its level 1 does; each ratio is less then.
  EXPECT_GT(ratio(DType::f32, 0), 1.185);
  EXPECT_GT(ratio(DType::bf16, 0), 1.46);
  EXPECT_GT(ratio(DType::f32, 2), 1.77);
  EXPECT_GT(ratio(DType::f32, 1), 200);
}

// A frame that does not shrink has the bytes of one of exact, apart from the codec's number.
TEST(Packed, NoiseIsSentAsItIs) {
  for (const DType dtype : kDTypes) {
    const std::size_t count = 9000;
    const Stored elements = noise(count * element_bytes(dtype), 3);
    Stored frame = write(kPackedExact, dtype, elements, false).frame;
    EXPECT_EQ(read(dtype, frame, count, {}, false), elements) << "bits of NaN too";
    EXPECT_EQ(std::to_integer<int>(frame[7]), 9);
    frame[7] = std::byte{1};
    EXPECT_EQ(frame, write(CodecSpec::exact(), dtype, elements, false).frame);
  }
}

// One plane looks as if it would shrink and does not: the frame must come out as if nobody had tried.
TEST(Packed, ElementsAreAsBeforeWhereAnAttemptFails) {
  const codec::Elements elements{300, 4};
  Stored values = noise(elements.bytes(), 8);
  for (std::size_t i = 0; i < elements.count; i += 3) {
    values[4 * i + 3] = std::byte{0};
  }
  const Stored before = values;
  for (const std::size_t bytes : {0U, 16U, 17U, 300U, 900U, 1190U}) {
    EXPECT_EQ(codec::pack(values.data(), elements, std::span(values).first(bytes)), 0U) << bytes;
    EXPECT_EQ(values, before) << bytes;
  }
}

TEST(Packed, ValuesAreReadAndAddedAsThoseOfExact) {
  for (const DType dtype : kDTypes) {
    const codec::Codec packed(kPackedExact, dtype);
    const codec::Codec exact(CodecSpec::exact(), dtype);
    Values values(packed.working(), gauss(10'000, 9));
    const Values onto(packed.working(), gauss(10'000, 10));
    values.set(77, std::numeric_limits<double>::infinity());
    const Frame frame = encode(packed, values);
    EXPECT_TRUE(is_packed(frame.bytes));
    EXPECT_TRUE(frame.nonfinite);
    EXPECT_TRUE(decode(packed, frame, 10'000).same(decode(exact, encode(exact, values), 10'000)));
    EXPECT_TRUE(decode(packed, frame, 10'000, &onto).same(decode(exact, encode(exact, values), 10'000, &onto)));
  }
}

TEST(Packed, AReaderUsesTheRoomThatItIsGiven) {
  const Stored elements = stored(kinds()[0], DType::f32, 14'336, 4);
  const Stored frame = write(kPackedExact, DType::f32, elements).frame;
  const codec::Codec codec(kPackedExact, DType::f32);
  EXPECT_EQ(codec.room_bytes(14'336), elements.size());
  EXPECT_EQ(codec::Codec(CodecSpec::exact(), DType::f32).room_bytes(14'336), 0U);
  Stored room(codec.room_bytes(14'336) + 8, std::byte{0x77});
  EXPECT_EQ(read(DType::f32, frame, 14'336, std::span(room).first(elements.size())), elements);
  EXPECT_NE(room[elements.size() - 1], std::byte{0x77}) << "the last plane was unpacked there";
  EXPECT_EQ(room[elements.size()], std::byte{0x77});
}

class DamagedPacked : public ::testing::Test {
 protected:
  static constexpr std::size_t kCount = 5000;
  static constexpr std::size_t kSizes = 48;  // the sizes of the planes begin here, the planes 16 bytes later
  const Stored good_ = write(kPackedExact, DType::f32, stored(kinds()[0], DType::f32, kCount, 6), false).frame;

  [[nodiscard]] std::uint32_t size_of(std::size_t plane) const {
    std::uint32_t bytes = 0;
    std::memcpy(&bytes, good_.data() + kSizes + 4 * plane, sizeof bytes);
    return bytes;
  }
  static void set(Stored& frame, std::size_t at, std::uint64_t value, std::size_t bytes) {
    std::memcpy(frame.data() + at, &value, bytes);
  }
  static void expect_corrupt(const Stored& frame, const std::string& what) {
    const Error error = error_of([&] { read(DType::f32, frame, kCount, {}, false); });
    EXPECT_EQ(error.code(), ErrorCode::corrupt) << error.what();
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1"), HasSubstr(what)));
  }
};

TEST_F(DamagedPacked, EachRuleHasItsError) {
  ASSERT_TRUE(is_packed(good_));
  ASSERT_EQ(size_of(0), kCount);
  ASSERT_LT(size_of(3), kCount);
  Stored frame = good_;
  set(frame, kSizes + 12, kCount + 1, 4);
  expect_corrupt(frame, "byte plane 3 has 5001 bytes for 5000 elements");
  set(frame, kSizes + 12, size_of(3) + 1, 4);
  expect_corrupt(frame, "it ends too early");
  set(frame, kSizes + 12, size_of(3) - 1, 4);
  expect_corrupt(frame, "byte plane 3 cannot be decompressed to 5000 bytes");
  frame = good_;
  frame[kSizes + 16 + 3 * kCount] ^= std::byte{1};  // zstd's magic number
  expect_corrupt(frame, "byte plane 3 cannot be decompressed to 5000 bytes");
  frame = good_;
  frame.push_back(std::byte{0});
  set(frame, 32, frame.size() - 48, 8);
  expect_corrupt(frame, "1 bytes too many");
  frame = good_;
  frame.resize(60);
  set(frame, 32, 12, 8);
  expect_corrupt(frame, "it ends too early");
  frame = good_;
  frame.resize(32 + 4 * kCount);
  set(frame, 32, frame.size() - 48, 8);
  expect_corrupt(frame, "is packed and has");
  frame = good_;
  frame[6] = std::byte{0};  // not packed, and too short for that
  expect_corrupt(frame, "elements need");
}

// A plane that unpacks to more bytes than there are elements must not be written past its end: the sanitizers see that.
TEST_F(DamagedPacked, APlaneOfTooManyBytesIsRefused) {
  const Stored other = write(kPackedExact, DType::f32, stored(kinds()[0], DType::f32, kCount + 1, 6), false).frame;
  Stored frame = other;
  set(frame, 12, kCount, 4);  // the count
  for (std::size_t plane = 0; plane < 3; ++plane) {
    set(frame, kSizes + 4 * plane, kCount, 4);
  }
  // Each plane that is stored as it is loses its last byte.
  for (std::size_t plane = 0; plane < 3; ++plane) {
    frame.erase(frame.begin() + static_cast<std::ptrdiff_t>(kSizes + 16 + (plane + 1) * kCount));
  }
  set(frame, 32, frame.size() - 48, 8);
  expect_corrupt(frame, "byte plane 3 cannot be decompressed to 5000 bytes");
}

// Any other damage gives other values or a named error, never a crash.
TEST_F(DamagedPacked, AnyByteMayBeWrong) {
  std::mt19937 random(31);
  for (std::size_t round = 0; round < 2000; ++round) {
    Stored frame = good_;
    for (std::size_t edits = 1 + random() % 3; edits > 0; --edits) {
      frame[kSizes + random() % (random() % 4 == 0 ? 16 : frame.size() - kSizes)] = static_cast<std::byte>(random());
    }
    try {
      static_cast<void>(read(DType::f32, frame, kCount, {}, false));
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::corrupt) << error.what() << ", seed 31, round " << round;
    }
  }
}

TEST(Packed, BehindTopkItIsRefused) {
  const Error spec = error_of([] { static_cast<void>(CodecSpec::parse("topk(1%)+exact+zstd")); });
  EXPECT_EQ(spec.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(spec.what(), HasSubstr("write +exact"));
  const Error codec = error_of([] { static_cast<void>(codec::Codec({9, 41}, DType::f32)); });
  EXPECT_EQ(codec.code(), ErrorCode::unsupported);
  EXPECT_EQ(CodecSpec::parse("exact+zstd").to_string(), "exact+zstd");
  EXPECT_THAT(codec::codec_names(), HasSubstr("exact, exact+zstd, bf16"));
}

#ifndef GRADWIRE_SANITIZED  // sanitizers have larger frames
TEST(Packed, ASmallStackSuffices) {
  const Stored elements = stored(kinds()[2], DType::f32, 14'336, 4);
  Stored back;
  run_on_stack_of(32768, [&] { back = read(DType::f32, write(kPackedExact, DType::f32, elements).frame, 14'336); });
  EXPECT_EQ(back, elements);
}
#endif

#if __has_include(<zstd.h>)
TEST(Packed, DeclarationsAreThoseOfTheHeader) {
  static_assert(codec::zstd::kCompressionLevel == ZSTD_c_compressionLevel);
  static_assert(codec::zstd::kHashLog == ZSTD_c_hashLog);
  static_assert(codec::zstd::kMinMatch == ZSTD_c_minMatch);
  static_assert(sizeof(ZSTD_cParameter) == sizeof(int));
  // This uses types alone: the test does not link the library.
  using Functions = codec::zstd::Functions<ZSTD_CCtx, ZSTD_DCtx, ZSTD_cParameter>;
  static_assert(std::is_same_v<decltype(Functions::create_compression), decltype(&ZSTD_createCCtx)>);
  static_assert(std::is_same_v<decltype(Functions::free_compression), decltype(&ZSTD_freeCCtx)>);
  static_assert(std::is_same_v<decltype(Functions::set_parameter), decltype(&ZSTD_CCtx_setParameter)>);
  static_assert(std::is_same_v<decltype(Functions::compress), decltype(&ZSTD_compress2)>);
  static_assert(std::is_same_v<decltype(Functions::create_decompression), decltype(&ZSTD_createDCtx)>);
  static_assert(std::is_same_v<decltype(Functions::free_decompression), decltype(&ZSTD_freeDCtx)>);
  static_assert(std::is_same_v<decltype(Functions::decompress), decltype(&ZSTD_decompressDCtx)>);
  static_assert(std::is_same_v<decltype(Functions::is_error), decltype(&ZSTD_isError)>);
  Functions functions;
  std::vector<std::string> names;
  functions.for_each([&](const char* name, auto&) { names.emplace_back(name); });
  EXPECT_EQ(names,
            (std::vector<std::string>{"ZSTD_createCCtx", "ZSTD_freeCCtx", "ZSTD_CCtx_setParameter", "ZSTD_compress2",
                                      "ZSTD_createDCtx", "ZSTD_freeDCtx", "ZSTD_decompressDCtx", "ZSTD_isError"}));
}
#endif

}  // namespace
}  // namespace gradwire::test
