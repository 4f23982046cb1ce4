// Tests the last bucket of an uncompressed step that is made as the transport's blocking all-reduce: only if every rank
// waits for it, and with the results of any other way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "exchange/resolved_call.hpp"
#include "gradwire/communicator.hpp"
#include "gradwire/session.hpp"
#include "tests/support/in_call_transport.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/step_share.hpp"

namespace gradwire::test {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kMiddle = 20'000;  // floats: 80 KB, which are neither small nor large
constexpr int kRounds = 5;

// A rank with a session over gradients with these counts.
struct Rank {
  Rank(std::shared_ptr<Transport> inner, const std::vector<std::uint64_t>& counts, SessionOptions options = {},
       Policy policy = Policy::uniform("exact", Algorithm::dense))
      : transport(std::make_shared<InCallTransport>(std::move(inner))) {
    for (const std::uint64_t count : counts) {
      gradients.emplace_back(count);
    }
    session.emplace(transport, std::move(policy), options);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      ids.push_back(session->add("tensor " + std::to_string(i), view(gradients[i].data(), counts[i])));
    }
  }

  // Returns element j of tensor i on rank r in step s: exact in f32, as is every sum of such elements.
  static float value(std::size_t i, std::uint64_t j, int rank, int step) {
    return static_cast<float>((j * 7 + i * 13 + static_cast<std::uint64_t>(rank * 5 + step)) % 256);
  }
  void fill(int step) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      for (std::uint64_t j = 0; j < gradients[i].size(); ++j) {
        gradients[i][j] = value(i, j, transport->rank(), step);
      }
    }
  }
  void ready() {
    for (const TensorId id : ids) {
      session->ready(id);
    }
  }
  void expect_means(int step) const {
    const int world = transport->world_size();
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      for (std::uint64_t j = 0; j < gradients[i].size(); ++j) {
        float sum = 0;
        for (int rank = 0; rank < world; ++rank) {
          sum += value(i, j, rank, step);
        }
        ASSERT_EQ(gradients[i][j], sum / static_cast<float>(world)) << "tensor " << i << ", element " << j;
      }
    }
  }

  // Takes steps 0, 1, ... until all but the first of kRounds made the call, and returns how many it took. If a busy
  // machine keeps callers from waiting in time, the bucket starts without them: such a step makes no call.
  template <class Body>
  int take_steps(Body body) {
    int step = 0;
    while (step < kRounds || (step < 100 * kRounds && transport->calls() < kRounds - 1)) {
      body(step++);
    }
    EXPECT_GE(transport->calls(), kRounds - 1) << "in " << step << " steps";
    EXPECT_LT(transport->calls(), step) << "ranks agree in the first step";
    return step;
  }

  std::shared_ptr<InCallTransport> transport;
  std::vector<std::vector<float>> gradients;  // outlive the session
  std::vector<TensorId> ids;
  std::optional<Session> session;
};

