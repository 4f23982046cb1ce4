// Tests AdamW and Sgd over memory of the caller: their formulas, their reaction to skipped steps, and their state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

#include "gradwire/optimizer.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr std::size_t kElements = 5;

struct Model {
  std::vector<float> w{1, -2, 3, 0.5F, 0}, gradient = std::vector<float>(kElements);
  std::vector<float> b{0.25F}, b_gradient = std::vector<float>(1);

  template <class Kind>
  void add_to(Kind& optimizer) {
    optimizer.add("w", w, gradient);
    optimizer.add("b", b, b_gradient);
  }
  void fill(int step, float factor = 1) {
    for (std::size_t i = 0; i < kElements; ++i) {
      gradient[i] = i == 4 ? 0 : factor * static_cast<float>(std::sin(static_cast<double>(i) + 0.9 * step));
    }
    b_gradient[0] = factor * 0.125F;
  }
};

// The test computes the formula in double precision.
TEST(OptimizerAdamW, FollowsTheFormula) {
  const AdamWOptions options{.learning_rate = 0.01, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1};
  AdamW optimizer(options);
  Model model;
  model.add_to(optimizer);
  std::vector<double> wanted(model.w.begin(), model.w.end()), m(kElements), v(kElements);
  for (int step = 0; step < 30; ++step) {
    if (step == 20) {
      optimizer.set_learning_rate(0.02);
    }
    const double rate = step < 20 ? 0.01 : 0.02;
    model.fill(step);
    for (std::size_t i = 0; i < kElements; ++i) {
      const double g = model.gradient[i];
      m[i] = 0.8 * m[i] + 0.2 * g;
      v[i] = 0.95 * v[i] + 0.05 * g * g;
      const double first = m[i] / (1 - std::pow(0.8, step + 1));
      const double second = v[i] / (1 - std::pow(0.95, step + 1));
      wanted[i] = wanted[i] - rate * 0.1 * wanted[i] - rate * first / (std::sqrt(second) + 1e-8);
    }
    EXPECT_TRUE(optimizer.step({}));
  }
  EXPECT_EQ(optimizer.steps(), 30U);
  for (std::size_t i = 0; i < kElements; ++i) {
    EXPECT_NEAR(model.w[i], wanted[i], 1e-5) << i;
  }
}

TEST(OptimizerSgd, FollowsTheFormula) {
  Sgd optimizer({.learning_rate = 0.1, .momentum = 0.5, .weight_decay = 0.25});
  std::vector<float> w{2}, gradient{1};
  optimizer.add("w", w, gradient);
  optimizer.step({});
  EXPECT_EQ(w[0], 2 - 0.1F * 1.5F);
  const float moved = w[0];
  gradient[0] = -1;
  optimizer.step({});
  EXPECT_FLOAT_EQ(w[0], moved - 0.1F * (0.75F - 1 + 0.25F * moved));
}

// Mutations tried: a skipped step is applied; the loss scale is not removed.
TEST(Optimizer, StepsThatWereNotChangeNothing) {
  const AdamWOptions options{.learning_rate = 0.01, .epsilon = 0.5};  // a small epsilon would hide the scales
  AdamW with(options), without(options);
  Model one, other;
  one.add_to(with);
  other.add_to(without);
  const auto scale = with.scale("w");
  for (int step = 0; step < 10; ++step) {
    with.set_loss_scale(256);
    one.fill(step, 256);
    other.fill(step);
    const std::vector<float> before(scale.begin(), scale.end());
    for (bool StepOutcome::*what : {&StepOutcome::skipped, &StepOutcome::nonfinite, &StepOutcome::repeat}) {
      StepOutcome outcome;
      outcome.*what = true;
      EXPECT_FALSE(with.step(outcome));
    }
    EXPECT_EQ(std::vector<float>(scale.begin(), scale.end()), before);
    StepOutcome delivered;
    delivered.world_changed = true;
    EXPECT_TRUE(with.step(delivered));
    EXPECT_TRUE(without.step({}));
    EXPECT_EQ(one.w, other.w);
  }
}

