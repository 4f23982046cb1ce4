// Tests that ranks compare at steps that all know, in one gather for all parts.
#include "session/part/step_comparison.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "gradwire/session.hpp"
#include "session/host/bucket_runner.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::session {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class NumberPart final : public ComparedPart {
 public:
  NumberPart(std::uint64_t every, std::uint64_t rides_every, double number, std::size_t numbers)
      : every_(every), rides_every_(rides_every), number_(number), numbers_(numbers) {}

  [[nodiscard]] bool due(std::uint64_t step) const override { return step % every_ == every_ - 1; }
  [[nodiscard]] bool rides(std::uint64_t step) const override { return (step + 1) % rides_every_ == 0; }
  void append(std::vector<double>& numbers) override { numbers.insert(numbers.end(), numbers_, number_); }
  void take(const Compared& compared) override {
    std::this_thread::sleep_for(takes);
    steps.push_back(compared.step);
    seen.clear();
    for (const std::span<const double> theirs : compared.ranks) {
      EXPECT_EQ(theirs.size(), numbers_);
      seen.push_back(theirs[0]);
    }
    seconds = compared.seconds;
  }

  std::chrono::microseconds takes{0};
  std::vector<std::uint64_t> steps;
  std::vector<double> seen;  // values of each rank in the last comparison
  double seconds = 0;

 private:
  std::uint64_t every_, rides_every_;
  double number_;
  std::size_t numbers_;
};

// Mutation tried: spans that do not begin where their part's numbers do.
TEST(StepComparison, OneGatherServesAllParts) {
  test::run_ranks(make_inproc_world(3), [](const std::shared_ptr<Transport>& transport) {
    BucketRunner runner(transport, {});
    StepComparison comparison(runner);
    const double rank = transport->rank();
    NumberPart often(5, 5, rank, 1);
    NumberPart seldom(20, 10, 10 * rank, 3);  // asks every 20 steps, and joins other parts' comparisons in between
    comparison.add(often);
    comparison.add(seldom);
    for (std::uint64_t step = 0; step < 40; ++step) {
      comparison.end_step(step);
    }
    EXPECT_THAT(often.steps, ElementsAre(4, 9, 14, 19, 24, 29, 34, 39));
    EXPECT_THAT(seldom.steps, ElementsAre(9, 19, 29, 39));
    EXPECT_THAT(often.seen, ElementsAre(0, 1, 2));
    EXPECT_THAT(seldom.seen, ElementsAre(0, 10, 20));
    EXPECT_EQ(comparison.count(), 8U);
    EXPECT_GT(often.seconds, 0);
    EXPECT_GT(comparison.seconds(), 0);
    comparison.reset_counts();
    EXPECT_EQ(comparison.count(), 0U);
    EXPECT_EQ(comparison.seconds(), 0);
    comparison.end_step(44);
    EXPECT_EQ(comparison.count(), 1U);
  });
}

// Mutation tried: every part is charged the time of the whole comparison.
TEST(StepComparison, NobodyIsChargedForAnother) {
  test::run_ranks(make_inproc_world(2), [](const std::shared_ptr<Transport>& transport) {
    BucketRunner runner(transport, {});
    StepComparison comparison(runner);
    NumberPart quick(1, 1, 0, 1);
    NumberPart slow(1, 1, 0, 1);
    slow.takes = std::chrono::microseconds(transport->rank() == 1 ? 300'000 : 0);
    comparison.add(quick);
    comparison.add(slow);
    comparison.end_step(0);
    comparison.end_step(1);
    EXPECT_GE(slow.seconds, 0.3);
    EXPECT_LT(quick.seconds, 0.25);
  });
}

// The two steps have different parts, and so different sizes.
TEST(StepComparison, RanksAtOtherStepsAreTold) {
  test::run_ranks(make_inproc_world(2), [](const std::shared_ptr<Transport>& transport) {
    BucketRunner runner(transport, {});
    StepComparison comparison(runner);
    NumberPart part(1, 1, 0, 1);
    NumberPart other(4, 4, 0, 5);
    comparison.add(part);
    comparison.add(other);
    try {
      comparison.end_step(transport->rank() == 0 ? 7 : 8);
      FAIL() << "rank " << transport->rank();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::mismatch);
      EXPECT_THAT(e.what(), HasSubstr("ranks compare steps"));
    }
  });
}

}  // namespace
}  // namespace gradwire::session
