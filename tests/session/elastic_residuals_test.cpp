// Tests what becomes of the residuals of a rank that ends, and the copies that other ranks hold of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "elastic/residual_copy.hpp"
#include "elastic_deaths.hpp"
#include "elastic_kinds.hpp"
#include "memory/process_pool.hpp"
#include "session/host/host_residuals.hpp"
#include "session/state/state_file.hpp"
#include "tests/support/heard_log.hpp"
#include "tests/support/step_share.hpp"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Returns the amount that residuals will add to the next means, by element.
std::vector<double> worth_of(const std::vector<std::string>& states) {
  std::vector<double> worth(9000 + 3 + 5000);
  const std::size_t first[] = {0, 9000, 9003};
  for (const std::string& text : states) {
    std::istringstream stream(text);
    const session::SavedState state = session::read_state(stream, "test");
    for (const auto& residual : state.residuals) {
      const double share = residual.key.site == codec::EncodeSite::owner ? 1.0 : 1.0 / state.world_size;
      for (std::size_t i = 0; i < residual.range.values.size(); ++i) {
        worth[first[residual.key.tensor] + residual.range.offset + i] +=
            share * residual.range.values[i] / state.terms.loss_scale;
      }
    }
  }
  return worth;
}

std::uint64_t step_of(const std::string& text) {
  std::istringstream stream(text);
  return session::read_state(stream, "test").step;
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) {
    most = std::max(most, std::abs(value));
  }
  return most;
}

std::vector<double> worth_before(const std::vector<Fate>& fates) {
  return worth_of({fates[0].before_change, fates[1].before_change, fates[2].before_change, fates[3].before_change});
}

std::vector<double> worth_after(const std::vector<Fate>& fates) {
  return worth_of({fates[0].after_change, fates[1].after_change, fates[3].after_change});
}

double error_of_sums(const std::vector<Fate>& fates) {
  std::vector<double> difference = worth_after(fates);
  const std::vector<double> before = worth_before(fates);
  for (std::size_t i = 0; i < before.size(); ++i) {
    difference[i] -= before[i];
  }
  return largest(difference);
}

Plan plan_of(const std::string& codec, const std::string& rest, std::optional<std::uint64_t> leaves) {
  Plan plan{.policy = "[[rule]]\nmatch = \"*\"\ncodec = \"" + codec + "\"\n" + rest, .keeps_states = true};
  if (leaves) {
    plan.leaves_before = {{2, *leaves}};
    plan.steps = *leaves + 1;
  }
  return plan;
}

// Rank 2 leaves after step 3, and the rank that keeps its copy has what it had dropped. Mutation tried: a copy counts
// as if the loss scale had not changed since.
TEST(Elastic, ResidualsOfALostRankAreKept) {
  for (const char* codec : {"int4", "topk(0.05)+int8"}) {
    SCOPED_TRACE(codec);
    const auto fates_with = [&](const std::string& elastic) {
      return run({.policy = "[[rule]]\nmatch = \"*\"\ncodec = \"" + std::string(codec) + "\"\n[elastic]\n" + elastic,
                  .leaves_before = {{2, 4}},
                  .keeps_states = true});
    };
    const std::vector<Fate> exact = fates_with("replicate = \"1 step\"\nreplicate_as = \"exact\"\n");
    ASSERT_EQ(exact[0].first, std::vector<std::uint64_t>{4});
    EXPECT_LT(error_of_sums(exact), 1e-6);
    Plan rescales = plan_of(codec, "[elastic]\nreplicate = \"1 step\"\nreplicate_as = \"exact\"\n", 4);
    rescales.rescales = true;
    EXPECT_LT(error_of_sums(run(rescales)), 1e-6);
    EXPECT_LT(error_of_sums(fates_with("replicate = \"1 step\"\n")), 1e-2) << "bf16";
    const std::vector<Fate> narrow = run({.policy = "[[rule]]\nmatch = \"*\"\ncodec = \"" + std::string(codec) +
                                                    "\"\nresiduals = { dtype = \"bf16\" }\n"
                                                    "[elastic]\nreplicate = \"1 step\"\n",
                                          .leaves_before = {{2, 4}},
                                          .keeps_states = true});
    const std::vector<Fate> without = fates_with("");
    EXPECT_LT(error_of_sums(narrow), error_of_sums(without) / 8) << "once they are scaled, they are rounded again";
    EXPECT_GT(error_of_sums(without), 2e-2) << "without copies the residuals are lost";
    for (const std::size_t who : {0U, 1U, 3U}) {
      const bool keeps = who == 3;  // the next rank keeps the copy
      const std::vector<std::pair<int, std::uint64_t>> of_rank_2{{2, 3}}, none;
      EXPECT_EQ(exact[who].changes.at(0).residuals_kept, keeps ? of_rank_2 : none);
      EXPECT_EQ(without[who].changes.at(0).residuals_kept, none);
    }
  }
}

