// Tests sync = { async = true, staleness = S }: when results arrive, what finish() waits for, and that nothing is lost.
// staleness_bound_test.cpp tests the bound, late_results_test.cpp tests saved states and other groups.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <random>
#include <thread>

#include "tests/support/ranks.hpp"
#include "trained_model.hpp"

namespace gradwire::test {
namespace {

std::vector<std::vector<float>> train(int world, const std::string& codec, const std::string& sync,
                                      Threading threading) {
  std::vector<std::vector<float>> all(static_cast<std::size_t>(world));
  run_ranks(world, [&](const std::shared_ptr<Transport>& transport) {
    TrainedModel model;
    Session session(transport, policy_of(codec, sync), {.threading = threading});
    model.add_to(session);
    for (std::uint64_t step = 0; step < 9; ++step) {
      model.train(session, step);
      const auto gradients = model.gradients();
      auto& result = all[static_cast<std::size_t>(transport->rank())];
      result.insert(result.end(), gradients.begin(), gradients.end());
    }
    const auto values = model.values();
    auto& result = all[static_cast<std::size_t>(transport->rank())];
    result.insert(result.end(), values.begin(), values.end());
  });
  return all;
}

TEST(Staleness, ZeroIsStep) {
  for (const Threading threading : kThreading) {
    for (const char* codec : {"int4", "topk(5%)+int8", "bf16"}) {
      for (const int world : {1, 2, 3}) {
        EXPECT_EQ(train(world, codec, async(0), threading), train(world, codec, "\"step\"", threading))
            << codec << world;
      }
    }
  }
  EXPECT_NE(train(2, "int4", async(1), Threading::background), train(2, "int4", "\"step\"", Threading::background));
}

// Each gradient says which step made it, so the results of finish() show their age.
struct Seen {
  std::vector<std::vector<int>> ages;  // by rank and step; -1: nothing arrived
  Lateness late;
};

Seen watch_ages(unsigned staleness, int world, unsigned seed, Threading threading) {
  constexpr int kSteps = 30;
  Seen seen{std::vector<std::vector<int>>(static_cast<std::size_t>(world)), {}};
  run_ranks(world, [&](const std::shared_ptr<Transport>& transport) {
    std::mt19937 random(seed + static_cast<unsigned>(transport->rank()));
    Session session(transport, policy_of("exact", async(staleness)), {.threading = threading});
    std::vector<std::vector<float>> gradients(4, std::vector<float>(3000));
    std::vector<TensorId> ids;
    for (auto& gradient : gradients) {
      ids.push_back(session.add("g" + std::to_string(ids.size()), view(gradient.data(), gradient.size())));
    }
    for (int step = 0; step < kSteps; ++step) {
      for (std::size_t i = 0; i < ids.size(); ++i) {
        std::fill(gradients[i].begin(), gradients[i].end(), static_cast<float>(step + 1));
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 1500));
        session.ready(ids[i]);
      }
      session.finish();
      int age = -2;
      for (const auto& gradient : gradients) {
        EXPECT_TRUE(std::all_of(gradient.begin(), gradient.end(), [&](float x) { return x == gradient[0]; }));
        const int now = gradient[0] == 0 ? -1 : step + 1 - static_cast<int>(gradient[0]);
        EXPECT_TRUE(age == -2 || age == now) << "tensors of one step differ";
        age = now;
      }
      seen.ages[static_cast<std::size_t>(transport->rank())].push_back(age);
    }
    if (transport->rank() == 0) {
      seen.late = session.statistics().groups.at(0).late;
    }
  });
  return seen;
}

int oldest(const Seen& seen) {
  int most = -1;
  for (const auto& ages : seen.ages) {
    most = std::max(most, *std::max_element(ages.begin(), ages.end()));
  }
  return most;
}

// Mutations tried: a result is delivered as soon as it exists; may_lag is staleness + 1; finish() never waits.
TEST(Staleness, NoResultIsOlderThanTheBoundAndAllRanksApplyItInTheSameStep) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (const unsigned staleness : {1U, 3U}) {
    for (const Threading threading : kThreading) {
      const Seen seen = watch_ages(staleness, 3, seed, threading);
      EXPECT_EQ(oldest(seen), static_cast<int>(staleness));
      for (const auto& ages : seen.ages) {
        EXPECT_EQ(ages, seen.ages[0]) << "ranks applied a result in different steps";
        for (std::size_t step = 0; step < ages.size(); ++step) {
          EXPECT_EQ(ages[step], step < staleness ? -1 : static_cast<int>(staleness));
        }
      }
      EXPECT_EQ(seen.late.oldest, staleness);
      EXPECT_EQ(seen.late.mean(), staleness);
      EXPECT_EQ(seen.late.results, 4 * (30 - staleness));
    }
  }
}

// Rank 0 ends step 0 while rank 1 has not begun it, and ends step 1 only once rank 1 has.
TEST(Staleness, FinishBlocksOnlyWhereTheBoundWouldBreak) {
  std::atomic<bool> ended{false};
  std::atomic<bool> begun{false};
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    TrainedModel model;
    Session session(transport, policy_of("int8", async(1)));
    model.add_to(session);
    session.reserve();  // the agreement on the plan needs all ranks
    if (transport->rank() == 0) {
      model.train(session, 0);
      ended = true;
      model.train(session, 1);
      EXPECT_TRUE(begun) << "a result came without rank 1's part";
    } else {
      while (!ended) {
        std::this_thread::yield();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      begun = true;
      model.train(session, 0);
      model.train(session, 1);
    }
  });
}

