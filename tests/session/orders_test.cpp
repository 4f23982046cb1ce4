// Tests sessions with real threads, in orders that a seeded scheduler chooses: gradients become ready on several
// threads of a rank, callers wait, ask, flush, skip, save or leave, and every step gives the correct means or the same
// error on all ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <random>
#include <sstream>
#include <thread>
#include <vector>

#include "gradwire/session.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

constexpr int kScriptSteps = 3;

// The part of a script that is the same on all ranks.
struct Script {
  explicit Script(unsigned seed) : random(seed) {
    const auto one_in = [&](unsigned n) { return random() % n == 0; };
    world = 2 + static_cast<int>(random() % 2);
    for (std::size_t i = 0, tensors = 1 + random() % 4; i < tensors; ++i) {
      counts.push_back(1 + random() % 300);
    }
    policy = Policy::uniform("exact");
    policy.bucket_bytes = one_in(2) ? 64 : 1 << 20;
    skips = one_in(3);
    threading = std::array{Threading::background, Threading::background, Threading::serialized}[random() % 3];
    for (int step = 0; step < kScriptSteps; ++step) {
      flush.push_back(one_in(4));
      bad.push_back(one_in(4) ? static_cast<int>(random()) % world : -1);
      save.push_back(one_in(4));
    }
    aborts_in = one_in(5) ? static_cast<int>(random() % kScriptSteps) : -1;
    if (one_in(3)) {  // steps of native sums, which finish() makes
      const std::uint64_t bytes = policy.bucket_bytes;
      policy = Policy::uniform("exact", Algorithm::dense);
      policy.bucket_bytes = bytes;
    }
  }

  std::mt19937 random;
  int world;
  std::vector<std::size_t> counts;
  Policy policy;
  bool skips;
  Threading threading;
  std::vector<bool> flush, save;
  std::vector<int> bad;  // rank with NaN, by step
  int aborts_in;         // the step in which the last rank gives up
};

float value(std::size_t tensor, std::size_t j, int rank, int step) {
  return static_cast<float>((j * 3 + tensor * 17 + static_cast<std::size_t>(rank * 5 + step)) % 64);
}

void maybe_pause(std::mt19937& random) {
  if (random() % 3 == 0) {
    std::this_thread::yield();
  } else if (random() % 8 == 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 100));
  }
}

