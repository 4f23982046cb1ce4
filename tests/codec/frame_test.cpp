// Tests which frames the reader refuses, with which errors, and what the writer refuses as misuse. It names no codec.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/environment.hpp"
#include "codec_support.hpp"
#include "gradwire/error.hpp"
#include "kernels/topk.hpp"
#include "wire/crc32c.hpp"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kCount = codec::kTileElements + 50;

class Frames : public ::testing::TestWithParam<Case> {
 protected:
  codec::Codec codec_ = GetParam().codec();
  Values values_{codec_.working(), gauss(kCount, 81)};

  void expect_refused(const std::vector<std::byte>& frame, const codec::FrameInfo& expected, bool checksum,
                      ErrorCode code, const std::string& what) const {
    try {
      codec::FrameReader reader(codec_, expected, checksum, frame, 5);
      ADD_FAILURE() << "accepted; expected: " << what;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 5"), HasSubstr(what)));
    }
  }
};

TEST_P(Frames, AnotherCallIsAMismatchWithBothValues) {
  const auto frame = encode(codec_, values_).bytes;
  auto expected = info_for(kCount);
  expected.bucket = 4;
  expect_refused(frame, expected, true, ErrorCode::mismatch, "bucket 3 where 4 was expected");
  expected = info_for(kCount);
  expected.step = 18;
  expect_refused(frame, expected, true, ErrorCode::mismatch, "step 17 where 18 was expected");
  expected = info_for(kCount, 9);
  expect_refused(frame, expected, true, ErrorCode::mismatch, "first tile 0 where 9 was expected");
  expected = info_for(kCount - 1);
  expect_refused(frame, expected, true, ErrorCode::mismatch, "count 4146 where 4145 was expected");
  expected = info_for(kCount);
  expected.hop = 1;
  expect_refused(frame, expected, true, ErrorCode::mismatch, "hop 0 where 1 was expected");
  expected = info_for(kCount);
  expected.epoch = 7;
  expect_refused(frame, expected, true, ErrorCode::mismatch, "epoch 0 where 7 was expected");
}

TEST_P(Frames, AnotherCodecOrDtypeIsAMismatch) {
  for (const Case& other : all_cases()) {
    const bool codec = other.spec() != GetParam().spec();
    if (!codec && other.dtype == GetParam().dtype) {
      continue;
    }
    const auto frame = encode(other.codec(), Values(other.codec().working(), gauss(kCount, 82))).bytes;
    const std::string got =
        codec ? "codec " + other.spec().to_string() : "dtype " + std::string(to_string(other.dtype));
    const std::string wanted = codec ? GetParam().spec().to_string() : std::string(to_string(GetParam().dtype));
    expect_refused(frame, info_for(kCount), true, ErrorCode::mismatch, got + " where " + wanted);
  }
}

TEST_P(Frames, DamageIsCorrupt) {
  const auto good = encode(codec_, values_).bytes;
  const auto expected = info_for(kCount);
  for (std::size_t byte = 0; byte < good.size(); byte += byte < 64 ? 1 : 211) {
    auto frame = good;
    frame[byte] ^= std::byte{0x10};
    const bool version = byte == 4;
    expect_refused(frame, expected, true, version ? ErrorCode::mismatch : ErrorCode::corrupt, "frame");
  }
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{31}, std::size_t{32}, good.size() - 1}) {
    expect_refused({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(bytes)}, expected, true,
                   ErrorCode::corrupt, std::to_string(bytes) + " bytes");
  }
}

TEST_P(Frames, WrongLengthIsCorruptWithoutCrcToo) {
  auto frame = encode(codec_, values_, nullptr, false).bytes;
  frame.resize(frame.size() + 16);
  expect_refused(frame, info_for(kCount), false, ErrorCode::corrupt, std::to_string(frame.size()) + " bytes");
  frame.resize(frame.size() - 32);
  expect_refused(frame, info_for(kCount), false, ErrorCode::corrupt, std::to_string(frame.size()) + " bytes");
}

