// Tests steps of small native sums, which finish() makes itself: results, errors and counts equal those of the
// executor.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include "gradwire/session.hpp"
#include "session/state/state_file.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/forwarding_transport.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using std::chrono::milliseconds;

// A transport that counts calls, and notes which threads make them.
class Watched final : public ForwardingTransport {
 public:
  explicit Watched(std::shared_ptr<Transport> inner) : ForwardingTransport(std::move(inner)) {}

  void post_send(Operation& operation, int peer, Tag tag, std::span<const std::byte> data) override {
    ++messages;
    inner().post_send(operation, peer, tag, data);
  }
  void post_all_reduce(Operation& operation, View data) override {
    ++sums;
    elsewhere += std::this_thread::get_id() == caller ? 0 : 1;
    inner().post_all_reduce(operation, data);
  }
  bool progress(std::chrono::microseconds wait) override {
    const bool any = inner().progress(wait);
    fruitless += any ? 0 : 1;
    return any;
  }

  std::atomic<std::uint64_t> messages = 0, sums = 0, elsewhere = 0, fruitless = 0;
  const std::thread::id caller = std::this_thread::get_id();
};

struct SmallRank {
  SmallRank(std::shared_ptr<Transport> inner, const std::vector<std::uint64_t>& counts, SessionOptions options = {})
      : transport(std::make_shared<Watched>(std::move(inner))), counts_(counts) {
    Policy policy = Policy::uniform("exact", Algorithm::dense);
    policy.bucket_bytes = 512;  // several buckets
    for (const std::uint64_t count : counts) {
      gradients.emplace_back(count);
    }
    session.emplace(transport, std::move(policy), options);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      ids.push_back(session->add("tensor " + std::to_string(i), view(gradients[i].data(), counts[i])));
    }
  }
  void fill(float value) {
    for (auto& gradient : gradients) {
      std::fill(gradient.begin(), gradient.end(), value);
    }
  }
  Ticket ready() {
    Ticket last;
    for (const TensorId id : ids) {
      last = session->ready(id);
    }
    return last;
  }
  void expect(float value) const {
    for (const auto& gradient : gradients) {
      for (const float one : gradient) {
        ASSERT_EQ(one, value);
      }
    }
  }
  StepOutcome step(float value) {
    fill(value);
    ready();
    return session->finish();
  }

  std::shared_ptr<Watched> transport;
  std::vector<std::vector<float>> gradients;  // outlive the session
  std::vector<TensorId> ids;
  std::optional<Session> session;

 private:
  std::vector<std::uint64_t> counts_;
};

TEST(SmallSteps, MeansAreRightHoweverTheRanksMakeThem) {
  for (const Threading threading : kThreading) {
    run_ranks(3, [&](const std::shared_ptr<Transport>& inner) {
      SmallRank rank(inner, {100, 1, 300, 7}, {.threading = threading});
      for (int step = 0; step < 60; ++step) {
        rank.fill(static_cast<float>(3 * inner->rank() + step));
        const Ticket ticket = rank.ready();
        if ((step + inner->rank()) % 3 == 0) {
          rank.session->wait(ticket);  // by the executor, while other ranks are in finish()
        }
        EXPECT_EQ(rank.session->finish().step, static_cast<std::uint64_t>(step));
        rank.expect(static_cast<float>(3 + step));
      }
    });
  }
}

// Tags of messages also count the collectives that bypass the executor. Mutation tried: they are not counted; then the
// broadcast waits for ever.
TEST(SmallSteps, MessagesAfterThemFindEachOther) {
  run_ranks(3, [&](const std::shared_ptr<Transport>& inner) {
    SmallRank rank(inner, {100, 1, 300, 7}, {.timeout = std::chrono::seconds(10)});
    rank.step(1);
    for (int step = 0; step < 5; ++step) {
      rank.fill(2);
      const Ticket ticket = rank.ready();
      if (inner->rank() == 1) {
        rank.session->wait(ticket);  // by the executor
      }
      rank.session->finish();
      std::vector<float> values(5, static_cast<float>(inner->rank()));
      rank.session->broadcast(view(values.data(), values.size()), 2);
      EXPECT_EQ(values.front(), 2);
    }
  });
}

// From 64 KiB on, the executor sends frames. Mutation tried: finish() makes sums of 64 KiB; then ranks wait for ever.
TEST(SmallSteps, EndWhereFramesBegin) {
  for (const std::uint64_t count : {16'383U, 16'384U}) {
    run_ranks(3, [&](const std::shared_ptr<Transport>& inner) {
      SmallRank rank(inner, {count}, {.timeout = std::chrono::seconds(10)});
      for (int step = 0; step < 5; ++step) {
        rank.fill(static_cast<float>(3 * inner->rank()));
        const Ticket ticket = rank.ready();
        if (step > 0 && inner->rank() == step % 3) {
          rank.session->wait(ticket);  // by the executor
        }
        rank.session->finish();
        rank.expect(3);
      }
    });
  }
}

