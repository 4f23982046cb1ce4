// Tests SparseLoCo (Sarfi et al., 2025) as a policy: few values of the change over many local steps, in 2 bits, with
// error feedback that decays, and a plain outer step.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/ranks.hpp"
#include "tests/support/scratch_folder.hpp"
#include "trained_model.hpp"

namespace gradwire::test {
namespace {

constexpr double kDecay = 0.95;
constexpr std::uint64_t kEvery = 30;

Policy sparse_loco(bool stagger, const std::string& codec = "topk(64/4096)+int2") {
  return Policy::parse("[defaults]\ncodec = \"" + codec + "\"\nsecond_hop = \"" + codec +
                       "\"\ndecay = 0.95\nsmall = \"off\"\n" + "sync = { every = 30, " +
                       (stagger ? "stagger = true, " : "") +
                       "outer = { lr = 1, momentum = 0 } }\n[bucket]\nbytes = \"20KiB\"\n");
}

std::vector<double> mean_over_ranks(const std::shared_ptr<Transport>& transport, std::vector<double> values) {
  Session session(transport, Policy::uniform("exact"));
  const TensorId id = session.add("values", View{values.data(), values.size(), DType::f64});
  session.ready(id);
  session.finish();
  return values;
}

// Computes from outside the residuals of the changes: held' = change + decay x held - movement of the outer step. This
// is linear, so each rank follows its own changes, and the mean over the ranks is the sum of their residuals.
class Follower {
 public:
  explicit Follower(const TrainedModel& model, std::vector<double> held = {})
      : anchor_(model.parameters()), held_(std::move(held)) {
    held_.resize(anchor_.size());
  }

  /// Makes a step of `model`, the first one or a later one; returns how many tensors were synchronised.
  int step(Session& session, TrainedModel& model, std::uint64_t step) {
    const std::vector<float> before = model.parameters();
    model.compute_gradients(session.rank(), step);
    model.reduce(session);
    const std::vector<float> after = model.parameters();
    int synced = 0;
    std::size_t first = 0;
    for (const TrainedModel::Tensor& tensor : model.tensors) {
      const std::size_t end = first + tensor.parameter.size();
      bool moved = false;
      for (std::size_t i = first; i < end; ++i) {
        moved = moved || before[i] != after[i];
      }
      synced += moved ? 1 : 0;
      for (std::size_t i = first; moved && i < end; ++i) {
        const double change = static_cast<double>(anchor_[i]) - static_cast<double>(before[i]);
        held_[i] = change + kDecay * held_[i] - (static_cast<double>(anchor_[i]) - static_cast<double>(after[i]));
        anchor_[i] = after[i];
        norm_ += change * change;
      }
      first = end;
    }
    return synced;
  }
  [[nodiscard]] const std::vector<double>& held() const { return held_; }
  [[nodiscard]] double norm_of_changes() const { return std::sqrt(norm_); }

 private:
  std::vector<float> anchor_;
  std::vector<double> held_;
  double norm_ = 0;
};

double norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double x : values) {
    sum += x * x;
  }
  return std::sqrt(sum);
}

// An exact last exchange leaves nothing that decay does not explain. Mutations tried: residuals of changes do not
// decay; they decay at every local step.
TEST(SparseLoCo, ChangesAreConservedButForWhatDecays) {
  for (const bool stagger : {false, true}) {
    run_ranks(3, [&](const std::shared_ptr<Transport>& transport) {
      TrainedModel model;
      Session session(transport, sparse_loco(stagger));
      model.add_to(session);
      Follower follower(model);
      for (std::uint64_t step = 0; step < 5 * kEvery; ++step) {
        const int synced = follower.step(session, model, step);
        EXPECT_LE(synced, stagger ? 1 : 3) << "buckets take turns";
        model.optimize();
      }
      EXPECT_GT(norm(mean_over_ranks(transport, follower.held())), 0.1 * follower.norm_of_changes());
      session.flush();
      EXPECT_EQ(follower.step(session, model, 5 * kEvery), 3);
      EXPECT_EQ(session.residual_bytes(), 0U);
      EXPECT_LE(norm(mean_over_ranks(transport, follower.held())), 1e-5 * follower.norm_of_changes());
    });
  }
}

