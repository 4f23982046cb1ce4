// Tests the advice on the batch over made-up steps, without clocks or ranks.
#include "choice/batch_advisor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "choice/noise_scale.hpp"
#include "gradwire/error.hpp"
#include "plan/plan.hpp"

namespace gradwire::choice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Returns the forecast for a link of this rate: there are 4 MB to send, of which 50 ms are hidden.
BatchForecast over_link(double bytes_per_second, std::optional<double> noise = kInfinity) {
  return {.compute_seconds = 0.1,
          .exposed_seconds = std::max(0.0, 4e6 / bytes_per_second - 0.05),
          .noise_scale = noise,
          .ranks = 4};
}

BatchAdvisor advisor(Policy::Batch batch = {}, std::uint64_t dwell = 0) {
  return BatchAdvisor({.batch = batch, .dwell = dwell});
}

std::uint32_t accumulation_after(BatchAdvisor& advisor, const BatchForecast& forecast, std::uint64_t first = 0) {
  for (std::uint64_t step = first; step < first + 20; ++step) {
    (void)advisor.update(step, forecast);
  }
  return advisor.accumulation();
}

TEST(BatchAdvisor, TheExposedShareEndsBelowItsTarget) {
  for (const double target : {0.02, 0.1, 0.3, 0.7}) {
    for (const double exposed : {0.0, 0.001, 0.02, 0.1, 0.5}) {
      const BatchForecast forecast{.compute_seconds = 0.1, .exposed_seconds = exposed, .noise_scale = kInfinity};
      BatchAdvisor any = advisor({.target_exposed = target, .max_accumulation = 4096});
      const std::uint32_t count = accumulation_after(any, forecast);
      EXPECT_LE(exposed_share(forecast, count), target + 1e-12) << target << ' ' << exposed;
      EXPECT_LE(count, std::ceil(1.1 * exposed * (1 - target) / (target * 0.1)) + 1) << "no more steps than necessary";
    }
  }
}

TEST(BatchAdvisor, TwiceOrHalfAsManyAtATimeAfterADwell) {
  BatchAdvisor any = advisor({.max_accumulation = 50}, 20);
  std::vector<std::uint64_t> steps;
  std::vector<std::uint32_t> counts;
  for (std::uint64_t step = 1; step < 300; ++step) {
    if (const auto why = any.update(step, over_link(step < 150 ? 2.5e6 : 100e6))) {
      steps.push_back(step);
      counts.push_back(any.accumulation());
      EXPECT_THAT(*why, HasSubstr("target 10%"));
    }
  }
  EXPECT_THAT(counts, ElementsAre(2, 4, 8, 16, 32, 50, 25, 13, 7, 4, 2, 1));
  EXPECT_THAT(steps, ElementsAre(20, 40, 60, 80, 100, 120, 150, 170, 190, 210, 230, 250));
}

TEST(BatchAdvisor, StaysWithinItsBounds) {
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> exponent(-6, 3);
  for (int round = 0; round < 200; ++round) {
    const std::uint32_t low = 1 + random() % 5;
    const std::uint32_t high = low + random() % 20;
    BatchAdvisor any = advisor({.target_exposed = 0.05, .min_accumulation = low, .max_accumulation = high});
    EXPECT_EQ(any.accumulation(), low);
    for (std::uint64_t step = 0; step < 50; ++step) {
      const std::uint32_t before = any.accumulation();
      (void)any.update(step, {.compute_seconds = std::pow(10, exponent(random)),
                              .exposed_seconds = std::pow(10, exponent(random)),
                              .noise_scale = std::pow(10, exponent(random)),
                              .ranks = 2});
      ASSERT_GE(any.accumulation(), low);
      ASSERT_LE(any.accumulation(), high);
      ASSERT_LE(any.accumulation(), 2 * before);
      ASSERT_GE(2 * any.accumulation(), before);
    }
  }
}

