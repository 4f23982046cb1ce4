// Ranks end at any moment, and the others go on: steps are delivered on all of them or on none, and nothing of a step
// that is made again is left over.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <optional>
#include <sstream>
#include <thread>

#include "gradwire/session.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/mortal.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using Id = Processes::Id;
using std::chrono::milliseconds;

constexpr int kRanks = 4;
constexpr std::uint64_t kSteps = 6;

// What became of one process.
struct Fate {
  std::vector<float> parameters;
  std::string state;                   // as save() writes it
  std::vector<WorldChange> changes;
  std::vector<std::uint64_t> first;    // of each change: the first step of the new world
  std::optional<Error> error;
  int world_size = 0;  // at the end
  std::int64_t operations = 0;
};

struct Plan {
  std::string policy = "[defaults]\ncodec = \"int8\"\n";
  std::map<Id, std::int64_t> dies_after = {};       // operations
  std::map<Id, std::uint64_t> leaves_before = {};   // the step
  std::map<Id, std::pair<std::int64_t, milliseconds>> silent_after = {};
  std::uint64_t steps = kSteps;
};

// Noise that depends on who makes it, in which step, and where the parameters are.
float gradient_of(float parameter, std::size_t i, Id who, std::uint64_t step) {
  const double noise = std::sin(0.37 * static_cast<double>(i) + 1.7 * who + 0.9 * static_cast<double>(step));
  return parameter - static_cast<float>(0.01 * static_cast<double>(i % 7)) + static_cast<float>(noise);
}

void train(Session& session, Id self, const Plan& plan, Fate& fate) {
  constexpr std::size_t kSizes[] = {9000, 3, 5000};
  std::vector<std::vector<float>> parameters, gradients;
  std::vector<TensorId> ids;
  for (const std::size_t size : kSizes) {
    parameters.emplace_back(size, self == 0 ? 1.0F : 0.0F);
    gradients.emplace_back(size);
  }
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    ids.push_back(session.add("t" + std::to_string(t), view(gradients[t].data(), gradients[t].size())));
  }
  session.on_world_change([&](const WorldChange& change) { fate.changes.push_back(change); });
  for (std::vector<float>& values : parameters) {
    session.broadcast(view(values.data(), values.size()));
  }
  const auto leaves = plan.leaves_before.find(self);
  while (session.step() < plan.steps) {
    const std::uint64_t step = session.step();
    if (leaves != plan.leaves_before.end() && step == leaves->second) {
      return;
    }
    for (std::size_t t = 0; t < gradients.size(); ++t) {
      for (std::size_t i = 0; i < gradients[t].size(); ++i) {
        gradients[t][i] = gradient_of(parameters[t][i], i, self, step);
      }
      session.ready(ids[t]);
    }
    const StepOutcome outcome = session.finish();
    EXPECT_EQ(outcome.step, step);
    if (outcome.world_changed) {
      fate.first.push_back(session.step());
      EXPECT_EQ(session.step(), outcome.repeat ? step : step + 1);
    }
    if (outcome.repeat) {
      EXPECT_TRUE(outcome.world_changed);
      continue;
    }
    for (std::size_t t = 0; t < gradients.size(); ++t) {
      for (std::size_t i = 0; i < gradients[t].size(); ++i) {
        parameters[t][i] -= 0.1F * gradients[t][i];
      }
    }
  }
  for (const std::vector<float>& values : parameters) {
    fate.parameters.insert(fate.parameters.end(), values.begin(), values.end());
  }
  std::ostringstream state;
  session.save(state);
  fate.world_size = session.world_size();
  fate.state = state.str();
}

std::vector<Fate> run(const Plan& plan) {
  const Watchdog watchdog(::testing::UnitTest::GetInstance()->current_test_info()->name());
  std::vector<Fate> fates(kRanks);
  auto processes = make_inproc_processes(kRanks);
  std::vector<std::thread> threads;
  for (Id id = 0; id < kRanks; ++id) {
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
        EXPECT_TRUE(life->dead() || error.code() == ErrorCode::expelled) << "process " << id << ": " << error.what();
      } catch (const Death&) {
        EXPECT_TRUE(life->dead());
      }
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
    if (!fates[id].parameters.empty()) {
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

constexpr const char* kPolicies[] = {
    "[defaults]\ncodec = \"exact\"\n",
    "[defaults]\ncodec = \"int8\"\n",
    "[defaults]\ncodec = \"int4\"\n",
    "[defaults]\ncodec = \"topk(0.05)+int8\"\n",
    "[defaults]\ncodec = \"topk(0.05)+int8\"\nalgorithm = \"one_shot\"\n",
};

// A run in which the victim left between two steps is the run "that was started from the state before".
TEST(Elastic, ADeathAtAnyMomentCostsOneStepAndLeavesNothingBehind) {
  for (const char* policy : kPolicies) {
    const std::vector<Fate> whole = run({.policy = policy});
    const std::int64_t operations = whole[2].operations;
    ASSERT_GT(operations, 50);
    std::map<std::uint64_t, std::vector<Fate>> left;  // by the step before which the victim left
    for (std::int64_t at = 1; at < operations; at += std::max<std::int64_t>(1, operations / 24)) {
      SCOPED_TRACE(std::string(policy) + ", dies at operation " + std::to_string(at));
      const std::vector<Fate> fates = run({.policy = policy, .dies_after = {{2, at}}});
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
        left[first] = run({.policy = policy, .leaves_before = {{2, first}}});
      }
      for (const Id id : {0, 1, 3}) {
        expect_equal(fates[id], left[first][id], true);
      }
    }
  }
}

}  // namespace
}  // namespace gradwire::test
