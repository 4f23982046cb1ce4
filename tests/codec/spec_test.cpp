// Tests the grammar of specs, and the registry that gives names their ids.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "codec_support.hpp"
#include "gradwire/error.hpp"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void expect_refused(const std::string& text, ErrorCode code, const std::string& what) {
  try {
    (void)CodecSpec::parse(text);
    ADD_FAILURE() << "accepted \"" << text << '"';
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), AllOf(HasSubstr("\"" + text + "\""), HasSubstr(what)));
  }
}

TEST(Registry, IdsAndNamesAreUniqueAndFound) {
  std::set<std::uint8_t> ids;
  std::set<std::string_view> names;
  for (const codec::CodecEntry& entry : codec::codecs()) {
    EXPECT_NE(entry.id, 0);
    EXPECT_TRUE(ids.insert(entry.id).second) << entry.name;
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name;
    EXPECT_EQ(codec::find_codec(entry.id), &entry);
    EXPECT_EQ(codec::find_codec(entry.name), &entry);
  }
  EXPECT_EQ(codec::find_codec(std::uint8_t{0}), nullptr);
  EXPECT_EQ(codec::find_codec("gzip"), nullptr);
}

TEST(Registry, IdsOnTheWireArePinned) {
  EXPECT_EQ(codec::find_codec("exact")->id, 1);
  EXPECT_EQ(codec::find_codec("bf16")->id, 2);
  EXPECT_EQ(codec::find_codec("fp16")->id, 3);
  EXPECT_EQ(codec::find_codec("int8")->id, 4);
  EXPECT_EQ(codec::find_codec("fp8")->id, 5);
  EXPECT_EQ(codec::find_codec("int4")->id, 6);
  EXPECT_EQ(codec::find_codec("int2")->id, 7);
  EXPECT_EQ(codec::find_codec("sign")->id, 8);
}

TEST(Spec, EveryNameReadsBack) {
  for (const codec::CodecEntry& entry : codec::codecs()) {
    const CodecSpec spec = CodecSpec::parse(entry.name);
    EXPECT_EQ(spec, (CodecSpec{entry.id, 0}));
    EXPECT_EQ(spec.to_string(), entry.name);
    for (const std::uint16_t k : {1, 41, 64, 4096}) {
      const CodecSpec sparse{entry.id, k};
      EXPECT_EQ(CodecSpec::parse(sparse.to_string()), sparse) << sparse.to_string();
    }
  }
  EXPECT_EQ(CodecSpec::parse("fp32"), CodecSpec::parse("exact"));
  EXPECT_EQ(CodecSpec{}, CodecSpec::parse("exact"));
  EXPECT_EQ(CodecSpec::exact(), CodecSpec::parse("exact"));
}

TEST(Spec, ATextServesWhereACodecIsAskedFor) {
  const auto given = [](const CodecSpec& codec) { return codec; };
  const std::string text = "topk(1%)+int8";
  EXPECT_EQ(given("int8"), CodecSpec::parse("int8"));
  EXPECT_EQ(given(text), (CodecSpec{4, 41}));
  EXPECT_EQ(given(std::string_view(text)), CodecSpec::parse(text));
  EXPECT_THROW(given("int7"), Error);
  const std::vector<CodecSpec> two{"bf16", "int8"};
  EXPECT_EQ(two.size(), 2U);
  static_assert(!std::is_constructible_v<CodecSpec, std::nullptr_t>);
}

TEST(Spec, Densities) {
  EXPECT_EQ(CodecSpec::parse("topk(1%)+int8").k, 41);
  EXPECT_EQ(CodecSpec::parse("topk(0.01)+int8").k, 41);
  EXPECT_EQ(CodecSpec::parse("topk(64/4096)+int8").k, 64);
  EXPECT_EQ(CodecSpec::parse("topk(0.00001)+int8").k, 1);
  EXPECT_EQ(CodecSpec::parse("topk(100%)+int8").k, 4096);
  EXPECT_EQ(CodecSpec::parse(" topk(25%) + bf16 "), (CodecSpec{2, 1024}));
}

TEST(Spec, Refusals) {
  expect_refused("", ErrorCode::invalid_argument, codec::codec_names());
  expect_refused("int9", ErrorCode::invalid_argument, codec::codec_names());
  expect_refused("INT8", ErrorCode::invalid_argument, codec::codec_names());
  expect_refused("int8 int8", ErrorCode::invalid_argument, codec::codec_names());
  expect_refused("topk(1%", ErrorCode::invalid_argument, "closing bracket");
  expect_refused("topk(1%)", ErrorCode::invalid_argument, "selected values");
  expect_refused("topk(1%)int8", ErrorCode::invalid_argument, "selected values");
  expect_refused("topk(1%)+", ErrorCode::invalid_argument, codec::codec_names());
  expect_refused("topk()+int8", ErrorCode::invalid_argument, "share");
  expect_refused("topk(0)+int8", ErrorCode::invalid_argument, "share");
  expect_refused("topk(0%)+int8", ErrorCode::invalid_argument, "share");
  expect_refused("topk(1.01)+int8", ErrorCode::invalid_argument, "share");
  expect_refused("topk(4097/4096)+int8", ErrorCode::invalid_argument, "share");
  expect_refused("topk(101%)+int8", ErrorCode::invalid_argument, "share");
  expect_refused("topk(-1%)+int8", ErrorCode::invalid_argument, "share");
  expect_refused("topk(1%)+topk(1%)+int8", ErrorCode::invalid_argument, codec::codec_names());
}

TEST(Codec, RefusesWhatItCannotDo) {
  const auto code_of = [](CodecSpec spec, DType dtype) {
    try {
      (void)codec::Codec(spec, dtype);
      return ErrorCode::internal;
    } catch (const Error& error) {
      return error.code();
    }
  };
  EXPECT_EQ(code_of({0, 0}, DType::f32), ErrorCode::unsupported);
  EXPECT_EQ(code_of({255, 0}, DType::f32), ErrorCode::unsupported);
  EXPECT_EQ(code_of({4, 4097}, DType::f32), ErrorCode::unsupported);
  EXPECT_EQ(code_of({4, 0}, static_cast<DType>(9)), ErrorCode::unsupported);
}

TEST(Codec, WorkingTypeIsF64OnlyForExactF64) {
  for (const Case& c : all_cases()) {
    const bool f64 = !c.entry->lossy && c.dtype == DType::f64;
    EXPECT_EQ(c.codec().working(), f64 ? codec::Working::f64 : codec::Working::f32);
    EXPECT_EQ(c.codec().working_bytes(), f64 ? 8U : 4U);
  }
}

}  // namespace
}  // namespace gradwire::test