TEST(BatchAdvisor, FallsWithTheBandwidthOfTheLink) {
  for (const std::optional<double> noise : {std::optional<double>(kInfinity), std::optional<double>(37)}) {
    std::uint32_t last = 4096;
    std::uint32_t first = 0;
    for (double rate = 1e6; rate < 1e9; rate *= 1.07) {
      BatchAdvisor any = advisor({.max_accumulation = 64});
      const std::uint32_t count = accumulation_after(any, over_link(rate, noise));
      EXPECT_LE(count, last) << rate;
      first = first == 0 ? count : first;
      last = count;
    }
    EXPECT_EQ(first, noise == kInfinity ? 64 : 9);
    EXPECT_EQ(last, 1U);
  }
  // The same holds for each single change, from any start.
  for (std::uint32_t start = 1; start <= 64; ++start) {
    std::uint32_t above = 4096;
    for (double rate = 1e6; rate < 1e9; rate *= 1.5) {
      BatchAdvisor any = advisor({.min_accumulation = 1, .max_accumulation = 64});
      // Goes to `start`, by a forecast that asks for exactly that.
      (void)accumulation_after(
          any, {.compute_seconds = 0.9, .exposed_seconds = 0.1 * start / 1.1, .noise_scale = 1.0 * start});
      const std::uint32_t before = any.accumulation();
      (void)any.update(100, over_link(rate));
      EXPECT_LE(any.accumulation(), above) << before << ' ' << rate;
      above = any.accumulation();
    }
  }
}

TEST(BatchAdvisor, DoesNotFlapAroundItsTarget) {
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> noise(0.9, 1.1);
  BatchAdvisor any = advisor({.max_accumulation = 64});
  int changes = 0;
  for (std::uint64_t step = 0; step < 2000; ++step) {
    changes += any.update(step, {.compute_seconds = 0.1 * noise(random),
                                 .exposed_seconds = 0.1 * noise(random),
                                 .noise_scale = 200 * noise(random),
                                 .ranks = 4})
                   ? 1
                   : 0;
  }
  EXPECT_LE(changes, 8) << "four doublings, and a few more micro-steps";
  EXPECT_GE(any.accumulation(), 9U);
  EXPECT_LE(any.accumulation(), 13U);
}

TEST(BatchAdvisor, AllRanksTogetherStayBelowTheNoiseScale) {
  const auto count = [](std::optional<double> noise) {
    BatchAdvisor any = advisor({.max_accumulation = 64});
    return accumulation_after(any, over_link(2.5e6, noise));
  };
  EXPECT_EQ(count(kInfinity), 64U);
  EXPECT_EQ(count(std::nullopt), 64U) << "without a measurement only the bounds count";
  EXPECT_EQ(count(100), 25U) << "there are four ranks";
  EXPECT_EQ(count(4.1), 1U);
  EXPECT_EQ(count(0), 1U) << "one sample is as good as many";
  // The advice grows with the training; a slightly lower value does not take it back.
  BatchAdvisor any = advisor({.max_accumulation = 64});
  EXPECT_EQ(accumulation_after(any, over_link(2.5e6, 40)), 10U);
  EXPECT_EQ(accumulation_after(any, over_link(2.5e6, 80), 20), 20U);
  EXPECT_EQ(accumulation_after(any, over_link(2.5e6, 60), 40), 20U);
  EXPECT_EQ(accumulation_after(any, over_link(2.5e6, 20), 60), 7U);
}

TEST(BatchAdvisor, TheLearningRateFollows) {
  BatchAdvisor linear = advisor();
  BatchAdvisor root = advisor({.scaling = BatchScaling::square_root});
  EXPECT_EQ(linear.learning_rate_factor(), 1);
  (void)accumulation_after(linear, over_link(2.5e6));
  (void)accumulation_after(root, over_link(2.5e6));
  EXPECT_EQ(linear.learning_rate_factor(), 8);
  EXPECT_EQ(root.learning_rate_factor(), std::sqrt(8.0));
}

TEST(BatchAdvisor, NoNumbersChangeNothing) {
  BatchAdvisor any = advisor();
  const double nan = std::nan("");
  for (const auto& [compute, exposed] :
       std::vector<std::pair<double, double>>{{0, 1}, {nan, 1}, {1, nan}, {kInfinity, 1}, {1, kInfinity}, {-1, 1}}) {
    EXPECT_FALSE(any.update(100, {.compute_seconds = compute, .exposed_seconds = exposed})) << compute << exposed;
  }
  EXPECT_EQ(any.accumulation(), 1U);
}