TEST(SmallSteps, FinishMakesThemWithoutAnotherThreadOrMessage) {
  constexpr std::uint64_t kSteps = 200;
  ::setenv("GRADWIRE_SLOW", "off", 1);  // comparisons of ranks are rare, and counted in another test
  run_ranks(2, [&](const std::shared_ptr<Transport>& inner) {
    SmallRank rank(inner, {100, 300, 7});
    rank.step(1);
    const std::uint64_t sums = rank.transport->sums;
    const std::uint64_t messages = rank.transport->messages;
    const std::uint64_t elsewhere = rank.transport->elsewhere;
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      rank.step(2);
    }
    const std::size_t buckets = rank.session->statistics().all().calls / (kSteps + 1);
    EXPECT_GE(buckets, 2U);
    EXPECT_EQ(rank.transport->messages, messages);
    EXPECT_EQ(rank.transport->sums - sums, buckets * kSteps);
    // The progress thread, which looks every 5 ms, may do so between ready() and finish().
    EXPECT_LE(rank.transport->elsewhere - elsewhere, buckets * kSteps / 2);
  });
  ::unsetenv("GRADWIRE_SLOW");
}

// A comparison after every 8 steps would make hundreds of them.
TEST(SmallSteps, RanksCompareThemSeldom) {
  constexpr std::uint64_t kSteps = 5000;
  run_ranks(2, [&](const std::shared_ptr<Transport>& inner) {
    SmallRank rank(inner, {100});
    rank.step(1);
    const std::uint64_t messages = rank.transport->messages;
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      rank.ready();
      rank.session->finish();
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    const std::uint64_t comparisons = rank.session->statistics().comparisons;
    EXPECT_GE(comparisons, 1U);
    // Ranks compare a few times at first, until they know how long their steps are.
    EXPECT_LE(static_cast<double>(comparisons), 3 + 4 * seconds.count());
    EXPECT_LE(rank.transport->messages - messages, comparisons + 1);
  });
}

TEST(SmallSteps, AreCountedAsOverTheExecutor) {
  const auto counts = [](const std::shared_ptr<Transport>& inner) {
    SmallRank rank(inner, {100, 300, 7});
    const auto count = [&](bool waits) {
      rank.session->reset_statistics();
      for (int step = 0; step < 10; ++step) {
        const Ticket ticket = rank.ready();
        if (waits) {
          rank.session->wait(ticket);
        }
        rank.session->finish();
      }
      return rank.session->statistics().all();
    };
    rank.step(1);
    const Statistics small = count(false);
    const Statistics usual = count(true);
    EXPECT_EQ(small.calls, usual.calls);
    EXPECT_EQ(small.elements, usual.elements);
    EXPECT_EQ(small.bytes_in, usual.bytes_in);
    EXPECT_EQ(small.bytes_sent, usual.bytes_sent);
    EXPECT_EQ(small.bytes_intra, usual.bytes_intra);
    EXPECT_EQ(small.bytes_inter, usual.bytes_inter);
    EXPECT_EQ(small.bytes_uncompressed, usual.bytes_uncompressed);
    EXPECT_EQ(small.frames_sent, usual.frames_sent);
    EXPECT_GT(small.bytes_sent, 0U);
    EXPECT_EQ(small.bytes_inter > 0, !inner->nodes().empty());
  };
  run_ranks(2, counts);
  run_ranks(make_inproc_world(4, {0, 0, 1, 1}), counts);
}

TEST(SmallSteps, ZerosNanAndWeightsKeepTheirMeaning) {
  run_ranks(2, [&](const std::shared_ptr<Transport>& inner) {
    SmallRank rank(inner, {100, 300});
    EXPECT_FALSE(rank.step(1).nonfinite);
    rank.fill(4);
    rank.session->ready(rank.ids[0]);
    inner->rank() == 0 ? rank.session->ready_zero(rank.ids[1]) : rank.session->ready(rank.ids[1]);
    EXPECT_FALSE(rank.session->finish().nonfinite);
    EXPECT_EQ(rank.gradients[0][99], 4);
    EXPECT_EQ(rank.gradients[1][299], 2);
    rank.fill(1);
    rank.gradients[1][5] = inner->rank() == 0 ? std::numeric_limits<float>::quiet_NaN() : 1;
    rank.ready();
    EXPECT_TRUE(rank.session->finish().nonfinite);
    EXPECT_TRUE(std::isnan(rank.gradients[1][5]));
    EXPECT_FALSE(rank.step(1).nonfinite);
    rank.session->flush();
    rank.step(5);
    rank.expect(5);
  });
}

