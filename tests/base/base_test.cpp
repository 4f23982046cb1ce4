// Tests dtypes, error codes, the log callback, and the words of command lines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/command_line.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "gradwire/dtype.hpp"
#include "gradwire/error.hpp"

namespace gradwire {
namespace {

TEST(DType, NamesReadBack) {
  EXPECT_EQ(static_cast<int>(DType::f32), 1) << "the numbers are on the wire";
  EXPECT_EQ(static_cast<int>(DType::f16), 2);
  EXPECT_EQ(static_cast<int>(DType::bf16), 3);
  EXPECT_EQ(static_cast<int>(DType::f64), 4);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    EXPECT_EQ(parse_dtype(to_string(dtype)), dtype);
  }
  EXPECT_EQ(element_bytes(DType::f32), 4U);
  EXPECT_EQ(element_bytes(DType::f16), 2U);
  EXPECT_EQ(element_bytes(DType::bf16), 2U);
  EXPECT_EQ(element_bytes(DType::f64), 8U);
  EXPECT_EQ(element_bytes(DType{9}), 0U);
  EXPECT_EQ(to_string(DType{9}), "unknown");
  try {
    (void)parse_dtype("float");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "unknown dtype \"float\": write f32, f16, bf16 or f64");
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  }
}

TEST(DType, ViewsKeepWhatTheyAreMadeOf) {
  double values[3] = {};
  const View writable = view(values, 3);
  EXPECT_EQ(writable.dtype, DType::f64);
  const ConstView readable = writable;
  EXPECT_EQ(readable.data, values);
  EXPECT_EQ(readable.count, 3U);
  EXPECT_EQ(readable.dtype, DType::f64);
  const float one = 1;
  EXPECT_EQ(view(&one, 1).dtype, DType::f32);
}

TEST(Text, AShellReadsAWordBack) {
  for (const char* plain : {"--codec", "a_B-9", "/path/to.file:4,x=1%+@"}) {
    EXPECT_EQ(text::shell_word(plain), plain);
  }
  EXPECT_EQ(text::shell_word(""), "''");
  EXPECT_EQ(text::shell_word("echo $HOME; *"), "'echo $HOME; *'");
  EXPECT_EQ(text::shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(text::shell_word("a\nb"), "'a\nb'");
}

TEST(CommandLine, IsThatOfThisProcess) {
  const std::vector<std::string> words = own_command_line();
  ASSERT_FALSE(words.empty());
  EXPECT_THAT(words.front(), ::testing::HasSubstr("base_test"));
  EXPECT_EQ(own_command_line(1).size(), 1U);
  EXPECT_TRUE(own_command_line(0).empty());
}

TEST(Error, CodesHaveDistinctNames) {
  std::set<std::string> names;
  for (const ErrorCode code :
       {ErrorCode::invalid_argument, ErrorCode::unsupported, ErrorCode::corrupt, ErrorCode::mismatch,
        ErrorCode::transport, ErrorCode::timeout, ErrorCode::aborted, ErrorCode::out_of_memory, ErrorCode::internal}) {
    EXPECT_TRUE(names.insert(std::string(to_string(code))).second);
    EXPECT_EQ(Error(code, "x").code(), code);
  }
  EXPECT_EQ(names.count("unknown"), 0U);
  EXPECT_EQ(to_string(static_cast<ErrorCode>(99)), "unknown");
}

std::vector<std::string> g_lines;

TEST(Log, IsSilentUntilBoundAndNeverThrows) {
  g_lines.clear();
  log(LogLevel::error, "nobody listens");
  set_log_sink([](LogLevel level, std::string_view message) {
    g_lines.push_back(std::to_string(static_cast<int>(level)) + " " + std::string(message));
  });
  log(LogLevel::warning, "one");
  set_log_sink([](LogLevel, std::string_view) { throw std::runtime_error("the disk is full"); });
  log(LogLevel::error, "two");
  set_log_sink(nullptr);
  log(LogLevel::error, "three");
  EXPECT_THAT(g_lines, ::testing::ElementsAre("2 one"));
}

}  // namespace
}  // namespace gradwire