// The noise of the gradients is known: the estimate is within a fifth of it.
TEST(NoiseScale, IsFoundFromTwoNorms) {
  constexpr std::size_t kCount = 4096;
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  for (const int ranks : {2, 4}) {
    for (const int micro_steps : {1, 3}) {
      for (const double scale : {0.5, 12.0}) {
        const double sigma = std::sqrt(scale);  // the true gradient is all ones, so scale = sigma^2
        NoiseWindow window(64);
        for (int step = 0; step < 64; ++step) {
          std::vector<double> mean(kCount);
          double local = 0;
          for (int rank = 0; rank < ranks; ++rank) {
            for (double& value : mean) {
              const double g = 1 + sigma / std::sqrt(micro_steps) * normal(random);
              local += g * g / ranks;
              value += g / ranks;
            }
          }
          double reduced = 0;
          for (const double value : mean) {
            reduced += value * value;
          }
          window.add(noise_terms({local, reduced}, ranks, micro_steps));
        }
        EXPECT_NEAR(noise_scale(window.mean()), scale, 0.2 * scale) << ranks << " ranks, " << micro_steps;
        EXPECT_NEAR(window.mean().signal, kCount, 0.2 * kCount);
      }
    }
  }
}

TEST(NoiseScale, OfExactNumbers) {
  // |G|^2 = 2, and a micro-step has noise 12: two micro-steps give 2 + 6, those of four ranks 2 + 1.5.
  const NoiseTerms terms = noise_terms({.local = 8, .reduced = 3.5}, 4, 2);
  EXPECT_DOUBLE_EQ(terms.signal, 2);
  EXPECT_DOUBLE_EQ(terms.noise, 12);
  EXPECT_DOUBLE_EQ(noise_scale(terms), 6);
  EXPECT_EQ(noise_scale({.signal = -1, .noise = 1}), kInfinity);
  EXPECT_EQ(noise_scale({.signal = 1, .noise = -1}), 0);
  NoiseWindow window(2);
  window.add({.signal = std::nan(""), .noise = 1});
  window.add({.signal = 1, .noise = kInfinity});
  EXPECT_EQ(window.count(), 0U);
  EXPECT_EQ(window.mean().signal, 0);
  for (const double value : {100.0, 1.0, 3.0}) {
    window.add({.signal = value, .noise = 2 * value});
  }
  EXPECT_EQ(window.count(), 2U);
  EXPECT_EQ(window.mean().signal, 2) << "only the last two count";
}

