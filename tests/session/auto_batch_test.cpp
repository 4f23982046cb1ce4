// Tests the advice on the batch: it is equal on all ranks, and comes from noise and times that the session measures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>
#include <random>
#include <thread>

#include "gradwire/emulation.hpp"
#include "gradwire/session.hpp"
#include "session/parts/auto_batch/auto_batch.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using session::BatchReport;
using ::testing::HasSubstr;

constexpr std::uint64_t kFloats = 20'000;

// Fills the gradients of one tensor: ones, with noise of variance `noise` in each micro-step.
template <typename T>
class Noisy {
 public:
  Noisy(Session& session, double noise, std::uint32_t seed)
      : session_(session), random_(seed), normal_(0, std::sqrt(noise)), values_(kFloats) {
    id_ = session.add("w", view(values_.data(), kFloats));
  }

  void step(std::uint32_t micro_steps) {
    std::fill(values_.begin(), values_.end(), T(0));
    for (std::uint32_t micro = 0; micro < micro_steps; ++micro) {
      for (T& value : values_) {
        value += static_cast<T>((1 + normal_(random_)) / micro_steps);
      }
      if (micro + 1 < micro_steps) {
        const auto no_sync = session_.no_sync();
        session_.ready(id_);
      }
    }
    session_.ready(id_);
    session_.finish();
  }

 private:
  Session& session_;
  std::mt19937 random_;
  std::normal_distribution<double> normal_;
  std::vector<T> values_;
  TensorId id_{};
};

Policy advised(const std::string& more = "", const std::string& codec = "exact") {
  return Policy::parse("[defaults]\ncodec = \"" + codec +
                       "\"\nsmall = \"off\"\n[auto]\ndwell = 5\nwindow = 1\n[batch]\n" + more);
}

TEST(BatchAdvice, IsTheSameOnAllRanksUnderDelays) {
  constexpr int kWorld = 3;
  constexpr std::size_t kLeastSteps = 60;
  constexpr std::size_t kMostSteps = 2500;  // comparisons may be rare if they cost much of a step
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::vector<std::shared_ptr<Transport>> ranks;
  for (const auto& transport : make_inproc_world(kWorld)) {
    ranks.push_back(make_throttled(transport, Link::parse("50Mbit/s,20us")));
  }
  std::mutex mutex;
  std::vector<std::vector<BatchAdvice>> seen(kWorld);
  run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
    std::mt19937 random(seed + static_cast<std::uint32_t>(transport->rank()));
    Session session(transport, advised("max_accumulation = 4\ntarget_exposed = \"1%\"\nscaling = \"sqrt\"", "auto"));
    Noisy<float> gradients(session, 1000, random());
    std::vector<BatchAdvice> mine{session.batch_advice()};
    while (mine.size() < kLeastSteps || (mine.back().accumulation < 4 && mine.size() < kMostSteps)) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
      gradients.step(mine.back().accumulation);
      mine.push_back(session.batch_advice());
    }
    const std::lock_guard lock(mutex);
    seen[static_cast<std::size_t>(transport->rank())] = mine;
  });
  EXPECT_EQ(seen[0].front().accumulation, 1U);
  EXPECT_EQ(seen[0].front().reason, "nothing is measured yet");
  EXPECT_EQ(seen[0].back().accumulation, 4U) << seen[0].back().reason;
  EXPECT_EQ(seen[0].back().learning_rate_factor, 2);
  EXPECT_GT(seen[0].back().exposed_share, 0);
  for (int rank = 1; rank < kWorld; ++rank) {
    ASSERT_EQ(seen[static_cast<std::size_t>(rank)].size(), seen[0].size());
  }
  for (std::size_t i = 0; i < seen[0].size(); ++i) {
    for (int rank = 1; rank < kWorld; ++rank) {
      const BatchAdvice& theirs = seen[static_cast<std::size_t>(rank)][i];
      ASSERT_EQ(theirs.accumulation, seen[0][i].accumulation) << "rank " << rank << " after step " << i;
      ASSERT_EQ(theirs.learning_rate_factor, seen[0][i].learning_rate_factor);
      ASSERT_EQ(theirs.exposed_share, seen[0][i].exposed_share);
      ASSERT_EQ(theirs.noise_scale, seen[0][i].noise_scale);
      ASSERT_EQ(theirs.step, seen[0][i].step);
      ASSERT_EQ(theirs.reason, seen[0][i].reason);
    }
    if (i > 0) {
      ASSERT_LE(seen[0][i].accumulation, 2 * seen[0][i - 1].accumulation);
    }
  }
}

