// Tests sync = { every = N }: local steps, synchronisation of parameters and state, outer momentum, and fragments.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <thread>

#include "tests/support/ranks.hpp"
#include "trained_model.hpp"

namespace gradwire::test {
namespace {

// Trains the same model with all ranks in one place.
class Reference {
 public:
  explicit Reference(int world) : ranks_(static_cast<std::size_t>(world)) {}

  std::vector<TrainedModel>& ranks() { return ranks_; }
  void gradients(std::uint64_t step) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      ranks_[rank].compute_gradients(static_cast<int>(rank), step);
    }
  }
  void optimize() {
    for (TrainedModel& model : ranks_) {
      model.optimize();
    }
  }
  template <typename Select>
  [[nodiscard]] double mean(const Select& select) const {
    double sum = 0;
    for (const TrainedModel& model : ranks_) {
      sum += static_cast<double>(select(model));
    }
    return sum / static_cast<double>(ranks_.size());
  }
  void average() {
    for (std::size_t t = 0; t < ranks_[0].tensors.size(); ++t) {
      for (std::size_t i = 0; i < ranks_[0].tensors[t].parameter.size(); ++i) {
        const double parameter = mean([&](const TrainedModel& m) { return m.tensors[t].parameter[i]; });
        const double momentum = mean([&](const TrainedModel& m) { return m.tensors[t].momentum[i]; });
        for (TrainedModel& model : ranks_) {
          model.tensors[t].parameter[i] = static_cast<float>(parameter);
          model.tensors[t].momentum[i] = static_cast<float>(momentum);
        }
      }
    }
  }

 private:
  std::vector<TrainedModel> ranks_;
};

TEST(LocalSteps, EveryOneIsStep) {
  const auto train = [](const char* sync, int world) {
    std::vector<std::vector<float>> all(static_cast<std::size_t>(world));
    run_ranks(world, [&](const std::shared_ptr<Transport>& transport) {
      TrainedModel model;
      Session session(transport, policy_of("int4", sync));
      model.add_to(session);
      for (std::uint64_t step = 0; step < 9; ++step) {
        model.train(session, step);
      }
      all[static_cast<std::size_t>(transport->rank())] = model.values();
    });
    return all;
  };
  for (const int world : {1, 3}) {
    EXPECT_EQ(train("{ every = 1 }", world), train("\"step\"", world));
    EXPECT_NE(train("{ every = 2 }", 3), train("\"step\"", 3));
  }
}

// Mutations tried: state is not averaged; ranks synchronise one step early; the local gradient is overwritten.
TEST(LocalSteps, ParametersAndStateAreAveragedExactly) {
  for (const int world : {1, 2, 3, 4}) {
    std::vector<std::vector<float>> synced(static_cast<std::size_t>(world));
    run_ranks(world, [&](const std::shared_ptr<Transport>& transport) {
      const auto rank = static_cast<std::size_t>(transport->rank());
      TrainedModel model;
      Session session(transport, policy_of("int4", "{ every = 4 }"));
      model.add_to(session);
      Reference reference(world);
      for (std::uint64_t step = 0; step < 10; ++step) {
        session.reset_statistics();
        model.compute_gradients(transport->rank(), step);
        reference.gradients(step);
        const auto before = model;
        model.reduce(session);
        const bool syncs = step == 4 || step == 8;
        if (syncs) {
          reference.average();
        }
        EXPECT_EQ(session.statistics().all().bytes_sent > 0, syncs && world > 1) << step;
        EXPECT_TRUE(model.same_gradients(before)) << step;
        EXPECT_LE(model.distance(reference.ranks()[rank]), 1e-5) << "world " << world << " step " << step;
        if (step == 8) {
          synced[rank] = model.values();
        }
        model.optimize();
        reference.optimize();
      }
    });
    for (const auto& one : synced) {
      EXPECT_TRUE(one == synced[0]) << "ranks differ when synchronised, world " << world;
    }
  }
}