TEST_P(Frames, MissingCrcIsAMismatchAndAnExtraOneIsChecked) {
  expect_refused(encode(codec_, values_, nullptr, false).bytes, info_for(kCount), true, ErrorCode::mismatch, "no CRC");
  auto frame = encode(codec_, values_, nullptr, true);
  EXPECT_NO_THROW((void)decode(codec_, frame, kCount, nullptr, false));
  frame.bytes.back() ^= std::byte{1};
  expect_refused(frame.bytes, info_for(kCount), false, ErrorCode::corrupt, "CRC");
}

TEST_P(Frames, EmptyFrame) {
  const Frame frame = encode(codec_, Values(codec_.working(), 0));
  EXPECT_EQ(frame.bytes.size(), wire::kHeaderBytes);
  codec::FrameReader reader(codec_, info_for(0), true, frame.bytes, 0);
  EXPECT_NO_THROW(reader.read(nullptr, 0));
}

TEST_P(Frames, MisuseOfTheWriter) {
  std::vector<std::byte> frame(codec_.frame_bytes(kCount));
  EXPECT_THROW(codec::FrameWriter(codec_, info_for(kCount), true, std::span(frame).first(frame.size() - 16)), Error);
  EXPECT_THROW(codec::FrameWriter(codec_, info_for(kCount + 4096), true, frame), Error);
  codec::FrameWriter writer(codec_, info_for(kCount), true, frame);
  EXPECT_THROW(writer.write(values_.at(0), nullptr, 100), Error);
  writer.write(values_.at(0), nullptr, 4096);
  EXPECT_THROW(writer.finish(), Error);
  EXPECT_THROW(writer.write(values_.at(0), nullptr, 4096), Error);
  if (codec_.lossy()) {
    EXPECT_THROW(writer.write_verbatim(values_.at(0), 50), Error);
  }
  writer.write(values_.at(4096), nullptr, 50);
  EXPECT_THROW(writer.write(values_.at(4096), nullptr, 50), Error);
  EXPECT_FALSE(writer.finish());
}

TEST_P(Frames, MisuseOfTheReader) {
  const Frame frame = encode(codec_, values_);
  Values out(codec_.working(), kCount);
  codec::FrameReader reader(codec_, info_for(kCount), true, frame.bytes, 0);
  EXPECT_THROW(reader.read(out.at(0), 50), Error);
  reader.read(out.at(0), 4096);
  EXPECT_THROW(reader.add(out.at(0), 4096), Error);
  if (codec_.lossy()) {
    EXPECT_THROW(reader.read_verbatim(out.at(0), 50), Error);
  }
  reader.read(out.at(4096), 50);
  EXPECT_THROW(reader.read(out.at(0), 50), Error);
}

// The payload's length follows the header, though present codecs have only one length.
TEST_P(Frames, ALengthMovesThePayload) {
  const auto with_length = [&](std::size_t payload, bool checksum) {
    const auto plain = encode(codec_, values_, nullptr, false).bytes;
    std::vector<std::byte> frame(plain.begin() + wire::kHeaderBytes, plain.end());
    frame.resize(payload);
    frame.insert(frame.begin(), wire::header_bytes(wire::kFlagLength), std::byte{0});
    wire::FrameHeader header = wire::parse_header(plain);
    header.flags |= wire::kFlagLength | (checksum ? wire::kFlagCrc : 0);
    header.length = payload;
    wire::write_header(header, frame);
    return frame;
  };
  const std::uint64_t payload = codec_.payload_bytes(kCount);
  const Frame plain = encode(codec_, values_, nullptr, false);
  for (const bool checksum : {false, true}) {
    const Frame frame{with_length(payload, checksum), plain.nonfinite};
    EXPECT_TRUE(decode(codec_, frame, kCount, nullptr, checksum).same(decode(codec_, plain, kCount, nullptr, false)));
    expect_refused(with_length(payload - 4, checksum), info_for(kCount), checksum, ErrorCode::corrupt, "elements need");
    expect_refused(with_length(payload + 4, checksum), info_for(kCount), checksum, ErrorCode::corrupt, "elements need");
  }
}