TEST(OptimizerAdamW, TheScaleIsThatOfTheSecondMomentBefore) {
  AdamW optimizer({.beta2 = 0.5, .phi = 0.1});
  Model model;
  model.add_to(optimizer);
  const auto scale = optimizer.scale("w");
  EXPECT_EQ(std::vector<float>(scale.begin(), scale.end()), std::vector<float>(kElements, 0.0F));
  std::vector<double> v(kElements);
  for (int step = 0; step < 3; ++step) {
    model.fill(step);
    optimizer.step({});
    double mean = 0;
    for (std::size_t i = 0; i < kElements; ++i) {
      v[i] = 0.5 * v[i] + 0.5 * model.gradient[i] * model.gradient[i];
      mean += v[i] / kElements;
    }
    for (std::size_t i = 0; i < kElements; ++i) {
      EXPECT_NEAR(scale[i], std::sqrt(v[i]) + 0.1 * std::sqrt(mean), 1e-6) << i;
    }
  }
  EXPECT_EQ(optimizer.scale(0).data(), scale.data()) << "the scale stays at its address";
}

// Mutation tried: elements that have never had a gradient are not guarded.
TEST(OptimizerAdamW, AFrozenSecondMomentStaysAndWhatItDoesNotKnowToo) {
  AdamW optimizer({.learning_rate = 0.01, .weight_decay = 0});
  Model model;
  model.add_to(optimizer);
  model.fill(0);
  optimizer.step({});
  optimizer.freeze_second_moment();
  const auto scale = optimizer.scale("w");
  const std::vector<float> before(scale.begin(), scale.end());
  model.fill(1);
  model.gradient[4] = 1e-3F;  // the first gradient of this element
  const float moved = model.w[1];
  optimizer.step({});
  EXPECT_EQ(std::vector<float>(scale.begin(), scale.end()), before);
  EXPECT_EQ(model.w[4], 0);
  EXPECT_NE(model.w[1], moved);
}

// Mutations tried: the powers of beta are not saved; the loss scale is not saved; the scale is not recomputed.
void expect_to_go_on_bit_by_bit(bool packed) {
  AdamW whole;
  whole.set_loss_scale(8);
  Model model;
  model.add_to(whole);
  for (int step = 0; step < 5; ++step) {
    model.fill(step);
    whole.step({});
  }
  std::stringstream state;
  state << "before";
  whole.save(state, packed);
  state << "after";
  Model resumed = model;
  AdamW again;
  resumed.add_to(again);
  const auto scale = again.scale("w");
  state.ignore(6);
  again.load(state);
  EXPECT_EQ(again.steps(), 5U);
  EXPECT_EQ(state.str().substr(static_cast<std::size_t>(state.tellg())), "after");
  const auto wanted = whole.scale("w");
  EXPECT_EQ(std::vector<float>(scale.begin(), scale.end()), std::vector<float>(wanted.begin(), wanted.end()));
  for (int step = 5; step < 9; ++step) {
    model.fill(step);
    resumed.fill(step);
    whole.step({});
    again.step({});
    EXPECT_EQ(model.w, resumed.w);
  }
}

TEST(Optimizer, ASavedStateGoesOnBitByBit) { expect_to_go_on_bit_by_bit(false); }

TEST(Optimizer, APackedStateGoesOnBitByBit) { expect_to_go_on_bit_by_bit(true); }

TEST(Optimizer, APackedStateIsSmaller) {
  Sgd optimizer;
  std::vector<float> parameter(100'000), gradient(100'000);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] = static_cast<float>(std::sin(static_cast<double>(i)));
  }
  optimizer.add("w", parameter, gradient);
  optimizer.step({});
  std::ostringstream plain, packed;
  optimizer.save(plain);
  optimizer.save(packed, true);
  EXPECT_LT(packed.str().size(), plain.str().size() * 95 / 100);
}

