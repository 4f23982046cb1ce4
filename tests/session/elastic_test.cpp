// Ranks end at any moment, and the others go on: steps are delivered on all of them or on none, and nothing of a step
// that is made again is left over.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "gradwire/session.hpp"
#include "session/checkpoint/state_file.hpp"
#include "session/elastic/residual_copy.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/mortal.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using Id = Processes::Id;
using std::chrono::milliseconds;

constexpr int kRanks = 4;
constexpr std::uint64_t kSteps = 6;

int environment_int(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

// What became of one process.
struct Fate {
  std::vector<float> parameters;
  std::string state;                        // as save() writes it
  std::string before_change, after_change;  // states: at the end of the last step before it, and behind it
  std::vector<WorldChange> changes;
  std::vector<std::uint64_t> first;  // of each change: the first step of the new world
  std::optional<Error> error;
  bool dead = false;   // at the end, though it may have done all it had to before
  int world_size = 0;  // at the end
  std::int64_t operations = 0;
};

struct Plan {
  std::string policy = "[[rule]]\nmatch = \"*\"\ncodec = \"int8\"\n";
  std::map<Id, std::int64_t> dies_after = {};      // operations
  std::map<Id, std::uint64_t> leaves_before = {};  // the step
  std::map<Id, std::pair<std::int64_t, milliseconds>> silent_after = {};
  std::uint64_t steps = kSteps;
  bool weighted = false;            // and with a loss scale
  bool scaled = false;              // preconditioned encoding
  std::set<ErrorCode> errors = {};  // that processes may end with
  bool keeps_states = false;
  std::optional<Id> forgets_a_tensor = {};  // in step 3
};

// Noise that depends on who makes it, in which step, and where the parameters are.
float gradient_of(float parameter, std::size_t i, Id who, std::uint64_t step) {
  const double noise = std::sin(0.37 * static_cast<double>(i) + 1.7 * who + 0.9 * static_cast<double>(step));
  return parameter - static_cast<float>(0.01 * static_cast<double>(i % 7)) + static_cast<float>(noise);
}

std::string state_of(Session& session) {
  std::ostringstream state;
  session.save(state);
  return state.str();
}

void train(Session& session, Id self, const Plan& plan, Fate& fate) {
  constexpr std::size_t kSizes[] = {9000, 3, 5000};
  std::vector<std::vector<float>> parameters, gradients, scales;
  std::vector<TensorId> ids;
  for (const std::size_t size : kSizes) {
    parameters.emplace_back(size, self == 0 ? 1.0F : 0.0F);
    gradients.emplace_back(size);
    scales.emplace_back(plan.scaled ? size : 0);
  }
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    ids.push_back(
        session.add("t" + std::to_string(t), view(gradients[t].data(), gradients[t].size()), {.scale = scales[t]}));
  }
  session.on_world_change([&](const WorldChange& change) { fate.changes.push_back(change); });
  for (std::vector<float>& values : parameters) {
    for (bool done = false; !done;) {
      try {
        session.broadcast(view(values.data(), values.size()));
        done = true;
      } catch (const Error& error) {  // the root has ended: the caller knows what to do
        if (error.code() != ErrorCode::invalid_argument) {
          throw;
        }
        values.assign(values.size(), 1.0F);
      }
    }
  }
  if (plan.weighted) {
    session.set_loss_scale(4);
  }
  const auto leaves = plan.leaves_before.find(self);
  while (session.step() < plan.steps) {
    const std::uint64_t step = session.step();
    if (leaves != plan.leaves_before.end() && step == leaves->second) {
      return;
    }
    if (plan.weighted) {
      session.set_weight(1 + self);
    }
    for (std::size_t t = 0; t < gradients.size(); ++t) {
      for (std::size_t i = 0; i < gradients[t].size(); ++i) {
        gradients[t][i] = gradient_of(parameters[t][i], i, self, step) * (plan.weighted ? 4.0F : 1.0F);
      }
      for (std::size_t i = 0; i < scales[t].size(); ++i) {
        scales[t][i] = static_cast<float>(std::exp(std::sin(0.5 * static_cast<double>(i + step))));
      }
      if (t > 0 || step != 3 || plan.forgets_a_tensor != self) {
        session.ready(ids[t]);
      }
    }
    const StepOutcome outcome = session.finish();
    EXPECT_EQ(outcome.step, step);
    if (outcome.world_changed) {
      fate.first.push_back(session.step());
      EXPECT_EQ(session.step(), outcome.repeat ? step : step + 1);
      EXPECT_EQ(session.explain().find("by scale") != std::string::npos, plan.scaled);
    }
    if (outcome.repeat) {
      EXPECT_TRUE(outcome.world_changed);
      fate.after_change = state_of(session);
      continue;
    }
    if (plan.keeps_states && fate.changes.empty()) {
      fate.before_change = state_of(session);
    }
    for (std::size_t t = 0; t < gradients.size(); ++t) {
      for (std::size_t i = 0; i < gradients[t].size(); ++i) {
        parameters[t][i] -= (plan.weighted ? 0.025F : 0.1F) * gradients[t][i];
      }
    }
  }
  for (const std::vector<float>& values : parameters) {
    fate.parameters.insert(fate.parameters.end(), values.begin(), values.end());
  }
  fate.world_size = session.world_size();
  fate.state = state_of(session);
}

