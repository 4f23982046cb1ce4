// Tests error feedback in a session: through warm-up, flush, loss scales and skipped steps.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "model.hpp"
#include "sums.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

constexpr const char* kTopk = "topk(2%)+int8";

Policy policy_with_warmup() {
  return Policy::parse(R"(
[defaults]
codec = "topk(2%)+int8"
small = "off"
warmup = [ { until_step = 3, codec = "exact" }, { until_step = 9, codec = "int4" } ]
[[rule]]
match = "layer1.*"
codec = "int2"
[bucket]
bytes = "256KiB"
)");
}

void step(Session& session, std::vector<Gradient>& gradients) {
  for (const Gradient& gradient : gradients) {
    session.ready(gradient.id);
  }
  session.finish();
}

// The steps use exact, int4 and top-k, with two rules at once, and end with an exact step. Mutation tried: residuals
// keyed by bucket element instead of tensor element.
TEST(SessionFeedback, WarmUpAndFlushConserveTheSum) {
  for (int world = kStepShare > 1 ? 3 : 1; world <= 3; ++world) {
    run_ranks(world, [&](const std::shared_ptr<Transport>& transport) {
      auto gradients = make_gradients();
      Session session(transport, policy_with_warmup());
      add_all(session, gradients);
      Sums wanted;
      Sums got;
      for (std::uint64_t s = 0; s < 20; ++s) {
        auto inputs = gradients;
        for (int rank = 0; rank < world; ++rank) {
          fill(inputs, rank, s);
          wanted.add(inputs, 1.0 / world);
        }
        fill(gradients, transport->rank(), s);
        if (s == 19) {
          if (world > 1) {
            EXPECT_GT(session.residual_bytes(), 0U);
          }
          session.flush();
        }
        step(session, gradients);
        got.add(gradients);
      }
      EXPECT_EQ(session.residual_bytes(), 0U);
      EXPECT_LE(got.error_against(wanted), 1e-6);
    });
  }
}

TEST(SessionFeedback, TheWarmUpChangesWhatTravels) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    Session session(transport, policy_with_warmup());
    add_all(session, gradients);
    std::vector<std::uint64_t> sent;
    for (std::uint64_t s = 0; s < 11; ++s) {
      session.reset_statistics();
      fill(gradients, transport->rank(), s);
      step(session, gradients);
      sent.push_back(session.statistics().all().bytes_sent);
    }
    EXPECT_EQ(sent[0], sent[2]);
    EXPECT_LT(sent[3] * 3, sent[2]);
    EXPECT_LT(sent[9] * 3, sent[8]);
  });
}

// A residual of a step with scale 1024 is worth 1/4 of itself in a step with scale 256.
TEST(SessionFeedback, ResidualsFollowTheLossScale) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    Session session(transport, Policy::uniform(kTopk));
    add_all(session, gradients);
    Sums wanted;
    Sums got;
    const std::vector<double> scales{1024, 1024, 256, 256, 4096, 1};
    for (std::uint64_t s = 0; s < scales.size(); ++s) {
      session.set_loss_scale(scales[s]);
      auto inputs = gradients;
      for (int rank = 0; rank < 2; ++rank) {
        fill(inputs, rank, s);
        wanted.add(inputs, 0.5);
      }
      fill(gradients, transport->rank(), s);
      for (Gradient& gradient : gradients) {
        for (float& x : gradient.values) {
          x *= static_cast<float>(scales[s]);
        }
      }
      if (s + 1 == scales.size()) {
        session.flush();
      }
      step(session, gradients);
      got.add(gradients, 1 / scales[s]);
    }
    EXPECT_LE(got.error_against(wanted), 1e-6);
  });
}

// NaN on one rank: no rank reduces, and every rank learns about it.
void run_bad_step(Session& session, std::vector<Gradient>& gradients) {
  fill(gradients, session.rank(), 7);
  if (session.rank() == 1) {
    gradients[2].values[13] = std::numeric_limits<float>::quiet_NaN();
  }
  const auto before = gradients;
  for (std::size_t i = gradients.size(); i-- > 0;) {
    session.ready(gradients[i].id);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // gives a bucket time to start too early
  }
  const StepOutcome outcome = session.finish();
  EXPECT_TRUE(outcome.skipped);
  EXPECT_TRUE(outcome.nonfinite);
  EXPECT_EQ(outcome.nonfinite_ranks, std::vector<int>{1});
  EXPECT_EQ(outcome.step, 1U);
  EXPECT_EQ(gradients.back().values, before.back().values) << "a skipped step changed a gradient";
}