// Counts the steps that a rank has finished, so that other ranks can wait for them outside gradwire.
class StepCount {
 public:
  void add() {
    const std::lock_guard lock(mutex_);
    ++steps_;
    changed_.notify_all();
  }
  /// Returns whether `step` is finished within ten seconds.
  bool wait_for(int step) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, milliseconds(10'000), [&] { return steps_ > step; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int steps_ = 0;
};

class InCall : public testing::TestWithParam<Threading> {
 protected:
  static SessionOptions options() { return {.threading = GetParam()}; }
};

TEST_P(InCall, ACallerWhoWaitsMakesTheCall) {
  for (const int world : {2, 3}) {
    run_ranks(world, [&](const std::shared_ptr<Transport>& inner) {
      Rank rank(inner, {kMiddle}, options());
      const int steps = rank.take_steps([&](int step) {
        rank.fill(step);
        rank.ready();
        EXPECT_FALSE(rank.session->finish().nonfinite);
        rank.expect_means(step);
        if (step == 0) {
          rank.session->reset_statistics();
        }
      });
      if (steps == kRounds) {
        const Statistics totals = rank.session->statistics().groups.at(0).totals;
        EXPECT_EQ(totals.bytes_sent, totals.bytes_uncompressed + (kRounds - 1) * (2ULL * (world - 1) * 4 / world))
            << "this includes the question to all ranks";
      }
    });
  }
}

TEST_P(InCall, OnlyTheLastBucketIsHeld) {
  Policy policy = Policy::uniform("exact", Algorithm::dense);
  policy.bucket_bytes = 4 * kMiddle;
  run_ranks(2, [&](const std::shared_ptr<Transport>& inner) {
    Rank rank(inner, {kMiddle, kMiddle, kMiddle}, options(), policy);
    rank.take_steps([&](int step) {
      rank.fill(step);
      rank.ready();
      rank.session->finish();
      rank.expect_means(step);
    });
  });
}

// A rank that does something else between its last ready() and finish() wants its bucket to travel meanwhile.
TEST_P(InCall, WhoDoesNotWaitIsNotHeldUp) {
  if (GetParam() != Threading::background) {
    GTEST_SKIP() << "without a thread nothing travels meanwhile";
  }
  run_ranks(2, [&](const std::shared_ptr<Transport>& inner) {
    Rank rank(inner, {kMiddle}, options());
    for (int step = 0; step < kRounds; ++step) {
      rank.fill(step);
      const Ticket ticket = rank.session->ready(rank.ids[0]);
      if (rank.transport->rank() == 1) {
        while (!rank.session->done(ticket)) {
          std::this_thread::sleep_for(milliseconds(1));
        }
      }
      rank.session->finish();
      rank.expect_means(step);
    }
    EXPECT_EQ(rank.transport->calls(), 0) << "rank 1 never waited";
  });
}

// Rank 1 of this job computes after ready(), or waits outside gradwire for an action of rank 0 after its finish().
// Mutation tried: the thread sleeps until it is woken, although no call wakes it when a held bucket's time has come.
TEST_P(InCall, WhoStaysAwayIsNotHeldUp) {
  if (GetParam() != Threading::background) {
    GTEST_SKIP() << "without a thread nothing travels meanwhile";
  }
  StepCount finished;  // steps of rank 0
  run_ranks(2, [&](const std::shared_ptr<Transport>& inner) {
    Rank rank(inner, {kMiddle}, {.timeout = milliseconds(20'000)});
    for (int step = 0; step < 4; ++step) {
      if (step == 2) {  // longer than the thread's polling interval
        std::this_thread::sleep_for(milliseconds(1300));
      }
      rank.fill(step);
      rank.ready();
      if (rank.transport->rank() == 1) {
        EXPECT_TRUE(finished.wait_for(step)) << "step " << step;
      }
      rank.session->finish();
      rank.expect_means(step);
      if (rank.transport->rank() == 0) {
        finished.add();
      }
    }
  });
}

// The last gradient is ready while another thread waits for an earlier one, which returns before the time has come.
// Mutation tried: that does not wake the thread.
TEST_P(InCall, NorIsItByAnotherWhoWaited) {
  if (GetParam() != Threading::background) {
    GTEST_SKIP() << "without a thread nothing travels meanwhile";
  }
  StepCount last_ready;  // steps in which rank 1 has given its last gradient
  StepCount finished;    // steps of rank 0
  Policy policy = Policy::uniform("exact", Algorithm::dense);
  policy.bucket_bytes = 4 * kMiddle;
  run_ranks(2, [&](const std::shared_ptr<Transport>& inner) {
    Rank rank(inner, {kMiddle, kMiddle}, {.timeout = milliseconds(20'000)}, policy);
    for (int step = 0; step < 3; ++step) {
      rank.fill(step);
      const milliseconds pause(step == 2 ? 1300 : 0);  // longer than the thread's polling interval
      if (rank.transport->rank() == 0) {
        std::this_thread::sleep_for(pause);
        EXPECT_TRUE(last_ready.wait_for(step));
        rank.session->ready(rank.ids[1]);
        rank.session->ready(rank.ids[0]);
        rank.session->finish();
        finished.add();
      } else {
        const Ticket early = rank.session->ready(rank.ids[1]);
        std::thread waiting([&] { rank.session->wait(early); });
        std::this_thread::sleep_for(pause);
        rank.session->ready(rank.ids[0]);
        last_ready.add();
        waiting.join();
        EXPECT_TRUE(finished.wait_for(step)) << "step " << step;
        rank.session->finish();
      }
      rank.expect_means(step);
    }
  });
}

TEST_P(InCall, PollingEnds) {
  run_ranks(2, [&](const std::shared_ptr<Transport>& inner) {
    Rank rank(inner, {kMiddle}, options());
    for (int step = 0; step < kRounds; ++step) {
      rank.fill(step);
      const Ticket ticket = rank.session->ready(rank.ids[0]);
      while (!rank.session->done(ticket)) {
        std::this_thread::yield();
      }
      rank.expect_means(step);
      rank.session->finish();
    }
  });
}

TEST_P(InCall, RanksComeAndWaitAsTheyLike) {
  const unsigned seed = 23;
  run_ranks(3, [&](const std::shared_ptr<Transport>& inner) {
    std::mt19937 random(seed + static_cast<unsigned>(inner->rank()));
    Rank rank(inner, {kMiddle, 100}, options());
    for (int step = 0; step < 8 * kRounds; ++step) {
      rank.fill(step);
      rank.ready();
      if (random() % 3 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 12'000));
      }
      if (random() % 2 == 0) {
        rank.session->wait({.step = static_cast<std::uint64_t>(step), .bucket = 0});
      }
      rank.session->finish();
      rank.expect_means(step);
    }
  });
}

TEST_P(InCall, ZerosAndWhatIsNotFinite) {
  run_ranks(2, [&](const std::shared_ptr<Transport>& inner) {
    Rank rank(inner, {kMiddle}, options());
    rank.take_steps([&](int step) {
      rank.fill(step);
      if (rank.transport->rank() == 1) {
        rank.session->ready_zero(rank.ids[0]);
      } else {
        rank.gradients[0][777] = step == 3 ? std::numeric_limits<float>::quiet_NaN() : 4.0F;
        rank.session->ready(rank.ids[0]);
      }
      EXPECT_EQ(rank.session->finish().nonfinite, step == 3);
      if (step != 3) {
        EXPECT_EQ(rank.gradients[0][777], 2.0F);
        EXPECT_EQ(rank.gradients[0][5], Rank::value(0, 5, 0, step) / 2);
      }
    });
  });
}

TEST_P(InCall, WeightsSmallAndLargeBucketsGoOtherWays) {
  run_ranks(2, [&](const std::shared_ptr<Transport>& inner) {
    Rank small(inner, {1000}, options());
    Rank large(inner, {exchange::kInCallBelowBytes / sizeof(float)}, options());
    Rank weighted(inner, {kMiddle}, options());
    for (int step = 0; step < (kStepShare == 1 ? 3 : 2); ++step) {
      for (Rank* rank : {&small, &large, &weighted}) {
        rank->fill(step);
        if (rank == &weighted) {
          rank->session->set_weight(1.0);
        }
        rank->ready();
        rank->session->finish();
        rank->expect_means(step);
        EXPECT_EQ(rank->transport->calls(), 0);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, InCall, testing::Values(Threading::background, Threading::serialized),
                         [](const auto& threads) {
                           return threads.param == Threading::background ? "Background" : "Serialized";
                         });

// A rank that never arrives is still named: ranks ask each other before they enter a call that may never end.
TEST(InCallFaults, AMissingRankEndsTheStep) {
  auto world = make_inproc_world(2);
  const auto errors = run_ranks_catching(world, [](const std::shared_ptr<Transport>& inner) {
    Rank rank(inner, {kMiddle}, {.timeout = milliseconds(300)});
    for (int step = 0; step < 3; ++step) {
      if (step == 2 && inner->rank() == 1) {
        std::this_thread::sleep_for(milliseconds(900));
        return;
      }
      rank.fill(step);
      rank.ready();
      rank.session->finish();
    }
  });
  ASSERT_NE(errors[0], nullptr);
  try {
    std::rethrow_exception(errors[0]);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
  }
}

TEST(InCallCommunicator, AnUncompressedCallIsTheLibrarys) {
  run_ranks(3, [](const std::shared_ptr<Transport>& inner) {
    const auto transport = std::make_shared<InCallTransport>(inner);
    Communicator communicator(transport);
    std::vector<float> input(kMiddle);
    std::vector<float> output(kMiddle);
    for (std::uint64_t j = 0; j < kMiddle; ++j) {
      input[j] = Rank::value(0, j, inner->rank(), 0);
    }
    communicator.all_reduce(view(input.data(), kMiddle), view(output.data(), kMiddle),
                            {.algorithm = Algorithm::dense, .reduction = Reduction::sum});
    EXPECT_EQ(transport->calls(), 1);
    for (std::uint64_t j = 0; j < kMiddle; ++j) {
      ASSERT_EQ(output[j], Rank::value(0, j, 0, 0) + Rank::value(0, j, 1, 0) + Rank::value(0, j, 2, 0));
      ASSERT_EQ(input[j], Rank::value(0, j, inner->rank(), 0)) << "the input is only read";
    }
  });
}

}  // namespace
}  // namespace gradwire::test