// Indices behind topk that are not ascending, are beyond the tile, too few or too many, in either tile: the error says
// which indices are wrong, and where. index_code_test.cpp tests the effect of each bit.
TEST_P(Frames, WrongIndicesAreCorrupt) {
  if (GetParam().k == 0) {
    return;
  }
  const auto good = encode(codec_, values_, nullptr, false).bytes;
  const std::size_t second = codec_.payload_bytes(codec::kTileElements);
  for (const std::size_t tile : {std::size_t{0}, std::size_t{1}}) {
    const std::size_t first = wire::kHeaderBytes + tile * second;
    const std::uint32_t n = tile == 0 ? 4096 : 50;
    const std::uint32_t run = kernels::index_code(n, kernels::selected_count(GetParam().k, n)).run;
    for (const bool more : {false, true}) {  // every bit of the run is set, or none
      auto frame = good;
      for (std::uint32_t bit = 0; bit < run; ++bit) {
        auto& byte = frame[first + bit / 8];
        const auto mask = static_cast<std::byte>(1U << (bit % 8));
        byte = more ? byte | mask : byte & ~mask;
      }
      if (frame == good) {
        continue;  // all elements are kept
      }
      for (const bool add : {false, true}) {
        Values out(codec_.working(), kCount);
        codec::FrameReader reader(codec_, info_for(kCount), false, frame, 5);
        try {
          for_each_tile(kCount, [&](std::size_t i, std::uint32_t size) {
            add ? reader.add(out.at(i), size) : reader.read(out.at(i), size);
          });
          ADD_FAILURE() << "accepted: tile " << tile << " more " << more << " run " << run;
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::corrupt);
          EXPECT_THAT(error.what(),
                      AllOf(HasSubstr("rank 5"), HasSubstr("tile " + std::to_string(tile)), HasSubstr("indices")));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Frames, ::testing::ValuesIn(all_cases()), case_name);

// The checks of docs/reference/wire-format.md come in their order. A frame in which all of them fail is repaired one by
// one, from the first to the last: each time the error names the next one.
TEST(FrameBytes, ChecksComeInTheDocumentedOrder) {
  constexpr std::size_t kHeader = wire::kHeaderBytes + wire::kLengthBytes;
  const codec::Codec codec(CodecSpec::parse("topk(41/4096)+int8"), DType::f32);
  const Values values(codec.working(), gauss(kCount, 83));
  auto good = encode(codec, values, nullptr, false).bytes;
  wire::FrameHeader header = wire::parse_header(good);
  good.insert(good.begin() + wire::kHeaderBytes, wire::kLengthBytes, std::byte{0});
  header.flags = wire::kFlagCrc | wire::kFlagLength;
  header.length = good.size() - kHeader;
  wire::write_header(header, good);

  struct Fault {
    ErrorCode code;
    std::string message;
    std::function<void(std::vector<std::byte>&)> make;
  };
  const auto byte = [](ErrorCode code, std::string message, std::size_t at, int value) {
    return Fault{code, std::move(message), [=](auto& frame) { frame[at] = static_cast<std::byte>(value); }};
  };
  const auto corrupt = ErrorCode::corrupt;
  const auto mismatch = ErrorCode::mismatch;
  const auto keep_length = [](std::vector<std::byte>& frame) {
    const std::uint64_t length = frame.size() - kHeader;
    std::memcpy(frame.data() + wire::kHeaderBytes, &length, sizeof length);
  };
  const std::vector<Fault> faults{
      byte(corrupt, "magic", 3, '2'),
      byte(mismatch, "wire version 9", 4, 9),
      byte(corrupt, "unknown flags", 6, 0x0C),
      byte(corrupt, "CRC", 28, 1),
      byte(corrupt, "says that its payload has", 36, 1),
      byte(corrupt, "zeros behind its length", 40, 1),
      byte(corrupt, "unknown terms", 10, 0x80),
      byte(corrupt, "unknown dtype", 5, 77),
      byte(mismatch, "codec topk(4137/4096)+unknown(200)", 9, 0x10),
      byte(mismatch, "codec topk(41/4096)+unknown(200)", 7, 200),
      byte(mismatch, "dtype f64", 5, 4),
      byte(mismatch, "bucket", 23, 1),
      byte(mismatch, "step", 27, 1),
      byte(mismatch, "first tile", 19, 1),
      byte(mismatch, "count", 15, 1),
      byte(mismatch, "hop 15", 10, 0x1F),
      byte(mismatch, "is of a mean", 10, 0x10),
      byte(mismatch, "epoch", 11, 1),
      byte(mismatch, "no CRC", 6, wire::kFlagLength),
      {corrupt, "elements need", [&](auto& frame) { frame.resize(frame.size() - 4), keep_length(frame); }},
      {corrupt, "indices", [](auto& frame) { frame[kHeader] = ~frame[kHeader]; }},
  };
  const auto read = [&](const std::vector<std::byte>& frame) {
    Values out(codec.working(), kCount);
    codec::FrameReader reader(codec, info_for(kCount), true, frame, 5);
    for_each_tile(kCount, [&](std::size_t i, std::uint32_t size) { reader.read(out.at(i), size); });
  };
  EXPECT_NO_THROW(read(good));
  for (std::size_t first = 0; first < faults.size(); ++first) {
    auto frame = good;
    for (std::size_t i = faults.size(); i-- > first;) {  // an earlier fault may overwrite a later one
      if (faults[i].message == "CRC") {
        continue;
      }
      faults[i].make(frame);
    }
    frame[28] = frame[29] = frame[30] = frame[31] = std::byte{0};
    if (first <= 3) {
      faults[3].make(frame);
    } else if ((frame[6] & std::byte{wire::kFlagCrc}) != std::byte{0}) {
      const std::uint32_t crc = wire::crc32c(frame);
      std::memcpy(frame.data() + 28, &crc, sizeof crc);
    }
    try {
      read(frame);
      ADD_FAILURE() << "accepted; expected: " << faults[first].message;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), faults[first].code) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(faults[first].message));
    }
  }
}