// A step that would have folded in the loaded residuals is skipped, and nothing else is decided later. Mutation tried:
// finish() does not check whether residuals are gone.
TEST(SmallSteps, BeginOnceLoadedResidualsAreGone) {
  ::setenv("GRADWIRE_SLOW", "off", 1);
  run_ranks(2, [&](const std::shared_ptr<Transport>& inner) {
    SmallRank rank(inner, {100, 300}, {.threading = Threading::serialized});
    std::stringstream saved;
    rank.session->save(saved);
    session::SavedState state = session::read_state(saved, "save");
    const std::vector<float> values(100, 0.5F);
    state.residuals = {{{0, codec::EncodeSite::local}, {0, exchange::ResidualStore::Values(values)}}};
    std::stringstream changed;
    session::write_state(state, changed);
    rank.session->load(changed);
    rank.session->flush();
    EXPECT_TRUE(rank.step(std::numeric_limits<float>::quiet_NaN()).skipped);
    const auto is_small = [&](float value) {
      rank.session->reset_statistics();
      rank.step(value);
      return rank.session->statistics().all().total_seconds == 0;  // only the executor adds to this time
    };
    EXPECT_FALSE(is_small(1));
    EXPECT_EQ(rank.gradients[0][99], 1.5F) << "the sum includes the loaded residuals";
    EXPECT_EQ(rank.gradients[1][0], 1);
    for (int i = 0; i < 10; ++i) {
      EXPECT_TRUE(is_small(2));
      rank.expect(2);
    }
  });
  ::unsetenv("GRADWIRE_SLOW");
}

TEST(SmallSteps, AMissingTensorIsNamedAndEndsAllRanks) {
  const auto errors = run_ranks_catching(make_inproc_world(2), [&](const std::shared_ptr<Transport>& inner) {
    SmallRank rank(inner, {100, 300});
    rank.step(1);
    rank.session->ready(rank.ids[0]);
    if (inner->rank() == 0) {
      rank.session->ready(rank.ids[1]);
    }
    rank.session->finish();
  });
  for (const std::exception_ptr& error : errors) {
    ASSERT_TRUE(error);
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("\"tensor 1\""), std::string::npos) << e.what();
    }
  }
}

TEST(SmallSteps, ARankThatDoesNotComeEndsInATimeoutThatNamesTheBucket) {
  const auto errors = run_ranks_catching(make_inproc_world(2), [&](const std::shared_ptr<Transport>& inner) {
    SmallRank rank(inner, {100, 300}, {.timeout = milliseconds(300)});
    rank.step(1);
    if (inner->rank() == 1) {
      std::this_thread::sleep_for(milliseconds(1500));
    }
    rank.step(1);
  });
  ASSERT_TRUE(errors[0]);
  ASSERT_TRUE(errors[1]) << "rank 0 has given up";
  try {
    std::rethrow_exception(errors[0]);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    EXPECT_NE(std::string(error.what()).find("native all-reduce of bucket 0"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("rank 1 is silent"), std::string::npos) << error.what();
  }
}

TEST(SmallSteps, AnAbortEndsTheWait) {
  const auto errors = run_ranks_catching(make_inproc_world(2), [&](const std::shared_ptr<Transport>& inner) {
    SmallRank rank(inner, {100});
    rank.step(1);
    if (inner->rank() == 1) {
      std::this_thread::sleep_for(milliseconds(20));
      rank.session->abort("enough");
      return;
    }
    rank.step(1);
  });
  ASSERT_TRUE(errors[0]);
  EXPECT_FALSE(errors[1]);
  try {
    std::rethrow_exception(errors[0]);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::aborted);
    EXPECT_NE(std::string(error.what()).find("enough"), std::string::npos) << error.what();
  }
}

// A rank that polls while another rank has no core looks thousands of times in one step; one that yields its core looks
// about as often as there are other ranks at most.
TEST(SmallSteps, NoRankStarvesAnotherWhereThereAreMoreRanksThanCores) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t two;
  CPU_ZERO(&two);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&two) < 2; ++core) {
    if (CPU_ISSET(core, &before)) {
      CPU_SET(core, &two);
    }
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof two, &two), 0);
  constexpr int kRanks = 8;
  constexpr int kSteps = 20'000 / kStepShare;
  run_ranks(kRanks, [&](const std::shared_ptr<Transport>& inner) {
    SmallRank rank(inner, {16});
    std::vector<std::uint64_t> looks;
    for (int step = 0; step < kSteps; ++step) {
      const std::uint64_t before_step = rank.transport->fruitless;
      rank.ready();
      rank.session->finish();
      looks.push_back(rank.transport->fruitless - before_step);
    }
    EXPECT_EQ(rank.session->step(), static_cast<std::uint64_t>(kSteps));
    // A busy machine takes a rank's core away now and then, which would spoil a mean.
    std::nth_element(looks.begin(), looks.begin() + kSteps / 2, looks.end());
    EXPECT_LT(looks[kSteps / 2], 10U * kRanks) << "of rank " << inner->rank() << " in the median of all steps";
    RecordProperty("looks of rank " + std::to_string(inner->rank()), std::to_string(looks[kSteps / 2]));
  });
  sched_setaffinity(0, sizeof before, &before);
}

}  // namespace
}  // namespace gradwire::test
