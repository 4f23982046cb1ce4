// Tests residuals that count less from step to step: `decay` of a policy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "exchange/residuals/bucket_residuals.hpp"
#include "scaled_model.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/step_share.hpp"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Policy decaying(const std::string& codec, const std::string& algorithm, double decay) {
  Policy policy = policy_of(codec, algorithm);
  policy.defaults.error_feedback = ErrorFeedback::on;
  policy.defaults.decay = decay;
  return policy;
}

std::vector<double> joined(const std::vector<Gradient>& gradients) {
  std::vector<double> all;
  for (const Gradient& gradient : gradients) {
    all.insert(all.end(), gradient.values.begin(), gradient.values.end());
  }
  return all;
}

double norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double x : values) {
    sum += x * x;
  }
  return std::sqrt(sum);
}

// Returns the error of a balance that a test can compute from outside: held' = mean of the inputs + decay x held -
// result, where `held` is the sum of the residuals of all ranks and sites. An exact last step shows the residuals, so
// inputs = results + residuals + what decayed away. The cases cover codecs, both hops, nodes and scales. Mutations
// tried, each fails here: folded residuals do not decay; owner residuals do not decay.
double lost(const std::shared_ptr<Transport>& transport, const std::string& codec, const std::string& algorithm,
            bool scaled, double assumed) {
  constexpr double kDecay = 0.7;
  const int world = transport->world_size();
  auto gradients = few_gradients();
  Scales scales = scales_like(gradients);
  Session session(transport, decaying(codec, algorithm, kDecay));
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    gradients[t].id = session.add(gradients[t].name, view(gradients[t].values.data(), gradients[t].values.size()),
                                  {.scale = scaled ? std::span<const float>(scales[t]) : std::span<const float>()});
  }
  std::vector<double> held(joined(gradients).size());
  double norm_of_result = 1;
  for (std::uint64_t s = 0; s < 8; ++s) {
    std::vector<double> wanted(held.size());
    for (int rank = 0; rank < world; ++rank) {
      fill(gradients, rank, s);
      const std::vector<double> input = joined(gradients);
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        wanted[i] += input[i] / world;
      }
    }
    fill(gradients, transport->rank(), s);
    vary(scales, s);
    if (s == 7) {
      EXPECT_GT(norm(held), 0);
      session.flush();
    }
    reduce(session, gradients);
    const std::vector<double> result = joined(gradients);
    for (std::size_t i = 0; i < held.size(); ++i) {
      held[i] = wanted[i] + assumed * held[i] - result[i];
    }
    norm_of_result = norm(result);
  }
  EXPECT_EQ(session.residual_bytes(), 0U);
  return norm(held) / norm_of_result;
}

TEST(Decay, WhatDecaysIsAllThatIsLost) {
  for (const char* algorithm : kAlgorithms) {
    for (const char* codec : kCodecs) {
      for (const bool scaled : {false, true}) {
        const bool left_out = kStepShare > 1 && (std::string(algorithm) == "one_shot" ||
                                                 std::string("bf16 fp16 int2").find(codec) != std::string::npos);
        if (left_out || (scaled && !std::string(codec).starts_with("topk"))) {
          continue;
        }
        SCOPED_TRACE(std::string(algorithm) + ", " + codec + (scaled ? ", with a scale" : ""));
        run_ranks(world_of(algorithm), [&](const std::shared_ptr<Transport>& transport) {
          EXPECT_LE(lost(transport, codec, algorithm, scaled, 0.7), 1e-6);
        });
      }
    }
  }
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    EXPECT_GT(lost(transport, "int4", "two_shot", false, 1), 1e-3) << "the reference shows whether it decays";
  });
}

TEST(Decay, OneChangesNoByte) {
  const auto train = [](const char* decay) {
    std::string state;
    run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
      auto gradients = few_gradients();
      Session session(transport,
                      Policy::parse(std::string("[defaults]\ncodec = \"topk(5%)+int4\"\nsmall = \"off\"\n") + decay));
      add_all(session, gradients);
      for (std::uint64_t s = 0; s < 4; ++s) {
        fill(gradients, transport->rank(), s);
        reduce(session, gradients);
      }
      std::ostringstream stream;
      session.save(stream);
      if (transport->rank() == 0) {
        state = stream.str() + session.explain();
      }
    });
    return state;
  };
  EXPECT_EQ(train("decay = 1"), train(""));
  EXPECT_NE(train("decay = 0.9"), train(""));
  EXPECT_THAT(train("decay = 0.9"), HasSubstr("error feedback, decay 0.9"));
}

// A step that is undone changes nothing: the residuals that it read had not decayed in place. Mutation tried: residuals
// decay where they lie.
TEST(Decay, AStepThatIsUndoneLeavesResidualsAsTheyWere) {
  exchange::ResidualStore store;
  const exchange::ResidualKey key{0, codec::EncodeSite::local};
  store.add(key, 0, {8, 4, 2}, 1);
  store.remember();
  exchange::BucketResiduals residuals(store, {{0, 0, 3}}, 0.5);
  for (int attempt = 0; attempt < 2; ++attempt) {
    float scratch[3];
    const float* before = residuals.load(codec::EncodeSite::local, 0, 3, scratch);
    ASSERT_NE(before, nullptr);
    EXPECT_EQ(std::vector<float>(before, before + 3), (std::vector<float>{4, 2, 1}));
    const float after[] = {1, 1, 1};
    residuals.store(codec::EncodeSite::local, 0, 3, after);
    store.undo();
  }
  float values[] = {1, 1, 1};
  residuals.fold(codec::EncodeSite::local, 0, 3, 2, codec::Working::f32, values);
  EXPECT_EQ(std::vector<float>(values, values + 3), (std::vector<float>{9, 5, 3}));
}

TEST(Decay, BadValuesAndWhatCannotDecayAreNamed) {
  for (const double bad : {0.0, -0.5, 1.0001, std::nan("")}) {
    Policy policy = Policy::uniform("int4");
    policy.defaults.decay = bad;
    auto gradients = few_gradients();
    Session session(make_inproc_world(1)[0], policy);
    add_all(session, gradients);
    const Error error = error_of([&] { session.ready(gradients[0].id); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("write a number above 0 and at most 1, such as 0.95"));
  }
  auto gradients = few_gradients();
  Session session(make_inproc_world(1)[0], Policy::parse("[defaults]\ncodec = \"int8\"\ndecay = 0.9\nsmall = \"off\""));
  add_all(session, gradients);
  EXPECT_THAT(session.explain(), HasSubstr("warning: default: decay has no effect without error feedback"));
  Session other(make_inproc_world(1)[0], Policy::parse("[defaults]\ncodec = \"int4\"\ndecay = 0.9"));
  add_all(other, gradients);
  EXPECT_THAT(other.explain(), Not(HasSubstr("warning"))) << "small tensors are bf16, and keep nothing anyway";
}

}  // namespace
}  // namespace gradwire::test