// This is the example of docs/reference/wire-format.md.
TEST(FrameBytes, DocumentedExample) {
  const codec::Codec codec(CodecSpec::parse("int8"), DType::f32);
  const Values values(codec.working(), std::vector<float>{127.0F, -1.0F, 0.5F, 1.5F});
  constexpr int kExpected[] = {0x47, 0x52, 0x57, 0x31, 2, 1, 0, 4, 0,    0, 0, 0, 4, 0, 0, 0,
                               0,    0,    0,    0,    3, 0, 0, 0, 0x11, 0, 0, 0, 0, 0, 0, 0,
                               0x80, 0x3F, 0x7F, 0xFF, 0, 2, 0, 0, 0,    0, 0, 0, 0, 0, 0, 0};
  const auto frame = encode(codec, values, nullptr, false).bytes;
  ASSERT_EQ(frame.size(), std::size(kExpected));
  for (std::size_t i = 0; i < frame.size(); ++i) {
    EXPECT_EQ(std::to_integer<int>(frame[i]), kExpected[i]) << i;
  }
}

TEST(InstructionSetChoice, FollowsTheEnvironment) {
  const auto choice = environment("GRADWIRE_SIMD");
  const auto sets = codec::instruction_sets();
  const std::string_view expected = choice == "scalar" ? sets.front().name : sets.back().name;
  EXPECT_EQ(codec::active_instruction_set().name, expected);
}

}  // namespace
}  // namespace gradwire::test
