// Tests what a group without a codec measures of the library's own calls, and its last line. Times are scripted, so
// that the correct results are known. Mutations tried: overlapping sums count one by one; late sums count; a sample is
// taken beside another call; a view with gaps is sampled; the hosts of the ranks are not reported.
#include "plugins/torch_c10d/observing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "choice/auto_call.hpp"
#include "plugins/torch_c10d/group_engine.hpp"
#include "tests/support/ranks.hpp"
#include "tests/torch_c10d/thread_store.hpp"

namespace gradwire::torch_c10d {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

constexpr std::uint64_t kCount = 64 << 10;

drop_in::ObservedClass class_of(std::uint64_t count) {
  return {.function = choice::Function::c10d_all_reduce,
          .dtype = DType::f32,
          .size = choice::size_class(count * sizeof(float)),
          .communicator_size = 2};
}

std::vector<float> values_of(std::uint64_t count) {
  std::mt19937 engine(7);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) {
    value = normal(engine);
  }
  return values;
}

struct Seen {
  std::uint64_t calls = 0;
  std::uint64_t samples = 0;
  double bytes = 0;
  double seconds = 0;
};

Seen seen_by(const Observing& observing) {
  Seen seen;
  for (const auto& [what, totals] : observing.observed().classes) {
    seen.calls += totals.calls();
    seen.samples += totals.sampled.samples;
    seen.bytes += totals.bytes();
    seen.seconds += totals.seconds();
  }
  return seen;
}

class ObservingTest : public testing::Test {
 protected:
  ObservingTest() { forget_environment(); }
  ~ObservingTest() override { forget_environment(); }

  static void forget_environment() {
    for (const char* const name : {"GRADWIRE_CODEC", "GRADWIRE_POLICY", "GRADWIRE_DISABLE", "GRADWIRE_DRY_RUN"}) {
      ::unsetenv(name);
    }
  }

  void begin() { observing_.begin(class_of(kCount), {values_.data(), kCount, DType::f32}); }
  void make() {
    begin();
    observing_.end(false);
  }

  std::vector<float> values_ = values_of(kCount);
  Observing observing_{drop_in::Configuration::read(true), {{"one", {.ranks = 2, .cores = 2}}}};
};

TEST_F(ObservingTest, TakesSumsThatOverlapForOne) {
  make();
  make();
  EXPECT_EQ(seen_by(observing_).calls, 2U);
  begin();
  begin();
  begin();
  std::this_thread::sleep_for(100ms);
  for (int call = 0; call < 3; ++call) {
    observing_.end(false);
  }
  const Seen seen = seen_by(observing_);
  EXPECT_EQ(seen.calls, 3U);
  EXPECT_EQ(seen.bytes, 5 * kCount * sizeof(float));
  EXPECT_GE(seen.seconds, 0.1);
  EXPECT_LT(seen.seconds, 0.3) << "overlapping times count once";
  EXPECT_EQ(observing_.observed().hosts.at("one").ranks, 2);
}

TEST_F(ObservingTest, LeavesOutWhatMayHaveWaitedForTheJobOrForAnotherCall) {
  begin();
  std::this_thread::sleep_for(50ms);
  begin();  // long after the first one
  observing_.end(false);
  observing_.end(false);
  begin();
  observing_.begin_other_call();  // nobody reports its end
  observing_.end(false);
  begin();
  observing_.begin(std::nullopt, {nullptr, kCount, DType::f32});  // of another kind
  std::this_thread::sleep_for(50ms);
  observing_.end(false);
  observing_.end(false);
  begin();
  observing_.end(true);
  EXPECT_EQ(seen_by(observing_).calls, 0U);
  make();
  EXPECT_EQ(seen_by(observing_).calls, 1U) << "the next sum counts again";
}

TEST_F(ObservingTest, LooksAtValuesWhereNoCallIsUnderWay) {
  make();
  std::this_thread::sleep_for(200ms);  // a sample may take its share of this time
  const std::vector<float> before = values_;
  observing_.begin(std::nullopt, {nullptr, 1, DType::f32});
  make();
  EXPECT_EQ(seen_by(observing_).samples, 0U) << "another call is under way";
  observing_.end(false);
  observing_.begin(class_of(kCount), {nullptr, kCount, DType::f32});
  observing_.end(false);
  EXPECT_EQ(seen_by(observing_).samples, 0U) << "the values cannot be read";
  make();
  EXPECT_EQ(seen_by(observing_).samples, 1U);
  EXPECT_EQ(values_, before);
}

