// Tests late results when processes become ranks: each result is made of the gradients that ranks had, and reaches all
// ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "elastic_job.hpp"
#include "elastic_kinds.hpp"
#include "tests/support/step_share.hpp"

namespace gradwire::test {
namespace {

constexpr std::size_t kElements = 5000;
constexpr std::uint64_t kLateSteps = 30;
constexpr std::uint64_t kStaleness = 2;
constexpr Id kEnds = 1;
constexpr Id kLeaves = 2;  // the process that leaves before step 5 if `leaves` is set

struct Late {
  const char* codec;
  Reduction reduction = Reduction::mean;
  bool weighted = false;
  bool leaves = false;  // a spare takes the place of a rank that leaves; otherwise another process joins
  bool saves = false;   // saves after each step, so that no gradient is late, but results are
  bool ends = false;    // rank 1 ends in the first step with the newcomer
};

struct Delivered {
  std::vector<std::vector<float>> results = std::vector<std::vector<float>>(kLateSteps);  // by step
  std::uint64_t first = 0;  // first step of the world with the newcomer
  std::size_t changes = 0;
  Id self = 0;
};

void train_late(const Late& late, std::shared_ptr<Processes> own, Progress& progress, Delivered& delivered) {
  const Id self = delivered.self = own->self();
  const std::string policy = "[defaults]\ncodec = \"" + std::string(late.codec) +
                             "\"\nsmall = \"off\"\nsync = { async = true, staleness = 2 }\n[elastic]\nspares = " +
                             (late.leaves ? "1\n" : "0\n");
  std::vector<float> gradient(kElements);
  Session session(std::move(own), Policy::parse(policy), {.reduction = late.reduction});
  const TensorId id = session.add("t", view(gradient.data(), gradient.size()));
  session.on_world_change([&](const WorldChange& /*change*/) {
    delivered.first = delivered.changes++ == 0 ? session.step() : delivered.first;
  });
  std::vector<float> nothing(1);
  ASSERT_TRUE(session.share(view(nothing.data(), nothing.size())));
  if (session.step() == 0) {
    std::this_thread::sleep_for(milliseconds(150));  // gives spares time to report that they wait
  } else {
    delivered.first = session.step();
  }
  while (session.step() < kLateSteps) {
    const std::uint64_t step = session.step();
    progress.reach(step);
    const bool newcomer_is_late = !late.leaves && delivered.changes == 0 && step > kLateSteps / 2;
    std::this_thread::sleep_for(milliseconds(newcomer_is_late ? 50 : 5));
    if (late.leaves && self == kLeaves && step == 5) {
      return;
    }
    if (late.ends && self == kEnds && delivered.changes == 1) {
      return;
    }
    if (step + 1 == kLateSteps) {
      session.flush();
    }
    if (late.weighted) {
      session.set_weight(1 + self);
    }
    for (std::size_t i = 0; i < kElements; ++i) {
      gradient[i] = gradient_of(0, i, self, step);
    }
    session.ready(id);
    if (session.finish().repeat) {
      continue;
    }
    delivered.results[step] = gradient;
    if (late.saves) {
      static_cast<void>(state_of(session));
    }
  }
}

std::vector<Delivered> run_late(const Late& late) {
  const Watchdog watchdog(late.codec);
  auto processes = make_inproc_processes(late.leaves ? kRanks + 1 : kRanks, !late.leaves);
  if (!late.leaves) {
    processes.push_back(nullptr);  // the newcomer, which comes later
  }
  const auto any = late.leaves ? nullptr : join_inproc_processes(*processes[0]);  // to join by
  if (any != nullptr) {
    any->end();
  }
  Progress progress;
  std::vector<Delivered> delivered(processes.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < processes.size(); ++i) {
    threads.emplace_back([&, i, own = std::exchange(processes[i], nullptr)]() mutable {
      if (own == nullptr) {
        progress.wait_for(5);
        own = join_inproc_processes(*any);
      }
      train_late(late, std::move(own), progress, delivered[i]);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return delivered;
}

// Returns the sum that all steps together should give. Results that were late when the newcomer came include the ranks
// that were there before and still are; with `saves` they include the lost rank's part.
std::vector<double> wanted(const Late& late, std::uint64_t first, Id newcomer) {
  std::vector<double> sum(kElements);
  for (std::uint64_t step = 0; step < kLateSteps; ++step) {
    std::vector<Id> ranks{0, 3};
    if (!late.ends || step < first) {
      ranks.push_back(kEnds);
    }
    if (!late.leaves || step + (late.saves ? 0 : kStaleness) < first) {
      ranks.push_back(kLeaves);
    }
    if (step >= first) {
      ranks.push_back(newcomer);
    }
    double weights = 0;
    for (const Id rank : ranks) {
      weights += late.weighted ? 1.0 + rank : 1.0;
    }
    for (const Id rank : ranks) {
      const double weight = (late.weighted ? 1.0 + rank : 1.0) / (late.reduction == Reduction::mean ? weights : 1.0);
      for (std::size_t i = 0; i < kElements; ++i) {
        sum[i] += weight * gradient_of(0, i, rank, step);
      }
    }
  }
  return sum;
}

bool came_at_once(const Late& late, const std::vector<Delivered>& delivered) {
  return delivered[0].changes == (late.ends ? 2 : 1) && delivered[0].first == delivered.back().first;
}

// Returns the largest difference from the wanted sum, relative to the largest wanted value.
double largest_error(const Late& late) {
  std::vector<Delivered> delivered = run_late(late);
  for (int tries = 1; tries < 5 && !came_at_once(late, delivered); ++tries) {
    delivered = run_late(late);  // a busy machine let the spare come a step later
  }
  EXPECT_TRUE(came_at_once(late, delivered));
  const Delivered& newcomer = delivered.back();
  for (std::uint64_t step = newcomer.first; step < kLateSteps; ++step) {
    EXPECT_TRUE(newcomer.results[step] == delivered[0].results[step]) << "step " << step << " of " << newcomer.first;
  }
  std::vector<double> difference = wanted(late, newcomer.first, newcomer.self);
  double largest = 0;
  for (const double value : difference) {
    largest = std::max(largest, std::abs(value));
  }
  for (const std::vector<float>& results : delivered[0].results) {
    for (std::size_t i = 0; i < results.size(); ++i) {
      difference[i] -= results[i];
    }
  }
  double error = 0;
  for (const double value : difference) {
    error = std::max(error, std::abs(value));
  }
  return error / largest;
}

// Mutations tried, each fails here: newcomers count in means, or count as 1 in weighted ones; results are not sent to
// them.
TEST(LateResults, AreOfTheRanksThatHadAGradient) {
  const std::pair<bool, bool> cases[] = {{false, false}, {false, true}, {true, false}, {true, true}};
  for_each_at_once(cases, [](const std::pair<bool, bool>& which) {
    const auto [leaves, saves] = which;
    SCOPED_TRACE(std::string(leaves ? "a spare comes" : "another joins") + (saves ? ", all are saved" : ""));
    EXPECT_LT(largest_error({.codec = "exact", .weighted = true, .leaves = leaves, .saves = saves}), 1e-5);
    if (kStepShare > 1) {  // sanitizers, which see the same paths
      return;
    }
    EXPECT_LT(largest_error({.codec = "exact", .leaves = leaves, .saves = saves}), 1e-5);
    EXPECT_LT(largest_error({.codec = "exact", .reduction = Reduction::sum, .leaves = leaves, .saves = saves}), 1e-5);
  });
}

// If a rank ends right after the newcomer came, its gradients are included.
TEST(LateResults, AreThereOnceTheNewcomerIs) {
  EXPECT_LT(largest_error({.codec = "exact", .ends = true}), 1e-5);
  EXPECT_LT(largest_error({.codec = "exact", .leaves = true, .ends = true}), 1e-5);
}

// No residual is lost when another process joins, and none is sent twice. Mutation tried: weights of 1 and 0.
TEST(LateResults, CountResidualsAsOthersDoWhereAnotherJoins) {
  for (const char* codec : {"int4", "topk(0.05)+int8"}) {
    for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
      SCOPED_TRACE(codec);
      EXPECT_LT(largest_error({.codec = codec, .reduction = reduction}), 1e-5);
    }
  }
}

// A rank ends at any time, also while all save or change the loss scale, so a spare that comes then knows neither.
// Mutations tried, each fails here: the spare does not learn the loss scale that is being set, that of the results, or
// that of the gradients.
TEST(LateResults, SparesComeWhileRanksSave) {
  int between_steps = 0;
  for (const std::size_t index : {10, 12}) {
    Plan plan = kPolicies[index].plan();
    plan.spares = 1;
    plan.saves = plan.rescales = true;
    const std::int64_t operations = run(plan)[2].operations;
    for (std::int64_t at = operations / 6; at < operations;
         at += std::max<std::int64_t>(1, kStepShare * operations / 16)) {
      SCOPED_TRACE(std::string(kPolicies[index].policy) + ", dies at operation " + std::to_string(at));
      plan.dies_after = {{2, at}};
      const std::vector<Fate> fates = run(plan);
      const std::vector<Id> survivors = survivors_of(fates);
      for (const Id id : survivors) {
        expect_equal(fates[survivors[0]], fates[id], false);
        EXPECT_EQ(fates[id].world_size, fates[survivors[0]].world_size);
      }
      const Fate& one = fates[0];
      between_steps += one.in_sync == std::vector<bool>{true} && one.changes[0].joined.size() == 1 ? 1 : 0;
    }
  }
  EXPECT_GE(between_steps, kStepShare == 1 ? 2 : 0);
}

}  // namespace
}  // namespace gradwire::test