// The log says so if nothing of a lost rank is kept. Mutation tried: only the keeping rank says what it has.
TEST(Elastic, WhatIsLostIsTold) {
  const auto told = [](const std::string& elastic, std::map<Id, std::uint64_t> leaves) {
    const HeardLog log;
    run({.policy = "[[rule]]\nmatch = \"*\"\ncodec = \"int4\"\n[elastic]\n" + elastic,
         .leaves_before = std::move(leaves)});
    std::string text;
    for (const std::string& line : HeardLog::all()) {
      text += line + "\n";
    }
    return text;
  };
  EXPECT_THAT(told("", {{2, 4}}), HasSubstr("what the lost had yet to send is lost"));
  const std::string kept = told("replicate = \"1 step\"\n", {{2, 4}});
  EXPECT_THAT(kept, AllOf(HasSubstr("residuals as of step 3 are kept"), Not(HasSubstr("yet to send"))));
  EXPECT_THAT(told("replicate = \"1 step\"\n", {{2, 4}, {3, 4}}), HasSubstr("there is no copy of residuals"))
      << "its keeper has ended as well";
}

// With this policy, parameters are synchronised in step 3: the copy made then holds for the local steps that follow.
constexpr const char* kOuter = "sync = { every = 16, offset = 13, outer = {} }\n";

// Mutations tried, each fails here: a copy counts only if it was made in the last step; the share of residuals of
// changes is that of gradients with weights.
TEST(Elastic, ResidualsOfChangesOfALostRankAreKept) {
  for (const char* codec : {"int4", "topk(0.05)+int8"}) {
    for (const bool weighted : {false, true}) {
      SCOPED_TRACE(std::string(codec) + (weighted ? ", weighted" : ""));
      const auto error_with = [&](const std::string& elastic) {
        Plan plan = plan_of(codec, kOuter + elastic, 6);
        plan.weighted = weighted;
        const std::vector<Fate> fates = run(plan);
        EXPECT_EQ(fates[0].first, std::vector<std::uint64_t>{6});
        EXPECT_GT(largest(worth_before(fates)), 2e-2);
        return error_of_sums(fates);
      };
      EXPECT_LT(error_with("[elastic]\nreplicate = \"4 steps\"\nreplicate_as = \"exact\"\n"), 1e-6);
      EXPECT_GT(error_with(""), 1e-2) << "without copies the residuals are lost";
    }
  }
}

// A rank dies anywhere in a step: its last copy is from the previous step. GRADWIRE_SEEDS is the number of cases that
// can be compared. Mutation tried: the keeper drops every fourth copy.
TEST(Elastic, SumsOfResidualsAreKeptWhereverARankDies) {
  const int seeds = environment_int("GRADWIRE_SEEDS", std::max(4, 12 / kStepShare));
  int compared = 0;
  for (int seed = 1; compared < seeds; ++seed) {
    ASSERT_LE(seed, 6 * seeds) << compared << " could be compared";
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(static_cast<unsigned>(seed));
    const char* codec = seed % 2 == 0 ? "int4" : "topk(0.05)+int8";
    Plan plan = plan_of(codec, seed % 3 == 0 ? kOuter : "", {});
    plan.policy += "[elastic]\nreplicate = \"1 step\"\nreplicate_as = \"exact\"\n";
    const std::uint64_t step = 4 + random() % 3;
    plan.steps = step + 12;  // local steps have few operations
    plan.dies_in = {{2, {step, 1 + static_cast<std::int64_t>(random() % 30)}}};
    const std::vector<Fate> fates = run(plan);
    // The remaining ranks may have kept the step in which the victim died; then there is nothing to compare.
    const bool at_one_step = std::ranges::all_of(
        fates, [&](const Fate& fate) { return step_of(fate.before_change) == step_of(fates[2].before_change); });
    if (at_one_step && !fates[0].after_change.empty()) {
      ++compared;
      EXPECT_GT(largest(worth_before(fates)), 1e-2);
      EXPECT_LT(error_of_sums(fates), 1e-6);
    }
  }
}

