// Tests sessions that choose codecs step by step: what a trial times, when ranks compare, and how each coming step
// travels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <set>
#include <sstream>

#include "model.hpp"
#include "session/host/bucket_runner.hpp"
#include "session/parts/auto_codec/auto_codec.hpp"
#include "session/state/state_file.hpp"
#include "tests/support/in_call_transport.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using ::testing::ElementsAre;
using By = session::TrialStep::By;

constexpr std::uint64_t kLate = 50'000;  // a step

Policy bf16_or_dense(const char* more = "") {
  return Policy::parse(std::string("[defaults]\ncodec = \"auto\"\nallow = [\"bf16\"]\nsmall = \"off\"\n"
                                   "[link]\nbandwidth = \"1Gbit/s\"\nlatency = \"50us\"\n") +
                       more);
}

// Compares ranks only for the choice of codecs.
class AutoSteps : public ::testing::Test {
 protected:
  AutoSteps() { ::setenv("GRADWIRE_SLOW", "off", 1); }
  ~AutoSteps() override { ::unsetenv("GRADWIRE_SLOW"); }
};

std::string state_of_step(Session& session, std::uint64_t step) {
  std::stringstream saved;
  session.save(saved);
  session::SavedState state = session::read_state(saved, "save");
  state.step = step;
  std::stringstream changed;
  session::write_state(state, changed);
  return changed.str();
}

void make_step(Session& session, const std::vector<Gradient>& gradients) {
  for (const Gradient& gradient : gradients) {
    session.ready(gradient.id);
  }
  session.finish();
}

// Mutation tried: restore() does not tell the choice of codecs.
TEST_F(AutoSteps, ALoadedStepIsTheFirstOneAlsoAfterReserve) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    Session session(transport, bf16_or_dense());
    add_all(session, gradients);
    session.reserve();
    std::stringstream late(state_of_step(session, kLate));
    session.load(late);
    for (int i = 0; i < 4; ++i) {
      make_step(session, gradients);
    }
    EXPECT_EQ(session.step(), kLate + 4);
    EXPECT_EQ(session.statistics().comparisons, 0U) << "too few steps were seen";
    EXPECT_EQ(session.statistics().switches.at(0).step, kLate);
    make_step(session, gradients);
    make_step(session, gradients);
    EXPECT_EQ(session.statistics().comparisons, 1U);
  });
}

// Probes that record which trials are asked for, and report the times of `seconds`.
class MadeUpProbes final : public session::Probes {
 public:
  using Seconds = std::function<double(const plan::Bucket&, By)>;
  MadeUpProbes(session::Probes& real, Seconds seconds) : real_(real), seconds_(std::move(seconds)) {}

  [[nodiscard]] bool has_native(DType dtype) const override { return real_.has_native(dtype); }
  [[nodiscard]] bool ends_in_call(const plan::Plan& plan,
                                  std::span<const session::BucketChoice> choices) const override {
    return real_.ends_in_call(plan, choices);
  }
  void know_link(const exchange::Cluster& cluster) override { real_.know_link(cluster); }
  double time_exchange(int to, int from, std::uint64_t bytes) override { return real_.time_exchange(to, from, bytes); }
  double time_reduction(const plan::Plan& trial, const session::TensorMemory& /*memory*/,
                        const session::TrialStep& step) override {
    const plan::Bucket& bucket = trial.buckets[0];
    asked.insert(step.by);
    weighted.insert(step.weighted);
    if (step.by != By::frames) {
      native_counts.insert(bucket.count);
    }
    return seconds_(bucket, step.by);
  }

  std::set<By> asked;
  std::set<bool> weighted;
  std::set<std::uint64_t> native_counts;  // element counts

 private:
  session::Probes& real_;
  Seconds seconds_;
};

double soon(const plan::Bucket& bucket, By /*by*/) { return 1e-5 + 1e-9 * static_cast<double>(bucket.count); }

struct Trials {
  std::set<By> ways;
  std::set<std::uint64_t> native_counts;
  std::set<bool> weighted;
};