struct NoiseCase {
  const char* codec;
  Reduction reduction;
  std::uint32_t micro_steps;
  bool f64;
};

// The noise of the inputs is known, and the estimate is within a fifth of it. Mutations tried: micro-steps not counted,
// sums not divided.
TEST(BatchAdvice, TheNoiseScaleIsMeasured) {
  constexpr double kScale = 8;
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (const NoiseCase& c :
       {NoiseCase{"exact", Reduction::mean, 1, false}, NoiseCase{"int8", Reduction::sum, 1, false},
        NoiseCase{"int8", Reduction::mean, 3, false}, NoiseCase{"exact", Reduction::mean, 2, true}}) {
    SCOPED_TRACE(std::string(c.codec) + ", micro-steps " + std::to_string(c.micro_steps));
    run_ranks(4, [&](const std::shared_ptr<Transport>& transport) {
      Session session(transport, advised("", c.codec), {.reduction = c.reduction});
      const auto mine = seed + static_cast<std::uint32_t>(transport->rank());
      const auto run = [&](auto gradients) {
        for (int step = 0; step < 60 || (!session.batch_advice().noise_scale && step < 2500); ++step) {
          gradients.step(c.micro_steps);
        }
      };
      c.f64 ? run(Noisy<double>(session, kScale, mine)) : run(Noisy<float>(session, kScale, mine));
      const std::optional<double> found = session.batch_advice().noise_scale;
      ASSERT_TRUE(found);
      EXPECT_NEAR(*found, kScale, 0.2 * kScale);
    });
  }
}

TEST(BatchAdvice, CodecsThatDropMuchTellNothingOfNoise) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    Session session(transport, advised("", "int4"));
    Noisy<float> gradients(session, 1, 7);
    for (int step = 0; step < 60; ++step) {
      gradients.step(1);
    }
    EXPECT_FALSE(session.batch_advice().noise_scale);
  });
}

TEST(BatchAdvice, AWorldOfOneNeedsNone) {
  run_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    Session session(transport, advised("min_accumulation = 2"));
    Noisy<float> gradients(session, 1, 7);
    for (int step = 0; step < 20; ++step) {
      gradients.step(2);
    }
    EXPECT_EQ(session.batch_advice().accumulation, 2U);
    EXPECT_EQ(session.batch_advice().learning_rate_factor, 2);
  });
}

TEST(BatchAdvice, BadInput) {
  run_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    const Session session(transport, Policy());
    try {
      (void)session.batch_advice();
      ADD_FAILURE() << "advice without [batch]";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr("the policy has no [batch]; write [batch]"));
    }
  });
  const auto errors = run_ranks_catching(make_inproc_world(2), [](const std::shared_ptr<Transport>& transport) {
    Session session(transport, transport->rank() == 0 ? advised() : advised("max_accumulation = 2"));
    Noisy<float> gradients(session, 1, 7);
    gradients.step(1);
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("advice on the batch: rank 0 has accumulation 1 to "));
      EXPECT_THAT(e.what(), HasSubstr("give every rank the same policy"));
    }
  }
}

TEST(BatchReports, TheSlowestRanksComputationAndTheShortestWait) {
  const BatchReport all = session::combined(std::vector<BatchReport>{{.step_seconds = 1,
                                                                      .compute_seconds = 0.6,
                                                                      .exposed_seconds = 0.4,
                                                                      .micro_steps = 1,
                                                                      .compare_seconds = 3,
                                                                      .noise = {1, 10},
                                                                      .noise_steps = 5},
                                                                     {.step_seconds = 1.1,
                                                                      .compute_seconds = 0.8,
                                                                      .exposed_seconds = 0.2,
                                                                      .micro_steps = 2,
                                                                      .compare_seconds = 2,
                                                                      .noise = {3, 14},
                                                                      .noise_steps = 4}});
  EXPECT_EQ(all.step_seconds, 1.1);
  EXPECT_EQ(all.compute_seconds, 0.8);
  EXPECT_EQ(all.exposed_seconds, 0.2);
  EXPECT_EQ(all.micro_steps, 2);
  EXPECT_EQ(all.compare_seconds, 3);
  EXPECT_EQ(all.noise.signal, 2);
  EXPECT_EQ(all.noise.noise, 12);
  EXPECT_EQ(all.noise_steps, 4);
}

}  // namespace
}  // namespace gradwire::test
