// Counts how often ranks compare their times to find slow ones, with steps of every length, without a clock.
#include "session/parts/rank_comparison/comparison_pace.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

namespace gradwire::session {
namespace {

constexpr double kBound = 0.0005;  // largest share of the time, whatever a step takes

struct Job {
  double seconds = 0;            // total of all steps
  std::vector<double> compared;  // times of the comparisons; each cost `cost`
  double most = 0;               // largest share of the time, right after a comparison, of all comparisons and notes
};

// Runs until `seconds` have passed. `step(n)` is the time of the n-th step.
Job run(double seconds, double cost, const std::function<double(std::uint64_t)>& step) {
  Job job;
  ComparisonPace pace;
  std::uint64_t since = 0;
  double began = 0;
  for (std::uint64_t n = 0; job.seconds < seconds; ++n) {
    job.seconds += step(n);
    if (++since < pace.steps()) {
      continue;
    }
    pace.compared(static_cast<double>(since), (job.seconds - began) / static_cast<double>(since), cost);
    job.compared.push_back(job.seconds);
    if (job.compared.size() > 2) {
      const double spent = static_cast<double>(job.compared.size()) * cost;
      const double noted = static_cast<double>(n + 1) * ComparisonPace::kNoting;
      job.most = std::max(job.most, (spent + noted) / job.seconds);
    }
    since = 0;
    began = job.seconds;
  }
  return job;
}

// The first comparison comes after eight steps, since nobody knows before how long steps are; the bound holds from the
// third one on.
TEST(ComparisonPace, ComparisonsStayBelowTheirShareAtEveryLengthOfSteps) {
  for (const double step : {2.8e-6, 5e-6, 20e-6, 100e-6, 1e-3, 20e-3}) {
    for (const double cost : {10e-6, 60e-6, 200e-6, 1e-3}) {
      const Job job = run(60, cost, [&](std::uint64_t) { return step; });
      ASSERT_GE(job.compared.size(), 2U) << step << " " << cost;
      EXPECT_LE(job.most, kBound) << "steps of " << step << " s, comparisons of " << cost << " s";
      EXPECT_NEAR(job.compared[0], 8 * step, step / 2);
    }
  }
}

// For steps of a microsecond, noting a step alone costs more than the bound, and comparing adds little to that.
TEST(ComparisonPace, TheShortestStepsAreComparedSeldom) {
  const Job job = run(10, 60e-6, [](std::uint64_t) { return 1e-6; });
  EXPECT_LE(job.compared.size(), 9U);
}

TEST(ComparisonPace, CheapOnesAreHalfASecondApart) {
  for (const double step : {2e-3, 10e-3, 60e-3}) {
    const Job job = run(20, 60e-6, [&](std::uint64_t) { return step; });
    EXPECT_NEAR(static_cast<double>(job.compared.size()), 20 / 0.5, 3) << step;
  }
  EXPECT_EQ(run(80, 60e-6, [](std::uint64_t) { return 1.0; }).compared.size(), 10U) << "eight steps at least";
}

TEST(ComparisonPace, StepsThatBecomeLongerAreComparedBeforeManyOfThem) {
  const Job job = run(200, 10e-6, [](std::uint64_t n) { return n < 200 ? 100e-6 : 50e-3; });
  ASSERT_GE(job.compared.size(), 3U);
  EXPECT_LE(job.compared[2], 150);  // after 0.02 s of steps, nobody knows that the next ones are longer
  EXPECT_LE(job.most, kBound);
}

// A rank lost its core during a comparison.
TEST(ComparisonPace, OneThatTookLongDoesNotEndThem) {
  ComparisonPace pace;
  pace.compared(50, 10e-3, 60e-6);
  pace.compared(50, 10e-3, 60e-6);
  const std::uint64_t usual = pace.steps();
  pace.compared(50, 10e-3, 100e-3);
  EXPECT_LE(pace.steps(), usual + 1);
  pace.compared(50, 10e-3, 60e-6);
  EXPECT_LE(pace.steps(), usual + 1);
}

}  // namespace
}  // namespace gradwire::session
