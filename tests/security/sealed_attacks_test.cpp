// Attacks jobs with a key, one message at a time: ranks end with an error that names a rank, or in gradwire's timeout,
// and no result is ever wrong. GRADWIRE_ATTACKS=10000 makes more attacks than the usual 500, GRADWIRE_TEST_SEED repeats
// those of a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "attacker.hpp"
#include "gradwire/communicator.hpp"
#include "gradwire/session.hpp"
#include "gradwire/table.hpp"
#include "key_in_environment.hpp"
#include "sealed_messages.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using Endpoint = std::shared_ptr<Transport>;
using Milliseconds = std::chrono::milliseconds;
using Values = std::vector<float>;

// Results of a rank, in the order in which they were there.
using Kept = std::vector<Values>;
// A job of two ranks; it takes each result as soon as the call returns.
using Job = std::function<void(const Endpoint&, Milliseconds timeout, Kept& kept, const std::function<void()>& stop)>;

void calls(const Endpoint& transport, Milliseconds timeout, Kept& kept, const std::function<void()>& stop) {
  Communicator communicator(transport, {.timeout = timeout});
  for (const char* codec : {"int8", "exact"}) {
    for (const std::uint64_t count : {9000U, 30U}) {
      Values values = marked(transport->rank(), count);
      communicator.all_reduce(view(values.data(), count), {.codec = codec, .chunk_bytes = 4096});
      kept.push_back(values);
    }
  }
  Values values = marked(transport->rank(), 3000);
  communicator.broadcast(view(values.data(), values.size()), 1);
  kept.push_back(values);
  communicator.all_reduce(view(values.data(), values.size()), {.codec = "int8", .weight = 1.0 + transport->rank()});
  kept.push_back(values);
  stop();
}

void steps(const std::string& codec, const Endpoint& transport, Milliseconds timeout, Kept& kept,
           const std::function<void()>& stop) {
  Policy policy = Policy::uniform(codec);
  policy.small.reset();
  policy.bucket_bytes = 20000;
  Session session(transport, policy, {.timeout = timeout});
  Values values(9000);
  Values small(30);
  const TensorId ids[] = {session.add("tensor", view(values.data(), values.size())),
                          session.add("small", view(small.data(), small.size()))};
  for (unsigned step = 0; step < 2; ++step) {
    std::ranges::copy(marked(transport->rank(), values.size(), step), values.begin());
    std::ranges::copy(marked(transport->rank(), small.size(), 10 + step), small.begin());
    session.ready(ids[1]);
    session.ready(ids[0]);
    session.finish();
    kept.push_back(values);
    kept.push_back(small);
  }
  const View parameters = view(values.data(), values.size());
  session.broadcast({&parameters, 1}, 0);
  kept.push_back(values);
  stop();
}

void rows(const Endpoint& transport, Milliseconds timeout, Kept& kept, const std::function<void()>& stop) {
  Table table(transport, {.name = "words", .rows = 100, .width = 8, .learning_rate = 1.0F, .timeout = timeout});
  const std::vector<std::uint64_t> ids{1, 20, 50, 99};
  for (int step = 1; step <= 2; ++step) {
    // Whole numbers, whose sums do not depend on the order.
    table.push(ids, Values(ids.size() * 8, static_cast<float>(step + 10 * transport->rank())));
    table.tick();
    table.synchronize();
    Values values(ids.size() * 8);
    table.pull(ids, values);
    kept.push_back(values);
    table.synchronize();
  }
  stop();
}

Job steps_by(const std::string& codec) {
  return [=](const Endpoint& transport, Milliseconds timeout, Kept& kept, const std::function<void()>& stop) {
    steps(codec, transport, timeout, kept, stop);
  };
}

const Job kJobs[] = {calls, steps_by("int8"), rows, steps_by("topk(10%)+int8")};
constexpr std::size_t kJobCount = std::size(kJobs);

struct Outcomes {
  std::array<std::shared_ptr<Attacker>, 2> attackers;
  std::array<Kept, 2> kept;
  std::vector<std::exception_ptr> errors;
};

struct Attack {
  std::size_t job = 0;
  std::optional<AttackKind> kind = {};
  int rank = 0;
  std::size_t at = 0;
  std::uint64_t seed = 0;
  std::shared_ptr<const Attacker::Messages> other_run = {};
};

Outcomes run(const Attack& attack, Milliseconds timeout) {
  Outcomes run;
  std::vector<Endpoint> world = make_inproc_world(2);
  for (int rank = 0; rank < 2; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    run.attackers[at] =
        std::make_shared<Attacker>(world[at], rank == attack.rank ? attack.kind : std::optional<AttackKind>(),
                                   attack.at, attack.seed, attack.other_run);
    world[at] = run.attackers[at];
  }
  run.errors = run_ranks_catching(std::move(world), [&](const Endpoint& endpoint) {
    const auto rank = static_cast<std::size_t>(endpoint->rank());
    kJobs[attack.job](endpoint, timeout, run.kept[rank], [&] { run.attackers[rank]->stop(); });
  });
  return run;
}

// A job that nobody attacks.
struct Reference {
  std::array<Kept, 2> kept;
  std::array<std::size_t, 2> messages;
  std::array<std::shared_ptr<const Attacker::Messages>, 2> sent;
};