// Compares an exact step after a top-k step, with and without a skipped step in between. Mutation tried: buckets start
// before ranks have agreed.
TEST(SessionFeedback, ASkippedStepLeavesNoTrace) {
  for (const Threading threading : {Threading::background, Threading::serialized}) {
    std::vector<std::vector<float>> results;
    for (const bool bad_step : {true, false}) {
      std::vector<float> result;
      run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
        Policy policy = Policy::uniform(kTopk);
        policy.bucket_bytes = 64 << 10;  // several buckets, so that some are complete before the one with NaN
        auto gradients = make_gradients();
        Session session(transport, policy, {.threading = threading, .nonfinite = Nonfinite::skip});
        add_all(session, gradients);
        fill(gradients, transport->rank(), 0);
        step(session, gradients);
        if (bad_step) {
          run_bad_step(session, gradients);
        }
        session.flush();
        fill(gradients, transport->rank(), 1);
        step(session, gradients);
        if (transport->rank() == 0) {
          for (const Gradient& gradient : gradients) {
            result.insert(result.end(), gradient.values.begin(), gradient.values.end());
          }
        }
      });
      results.push_back(result);
    }
    EXPECT_EQ(results[0], results[1]);
  }
}

TEST(SessionFeedback, PropagatesNonfiniteValuesUnlessAsked) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    for (const char* codec : {"int8", kTopk, "exact"}) {
      auto gradients = make_gradients();
      Session session(transport, Policy::uniform(codec));
      add_all(session, gradients);
      fill(gradients, transport->rank(), 0);
      if (transport->rank() == 1) {
        gradients[0].values[4097] = std::numeric_limits<float>::infinity();
      }
      for (const Gradient& gradient : gradients) {
        session.ready(gradient.id);
      }
      const StepOutcome outcome = session.finish();
      EXPECT_FALSE(outcome.skipped);
      EXPECT_TRUE(outcome.nonfinite) << codec;
      EXPECT_FALSE(std::isfinite(gradients[0].values[4097])) << codec;
      fill(gradients, transport->rank(), 1);
      for (const Gradient& gradient : gradients) {
        session.ready(gradient.id);
      }
      EXPECT_FALSE(session.finish().nonfinite) << codec << ": residuals took the Inf in";
    }
  });
}

// A flush in a step with NaN would lose residuals, so it waits for the next step.
TEST(SessionFeedback, AFlushOutlastsABadStep) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    Session session(transport, Policy::uniform(kTopk));
    add_all(session, gradients);
    fill(gradients, transport->rank(), 0);
    step(session, gradients);
    const std::uint64_t held = session.residual_bytes();
    EXPECT_GT(held, 0U);
    session.flush();
    fill(gradients, transport->rank(), 1);
    gradients[0].values[0] = transport->rank() == 0 ? std::numeric_limits<float>::infinity() : 1;
    for (const Gradient& gradient : gradients) {
      session.ready(gradient.id);
    }
    EXPECT_TRUE(session.finish().skipped);
    EXPECT_EQ(session.residual_bytes(), held);
    fill(gradients, transport->rank(), 2);
    step(session, gradients);
    EXPECT_EQ(session.residual_bytes(), 0U);
  });
}

// If ranks look for NaN first, no bucket starts before all gradients are ready.
TEST(SessionFeedback, WaitingTooEarlyIsAnErrorWhereStepsAreSkipped) {
  Policy policy = Policy::uniform("int8");
  policy.bucket_bytes = 64 << 10;
  auto world = make_inproc_world(1);
  auto gradients = make_gradients();
  Session session(world[0], policy, {.nonfinite = Nonfinite::skip});
  add_all(session, gradients);
  fill(gradients, 0, 0);
  const Ticket ticket = session.ready(gradients.back().id);
  EXPECT_THROW(session.wait(ticket), Error);
}

// int8 of the largest halves decodes beyond them.
TEST(SessionFeedback, AnOverflowIntoHalvesIsReported) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    std::vector<std::uint16_t> halves(100, 0x7BFF);  // 65504
    Session session(transport, Policy::uniform("exact"), {.reduction = Reduction::sum});
    const auto id = session.add("halves", view(halves.data(), halves.size(), DType::f16));
    session.ready(id);
    EXPECT_TRUE(session.finish().nonfinite);
  });
}

TEST(SessionFeedback, RanksWithOtherLossScalesAreToldSo) {
  const auto errors = run_ranks_catching(make_inproc_world(2), [](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    Session session(transport, Policy::uniform("int8"));
    add_all(session, gradients);
    session.set_loss_scale(transport->rank() == 0 ? 2 : 4);
    step(session, gradients);
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("loss scale"), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace gradwire::test