// The reference is DiLoCo in double precision, with all ranks in one place. Mutations tried: plain momentum instead of
// Nesterov's; the anchor is not moved.
TEST(LocalSteps, OuterMomentumFollowsDiLoCo) {
  constexpr int kWorld = 3;
  run_ranks(kWorld, [&](const std::shared_ptr<Transport>& transport) {
    TrainedModel model;
    TrainedModel anchor;
    TrainedModel outer;
    Session session(transport, policy_of("exact", "{ every = 16, outer = { lr = 0.6, momentum = 0.8 } }"));
    model.add_to(session);
    Reference reference(kWorld);
    outer.clear();
    for (std::uint64_t step = 0; step < 50; ++step) {
      model.compute_gradients(transport->rank(), step);
      reference.gradients(step);
      model.reduce(session);
      for (std::size_t t = 0; step > 0 && step % 16 == 0 && t < anchor.tensors.size(); ++t) {
        for (std::size_t i = 0; i < anchor.tensors[t].parameter.size(); ++i) {
          float& x = anchor.tensors[t].parameter[i];
          float& m = outer.tensors[t].momentum[i];
          const double change = x - reference.mean([&](const TrainedModel& r) { return r.tensors[t].parameter[i]; });
          m = static_cast<float>(0.8 * m + change);
          x = static_cast<float>(x - 0.6 * (change + 0.8 * m));
          for (TrainedModel& rank : reference.ranks()) {
            rank.tensors[t].parameter[i] = x;
          }
        }
      }
      EXPECT_LE(model.distance(reference.ranks()[static_cast<std::size_t>(transport->rank())]), 1e-5) << step;
      model.optimize();
      reference.optimize();
    }
  });
}

// With lr 1 and no momentum, a synchronisation moves the anchor by the decoded change; with residuals the sum of these
// is the sum of the mean changes. Mutation tried: a flush that does not synchronise.
TEST(LocalSteps, ChangesAreConserved) {
  constexpr int kWorld = 2;
  for (const char* codec : {"int4", "topk(5%)+int8"}) {
    run_ranks(kWorld, [&](const std::shared_ptr<Transport>& transport) {
      const int rank = transport->rank();
      TrainedModel model;
      std::vector<float> anchor = model.parameters();
      std::vector<double> own(anchor.size());  // this rank's changes
      const std::vector<float> start = anchor;
      Session session(transport, policy_of(codec, "{ every = 16, outer = { lr = 1, momentum = 0 } }"));
      model.add_to(session);
      for (std::uint64_t step = 0; step <= 70; ++step) {
        const bool syncs = step == 70 || (step > 0 && step % 16 == 0);
        const std::vector<float> before = model.parameters();
        if (step == 70) {
          EXPECT_GT(session.residual_bytes(), 0U);
          session.flush();
        }
        model.compute_gradients(rank, step);
        model.reduce(session);
        const std::vector<float> after = model.parameters();
        EXPECT_EQ(before != after, syncs) << step;
        for (std::size_t i = 0; syncs && i < own.size(); ++i) {
          own[i] += static_cast<double>(anchor[i]) - static_cast<double>(before[i]);
        }
        anchor = syncs ? after : anchor;
        model.optimize();
      }
      EXPECT_EQ(session.residual_bytes(), 0U);
      // Computes the exact mean of all ranks' changes.
      Session sum(transport, Policy::uniform("exact"), {.reduction = Reduction::mean});
      const TensorId id = sum.add("own", View{own.data(), own.size(), DType::f64});
      sum.ready(id);
      sum.finish();
      double error = 0;
      double norm = 0;
      for (std::size_t i = 0; i < own.size(); ++i) {
        const double moved = static_cast<double>(start[i]) - static_cast<double>(anchor[i]);
        error += (moved - own[i]) * (moved - own[i]);
        norm += own[i] * own[i];
      }
      EXPECT_LE(std::sqrt(error / norm), 1e-5) << codec;
    });
  }
}

std::vector<bool> moved(const TrainedModel& model, const TrainedModel& before) {
  std::vector<bool> any;
  for (std::size_t t = 0; t < model.tensors.size(); ++t) {
    any.push_back(model.tensors[t].parameter != before.tensors[t].parameter);
  }
  return any;
}

