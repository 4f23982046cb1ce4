// Tests spares that take the places of ranks that end, at any time: all ranks then hold the same, as if it had happened
// between two steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <initializer_list>
#include <map>
#include <random>
#include <ranges>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "elastic/standing.hpp"
#include "elastic_job.hpp"
#include "elastic_kinds.hpp"
#include "session/state/state_file.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/step_share.hpp"

namespace gradwire::test {
namespace {

constexpr Id kSpare = kRanks;
constexpr std::size_t kFirst[] = {0, 9000, 9003};  // first element of each tensor among all parameters

session::SavedState state_from(const std::string& text) {
  std::istringstream stream(text);
  return session::read_state(stream, "test");
}

bool took_the_place_at_once(const Fate& fate) {
  return fate.changes.size() == 1 && fate.changes[0].lost.size() == 1 && fate.changes[0].joined.size() == 1;
}

// Compares each run with one in which the victim left between two steps, or before sync_parameters(), the spare's state
// included. Returns the number of equal runs among those in which a spare came.
int equal_to_runs_without_a_death(std::initializer_list<std::size_t> kinds, int moments) {
  std::atomic<int> equal = 0;
  for_each_at_once(kinds, [&](std::size_t index) {
    const Kind& kind = kPolicies[index];
    Plan plan = kind.plan();
    plan.spares = 1;
    const std::int64_t operations = run(plan)[2].operations;
    std::map<std::pair<std::uint64_t, bool>, std::vector<Fate>> left;  // by the step before which the victim left
    for (std::int64_t at = 1; at < operations; at += std::max<std::int64_t>(1, kStepShare * operations / moments)) {
      SCOPED_TRACE(std::string(kind.policy) + ", dies at operation " + std::to_string(at));
      plan.dies_after = {{2, at}};
      const std::vector<Fate> fates = run(plan);
      plan.dies_after.clear();
      const std::vector<Id> survivors = survivors_of(fates);
      for (const Id id : survivors) {
        expect_equal(fates[survivors[0]], fates[id], false);
        EXPECT_EQ(fates[id].world_size, fates[survivors[0]].world_size);
      }
      if (!took_the_place_at_once(fates[0]) || fates[kSpare].parameters.empty()) {
        continue;  // it died before spares were let in, or after its last step
      }
      EXPECT_EQ(survivors, (std::vector<Id>{0, 1, 3, kSpare}));
      EXPECT_EQ(fates[0].world_size, kRanks);
      EXPECT_EQ(fates[0].changes[0].joined, std::vector<int>{3});
      EXPECT_EQ(fates[0].changes[0].joined_names, std::vector<std::string>{"rank 4 of the start"});
      const std::uint64_t first = fates[0].first.at(0);
      const auto when = std::pair(first, fates[0].in_sync.at(0));
      if (!left.contains(when)) {
        const bool in_the_last_sync = first == plan.steps;
        auto& leaves = when.second && !in_the_last_sync ? plan.leaves_before_sync : plan.leaves_before;
        leaves = {{2, first}};
        left[when] = run(plan);
        leaves.clear();
      }
      if (took_the_place_at_once(left[when][0])) {
        ++equal;
        for (const Id id : survivors) {
          expect_equal(fates[id], left[when][id], true);
        }
      }
    }
  });
  return equal;
}

// The jobs are weighted with a loss scale, or have residuals, or topk with scales. Mutations tried, each fails here: a
// newcomer lacks the loss scale; it does not know which ranks hold copies; it has the step after.
TEST(Spares, TakeThePlaceOfARankThatDiesAtAnyMoment) {
  EXPECT_GE(equal_to_runs_without_a_death({1, 2, 4}, 6), kStepShare == 1 ? 3 : 0);
}

// Mutations tried, each fails here: a newcomer lacks outer momentum; it does not know when local steps begin, or
// whether there were any; it has its own anchors, or its own registered state; it does not call sync_parameters() with
// the others, or not in the next world, or not as a rank with weights; sync_parameters() communicates although nothing
// has moved.
TEST(Spares, TakeItUnderLocalStepsToo) {
  EXPECT_GE(equal_to_runs_without_a_death({6, 7, 8, 9}, 12), kStepShare == 1 ? 8 : 0);
}

TEST(Spares, TakeItWithLateResultsToo) {
  EXPECT_GE(equal_to_runs_without_a_death({10, 11, 12}, 12), kStepShare == 1 ? 6 : 0);
}

// Rank 2 leaves before step 5; parameters were synchronised before step 4. A newcomer starts from the values that all
// ranks share, and otherwise from rank 0's own. Mutations tried, each fails here: it always starts from rank 0's own
// values; other ranks receive them, too.
TEST(Spares, BeginFromWhatLocalStepsHold) {
  for (const std::size_t index : {6, 7, 8, 9}) {
    SCOPED_TRACE(kPolicies[index].policy);
    Plan plan = kPolicies[index].plan();
    plan.leaves_before = {{2, 5}};
    plan.spares = 1;
    plan.keeps_states = true;
    std::vector<Fate> fates = run(plan);
    for (int tries = 1; tries < 5 && !took_the_place_at_once(fates[0]); ++tries) {
      fates = run(plan);  // a busy machine let the spare come a step later
    }
    ASSERT_TRUE(took_the_place_at_once(fates[0]));
    ASSERT_EQ(fates[0].first, std::vector<std::uint64_t>{5});
    EXPECT_EQ(fates[1].held_after[0], 2) << "a rank's own";
    EXPECT_EQ(fates[kSpare].held_after[0], 1) << "this is rank 0's value";
    EXPECT_NE(fates[0].held_after[1], fates[1].held_after[1]) << "local steps make ranks differ";
    const session::SavedState ranks = state_from(fates[0].after_change);
    const session::SavedState spares = state_from(fates[kSpare].after_change);
    EXPECT_EQ(spares.sync_modes.local_steps, ranks.sync_modes.local_steps);
    ASSERT_EQ(spares.sync_modes.anchors.size(), ranks.sync_modes.anchors.size());
    std::vector<float> wanted = fates[0].held_after;
    for (std::size_t i = 0; i < ranks.sync_modes.anchors.size(); ++i) {
      const session::SavedAnchor& anchor = ranks.sync_modes.anchors[i];
      EXPECT_EQ(spares.sync_modes.anchors[i].parameters, anchor.parameters);
      EXPECT_EQ(spares.sync_modes.anchors[i].momentum, anchor.momentum);
      std::memcpy(&wanted[1 + kFirst[anchor.tensor]], anchor.parameters.data(), anchor.parameters.size());
    }
    EXPECT_EQ(fates[kSpare].held_after == fates[0].held_after, ranks.sync_modes.anchors.empty());
    EXPECT_TRUE(fates[kSpare].held_after == wanted);
  }
}

// While a spare takes the place of rank 2, `victim` dies at its operation `at`; with 0 nobody dies.
std::vector<Fate> run_with_a_death(const char* policy, Id victim, std::int64_t at) {
  Plan plan{.policy = policy, .leaves_before = {{2, 3}}, .errors = {ErrorCode::too_few}, .spares = 2};
  if (at > 0) {
    plan.dies_after = {{victim, at}};
  }
  return run(plan);
}

// The rank that sends the state dies, or the spare that receives it: the others hold the same, and nobody trains with
// half of the state. Mutation tried: a transfer to newcomers counts although it failed.
TEST(Spares, OthersMayDieWhileASpareReceives) {
  const std::pair<std::size_t, Id> cases[] = {{2, 0}, {2, kSpare}, {9, 0}, {9, kSpare}, {12, 0}, {12, kSpare}};
  for_each_at_once(cases, [](const std::pair<std::size_t, Id>& which) {
    const auto [index, victim] = which;
    const char* policy = kPolicies[index].policy;
    const std::int64_t operations = run_with_a_death(policy, victim, 0)[victim].operations;
    ASSERT_GT(operations, 10);
    int many = 0;
    for (std::int64_t at = 1; at < operations; at += std::max<std::int64_t>(1, kStepShare * operations / 10)) {
      SCOPED_TRACE(std::string(policy) + std::to_string(victim) + " dies at operation " + std::to_string(at));
      const std::vector<Fate> fates = run_with_a_death(policy, victim, at);
      const std::vector<Id> survivors = survivors_of(fates);
      ASSERT_GE(survivors.size(), 2U);
      for (const Id id : survivors) {
        expect_equal(fates[survivors[0]], fates[id], false);
      }
      many += fates[survivors[0]].world_size == kRanks ? 1 : 0;
    }
    EXPECT_GE(many, 1) << "the other spare took a place as well";
  });
}

TEST(Spares, SurvivorsOfManyDeathsHoldTheSame) {
  const int seeds = environment_int("GRADWIRE_SEEDS", 20 / kStepShare + 4);
  std::atomic<int> taken = 0;
  for_each_at_once(std::views::iota(1, seeds + 1), [&](int seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(static_cast<unsigned>(seed));
    const std::size_t kind = random() % std::size(kPolicies);
    Plan plan = kPolicies[kind].plan();
    plan.saves = plan.rescales = kind >= kFirstLate && random() % 2 == 0;
    plan.steps = 12;
    plan.errors = {ErrorCode::too_few};  // all processes that held the parameters may have ended
    plan.spares = 1 + static_cast<int>(random() % 3);
    const unsigned all = kRanks + static_cast<unsigned>(plan.spares);
    const unsigned deaths = 1 + static_cast<unsigned>(random() % (all - 1));
    while (plan.dies_after.size() < deaths) {
      plan.dies_after[random() % all] = 1 + static_cast<std::int64_t>(random() % 500);
    }
    const std::vector<Fate> fates = run(plan);
    const std::vector<Id> survivors = survivors_of(fates);
    for (const Id id : survivors) {
      expect_equal(fates[survivors[0]], fates[id], false);
      taken += id >= kSpare ? 1 : 0;
    }
  });
  EXPECT_GE(taken, seeds / 10);
}

// Returns the outcomes of two ranks and a spare. The spare takes the place of rank 1, and rank 0 leaves before it has
// sent the spare anything.
std::vector<std::string> ends_of_a_late_spare(int min_ranks, bool by_exception) {
  const Watchdog watchdog("a spare that comes late");
  auto processes = make_inproc_processes(3);
  const Policy policy = Policy::parse("[elastic]\nspares = 1\nmin_ranks = " + std::to_string(min_ranks) + "\n");
  std::vector<std::string> ends(3);
  const auto job = [&](std::size_t id) {
    std::vector<float> gradient(100), parameter(100);
    Session session(std::exchange(processes[id], nullptr), policy);
    session.add("t", view(gradient.data(), gradient.size()));
    ends[id] = session.share(view(parameter.data(), parameter.size())) ? "shared" : "over";
    if (id < 2) {
      std::this_thread::sleep_for(milliseconds(id == 1 ? 300 : 1300));
      if (by_exception) {
        throw std::runtime_error("failed");
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t id = 0; id < 3; ++id) {
    threads.emplace_back([&, id] {
      try {
        job(id);
      } catch (const std::exception& error) {
        ends[id] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return ends;
}

// With `min_ranks`, the spare alone would not be enough.
TEST(Spares, OneThatComesAfterTheLastStepKnowsThatTheJobIsOver) {
  for (const int min_ranks : {1, 2}) {
    EXPECT_EQ(ends_of_a_late_spare(min_ranks, false), (std::vector<std::string>{"shared", "shared", "over"}));
  }
}

// Mutation tried: a rank that leaves by an exception says farewell.
TEST(Spares, OneThatIsLeftAloneByErrorsDoesNotTakeTheJobForOver) {
  std::vector<std::string> ends{"", "", "over"};
  for (int tries = 0; tries < 5 && ends[2] == "over"; ++tries) {  // a busy machine: the spare came after all left
    ends = ends_of_a_late_spare(1, true);
  }
  EXPECT_EQ(ends[0], "failed");
  EXPECT_EQ(ends[1], "failed");
  EXPECT_NE(ends[2].find("all ranks that held the parameters have ended"), std::string::npos) << ends[2];
}

TEST(Spares, OneThatIsNotNeededOrDiesHarmsNobody) {
  for (const bool dies : {false, true}) {
    Plan plan{.spares = 1};
    if (dies) {
      plan.dies_after = {{kSpare, 8}};
    }
    const std::vector<Fate> fates = run(plan);
    EXPECT_TRUE(fates[kSpare].unused);
    EXPECT_EQ(survivors_of(fates), (std::vector<Id>{0, 1, 2, 3}));
    EXPECT_TRUE(fates[0].changes.empty());
  }
}

// The ranks go on without the spare, and without a place that it could have taken.
TEST(Spares, OneOfAnotherPolicyOrModelIsRefused) {
  const std::string other = "[[rule]]\nmatch = \"*\"\ncodec = \"int4\"\n[elastic]\nspares = 1\n";
  Plan of_policy{
      .leaves_before = {{2, 3}}, .errors = {ErrorCode::mismatch}, .spares = 1, .policies = {{kSpare, other}}};
  Plan of_model{.leaves_before = {{2, 3}}, .errors = {ErrorCode::mismatch}, .spares = 1, .smaller = {{kSpare, 1000}}};
  for (const auto& [plan, said] : {std::pair(of_policy, "int4"), std::pair(of_model, "8000")}) {
    const std::vector<Fate> fates = run(plan);
    ASSERT_TRUE(fates[kSpare].error);
    const std::string text = fates[kSpare].error->what();
    EXPECT_EQ(fates[kSpare].error->code(), ErrorCode::mismatch);
    EXPECT_NE(text.find("cannot be a rank"), std::string::npos) << text;
    EXPECT_NE(text.find(said), std::string::npos) << text;
    EXPECT_EQ(survivors_of(fates), (std::vector<Id>{0, 1, 3}));
    EXPECT_EQ(fates[0].world_size, 3);
  }
}

TEST(Spares, TheirNumberIsTheSameEverywhere) {
  const std::vector<Fate> fates = run(
      {.errors = {ErrorCode::mismatch}, .spares = 1, .policies = {{1, "[[rule]]\nmatch = \"*\"\ncodec = \"int8\"\n"}}});
  for (const Fate& fate : fates) {
    ASSERT_TRUE(fate.error);
    EXPECT_NE(std::string(fate.error->what()).find("[elastic] spares is "), std::string::npos) << fate.error->what();
  }
}

TEST(Spares, TheyLeaveEnoughRanks) {
  auto processes = make_inproc_processes(3);
  for (const char* settings : {"spares = 3\n", "spares = 2\nmin_ranks = 2\n"}) {
    const Error error = error_of([&, policy = Policy::parse(std::string("[elastic]\n") + settings)] {
      Session session(std::exchange(processes.back(), nullptr), policy);
    });
    processes.pop_back();
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("leave fewer ranks than min_ranks"), std::string::npos) << error.what();
  }
}

TEST(Spares, OnlyStepsCommunicateOnceTheyMayCome) {
  auto processes = make_inproc_processes(2);
  std::vector<float> gradient(10), parameter(10);
  const Policy policy = Policy::parse("[elastic]\nspares = 1\n");
  Session spare(std::exchange(processes[1], nullptr), policy);
  EXPECT_EQ(spare.rank(), -1);
  EXPECT_EQ(spare.world_size(), 1);
  spare.add("t", view(gradient.data(), gradient.size()));
  spare.broadcast(view(parameter.data(), parameter.size()));
  spare.reserve();
  spare.sync_parameters();
  EXPECT_NE(std::string(error_of([&] { static_cast<void>(spare.link()); }).what()).find("waits to be a rank"),
            std::string::npos);
  EXPECT_EQ(error_of([&] {
              static_cast<void>(spare.share(View{nullptr, 3, DType::f32}));
            }).code(),
            ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([&] { spare.ready(TensorId{0}); }).code(), ErrorCode::invalid_argument);
  Session session(std::exchange(processes[0], nullptr), policy);
  session.add("t", view(gradient.data(), gradient.size()));
  session.broadcast(view(parameter.data(), parameter.size()));
  EXPECT_TRUE(session.share(view(parameter.data(), parameter.size())));
  const auto calls = {error_of([&] { session.broadcast(view(parameter.data(), parameter.size())); }),
                      error_of([&] { session.reserve(); }), error_of([&] { static_cast<void>(session.link()); }),
                      error_of([&] { static_cast<void>(session.share(view(parameter.data(), 10))); })};
  for (const Error& error : calls) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    EXPECT_NE(std::string(error.what()).find("share"), std::string::npos) << error.what();
  }
}

TEST(Spares, WhatTheyAreToldComesBackAsItWas) {
  const session::Standing standing{
      .holds = true,
      .step = 1ULL << 40,
      .terms = {.loss_scale = 0.5, .loss_scale_set = true, .weighted = true},
      .flush = true,
      .syncs = true,
      .coming_loss_scale = 0.25,
      .with_residuals = {0, 7},
      .sync_modes = {.anchors = {{.tensor = 3}},
                     .results = {{.tensor = 5, .step = 1ULL << 34, .scale = 2, .nonfinite = true}},
                     .late = {{.tensor = 6, .step = 8, .scale = 4, .weighted = true}, {.tensor = 7}},
                     .local_steps = {{3, 1ULL << 33, true}, {4, 0, false}}}};
  const std::string text = session::encode_standing(standing);
  EXPECT_EQ(session::decode_standing(text), standing);
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_EQ(error_of([&] { static_cast<void>(session::decode_standing(text.substr(0, length))); }).code(),
              ErrorCode::corrupt);
  }
}

}  // namespace
}  // namespace gradwire::test