class RankOfScript {
 public:
  RankOfScript(const Script& script, std::shared_ptr<Transport> transport, unsigned seed)
      : script_(script), rank_(transport->rank()), random_(seed * 7 + static_cast<unsigned>(transport->rank())) {
    for (const std::size_t count : script.counts) {
      gradients_.emplace_back(count);
    }
    session_.emplace(std::move(transport), script.policy,
                     SessionOptions{.threading = script.threading,
                                    .nonfinite = script.skips ? Nonfinite::skip : Nonfinite::automatic});
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      ids_.push_back(session_->add("t" + std::to_string(i), View{gradients_[i].data(), gradients_[i].size()}));
    }
  }

  void step(int number) {
    const auto at = static_cast<std::size_t>(number);
    if (script_.flush[at]) {
      session_->flush();
    }
    fill(number);
    std::vector<TensorId> order = ids_;
    std::shuffle(order.begin(), order.end(), random_);
    const auto half = order.begin() + static_cast<std::ptrdiff_t>(random_() % (order.size() + 1));
    std::vector<Ticket> tickets(order.size());
    const auto give = [&](std::size_t from, std::size_t to, unsigned seed) {
      std::mt19937 mine(seed);
      for (std::size_t i = from; i < to; ++i) {
        maybe_pause(mine);
        tickets[i] = session_->ready(order[i]);
      }
    };
    const auto split = static_cast<std::size_t>(half - order.begin());
    {
      Error other(ErrorCode::aborted, "");
      bool threw = false;
      std::jthread helper([&, seed = random_()] {
        try {
          give(split, order.size(), static_cast<unsigned>(seed));
        } catch (const Error& error) {
          other = error;
          threw = true;
        }
      });
      give(0, split, static_cast<unsigned>(random_()));
      helper.join();
      if (threw) {
        throw Error(other);
      }
    }
    if (number == script_.aborts_in && rank_ == script_.world - 1) {
      maybe_pause(random_);
      session_->abort("as the script says");
    }
    maybe_pause(random_);
    const Ticket& ticket = tickets[random_() % tickets.size()];
    switch (random_() % 3) {
      case 0:
        session_->wait(ticket);
        EXPECT_TRUE(session_->done(ticket));
        break;
      case 1: (void)session_->done(ticket); break;
      default: break;
    }
    check(number, session_->finish());
    EXPECT_TRUE(session_->done(ticket));
    if (script_.save[at]) {
      std::ostringstream saved;
      session_->save(saved);
      EXPECT_FALSE(saved.str().empty());
    }
  }

 private:
  void fill(int number) {
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      for (std::size_t j = 0; j < gradients_[i].size(); ++j) {
        gradients_[i][j] = value(i, j, rank_, number);
      }
    }
    if (script_.bad[static_cast<std::size_t>(number)] == rank_) {
      gradients_[0][0] = std::numeric_limits<float>::quiet_NaN();
    }
  }

  void check(int number, const StepOutcome& outcome) {
    const auto at = static_cast<std::size_t>(number);
    const bool bad = script_.bad[at] >= 0;
    flushing_ = flushing_ || script_.flush[at];
    EXPECT_EQ(outcome.step, at);
    EXPECT_EQ(outcome.skipped, bad && (script_.skips || flushing_));
    EXPECT_EQ(outcome.nonfinite, bad);
    flushing_ = flushing_ && outcome.skipped;
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      for (std::size_t j = 0; j < gradients_[i].size(); ++j) {
        if (bad && i == 0 && j == 0) {
          continue;
        }
        float expected = value(i, j, rank_, number);
        if (!outcome.skipped) {
          expected = 0;
          for (int rank = 0; rank < script_.world; ++rank) {
            expected += value(i, j, rank, number);
          }
          expected /= static_cast<float>(script_.world);
        }
        ASSERT_FLOAT_EQ(gradients_[i][j], expected) << "tensor " << i << ", element " << j << ", step " << number;
      }
    }
  }

  const Script& script_;
  int rank_;
  std::mt19937 random_;
  std::vector<std::vector<float>> gradients_;
  std::vector<TensorId> ids_;
  bool flushing_ = false;
  std::optional<Session> session_;  // last member, because it touches gradients
};

void run_world(unsigned seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  const Script script(seed);
  const auto errors =
      run_ranks_catching(make_inproc_world(script.world), [&](const std::shared_ptr<Transport>& transport) {
        RankOfScript rank(script, transport, seed);
        for (int step = 0; step < kScriptSteps; ++step) {
          rank.step(step);
        }
      });
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    const bool aborts = static_cast<int>(rank) + 1 == script.world;
    if (script.aborts_in < 0 || aborts ||
        script.aborts_in + 1 < kScriptSteps) {  // others may have ended in the last step
      EXPECT_EQ(errors[rank] != nullptr, script.aborts_in >= 0) << "rank " << rank;
    }
  }
}

TEST(Orders, EveryStepBringsTheMeansOrTheSameEnd) {
#ifdef __SANITIZE_ADDRESS__
  const unsigned seeds = 100;  // few, because the variety of orders is for ThreadSanitizer
#elif defined(__SANITIZE_THREAD__)
  const unsigned seeds = 400;  // each takes as long as eight of a release build
#else
  const unsigned seeds = 1000;
#endif
  for (unsigned seed = 0; seed < seeds && !HasFailure(); ++seed) {
    run_world(seed);
  }
}

}  // namespace
}  // namespace gradwire::test
