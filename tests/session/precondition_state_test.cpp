// Tests preconditioned encoding through a session's life: saved states, NaN, codecs chosen at run time, and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <sstream>

#include "scaled_model.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// NaN in a gradient leaves the residuals of its tile unchanged, to the bit.
TEST(Precondition, ResidualsOfANonfiniteTileStay) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    std::vector<float> gradient(4096), scale(4096);
    const auto prepare = [&](std::uint64_t step) {
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        gradient[i] = gradient_value(0, i, transport->rank(), step);
        scale[i] = static_cast<float>(std::exp(3 * std::sin(static_cast<double>(i * (step + 1)))));
      }
    };
    Session session(transport, policy_of("topk(2%)+int8", "one_shot"), {.nonfinite = Nonfinite::propagate});
    const TensorId id = session.add("w", view(gradient.data(), gradient.size()), {.scale = scale});
    prepare(0);
    session.ready(id);
    session.finish();
    const auto residuals = [&] {
      std::ostringstream state;
      session.save(state);
      return state.str().substr(state.str().size() - 4096 * sizeof(float) - 64, 4096 * sizeof(float));
    };
    const std::string before = residuals();
    prepare(1);
    gradient[77] = std::numeric_limits<float>::quiet_NaN();
    session.ready(id);
    EXPECT_TRUE(session.finish().nonfinite);
    EXPECT_EQ(residuals(), before);
  });
}

TEST(Precondition, ASavedStateGoesOnBitByBit) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    auto gradients = few_gradients();
    auto scales = scales_like(gradients);
    const Policy policy = policy_of("topk(2%)+int8", "two_shot");
    const auto steps = [&](Session& session, std::uint64_t from, std::uint64_t until) {
      for (std::uint64_t s = from; s < until; ++s) {
        vary(scales, s);
        fill(gradients, transport->rank(), s);
        reduce(session, gradients);
      }
    };
    Session whole(transport, policy);
    add_scaled(whole, gradients, scales);
    steps(whole, 0, 2);
    std::stringstream state;
    whole.save(state);
    steps(whole, 2, 4);
    const auto wanted = all_of(gradients);
    Session resumed(transport, policy);
    add_scaled(resumed, gradients, scales);
    resumed.load(state);
    steps(resumed, 2, 4);
    EXPECT_TRUE(same_bytes(all_of(gradients), wanted));
  });
}

// A codec is chosen at run time, from uncompressed and others: no residual is lost on the way.
TEST(Precondition, CodecsThatAreChosenLoseNothing) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    auto gradients = few_gradients();
    auto scales = scales_like(gradients);
    Policy policy = Policy::automatic();
    policy.defaults.error_feedback = ErrorFeedback::on;
    policy.small.reset();
    policy.auto_options.window = 2;
    policy.auto_options.dwell = 2;
    Session session(transport, policy);
    add_scaled(session, gradients, scales);
    Sums got(magnitude), wanted(magnitude);
    for (std::uint64_t s = 0; s < 12; ++s) {
      for (int rank = 0; rank < 2; ++rank) {
        fill_in_magnitude(gradients, rank, s);
        wanted.add(gradients, 0.5);
      }
      vary(scales, s);
      fill_in_magnitude(gradients, transport->rank(), s);
      if (s == 11) {
        session.flush();
      }
      reduce(session, gradients);
      got.add(gradients);
    }
    EXPECT_EQ(session.residual_bytes(), 0U);
    EXPECT_LE(got.error_against(wanted), 1e-6);
  });
}

std::vector<Error> errors_of(int world, const std::function<void(const std::shared_ptr<Transport>&)>& body) {
  std::vector<Error> errors;
  for (const std::exception_ptr& error : run_ranks_catching(make_inproc_world(world), body)) {
    errors.push_back(error_of([&] {
      if (error) {
        std::rethrow_exception(error);
      }
    }));
  }
  return errors;
}

// Scales differ from the start, or later, or from the first step on, in which an optimizer's scale is zero. Mutations
// tried: the hash is not compared; only the first tensor's is compared; after the first step only every 64th is.
TEST(Precondition, RanksWithDifferentScalesAreTold) {
  for (const auto& [begin, told] :
       std::map<std::uint64_t, const char*>{{0, "step 0"}, {1, "step 1 "}, {70, "step 129"}}) {
    const std::uint64_t from = begin;  // clang 14 cannot capture bindings
    const auto errors = errors_of(3, [&](const std::shared_ptr<Transport>& transport) {
      std::vector<float> w(5000), b(300), w_scale(5000, 2.0F), b_scale(300, 1.0F);
      Session session(transport, policy_of("int4", "two_shot"));
      const TensorId first = session.add("w", view(w.data(), w.size()), {.scale = w_scale});
      const TensorId second = session.add("b", view(b.data(), b.size()), {.scale = b_scale});
      for (std::uint64_t s = 0; s < 150; ++s) {
        if (s == from && transport->rank() == 2) {
          b_scale[299] = 1.0001F;
        }
        session.ready(second);
        session.ready(first);
        session.finish();
        ASSERT_LE(s, from + 65);
      }
    });
    EXPECT_TRUE(std::any_of(errors.begin(), errors.end(),
                            [](const Error& error) { return error.code() == ErrorCode::mismatch; }));
    for (const Error& error : errors) {  // includes the others' errors, which quote the first one
      EXPECT_THAT(error.what(), AllOf(HasSubstr("the scale of \"b\""), HasSubstr("differs from rank 0's on rank(s) 2"),
                                      HasSubstr(told)));
    }
  }
}

TEST(Precondition, ScalesOnSomeRanksOnlyAreAnotherPlan) {
  const auto errors = errors_of(2, [](const std::shared_ptr<Transport>& transport) {
    std::vector<float> w(5000), scale(5000, 2.0F);
    Session session(transport, policy_of("int4", "two_shot"));
    session.ready(session.add("w", view(w.data(), w.size()),
                              transport->rank() == 0 ? TensorOptions{} : TensorOptions{.scale = scale}));
    session.finish();
  });
  for (const Error& error : errors) {
    EXPECT_THAT(error.what(), HasSubstr("with a scale"));
  }
}

TEST(Precondition, WhatCannotBeIsRefused) {
  run_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    std::vector<float> w(500), scale(499, 1.0F);
    Session session(transport, {});
    const Error error = error_of([&] { session.add("w", view(w.data(), w.size()), {.scale = scale}); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("the scale of \"w\" has 499 elements, its gradient 500"));
  });
  run_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    std::vector<float> w(500), scale(500, 1.0F);
    Session session(
        transport,
        Policy::parse("[defaults]\ncodec = \"int8\"\nsync = { async = true, staleness = 1 }\nsmall = \"off\"\n"));
    const TensorId id = session.add("w", view(w.data(), w.size()), {.scale = scale});
    const Error error = error_of([&] { session.ready(id); });
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("\"w\""), HasSubstr("has a scale")));
  });
}

}  // namespace
}  // namespace gradwire::test