// The state is saved between two synchronisations of staggered buckets, and during one. Mutation tried: anchors are not
// saved.
TEST(SparseLoCo, GoesOnBitByBitFromASavedState) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    TrainedModel model;
    const auto train = [](Session& session, TrainedModel& trained, std::uint64_t from, std::uint64_t until) {
      for (std::uint64_t step = from; step < until; ++step) {
        trained.train(session, step);
      }
      std::stringstream state;
      session.save(state);
      return state.str();
    };
    Session session(transport, sparse_loco(true));
    model.add_to(session);
    std::stringstream saved(train(session, model, 0, 75));
    TrainedModel copy = model;
    const std::string wanted = train(session, model, 75, 140);
    Session resumed(transport, sparse_loco(true));
    copy.add_to(resumed);
    resumed.load(saved);
    EXPECT_TRUE(train(resumed, copy, 75, 140) == wanted);
    EXPECT_TRUE(copy.values() == model.values());
  });
}

// The state is saved right after a synchronisation and loaded by more or fewer ranks, which together hold the residuals
// of the earlier ranks. Mutation tried: each rank gets the residuals in full.
TEST(SparseLoCo, AnotherWorldTakesOverWhatIsHeld) {
  for (const auto& [before, after] : {std::pair(3, 2), std::pair(2, 3), std::pair(4, 1)}) {
    const ScratchFolder folder;
    TrainedModel synced;
    std::vector<double> held;
    run_ranks(before, [&](const std::shared_ptr<Transport>& transport) {
      TrainedModel model;
      Session session(transport, sparse_loco(false));
      model.add_to(session);
      Follower follower(model);
      for (std::uint64_t step = 0; step <= 3 * kEvery; ++step) {
        follower.step(session, model, step);
        if (step < 3 * kEvery) {
          model.optimize();
        }
      }
      session.save(folder.path());
      const std::vector<double> together = mean_over_ranks(transport, follower.held());
      if (transport->rank() == 0) {
        synced = model;
        held = together;
      }
    });
    EXPECT_GT(norm(held), 0.1);
    run_ranks(after, [&](const std::shared_ptr<Transport>& transport) {
      TrainedModel model = synced;
      Session session(transport, sparse_loco(false));
      model.add_to(session);
      session.load(folder.path());
      EXPECT_EQ(session.step(), 3 * kEvery + 1);
      Follower follower(model, held);
      model.optimize();
      for (std::uint64_t step = 3 * kEvery + 1; step < 5 * kEvery + 7; ++step) {
        follower.step(session, model, step);
        model.optimize();
      }
      session.flush();
      EXPECT_EQ(follower.step(session, model, 5 * kEvery + 7), 3);
      EXPECT_LE(norm(mean_over_ranks(transport, follower.held())), 1e-5 * follower.norm_of_changes());
    });
  }
}

// The test counts bytes at the transport, with headers and both hops, for a model of 2^20 parameters on 4 ranks.
TEST(SparseLoCo, AnExchangeIsManyTimesSmaller) {
  const auto bytes_of = [](const Policy& policy, std::uint64_t steps) {
    std::uint64_t bytes = 0;
    run_ranks(4, [&](const std::shared_ptr<Transport>& transport) {
      std::vector<float> gradient(1 << 20), parameter(gradient.size());
      Session session(transport, policy);
      const TensorId id =
          session.add("w", view(gradient.data(), gradient.size()), view(parameter.data(), parameter.size()));
      for (std::uint64_t step = 0; step < steps; ++step) {
        session.ready(id);
        session.finish();
        for (std::size_t i = 0; step == 0 && i < parameter.size(); ++i) {
          parameter[i] = static_cast<float>(std::sin(static_cast<double>(i) + transport->rank()));
        }
      }
      if (transport->rank() == 0) {
        bytes = session.statistics().all().bytes_sent;
      }
    });
    return static_cast<double>(bytes);
  };
  // Step 30 is the only one that synchronises.
  const double sparse = bytes_of(sparse_loco(false), kEvery + 1);
  const double dense = bytes_of(sparse_loco(false, "exact"), kEvery + 1);
  const double dense_step = bytes_of(Policy::uniform("exact"), 1);
  Policy full_sums = sparse_loco(false);
  full_sums.defaults.second_hop.reset();
  const double full = bytes_of(full_sums, kEvery + 1);
  std::printf("an exchange: %.0f bytes, dense %.0f: %.1f times fewer; of dense at every step: %.0f times fewer\n",
              sparse, dense, dense / sparse, dense_step * kEvery / sparse);
  std::printf("without second_hop: %.0f bytes, %.1f and %.0f times fewer\n", full, dense / full,
              dense_step * kEvery / full);
  EXPECT_GE(dense / sparse, 146);
  EXPECT_GE(dense_step * kEvery / sparse, 4000);
}

}  // namespace
}  // namespace gradwire::test