// The steps have a late begin, changing loss scales, skipped steps and a flush. Mutations tried: results do not follow
// the scale; the flush delivers only its own result; a skipped step delivers.
TEST(Staleness, NothingIsLost) {
  for (const char* codec : {"int4", "topk(2%)+int8"}) {
    for (const int world : {1, 3}) {
      run_ranks(world, [&](const std::shared_ptr<Transport>& transport) {
        TrainedModel model;
        std::vector<double> wanted;
        std::vector<double> got;
        Session session(transport, policy_of(codec, async(3, 4)));
        model.add_to(session);
        for (std::uint64_t step = 0; step < 20; ++step) {
          const double scale = step < 9 ? 64 : 256;
          session.set_loss_scale(scale);
          const bool bad = step == 7 || step == 11;
          for (int rank = 0; rank < world && !bad; ++rank) {
            model.compute_gradients(rank, step);
            add(wanted, model.gradients(), 1.0 / world);
          }
          model.compute_gradients(transport->rank(), step);
          for (auto& tensor : model.tensors) {
            for (float& x : tensor.gradient) {
              x *= static_cast<float>(scale);
            }
          }
          if (bad && transport->rank() == world - 1) {
            model.tensors[1].gradient[7] = std::numeric_limits<float>::quiet_NaN();
          }
          if (step == 19) {
            session.flush();
          }
          for (auto& tensor : model.tensors) {
            session.ready(tensor.id);
          }
          EXPECT_EQ(session.finish().skipped, bad);
          if (!bad) {
            add(got, model.gradients(), 1 / scale);
          }
        }
        EXPECT_EQ(session.residual_bytes(), 0U);
        EXPECT_LE(relative_error(got, wanted), 1e-6) << codec << " world " << world;
      });
    }
  }
}

TEST(Staleness, NonfiniteResultsAreToldWhenTheyArrive) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    TrainedModel model;
    Session session(transport, policy_of("int8", async(2)));
    model.add_to(session);
    for (std::uint64_t step = 0; step < 5; ++step) {
      model.compute_gradients(transport->rank(), step);
      if (step == 1 && transport->rank() == 1) {
        model.tensors[0].gradient[0] = std::numeric_limits<float>::infinity();
      }
      for (auto& tensor : model.tensors) {
        session.ready(tensor.id);
      }
      EXPECT_EQ(session.finish().nonfinite, step == 3);
    }
  });
}

// A rank that ends still does its part of the running reductions.
TEST(Staleness, ARankThatEndsDoesNotLeaveOthersWaiting) {
  for (const Threading threading : kThreading) {
    run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
      TrainedModel model;
      Session session(transport, policy_of("int8", async(1)), {.threading = threading});
      model.add_to(session);
      for (std::uint64_t step = 0; step < 4; ++step) {
        std::this_thread::sleep_for(std::chrono::milliseconds(3 * transport->rank()));
        model.train(session, step);
      }
    });
  }
}

TEST(Staleness, WaitingForATensorAloneIsAnError) {
  auto world = make_inproc_world(1);
  std::vector<float> values(10);
  Session session(world[0], policy_of("int8", async(1)));
  const Ticket ticket = session.ready(session.add("w", view(values.data(), values.size())));
  EXPECT_FALSE(session.done(ticket));
  EXPECT_THROW(session.wait(ticket), Error);
}

TEST(Staleness, AModeOnOneRankOnlyIsNamed) {
  const auto errors = run_ranks_catching(make_inproc_world(3), [](const std::shared_ptr<Transport>& transport) {
    TrainedModel model;
    Session session(transport, policy_of("int8", transport->rank() == 1 ? async(4) : "\"step\""));
    model.add_to(session);
    model.train(session, 0);
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("policy of tensor 0 \"a\": rank 1 alone has sync async, staleness 4;"),
                std::string::npos)
          << e.what();
    }
  }
}

// Returns the loss under a delay on dense layers: linear regression at a learning rate that suits gradients without
// one.
double loss_after(const std::string& sync) {
  double result = 0;
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    constexpr int kFeatures = 24;
    constexpr int kSamples = 16;
    std::vector<float> weights(kFeatures);
    std::vector<float> momentum(kFeatures);
    std::vector<float> gradient(kFeatures);
    Session session(transport, policy_of("exact", sync));
    const TensorId id = session.add("w", view(gradient.data(), gradient.size()));
    std::mt19937 random(17 + static_cast<unsigned>(transport->rank()));
    std::normal_distribution<float> normal;
    double tail = 0;
    for (int step = 0; step < 120; ++step) {
      std::fill(gradient.begin(), gradient.end(), 0.0F);
      double loss = 0;
      for (int sample = 0; sample < kSamples; ++sample) {
        std::vector<float> x(kFeatures);
        float error = 0.1F * normal(random);
        for (int i = 0; i < kFeatures; ++i) {
          x[static_cast<std::size_t>(i)] = normal(random);
          error += (weights[static_cast<std::size_t>(i)] - 1) * x[static_cast<std::size_t>(i)];
        }
        loss += error * error / kSamples;
        for (std::size_t i = 0; i < x.size(); ++i) {
          gradient[i] += error * x[i] / kSamples;
        }
      }
      tail += step >= 60 ? loss / 60 : 0;
      session.ready(id);
      session.finish();
      for (std::size_t i = 0; i < weights.size(); ++i) {
        momentum[i] = 0.5F * momentum[i] + gradient[i];
        weights[i] -= 0.12F * momentum[i];
      }
    }
    if (transport->rank() == 0) {
      result = tail;
    }
  });
  return result;
}

TEST(Staleness, ADelayOfFourOnDenseLayersShowsInTheLoss) {
  const double prompt = loss_after("\"step\"");
  EXPECT_EQ(loss_after(async(0)), prompt);
  EXPECT_GT(loss_after(async(4)), 1.05 * prompt);
}

}  // namespace
}  // namespace gradwire::test
