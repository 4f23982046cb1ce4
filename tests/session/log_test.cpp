// Tests a session's log as a user sees it. The test runs in a process of its own, since the level is read only once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>
#include <string>

#include "gradwire/session.hpp"
#include "session/parts/observation/status_line.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

void one_step_of_two_ranks(const char* level) {
  setenv("GRADWIRE_LOG", level, 1);  // NOLINT(concurrency-mt-unsafe): no other thread yet
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    std::vector<float> gradient(100, 1);
    Session session(transport, Policy());
    const TensorId id = session.add("w", view(gradient.data(), gradient.size()));
    session.ready(id);
    session.finish();
  });
  std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
}

TEST(LogDeathTest, ThePlanIsToldOnce) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";  // GTEST_FLAG_SET came with 1.12
  const auto once = [](const std::string& output) {
    static const std::regex kHead("bucket  group");
    return std::distance(std::sregex_iterator(output.begin(), output.end(), kHead), std::sregex_iterator()) == 1;
  };
  EXPECT_EXIT(one_step_of_two_ranks("debug"), ::testing::ExitedWithCode(0), ::testing::Truly(once));
  EXPECT_EXIT(one_step_of_two_ranks("warn"), ::testing::ExitedWithCode(0), ::testing::IsEmpty());
}

TEST(LogDeathTest, ALevelThatIsNoneIsToldOnceAndEndsNothing) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto once = [](const std::string& output) {
    return output.find("GRADWIRE_LOG is \"loud\"") != std::string::npos &&
           output.find("GRADWIRE_LOG") == output.rfind("GRADWIRE_LOG");
  };
  EXPECT_EXIT(one_step_of_two_ranks("loud"), ::testing::ExitedWithCode(0), ::testing::Truly(once));
}

// Each block of int8 has an outlier beside which all other values decode to 0. With error feedback they arrive in time.
void steps_beside_outliers(const char* feedback) {
  setenv("GRADWIRE_LOG", "warn", 1);  // NOLINT(concurrency-mt-unsafe): no other thread yet
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    Session session(transport,
                    Policy::parse(std::string("[defaults]\ncodec = \"int8\"\nsmall = \"off\"\n") + feedback));
    std::vector<float> plain(8192);
    std::vector<float> beside(8192);
    const TensorId one = session.add("plain", view(plain.data(), plain.size()));
    const TensorId other = session.add("embedding", view(beside.data(), beside.size()));
    for (int step = 0; step < 40; ++step) {
      for (std::size_t i = 0; i < plain.size(); ++i) {
        plain[i] = static_cast<float>(i % 17) - 8;
        beside[i] = i % 256 == 0 ? 100.0F : 1e-3F;
      }
      session.ready(one);
      session.ready(other);
      session.finish();
    }
  });
  std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
}

TEST(LogDeathTest, SmallValuesThatAreLostAreToldOnceWithTheRuleThatMendsIt) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto once = [](const std::string& output) {
    const std::string rule = "[[rule]] match = \"embedding\" error_feedback = \"on\"";
    return output.find(rule) != std::string::npos && output.find(rule) == output.rfind(rule) &&
           output.find("decode to 0 by int8") != std::string::npos;
  };
  EXPECT_EXIT(steps_beside_outliers(""), ::testing::ExitedWithCode(0), ::testing::Truly(once));
  EXPECT_EXIT(steps_beside_outliers("error_feedback = \"on\""), ::testing::ExitedWithCode(0), ::testing::IsEmpty());
  EXPECT_EXIT(steps_beside_outliers("[[rule]]\nmatch = \"embedding\"\ncodec = \"bf16\""), ::testing::ExitedWithCode(0),
              ::testing::IsEmpty());
}

TEST(StatusLine, ComesAfterTheFirstStepAndThenEveryHalfMinute) {
  session::StatusLine line;
  session::StatusLine::Time now;
  ASSERT_TRUE(line.due(now));
  EXPECT_EQ(line.tell({.step = 0, .steps = 1, .exposed_seconds = 0.5, .calls = 3, .ratio = 3.941}, now),
            "step 0: 3 calls, ratio 3.94");
  EXPECT_FALSE(line.due(now + std::chrono::milliseconds(29999)));
  now += std::chrono::seconds(30);
  ASSERT_TRUE(line.due(now));
  EXPECT_EQ(line.tell({.step = 120, .steps = 121, .exposed_seconds = 0.86, .calls = 363, .ratio = 3.941}, now),
            "step 120: 250 ms a step since the line before, 3 ms of it exposed; 363 calls, ratio 3.94");
  now += std::chrono::seconds(31);
  EXPECT_EQ(line.tell({.step = 200, .steps = 10, .exposed_seconds = 0.01, .calls = 30, .ratio = 2}, now),
            "step 200: 30 calls, ratio 2")
      << "the counters were reset";
}

}  // namespace
}  // namespace gradwire::test