TEST(ForecastText, SaysNoMoreThanIsKnown) {
  drop_in::ForecastClass one{.what = class_of(kCount), .codec = "int8", .calls = 400, .passed_seconds = 0.03};
  EXPECT_EQ(forecast_text({}), "");
  EXPECT_EQ(forecast_text({.classes = {one}, .saved_seconds = std::nullopt}), "");
  drop_in::ForecastClass known = one;
  known.saved_seconds = 0.008;
  EXPECT_EQ(forecast_text({.classes = {known, one}, .saved_seconds = 3.2}),
            "forecast for 12 s of these: GRADWIRE_CODEC=auto would save 3.2 s");
  known.saved_seconds = 0;
  EXPECT_EQ(forecast_text({.classes = {known, one}, .saved_seconds = 0}),
            "forecast for 12 s of these: no gain by GRADWIRE_CODEC=auto");
}

class ObservedJob : public ObservingTest {
 protected:
  // Returns the line at the end of a job of two ranks, for whose sums of these sizes a library sends 20 MB/s.
  std::string line_of(const std::vector<std::string>& hosts, const std::vector<std::uint64_t>& counts,
                      bool dense = true) {
    const test::Watchdog watchdog("a process group of threads");
    std::vector<std::thread> ranks;
    testing::internal::CaptureStderr();
    for (int rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, rank] {
        GroupEngine engine(store_.rendezvous(), {.rank = rank,
                                                 .world_size = 2,
                                                 .timeout = 60s,
                                                 .first = true,
                                                 .host = hosts[static_cast<std::size_t>(rank)]});
        for (int turn = 0; turn < 12 && rank == 0; ++turn) {
          for (const std::uint64_t count : counts) {
            make(engine, count, dense);
          }
        }
      });
    }
    for (std::thread& rank : ranks) {
      rank.join();
    }
    report();
    return testing::internal::GetCapturedStderr();
  }

  void make(GroupEngine& engine, std::uint64_t count, bool dense) {
    const auto passed = engine.passes({.dtype = DType::f32,
                                       .reduction = Reduction::sum,
                                       .count = count,
                                       .bytes = count * sizeof(float),
                                       .buffer = many_.data(),
                                       .dense = dense});
    ASSERT_TRUE(passed);
    std::this_thread::sleep_for(
        std::chrono::duration<double>(0.001 + static_cast<double>(count) * sizeof(float) / 20e6));
    EXPECT_EQ(passed->ended(nullptr), nullptr);
  }

  test::ThreadStore store_;
  std::vector<float> many_ = values_of(256 << 10);
};

TEST_F(ObservedJob, IsToldWhatWouldBeSavedOnASlowLink) {
  EXPECT_THAT(line_of({"one", "another"}, {500, 16 << 10, 64 << 10, 256 << 10}),
              testing::ContainsRegex(
                  "calls could be .*; forecast for [0-9.]+ s of these: GRADWIRE_CODEC=auto would save [0-9.]+ s"));
  for (const auto& [key, value] : store_.values()) {
    EXPECT_THAT(key, testing::StartsWith("settings/")) << "the line sends no message";
  }
}

TEST_F(ObservedJob, IsPromisedNothingOnOneHost) {
  EXPECT_THAT(line_of({"one", "one"}, {500, 16 << 10, 64 << 10, 256 << 10}),
              HasSubstr("no gain by GRADWIRE_CODEC=auto"));
}

TEST_F(ObservedJob, IsToldNothingOfTooFewSizes) {
  const std::string line = line_of({"one", "another"}, {64 << 10});
  EXPECT_THAT(line, HasSubstr("GRADWIRE_CODEC=auto compresses those that it makes faster"));
  EXPECT_THAT(line, Not(HasSubstr("forecast")));
}

TEST_F(ObservedJob, IsToldNothingOfViewsWithGaps) {
  EXPECT_THAT(line_of({"one", "another"}, {500, 16 << 10, 64 << 10, 256 << 10}, false), Not(HasSubstr("forecast")));
}

}  // namespace
}  // namespace gradwire::torch_c10d