std::vector<Fate> run(const Plan& plan, int ranks = kRanks) {
  const Watchdog watchdog(::testing::UnitTest::GetInstance()->current_test_info()->name());
  std::vector<Fate> fates(static_cast<std::size_t>(ranks));
  auto processes = make_inproc_processes(ranks);
  std::vector<std::thread> threads;
  for (Id id = 0; id < fates.size(); ++id) {
    threads.emplace_back([&, id, own = std::exchange(processes[id], nullptr)]() mutable {
      std::shared_ptr<Life> life = std::make_shared<Life>();
      if (const auto dies = plan.dies_after.find(id); dies != plan.dies_after.end()) {
        life = std::make_shared<Life>(dies->second);
      } else if (const auto silent = plan.silent_after.find(id); silent != plan.silent_after.end()) {
        life = std::make_shared<Life>(silent->second.first, silent->second.second);
      }
      try {
        Session session(std::make_shared<MortalProcesses>(std::move(own), life), Policy::parse(plan.policy),
                        {.timeout = std::chrono::seconds(30)});
        train(session, id, plan, fates[id]);
      } catch (const Error& error) {
        fates[id].error = error;
        const bool expected = plan.errors.contains(error.code()) || life->dead();
        EXPECT_TRUE(expected) << "process " << id << ": " << error.what();
      } catch (const Death&) {
        EXPECT_TRUE(life->dead());
      }
      fates[id].dead = life->dead();
      fates[id].operations = life->counted();
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return fates;
}

std::vector<Id> survivors_of(const std::vector<Fate>& fates) {
  std::vector<Id> ids;
  for (Id id = 0; id < fates.size(); ++id) {
    if (!fates[id].parameters.empty() && !fates[id].dead) {
      ids.push_back(id);
    }
  }
  return ids;
}

void expect_equal(const Fate& a, const Fate& b, bool state) {
  ASSERT_EQ(a.parameters.size(), b.parameters.size());
  EXPECT_EQ(std::memcmp(a.parameters.data(), b.parameters.data(), a.parameters.size() * sizeof(float)), 0);
  if (state) {
    EXPECT_EQ(a.state, b.state);
  }
}

// With weights, or without, and with scales; small tensors too, which would be bf16.
struct Kind {
  const char* policy;
  bool weighted = false;
  bool scaled = false;
};
const Kind kPolicies[] = {
    {"[[rule]]\nmatch = \"*\"\ncodec = \"exact\"\n", false},
    {"[[rule]]\nmatch = \"*\"\ncodec = \"int8\"\n", true},
    {"[[rule]]\nmatch = \"*\"\ncodec = \"int4\"\n", false},
    {"[[rule]]\nmatch = \"*\"\ncodec = \"int4\"\n", true},
    {"[[rule]]\nmatch = \"*\"\ncodec = \"topk(0.05)+int8\"\n", false, true},
    {"[[rule]]\nmatch = \"*\"\ncodec = \"topk(0.05)+int8\"\nalgorithm = \"one_shot\"\n", false},
};

// A run in which the victim left between two steps is the run "that was started from the state before".
TEST(Elastic, ADeathAtAnyMomentCostsOneStepAndLeavesNothingBehind) {
  for (const auto& [policy, weighted, scaled] : kPolicies) {
    const std::vector<Fate> whole = run({.policy = policy, .weighted = weighted, .scaled = scaled});
    const std::int64_t operations = whole[2].operations;
    ASSERT_GT(operations, 50);
    std::map<std::uint64_t, std::vector<Fate>> left;  // by the step before which the victim left
    for (std::int64_t at = 1; at < operations; at += std::max<std::int64_t>(1, operations / 24)) {
      SCOPED_TRACE(std::string(policy) + ", dies at operation " + std::to_string(at));
      const std::vector<Fate> fates =
          run({.policy = policy, .dies_after = {{2, at}}, .weighted = weighted, .scaled = scaled});
      if (!fates[2].parameters.empty()) {
        continue;  // it did all it had to before
      }
      ASSERT_EQ(survivors_of(fates), (std::vector<Id>{0, 1, 3}));
      for (const Id id : {1, 3}) {
        expect_equal(fates[0], fates[id], false);
        ASSERT_EQ(fates[id].first, fates[0].first) << "all survivors change at one step";
        ASSERT_LE(fates[id].changes.size(), 1U);
        if (fates[id].changes.empty()) {
          EXPECT_TRUE(fates[id].first.empty()) << "it was in no world of four, or it was in no other";
          continue;
        }
        EXPECT_EQ(fates[id].changes[0].lost, std::vector<int>{2});
        EXPECT_EQ(fates[id].changes[0].rank, id == 3 ? 2 : 1);
        EXPECT_EQ(fates[id].changes[0].world_size, 3);
      }
      if (fates[0].world_size == kRanks) {  // after the last step
        for (const Id id : {0, 1, 3}) {
          expect_equal(fates[id], whole[id], true);
        }
        continue;
      }
      const std::uint64_t first = fates[0].first.empty() ? 0 : fates[0].first[0];
      if (!left.contains(first)) {
        left[first] = run({.policy = policy, .leaves_before = {{2, first}}, .weighted = weighted, .scaled = scaled});
      }
      for (const Id id : {0, 1, 3}) {
        expect_equal(fates[id], left[first][id], true);
      }
    }
  }
}

// Deaths at moments of chance, also while others are busy with the last one.
TEST(Elastic, SurvivorsOfManyDeathsHoldTheSame) {
  const int seeds = environment_int("GRADWIRE_SEEDS", 40);
  for (int seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(static_cast<unsigned>(seed));
    constexpr int kMany = 5;
    const Kind& kind = kPolicies[random() % std::size(kPolicies)];
    Plan plan{.policy = kind.policy, .scaled = kind.scaled};
    const int deaths = 1 + static_cast<int>(random() % (kMany - 1));
    while (static_cast<int>(plan.dies_after.size()) < deaths) {
      plan.dies_after[random() % kMany] = 1 + static_cast<std::int64_t>(random() % 250);
    }
    const std::vector<Fate> fates = run(plan, kMany);
    const std::vector<Id> survivors = survivors_of(fates);
    ASSERT_GE(survivors.size(), static_cast<std::size_t>(kMany - deaths));
    for (const Id id : survivors) {
      expect_equal(fates[survivors[0]], fates[id], false);
    }
  }
}

TEST(Elastic, ASilentRankIsLeftOutAndLearnsIt) {
  const auto began = std::chrono::steady_clock::now();
  const std::vector<Fate> fates =
      run({.policy = "[[rule]]\nmatch = \"*\"\ncodec = \"int8\"\n[elastic]\nsuspect = \"2s\"\n",
           .silent_after = {{1, {60, milliseconds(4000)}}},
           .errors = {ErrorCode::expelled}});
  EXPECT_EQ(survivors_of(fates), (std::vector<Id>{0, 2, 3}));
  ASSERT_TRUE(fates[1].error);
  EXPECT_EQ(fates[1].error->code(), ErrorCode::expelled);
  EXPECT_NE(std::string(fates[1].error->what()).find("rank 1"), std::string::npos) << fates[1].error->what();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(30)) << "nobody waited for a timeout";
  ASSERT_EQ(fates[0].changes.size(), 1U);
  EXPECT_EQ(fates[0].changes[0].lost, std::vector<int>{1});
  EXPECT_EQ(fates[0].changes[0].lost_names, std::vector<std::string>{"rank 1 of the start"});
  expect_equal(fates[0], fates[2], false);
  expect_equal(fates[0], fates[3], false);
}

// A rank's own mistake ends that rank alone.
TEST(Elastic, ARankThatErrsLeaves) {
  const std::vector<Fate> fates = run({.errors = {ErrorCode::invalid_argument}, .forgets_a_tensor = 2});
  EXPECT_EQ(survivors_of(fates), (std::vector<Id>{0, 1, 3}));
  ASSERT_TRUE(fates[2].error);
  EXPECT_EQ(fates[2].error->code(), ErrorCode::invalid_argument);
  ASSERT_EQ(fates[0].first, std::vector<std::uint64_t>{3});
  expect_equal(fates[0], fates[3], false);
}

// What residuals are worth in the coming means, element by element.
std::vector<double> worth_of(const std::vector<std::string>& states) {
  std::vector<double> worth(9000 + 3 + 5000);
  const std::size_t first[] = {0, 9000, 9003};
  for (const std::string& text : states) {
    std::istringstream stream(text);
    const session::SavedState state = session::read_state(stream, "test");
    for (const auto& residual : state.residuals) {
      const double share = residual.key.site == codec::EncodeSite::owner ? 1.0 : 1.0 / state.world_size;
      for (std::size_t i = 0; i < residual.range.values.size(); ++i) {
        worth[first[residual.key.tensor] + residual.range.offset + i] += share * residual.range.values[i];
      }
    }
  }
  return worth;
}

// Rank 2 leaves behind step 3, and what it had dropped is with the rank that keeps it.
TEST(Elastic, ResidualsOfALostRankAreKept) {
  for (const char* codec : {"int4", "topk(0.05)+int8"}) {
    SCOPED_TRACE(codec);
    const auto fates_with = [&](const std::string& elastic) {
      return run({.policy = "[[rule]]\nmatch = \"*\"\ncodec = \"" + std::string(codec) + "\"\n[elastic]\n" + elastic,
                  .leaves_before = {{2, 4}},
                  .keeps_states = true});
    };
    const auto error_of_sums = [](const std::vector<Fate>& fates) {
      const auto before =
          worth_of({fates[0].before_change, fates[1].before_change, fates[2].before_change, fates[3].before_change});
      const auto after = worth_of({fates[0].after_change, fates[1].after_change, fates[3].after_change});
      double most = 0;
      for (std::size_t i = 0; i < before.size(); ++i) {
        most = std::max(most, std::abs(after[i] - before[i]));
      }
      return most;
    };
    const std::vector<Fate> exact = fates_with("replicate = \"1 step\"\nreplicate_as = \"exact\"\n");
    ASSERT_EQ(exact[0].first, std::vector<std::uint64_t>{4});
    EXPECT_LT(error_of_sums(exact), 1e-6);
    EXPECT_LT(error_of_sums(fates_with("replicate = \"1 step\"\n")), 1e-2) << "bf16";
    EXPECT_GT(error_of_sums(fates_with("")), 2e-2) << "without, it is lost";
  }
}

TEST(Elastic, CopiesComeBackAsTheyWere) {
  std::vector<session::SavedState::Residual> residuals;
  residuals.push_back({{3, codec::EncodeSite::local}, {7, {1.5F, -0.0F, 3.140625F}}});
  residuals.push_back({{0, codec::EncodeSite::owner}, {1ULL << 40, {}}});
  for (const bool exact : {false, true}) {
    const wire::Bytes bytes = session::encode_copy(residuals, exact);
    const auto back = session::decode_copy(bytes);
    ASSERT_EQ(back.size(), 2U);
    EXPECT_EQ(back[0].key, residuals[0].key);
    EXPECT_EQ(back[0].range.offset, 7U);
    EXPECT_EQ(back[0].range.values, residuals[0].range.values);
    EXPECT_EQ(back[1].range.offset, 1ULL << 40);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_THROW(static_cast<void>(session::decode_copy(std::span(bytes).first(length))), Error) << length;
    }
  }
}

TEST(Elastic, TooFewRanksEndTheJob) {
  const std::vector<Fate> fates =
      run({.policy = "[[rule]]\nmatch = \"*\"\ncodec = \"int8\"\n[elastic]\nmin_ranks = 4\n",
           .dies_after = {{0, 60}},
           .errors = {ErrorCode::too_few}});
  EXPECT_TRUE(survivors_of(fates).empty());
  for (const Id id : {1, 2, 3}) {
    ASSERT_TRUE(fates[id].error);
    EXPECT_EQ(fates[id].error->code(), ErrorCode::too_few);
    EXPECT_NE(std::string(fates[id].error->what()).find("a world of 3 ranks is less than"), std::string::npos);
  }
}

TEST(Elastic, OneRankIsLeftOfTwo) {
  const std::vector<Fate> fates = run({.policy = kPolicies[2].policy, .dies_after = {{0, 40}}}, 2);
  EXPECT_EQ(survivors_of(fates), std::vector<Id>{1});
  EXPECT_EQ(fates[1].world_size, 1);
}

TEST(Elastic, ThePlanSaysWhatItCosts) {
  std::vector<float> gradient(10);
  Session session(make_inproc_processes(1)[0],
                  Policy::parse("[elastic]\nsuspect = \"2s\"\nmin_ranks = 1\nreplicate = \"7 steps\"\n"));
  session.add("t", view(gradient.data(), gradient.size()));
  const std::string text = session.explain();
  for (const char* part : {"silent ones after 2s", "down to 1 ranks", "every 7 steps, as bf16"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(Elastic, WhatCannotBeUndoneIsRefused) {
  auto processes = make_inproc_processes(1);
  std::vector<float> gradient(10), parameter(10);
  Session session(processes[0], Policy::parse("[defaults]\nsync = { every = 4 }\n"));
  session.add("t", view(gradient.data(), gradient.size()), view(parameter.data(), parameter.size()));
  const Error error = error_of([&] { session.ready(TensorId{0}); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_NE(std::string(error.what()).find("sync"), std::string::npos) << error.what();

  Session plain(make_inproc_world(1)[0], Policy());
  EXPECT_EQ(error_of([&] { plain.on_world_change([](const WorldChange&) {}); }).code(), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace gradwire::test