void expect_bad_states_to_be_errors(bool packed) {
  AdamW optimizer;
  Model model;
  model.add_to(optimizer);
  model.fill(0);
  optimizer.step({});
  std::stringstream saved;
  optimizer.save(saved, packed);
  const std::string bytes = saved.str();
  const auto load = [&](const std::string& text) {
    std::istringstream stream(text);
    return error_of([&] { optimizer.load(stream); });
  };
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    const ErrorCode code = load(damaged).code();
    EXPECT_TRUE(code == ErrorCode::corrupt || (code == ErrorCode::mismatch && at >= 8 && at < 16)) << at;
    EXPECT_EQ(load(bytes.substr(0, at)).code(), ErrorCode::corrupt) << at;
  }
  Sgd sgd;
  Model of_sgd;
  of_sgd.add_to(sgd);
  std::ostringstream other;
  sgd.save(other);
  EXPECT_EQ(load(other.str()).code(), ErrorCode::mismatch);
  std::ostringstream after;
  optimizer.save(after, packed);
  EXPECT_EQ(after.str(), bytes);
}

TEST(Optimizer, ABadStateIsAnErrorAndChangesNothing) { expect_bad_states_to_be_errors(false); }

TEST(Optimizer, ABadPackedStateIsAnErrorAndChangesNothing) { expect_bad_states_to_be_errors(true); }

// A copy of the memory that state() names makes another optimizer equal. Mutations tried, each fails here: without the
// scale; without the powers of beta; load() moves the memory that it names.
TEST(Optimizer, ItsStateIsWhereItSays) {
  const AdamWOptions options{.learning_rate = 0.01, .beta1 = 0.8, .beta2 = 0.95};
  AdamW optimizer(options), other(options);
  Model model, same;
  model.add_to(optimizer);
  same.add_to(other);
  for (AdamW* each : {&optimizer, &other}) {
    static_cast<void>(each->scale("w"));
  }
  const auto step = [](AdamW& stepped, Model& of, int number) {
    of.fill(number);
    EXPECT_TRUE(stepped.step({}));
  };
  const std::vector<View> into = other.state();
  std::stringstream fresh;
  other.save(fresh);
  other.load(fresh);
  for (int number = 0; number < 7; ++number) {
    step(optimizer, model, number);
  }
  optimizer.set_loss_scale(8);
  optimizer.freeze_second_moment();
  const std::vector<View> from = optimizer.state();
  ASSERT_EQ(from.size(), into.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    ASSERT_EQ(from[i].count, into[i].count);
    std::memcpy(into[i].data, from[i].data, from[i].count * element_bytes(from[i].dtype));
  }
  same = model;
  EXPECT_EQ(other.steps(), 7U);
  EXPECT_EQ(other.loss_scale(), 8);
  EXPECT_THAT(other.scale("w"), ElementsAreArray(optimizer.scale("w")));
  step(optimizer, model, 7);
  step(other, same, 7);
  EXPECT_EQ(same.w, model.w);
  std::ostringstream of_one, of_other;
  optimizer.save(of_one);
  other.save(of_other);
  EXPECT_EQ(of_one.str(), of_other.str());
}

TEST(Optimizer, MisuseIsNamed) {
  AdamW optimizer;
  std::vector<float> w(3), short_one(2);
  EXPECT_THAT(error_of([&] { optimizer.add("w", w, short_one); }).what(), HasSubstr("has 2 elements, the parameter 3"));
  AdamW fresh;
  fresh.add("w", w);
  EXPECT_THAT(error_of([&] { fresh.add("w", w); }).what(), HasSubstr("was added already"));
  EXPECT_THAT(error_of([&] { fresh.step({}); }).what(), HasSubstr("\"w\" has no gradient"));
  EXPECT_THAT(error_of([&] { (void)fresh.scale("v"); }).what(), HasSubstr("no parameter \"v\""));
  EXPECT_THAT(error_of([&] { (void)fresh.scale(1); }).what(), HasSubstr("1 is none of its 1"));
  EXPECT_THAT(error_of([&] { fresh.to_send(1, w); }).what(), HasSubstr("1 is none of its 1"));
  EXPECT_THAT(error_of([&] { fresh.to_send("w", short_one); }).what(), HasSubstr("has 2 elements, the parameter 3"));
  EXPECT_THAT(error_of([&] { fresh.set_loss_scale(0); }).what(), HasSubstr("must be finite and above 0"));
}