// Copies for topk may be old, but not older than a call that sent all residuals. Mutations tried, each fails here:
// copies count that are older than a flush, than sync_parameters(), or than a save with late results; sync_parameters()
// leaves residuals that the next step undoes.
TEST(Elastic, WhatWasSentSinceACopyIsNotSentTwice) {
  const auto copies_count = [](Plan plan, const std::string& steps) {
    const std::vector<double> without = worth_after(run(plan));
    plan.policy += "[elastic]\nreplicate = \"" + steps + " steps\"\nreplicate_as = \"exact\"\n";
    return worth_after(run(plan)) != without;
  };
  Plan flushes = plan_of("topk(0.05)+int8", "", 6);  // copied after step 3
  EXPECT_TRUE(copies_count(flushes, "4"));
  flushes.flushes = 4;
  EXPECT_FALSE(copies_count(flushes, "4"));
  Plan syncs = plan_of("topk(0.05)+int8", kOuter, 20);  // copied after step 15, synchronised in step 19
  EXPECT_TRUE(copies_count(syncs, "16"));
  syncs.syncs_before = 17;
  EXPECT_FALSE(copies_count(syncs, "16"));
  const Plan late = plan_of("int4", "sync = { async = true, staleness = 1 }\n", 6);  // saved after each step
  EXPECT_FALSE(copies_count(late, "1"));
  Plan undone = plan_of("topk(0.05)+int8", kOuter, 5);
  undone.syncs_before = 5;
  EXPECT_EQ(largest(worth_after(run(undone))), 0);
}

// Returns the part of a state about local steps, without residuals, which depend on the world.
std::string of_local_steps(const std::string& text) {
  std::istringstream stream(text);
  session::SavedState state = session::read_state(stream, "test");
  EXPECT_FALSE(state.sync_modes.local_steps.empty());
  state.rank = state.world_size = 0;
  state.fingerprint.clear();
  state.residuals.clear();
  std::ostringstream out;
  session::write_state(state, out);
  return out.str();
}

// Mutations tried, each fails here: the schedule, or everything else, begins anew; an undone step still records that
// parameters have moved.
TEST(Elastic, TheNextWorldHoldsWhatLocalStepsHeld) {
  for (const Kind& kind : kPolicies) {
    if (std::string(kind.policy).find("every") == std::string::npos) {
      continue;
    }
    for (const std::uint64_t step : {2U, 4U}) {
      SCOPED_TRACE(std::string(kind.policy) + ", leaves before step " + std::to_string(step));
      Plan plan = kind.plan();
      plan.leaves_before = {{2, step}};
      plan.syncs_before = 4;  // before that, nothing has moved
      plan.keeps_states = true;
      const std::vector<Fate> fates = run(plan);
      for (const Id id : survivors_of(fates)) {
        EXPECT_EQ(of_local_steps(fates[id].before_change), of_local_steps(fates[id].after_change));
      }
    }
  }
}

