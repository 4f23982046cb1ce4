// Tests worlds of processes that reach each other only by TCP.
#include "tests/transport/tcp_job.hpp"

namespace gradwire::test {
namespace {

TEST_F(TcpProcesses, WorldsAreMadeOfThoseThatAreLeft) {
  start(3);
  EXPECT_THAT(at(1)->all(), ElementsAre(0, 1, 2));
  EXPECT_FALSE(at(1)->joined());
  EXPECT_THAT(at(1)->newcomers(), IsEmpty());
  EXPECT_THAT(at(1)->describe(2), ::testing::MatchesRegex("rank 2 \\(process [0-9]+ on host .+\\)"));
  expect_all_reach_all({&at(0), &at(1), &at(2)}, "hello");
  expect_world({&at(0), &at(1), &at(2)}, 1);
  at(1).stop();
  EXPECT_TRUE(at(0).wait_for(1, "ended"));
  EXPECT_TRUE(at(2).wait_for(1, "ended"));
  expect_world({&at(0), &at(2)}, 2);
  EXPECT_EQ(at(0).heard(1).back(), "ended");
}

TEST_F(TcpProcesses, LongMessagesComeWhole) {
  start(2);
  const std::string longest(1 << 20, 'x');
  for (int i = 0; i < 4; ++i) {
    at(0).say(1, longest, Lane::bulk);
  }
  at(0).say(1, "prompt");
  at(0).say(1, "last", Lane::bulk);
  EXPECT_TRUE(at(1).wait_for(0, "last"));
  EXPECT_TRUE(at(1).wait_for(0, "prompt"));
  EXPECT_EQ(std::ranges::count(at(1).heard(0), longest), 4);
  EXPECT_EQ(at(0)->unsent(1, Lane::bulk), 0U);
}

// Mutation tried: connect() ignores processes that have ended, and waits for its timeout.
TEST_F(TcpProcesses, AWorldIsGivenUpOnceAMemberHasEnded) {
  start(3);
  std::jthread death([&] {
    std::this_thread::sleep_for(milliseconds(200));
    at(2).stop();
  });
  const auto begin = Clock::now();
  in_parallel(2, [&](int rank) {
    const Error error = error_of([&] { (void)at(static_cast<std::size_t>(rank)).connect({0, 1, 2}, 1, seconds(60)); });
    EXPECT_EQ(error.code(), ErrorCode::transport) << error.what();
    EXPECT_EQ(error.cause(), ErrorCause::world);
    EXPECT_THAT(error.what(), HasSubstr("rank 2"));
  });
  EXPECT_LT(Clock::now() - begin, seconds(5));
  death.join();
  expect_world({&at(0), &at(1)}, 2);
}

// The process waits for a connection of a member that has published its address and then ended.
TEST_F(TcpProcesses, AWorldIsGivenUpWhereAMemberEndsHalfway) {
  start(2);
  at(1).stop();
  const auto begin = Clock::now();
  const Error error = error_of([&] { (void)at(0).connect({0, 1}, 1, seconds(60)); });
  EXPECT_EQ(error.code(), ErrorCode::transport) << error.what();
  EXPECT_EQ(error.cause(), ErrorCause::world);
  EXPECT_LT(Clock::now() - begin, seconds(5));
}

TEST_F(TcpProcesses, AWorldIsGivenUpOnceANewerOneBegins) {
  start(2);
  std::jthread older([&] {
    const Error error = error_of([&] { (void)at(0).connect({0, 1}, 1, seconds(60)); });
    EXPECT_EQ(error.code(), ErrorCode::aborted) << error.what();
    EXPECT_EQ(error.cause(), ErrorCause::world);
  });
  std::this_thread::sleep_for(milliseconds(100));
  expect_world({&at(0), &at(1)}, 2);
  older.join();
}

TEST_F(TcpProcesses, AWorldThatOneDoesNotComeToTimesOut) {
  start(2);
  const Error error = error_of([&] { (void)at(0).connect({0, 1}, 1, milliseconds(300)); });
  EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
  EXPECT_EQ(error.cause(), ErrorCause::world);
  EXPECT_THAT(error.what(),
              ::testing::ContainsRegex("a new world: rank 1 \\(process [0-9]+ on host .+\\) does not come"));
  EXPECT_EQ(error_of([&] { (void)at(0).connect({1}, 2); }).code(), ErrorCode::invalid_argument);
}

TEST_F(TcpProcesses, WithoutAFileNobodyJoins) {
  start(2, "");
  EXPECT_FALSE(std::filesystem::exists(file_));
  expect_world({&at(0), &at(1)}, 1);
}

}  // namespace
}  // namespace gradwire::test