// Returns the trials of a session with these tensors, the last of which is in its first bucket.
Trials trials_of(const std::vector<std::uint64_t>& counts, session::StepsAhead steps = {}) {
  std::vector<TensorInfo> tensors;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    tensors.push_back({"tensor " + std::to_string(i), counts[i], DType::f32});
  }
  const plan::Plan plan = plan::make_plan(bf16_or_dense("[bucket]\nbytes = \"64KiB\"\n"), tensors, {.world_size = 2});
  EXPECT_EQ(plan.buckets.size(), counts.size());
  EXPECT_EQ(plan.buckets.back().count, counts.front());
  Trials trials;
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    session::BucketRunner runner(std::make_shared<InCallTransport>(transport), {});
    runner.agree(plan, steps.weighted, 0, "", "");
    MadeUpProbes probes(*static_cast<session::Runner&>(runner).probes(), soon);
    (void)session::calibrate(runner, probes, plan, steps, Link::parse("1Gbit/s,50us"), {});
    if (transport->rank() == 0) {
      trials = {probes.asked, probes.native_counts, probes.weighted};
    }
  });
  return trials;
}

constexpr std::uint64_t kSmall = 1'000;    // 4 KB
constexpr std::uint64_t kMiddle = 80'000;  // 320 KB: a size that blocking calls take

// Mutation tried: a trial goes the way of a small step because it is small itself.
TEST(AutoTrials, GoTheWayOfTheStep) {
  EXPECT_THAT(trials_of({kSmall}).ways, ElementsAre(By::frames, By::at_once));
  const Trials middle = trials_of({kMiddle});
  EXPECT_THAT(middle.ways, ElementsAre(By::frames, By::in_call));
  EXPECT_THAT(middle.native_counts, ElementsAre(1'024, kMiddle)) << "both sizes are tried";
  const Trials behind_another = trials_of({kSmall, kMiddle});
  EXPECT_THAT(behind_another.ways, ElementsAre(By::frames, By::native)) << "the whole step is not small";
  EXPECT_THAT(behind_another.native_counts, ElementsAre(kSmall / 4, kSmall)) << "the other needs a blocking call";
  EXPECT_THAT(trials_of({kMiddle, kMiddle}).ways, ElementsAre(By::frames, By::in_call));
}

// Mutation tried: weights are not passed on.
TEST(AutoTrials, OfWeightedStepsHaveWeightsAndAreNeitherSmallNorInACall) {
  for (const std::uint64_t count : {kSmall, kMiddle}) {
    const Trials trials = trials_of({count}, {.weighted = true});
    EXPECT_THAT(trials.ways, ElementsAre(By::frames, By::native)) << count;
    EXPECT_THAT(trials.weighted, ElementsAre(true));
  }
  EXPECT_THAT(trials_of({kSmall}).weighted, ElementsAre(false));
}

TEST(AutoTrials, OfStepsThatLookForNanFirstAreNotMadeAtOnce) {
  EXPECT_THAT(trials_of({kSmall}, {.look_first = true}).ways, ElementsAre(By::frames, By::native));
}

// Mutation tried: every native trial is a blocking call.
TEST(AutoTrials, AreMadeAsAsked) {
  const plan::Plan plan = plan::make_plan(bf16_or_dense(), {{"w", kSmall, DType::f32}}, {.world_size = 2});
  run_ranks(2, [&](const std::shared_ptr<Transport>& inner) {
    const auto transport = std::make_shared<InCallTransport>(inner);
    session::BucketRunner bucket_runner(transport, {});
    session::Runner& runner = bucket_runner;
    runner.agree(plan, false, 0, "", "");
    std::vector<float> values(kSmall, 3);
    const auto make = [&](By by, bool weighted) {
      std::fill(values.begin(), values.end(), static_cast<float>(2 * inner->rank()));
      const int calls = transport->calls();
      EXPECT_GT(runner.probes()->time_reduction(plan, {view(values.data(), kSmall), false}, {by, weighted}), 0);
      EXPECT_EQ(values.back(), 1) << "the result is the mean";
      return transport->calls() - calls;
    };
    for (const By by : {By::frames, By::native, By::at_once}) {
      EXPECT_EQ(make(by, false), 0);
    }
    EXPECT_EQ(make(By::in_call, false), 1);
    EXPECT_EQ(make(By::frames, true), 0);
    EXPECT_EQ(make(By::native, true), 0);
    EXPECT_EQ(runner.statistics().at(0).calls, 0U) << "no trial asked for statistics";
  });
}

// bf16 takes five times as long as dense: more than a trial may cost a session of few steps. Mutation tried: load()
// does nothing.
TEST(AutoTrials, OfWhatIsFarSlowerWaitForStepsOfThisProcess) {
  const plan::Plan plan = plan::make_plan(bf16_or_dense(), {{"w", kMiddle, DType::f32}}, {.world_size = 2});
  const auto seconds = [](const plan::Bucket& bucket, By by) {
    const double element = by == By::frames && bucket.codec != CodecSpec::exact() ? 50e-9 : 10e-9;
    return 50e-6 + element * static_cast<double>(bucket.count);
  };
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    session::BucketRunner runner(transport, {});
    runner.agree(plan, false, 0, "", "");
    MadeUpProbes probes(*static_cast<session::Runner&>(runner).probes(), seconds);
    for (const bool loads : {false, true}) {
      session::AutoCodec chooser(runner, probes, plan, bf16_or_dense());
      chooser.begin(0, {}, {});
      if (loads) {
        chooser.load({.step = kLate});
        EXPECT_FALSE(chooser.due(kLate + 4));
      }
      ASSERT_TRUE(chooser.due(kLate + 5));
      for (int i = 0; i < 5; ++i) {
        chooser.step_ended(kLate, {.step_seconds = 2e-3, .busy_seconds = 1.05e-3, .ready_seconds = {1e-3}});
      }
      std::vector<double> mine;
      chooser.append(mine);
      ASSERT_EQ(chooser.choices()[0].level, 0U);
      const std::uint64_t revision = chooser.revision();
      chooser.take({.step = kLate + 5, .ranks = {mine, mine}});
      EXPECT_EQ(chooser.choices()[0].level, loads ? 0U : 1U);
      EXPECT_EQ(chooser.revision() != revision, !loads) << "the revision counts levels";
    }
  });
}