TEST(Elastic, CopiesComeBackAsTheyWere) {
  std::vector<session::SavedResidual> residuals;
  residuals.push_back({{3, codec::EncodeSite::local}, {7, {1.5F, -0.0F, 3.140625F}}});
  residuals.push_back({{0, codec::EncodeSite::owner}, {1ULL << 40, {}}});
  for (const session::CopyForm form : {session::CopyForm{.exact = false}, {.exact = true}}) {
    const wire::Bytes bytes = session::encode_copy(residuals, 0.5, form);
    const auto [scale, back] = session::decode_copy(bytes);
    EXPECT_EQ(scale, 0.5);
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

TEST(Elastic, PackedCopiesComeBackAsTheyWereInFewerBytes) {
  const unsigned seed = 5;
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1e-3F);
  std::vector<float> values(300'001);  // more than a piece
  std::generate(values.begin(), values.end(), [&] { return normal(random); });
  std::vector<float> noise(1000);
  std::generate(noise.begin(), noise.end(),
                [&] { return std::bit_cast<float>(static_cast<std::uint32_t>(random() & 0x7f7fffffU)); });
  using Values = exchange::ResidualStore::Values;
  const std::vector<session::SavedResidual> residuals{
      {{1, codec::EncodeSite::local}, {0, Values(std::span<const float>(values))}},
      {{2, codec::EncodeSite::owner}, {9, Values(std::span<const float>(noise))}}};
  for (const bool exact : {false, true}) {
    const wire::Bytes plain = session::encode_copy(residuals, 1, {.exact = exact});
    wire::Bytes packed = session::encode_copy(residuals, 1, {.exact = exact, .packed = true});
    EXPECT_LT(static_cast<double>(packed.size()) * (exact ? 1.15 : 1.4), static_cast<double>(plain.size()));
    const auto wanted = session::decode_copy(plain).residuals;
    const auto back = session::decode_copy(packed).residuals;
    ASSERT_EQ(back.size(), 2U);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(back[i].range.values, wanted[i].range.values);
    }
    for (int round = 0; round < 300; ++round) {
      wire::Bytes damaged = packed;
      damaged[random() % (round % 2 == 0 ? 200 : damaged.size())] = static_cast<std::byte>(random());
      try {
        static_cast<void>(session::decode_copy(damaged));
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::corrupt) << error.what() << ", seed " << seed << ", round " << round;
      }
    }
  }
}

// A new world takes residuals over one tensor after the other. Mutation tried: all of them are copied first.
TEST(ElasticResiduals, ThatChangeHandsAreInMemoryOnce) {
  constexpr std::uint64_t kCount = 100'000;
  constexpr std::uint32_t kTensors = 6;
  const auto in_use = [] {
    const memory::PagePoolStatistics statistics = memory::page_pool().statistics();
    return statistics.uses[static_cast<std::size_t>(memory::MemoryUse::residuals)].in_use;
  };
  const std::uint64_t none = in_use();
  session::HostResiduals before;
  before.remember();
  for (std::uint32_t tensor = 0; tensor < kTensors; ++tensor) {
    before.store().add({tensor, codec::EncodeSite::local}, 0,
                       exchange::ResidualValues(std::vector<float>(kCount, static_cast<float>(tensor + 1))), 1);
  }
  before.store().keep({kTensors, codec::EncodeSite::local}, 0, 0);
  before.commit();
  const auto wanted = before.save_residuals({});
  const std::uint64_t all = (in_use() - none) / 2;
  ASSERT_GE(all, kTensors * kCount * sizeof(float));
  std::uint64_t most = 0;
  exchange::ResidualStore after;
  std::size_t number = 0;
  before.hand_over({}, [&](const session::SavedResidual& residual) {
    ASSERT_LT(number, wanted.size());
    EXPECT_EQ(residual.key, wanted[number].key);
    EXPECT_TRUE(residual.range.values == wanted[number].range.values) << residual.key.tensor;
    after.add(residual.key, residual.range.offset, residual.range.values, 1);
    most = std::max(most, in_use() - none - all);  // without `wanted`
    ++number;
  });
  EXPECT_EQ(number, kTensors + 1);
  EXPECT_LE(most, all + all / kTensors);
  EXPECT_EQ(after.bytes(), kTensors * kCount * sizeof(float));
  EXPECT_EQ(before.residual_bytes(), 0U);
}

}  // namespace
}  // namespace gradwire::test
