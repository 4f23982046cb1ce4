// Encoded sizes are part of the format: they are fixed here, so that a change of the ratio shows in review.
#include <gtest/gtest.h>

#include "codec_facts.hpp"
#include "codec_support.hpp"

namespace gradwire::test {
namespace {

TEST(Sizes, PayloadOfEveryCodec) {
  for (const codec::CodecEntry& entry : codec::codecs()) {
    const CodecFacts* facts = facts_of(entry.name);
    ASSERT_NE(facts, nullptr) << entry.name << ": give it a row in codec_facts.hpp";
    for (std::size_t i = 0; i < kSizeCounts.size(); ++i) {
      const codec::Codec codec({entry.id, 0}, DType::f32);
      EXPECT_EQ(codec.payload_bytes(kSizeCounts[i]), facts->payload[i]) << entry.name << " of " << kSizeCounts[i];
      EXPECT_EQ(codec.frame_bytes(kSizeCounts[i]), facts->payload[i] + 32);
    }
  }
}

// The indices come first, then the inner codec's bytes for the selected values.
TEST(Sizes, PayloadBehindTopk) {
  struct Row {
    const char* spec;
    std::uint64_t full;    // of 4096 elements
    std::uint64_t short_;  // of 300
  };
  for (const Row& row :
       {Row{"topk(1/4096)+exact", 8, 8}, Row{"topk(41/4096)+exact", 208, 16}, Row{"topk(41/4096)+bf16", 128, 12},
        Row{"topk(41/4096)+fp16", 128, 12}, Row{"topk(41/4096)+int8", 88, 12}, Row{"topk(41/4096)+fp8", 88, 12},
        Row{"topk(41/4096)+int4", 68, 8}, Row{"topk(41/4096)+int2", 60, 12}, Row{"topk(41/4096)+sign", 52, 8},
        Row{"topk(10%)+int8", 684, 52}, Row{"topk(64/4096)+int2", 84, 12}, Row{"topk(100%)+int2", 1540, 120}}) {
    const codec::Codec codec(CodecSpec::parse(row.spec), DType::f32);
    EXPECT_EQ(codec.payload_bytes(4096), row.full) << row.spec;
    EXPECT_EQ(codec.payload_bytes(300), row.short_) << row.spec;
    EXPECT_EQ(codec.payload_bytes(0), 0U);
  }
}

TEST(Sizes, BitsAnElementBehindTopk) {
  const auto bits = [](const char* spec) {
    return 8.0 * static_cast<double>(codec::Codec(CodecSpec::parse(spec), DType::f32).payload_bytes(4096)) / 4096;
  };
  EXPECT_NEAR(bits("topk(1%)+int2"), .117, .0005);  // version 1: .156
  EXPECT_NEAR(bits("topk(1%)+int8"), .172, .0005);  // .219
  EXPECT_NEAR(bits("topk(10%)+int8"), 1.336, .0005);
}

TEST(Sizes, ChunksOfWholeTilesAddUp) {
  for (const Case& c : all_cases()) {
    const codec::Codec codec = c.codec();
    EXPECT_EQ(codec.payload_bytes(9 * 4096 + 5), 9 * codec.payload_bytes(4096) + codec.payload_bytes(5));
    EXPECT_EQ(codec.payload_bytes(3) % (c.k == 0 ? 16 : 4), 0U);
    // This is beyond 2^32 elements.
    EXPECT_EQ(codec.payload_bytes(std::uint64_t{1} << 40), (std::uint64_t{1} << 28) * codec.payload_bytes(4096));
  }
}

TEST(Sizes, ExactHasTheSizeOfTheTensor) {
  for (const DType dtype : kDTypes) {
    EXPECT_EQ(codec::Codec(CodecSpec::parse("exact"), dtype).payload_bytes(4096), 4096 * element_bytes(dtype));
  }
}

}  // namespace
}  // namespace gradwire::test