Reference reference_of(std::size_t job) {
  const Outcomes plain = run({.job = job}, std::chrono::minutes(1));
  Reference reference;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(told(plain.errors[rank]), "");
    reference.kept[rank] = plain.kept[rank];
    reference.messages[rank] = plain.attackers[rank]->count();
    reference.sent[rank] = std::make_shared<Attacker::Messages>(plain.attackers[rank]->sent());
  }
  return reference;
}

// What became of the attacks of a kind.
struct Tally {
  int made = 0;
  int not_struck = 0;  // no message fitted
  int errors = 0;      // a rank ended with an error
  int timeouts = 0;    // of these gradwire's timeout
  int harmless = 0;    // all results are there, and right
};

// Whether the attack cannot go unnoticed: the message is needed, and it cannot come any more.
bool must_be_noticed(AttackKind kind) {
  return kind != AttackKind::repeat_beside && kind != AttackKind::swap && kind != AttackKind::delay;
}

void judge(const Attack& attack, const Outcomes& run, const Reference& reference, Tally& tally) {
  const Attacker& attacker = *run.attackers[static_cast<std::size_t>(attack.rank)];
  const bool struck = attacker.struck();
  ++tally.made;
  tally.not_struck += struck ? 0 : 1;
  bool any = false;
  bool timeout = false;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const Kept& kept = run.kept[rank];
    const Kept& right = reference.kept[rank];
    ASSERT_LE(kept.size(), right.size());
    EXPECT_TRUE(std::equal(kept.begin(), kept.end(), right.begin())) << "rank " << rank << " has a wrong result";
    const std::string text = told(run.errors[rank]);
    any = any || !text.empty();
    timeout = timeout || text.find("timeout") != std::string::npos;
    if (text.empty()) {
      EXPECT_EQ(kept.size(), right.size()) << "rank " << rank << " has neither an error nor all results";
    } else {
      EXPECT_THAT(text, ::testing::ContainsRegex("^(corrupt|mismatch|timeout|aborted): (.|\n)*rank [01]"));
      EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("test body failed"))) << "the other rank was not told";
      if (text.starts_with("corrupt") && !attacker.struck_a_greeting()) {
        EXPECT_THAT(text, ::testing::HasSubstr("rank " + std::to_string(attack.rank))) << "the sender is not named";
      }
    }
  }
  tally.errors += any ? 1 : 0;
  tally.timeouts += timeout ? 1 : 0;
  tally.harmless += any ? 0 : 1;
  if (struck && must_be_noticed(*attack.kind)) {
    EXPECT_TRUE(any) << "nobody noticed";
  }
}

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): no ranks yet
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(SealedAttacks, EndInAnErrorOrTheTimeoutAndNeverInAWrongResult) {
  const std::uint64_t count = number_from("GRADWIRE_ATTACKS", 500);
  const std::uint64_t seed = number_from("GRADWIRE_TEST_SEED", std::random_device()());
  const KeyInEnvironment key;
  std::array<Reference, kJobCount> references;
  for (std::size_t job = 0; job < kJobCount; ++job) {
    references[job] = reference_of(job);
  }
  std::map<AttackKind, Tally> tallies;
  std::mutex mutex;
  std::atomic<std::uint64_t> next{0};
  const auto attack_all = [&] {
    for (std::uint64_t number = next++; number < count; number = next++) {
      std::mt19937_64 random(seed + number);
      Attack attack{.job = number / kAttackKinds % kJobCount,
                    .kind = static_cast<AttackKind>(number % kAttackKinds),
                    .rank = static_cast<int>(random() % 2),
                    .seed = random()};
      const Reference& reference = references[attack.job];
      attack.at = random() % reference.messages[static_cast<std::size_t>(attack.rank)];
      attack.other_run = reference.sent[static_cast<std::size_t>(attack.rank)];
      const Outcomes attacked = run(attack, Milliseconds(100));
      const std::lock_guard lock(mutex);
      SCOPED_TRACE("GRADWIRE_TEST_SEED=" + std::to_string(seed) + ", attack " + std::to_string(number) + " of rank " +
                   std::to_string(attack.rank) + ": message " + std::to_string(attack.at) + " of job " +
                   std::to_string(attack.job) + ' ' + std::string(kAttackNames[number % kAttackKinds]));
      judge(attack, attacked, reference, tallies[*attack.kind]);
    }
  };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {  // they mostly wait
    threads.emplace_back(attack_all);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::printf("%llu attacks, GRADWIRE_TEST_SEED=%llu\n%-26s %6s %10s %6s %9s %9s\n",
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(seed), "a message is", "made",
              "not struck", "errors", "timeouts", "harmless");
  for (const auto& [kind, tally] : tallies) {
    std::printf("%-26s %6d %10d %6d %9d %9d\n", std::string(kAttackNames[static_cast<std::size_t>(kind)]).c_str(),
                tally.made, tally.not_struck, tally.errors, tally.timeouts, tally.harmless);
    EXPECT_LT(4 * tally.not_struck, tally.made + 4);
  }
}

}  // namespace
}  // namespace gradwire::test