// On three ranks, the mean of the momenta that they send is the momentum of their mean gradient. Mutations tried: the
// momentum does not include the loss scale; the received momentum is taken for a gradient; the state does not record
// it.
TEST(OptimizerAdamW, MomentumThatIsSentMovesParametersAsGradientsDo) {
  constexpr int kSenders = 3;
  float loss_scale = 16;
  const AdamWOptions options{.learning_rate = 0.01, .beta1 = 0.8, .beta2 = 0.9};
  AdamW with(options), without(options);
  Model one, other;
  one.add_to(with);
  other.add_to(without);
  std::stringstream state;
  StepOutcome repeated;
  repeated.repeat = true;
  for (int step = 0; step < 20; ++step) {
    loss_scale = step < 12 ? 16 : 4;
    with.set_loss_scale(loss_scale);
    without.set_loss_scale(loss_scale);
    if (step == 5) {
      with.send_momentum();
      EXPECT_TRUE(with.frozen());
      without.freeze_second_moment();
      EXPECT_FALSE(without.sends_momentum());
    }
    if (step == 10) {
      with.save(state);
      AdamW loaded(options);
      one.add_to(loaded);
      loaded.load(state);
      EXPECT_TRUE(loaded.sends_momentum());
      with.freeze_second_moment();
      EXPECT_TRUE(with.sends_momentum()) << "the weaker guard does not end the stronger one";
    }
    std::vector<float> sum(kElements), sent(kElements);
    for (int rank = 0; rank < kSenders; ++rank) {
      one.fill(7 * step + rank, loss_scale);
      for (std::size_t i = 0; i < kElements; ++i) {
        sum[i] += one.gradient[i] / kSenders;
      }
      with.to_send("w", one.gradient);
      for (std::size_t i = 0; i < kElements; ++i) {
        sent[i] += one.gradient[i] / kSenders;
      }
    }
    if (step == 14) {
      EXPECT_THAT(error_of([&] { with.step({}); }).what(), HasSubstr("\"b\" was not given to to_send()"));
    }
    with.to_send("b", one.b_gradient);
    if (step == 15) {
      EXPECT_FALSE(with.step(repeated));
    }
    std::copy(sent.begin(), sent.end(), one.gradient.begin());
    std::copy(sum.begin(), sum.end(), other.gradient.begin());
    other.b_gradient[0] = 0.125F * loss_scale;
    ASSERT_TRUE(with.step({}));
    ASSERT_TRUE(without.step({}));
    for (std::size_t i = 0; i < kElements; ++i) {
      ASSERT_NEAR(one.w[i], other.w[i], 2e-6) << "step " << step << ", element " << i;
    }
    ASSERT_NEAR(one.b[0], other.b[0], 2e-6);
  }
}

// Ranks of a job with top-k and scales hold the same parameters, bit by bit, and reach the minimum.
TEST(OptimizerAdamW, TrainsWithPreconditionedGradients) {
  constexpr std::size_t kCount = 5000;
  std::vector<std::vector<float>> parameters(2);
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    std::vector<float> w(kCount, 1.0F), gradient(kCount);
    AdamW optimizer({.learning_rate = 0.02, .weight_decay = 0});
    optimizer.add("w", w, gradient);
    Policy policy = Policy::uniform("topk(5%)+int8");
    Session session(transport, policy);
    const TensorId id = session.add("w", view(gradient.data(), kCount), {.scale = optimizer.scale("w")});
    for (int step = 0; step < 400; ++step) {
      for (std::size_t i = 0; i < kCount; ++i) {
        const double curvature = std::exp(3 * std::sin(static_cast<double>(i)));
        const double noise = 0.1 * std::sin(0.7 * static_cast<double>(i) + step + 3 * transport->rank());
        gradient[i] = static_cast<float>(curvature * (static_cast<double>(w[i]) + noise));
      }
      session.ready(id);
      optimizer.step(session.finish());
    }
    parameters[static_cast<std::size_t>(transport->rank())] = w;
  });
  EXPECT_EQ(parameters[0], parameters[1]);
  double mean = 0;
  for (const float x : parameters[0]) {
    mean += std::abs(static_cast<double>(x)) / kCount;
  }
  EXPECT_LT(mean, 0.3);
}

}  // namespace
}  // namespace gradwire::test