std::string batch_error(const std::string& text) {
  try {
    (void)Policy::parse(text, "p.toml");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "no error";
}

TEST(BatchPolicy, IsRead) {
  const Policy policy = Policy::parse(
      "[batch]\ntarget_exposed = \"5%\"\nmin_accumulation = 2\nmax_accumulation = 16\nscaling = \"sqrt\"");
  ASSERT_TRUE(policy.batch);
  EXPECT_EQ(*policy.batch, (Policy::Batch{0.05, 2, 16, BatchScaling::square_root}));
  EXPECT_EQ(*Policy::parse("[batch]").batch, Policy::Batch{});
  EXPECT_FALSE(Policy::parse("").batch);
}

TEST(BatchPolicy, Mistakes) {
  EXPECT_THAT(batch_error("[batch]\ntarget = \"5%\""), HasSubstr("p.toml:2:1: unknown key \"target\" in [batch]"));
  EXPECT_THAT(batch_error("max_accumulation = 3"), HasSubstr("1:1: unknown key \"max_accumulation\""));
  EXPECT_THAT(batch_error("max_accumulation = 3"), HasSubstr("write it in [batch]"));
  EXPECT_THAT(batch_error("batch = 3"), HasSubstr("1:9: batch must be a table"));
  EXPECT_THAT(batch_error("[batch]\ntarget_exposed = \"0%\""), HasSubstr("2:18: target_exposed is 0, which no batch"));
  EXPECT_THAT(batch_error("[batch]\ntarget_exposed = 1"), HasSubstr("2:18: target_exposed is 1; write a share"));
  EXPECT_THAT(batch_error("[batch]\ntarget_exposed = \"fast\""), HasSubstr("p.toml:2:18: "));
  EXPECT_THAT(batch_error("[batch]\nmax_accumulation = 0"),
              HasSubstr("2:20: max_accumulation is 0; write micro-steps"));
  EXPECT_THAT(batch_error("[batch]\nmax_accumulation = 5000"), HasSubstr("1 to 4096"));
  EXPECT_THAT(batch_error("[batch]\nscaling = \"cube\""),
              HasSubstr("2:11: unknown scaling \"cube\"; write \"linear\""));
  EXPECT_THAT(batch_error("[batch]\nmax_accumulation = 2\nmin_accumulation = 4"),
              HasSubstr("p.toml:2:20: accumulation from 4 to 2 leaves nothing to advise"));
  EXPECT_THAT(batch_error("[batch]\nmin_accumulation = 9"), HasSubstr("accumulation from 9 to 8"));
  EXPECT_THAT(batch_error("deterministic = true\n[batch]"), HasSubstr("2:1: [batch] advises by measurement"));
}

// No reader has checked a policy that is made in code.
TEST(BatchPolicy, MistakesInCode) {
  const auto error = [](const Policy::Batch& batch, bool deterministic = false) -> std::string {
    Policy policy;
    policy.batch = batch;
    policy.deterministic = deterministic;
    try {
      (void)plan::make_plan(policy, {{"w", 10, DType::f32}}, {.world_size = 2});
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(error({}), "no error");
  EXPECT_THAT(error({.target_exposed = 0}), HasSubstr("policy built-in: target_exposed of the batch is 0"));
  EXPECT_THAT(error({.target_exposed = std::nan("")}), HasSubstr("target_exposed"));
  EXPECT_THAT(error({.min_accumulation = 0}), HasSubstr("accumulation from 0 to 8"));
  EXPECT_THAT(error({.min_accumulation = 9}), HasSubstr("accumulation from 9 to 8"));
  EXPECT_THAT(error({.max_accumulation = 1U << 30}), HasSubstr("1073741824"));
  EXPECT_THAT(error({}, true), HasSubstr("deterministic forbids"));
}

TEST(BatchPolicy, RanksMustAgree) {
  const auto difference = [](const std::string& mine, const std::string& theirs) {
    const auto describe = [](const std::string& text) {
      return plan::make_plan(Policy::parse(text), {{"w", 10, DType::f32}}, {.world_size = 2}).describe();
    };
    return plan::first_difference(describe(mine), 0, describe(theirs), 1);
  };
  const std::string automatic = "[defaults]\ncodec = \"auto\"\nsmall = \"off\"\n";
  EXPECT_EQ(difference("", "[auto]\ndwell = 3\n[link]\nbandwidth = \"1Gbit/s\""), "") << "neither has any effect";
  EXPECT_THAT(difference("[batch]", ""), HasSubstr("advice on the batch: rank 0 has at most 0.1"));
  EXPECT_THAT(difference("[batch]", "[batch]\nmax_accumulation = 4"), HasSubstr("rank 1 has accumulation 1 to 4;"));
  EXPECT_THAT(difference("[batch]", "[batch]\nscaling = \"sqrt\""), HasSubstr("scaling sqrt"));
  EXPECT_THAT(difference("[batch]", "[batch]\ntarget_exposed = \"11%\""), HasSubstr("0.11"));
  EXPECT_THAT(difference("[batch]", "[batch]\nmin_accumulation = 2"), HasSubstr("accumulation 2 to 8"));
  EXPECT_THAT(difference("[batch]", "[batch]\n[auto]\ndwell = 3"), HasSubstr("dwell 3"));
  EXPECT_THAT(difference(automatic, automatic + "[auto]\ndwell = 3"),
              HasSubstr("choice of codecs: rank 0 has dwell 20, rank 1 has dwell 3;"));
  EXPECT_THAT(difference(automatic, automatic + "[auto]\nwindow = 3"), HasSubstr("window 3"));
  EXPECT_THAT(difference(automatic, automatic + "[auto]\ngain = \"7%\""), HasSubstr("gain 0.07"));
  EXPECT_THAT(difference(automatic, automatic + "[auto]\ncost = \"1%\""), HasSubstr("cost 0.01"));
  EXPECT_THAT(difference(automatic, automatic + "[auto]\ngain = \"5.00000001%\""), HasSubstr("gain 0.0500000001"));
  EXPECT_THAT(difference(automatic, automatic + "[link]\nbandwidth = \"1Gbit/s\""), HasSubstr("link measured"));
}

}  // namespace
}  // namespace gradwire::choice