// Steps are small except while another level is tried. Mutations tried: decide_coming() asks only once; it asks only
// once for small steps.
TEST_F(AutoSteps, ThatAreSmallStopBeingSoForATrialAndAreAgain) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    std::vector<Gradient> gradients{{"w", std::vector<float>(100), {}}};
    constexpr int kSessions = 100;
    constexpr int kSteps = 200;
    bool tried = false, small = false;
    // On a busy machine a session may measure the other level as far slower, and try it only after minutes, or as
    // faster, and stay with it. Then the test takes a new session.
    for (int i = 0; i < kSessions && !small; ++i) {
      Session session(transport, bf16_or_dense(), {.threading = Threading::serialized});
      add_all(session, gradients);
      bool tries = false;
      for (int step = 0; step < kSteps && !tries; ++step) {  // ends at the same step on all ranks
        make_step(session, gradients);
        tries = session.statistics().all().frames_sent > 0;
      }
      for (int step = 0; step < kSteps && tries && !small; ++step) {
        session.reset_statistics();
        make_step(session, gradients);
        small = session.statistics().all().total_seconds == 0;  // only the executor adds to this time
      }
      tried = tried || tries;
    }
    EXPECT_TRUE(tried) << "no step was made of frames";
    EXPECT_TRUE(small);
  });
}

// Mutation tried: the session asks at the end of every step.
TEST_F(AutoSteps, HowTheyTravelIsAskedOnlyWhereItMayHaveChanged) {
  run_ranks(2, [](const std::shared_ptr<Transport>& inner) {
    std::vector<Gradient> gradients{{"w", std::vector<float>(kMiddle), {}}};
    const auto transport = std::make_shared<InCallTransport>(inner);
    Session session(transport, bf16_or_dense("[auto]\ncost = 0\n"), {.threading = Threading::serialized});
    add_all(session, gradients);
    make_step(session, gradients);
    const int asked = transport->questions();
    constexpr int kSteps = 200;
    for (int i = 0; i < kSteps; ++i) {
      make_step(session, gradients);
    }
    EXPECT_LE(transport->questions() - asked, kSteps + 50) << "it asks once where a bucket starts";
  });
}

}  // namespace
}  // namespace gradwire::test