TEST(LocalSteps, FragmentsAreSynchronisedAtDifferentSteps) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    Policy policy = Policy::parse(
        "[defaults]\nsmall = \"off\"\nsync = { every = 6, stagger = true }\n[bucket]\nbytes = \"4KiB\"\n"
        "[[rule]]\nmatch = \"a\"\nsync = { every = 6, offset = 5 }");
    TrainedModel model;  // buckets in reverse order of add(): c, b staggered by 3; a by its offset
    Session session(transport, policy);
    model.add_to(session);
    for (std::uint64_t step = 0; step < 14; ++step) {
      model.compute_gradients(transport->rank(), step);
      const TrainedModel before = model;
      model.reduce(session);
      EXPECT_EQ(moved(model, before),
                (std::vector<bool>{step > 0 && step % 6 == 1, step > 0 && step % 6 == 3, step > 0 && step % 6 == 0}))
          << step;
      model.optimize();
    }
  });
}

// A synchronisation begins while the backward pass goes on.
TEST(LocalSteps, SynchronisationOverlapsTheBackwardPass) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    Policy policy = policy_of("exact", "{ every = 2 }");
    policy.bucket_bytes = 4096;
    TrainedModel model;
    Session session(transport, policy);
    model.add_to(session);
    for (std::uint64_t step = 0; step < 3; ++step) {
      model.compute_gradients(transport->rank(), step);
      const std::uint64_t before = transport->counters().bytes_sent;
      session.ready(model.tensors[2].id);
      while (step == 2 && transport->counters().bytes_sent == before) {  // the watchdog ends this loop if it hangs
        std::this_thread::yield();
      }
      session.ready(model.tensors[1].id);
      session.ready(model.tensors[0].id);
      session.finish();
      model.optimize();
    }
  });
}

TEST(LocalSteps, SyncParametersBringsTheRanksTogether) {
  for (const Threading threading : {Threading::background, Threading::main_thread}) {
    for (const char* sync : {"{ every = 100 }", "{ every = 100, outer = {} }"}) {
      std::vector<std::vector<float>> parameters(3);
      run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
        TrainedModel model;
        Session session(transport, policy_of("int4", sync), {.threading = threading});
        model.add_to(session);
        session.sync_parameters();  // nothing has moved
        for (std::uint64_t step = 0; step < 5; ++step) {
          model.train(session, step);
        }
        const auto before = model.parameters();
        session.sync_parameters();
        EXPECT_NE(before, model.parameters());
        EXPECT_EQ(session.residual_bytes(), 0U);
        const auto once = model.parameters();
        session.sync_parameters();  // nothing has moved since
        EXPECT_EQ(once, model.parameters());
        parameters[static_cast<std::size_t>(transport->rank())] = model.parameters();
        model.train(session, 5);
      });
      EXPECT_TRUE(parameters[0] == parameters[1] && parameters[1] == parameters[2]);
    }
  }
}

// Momentum of the outer optimizer must not move parameters that have not moved since they were synchronised. Mutation
// tried: parameters are synchronised whether or not anything has moved.
TEST(LocalSteps, SynchronisingTwiceWithoutALocalStepDoesNothing) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    TrainedModel model;
    Session session(transport, policy_of("exact", "{ every = 16, outer = { lr = 0.7, momentum = 0.9 } }"));
    model.add_to(session);
    const auto expect_nothing = [&](const std::function<void()>& call) {
      const auto parameters = model.parameters();
      const std::uint64_t sent = session.statistics().all().bytes_sent;
      call();
      EXPECT_EQ(parameters, model.parameters());
      EXPECT_EQ(session.statistics().all().bytes_sent, sent);
    };
    for (std::uint64_t step = 0; step < 16; ++step) {
      model.train(session, step);
    }
    session.sync_parameters();
    expect_nothing([&] { session.sync_parameters(); });
    expect_nothing(
        [&] { model.compute_gradients(transport->rank(), 16), model.reduce(session); });  // step 16 synchronises
    model.optimize();
    session.sync_parameters();
    session.flush();
    expect_nothing([&] { model.compute_gradients(transport->rank(), 17), model.reduce(session); });
    model.optimize();
    const auto before = model.parameters();
    session.sync_parameters();
    EXPECT_NE(before, model.parameters());
  });
}

}  // namespace
}  // namespace gradwire::test
