// Tests a process group without Torch, whose ranks are threads: a group without a codec, and the group after a failed
// call.
#include "plugins/torch_c10d/group_engine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/calls_for.hpp"
#include "tests/support/ranks.hpp"
#include "tests/torch_c10d/thread_store.hpp"

namespace gradwire::torch_c10d {
namespace {

using namespace std::chrono_literals;
using test::ThreadStore;
using test::Watchdog;
using testing::AllOf;
using testing::HasSubstr;

class CoreTest : public testing::Test {
 protected:
  CoreTest() : watchdog_("a process group of threads") { forget_environment(); }
  ~CoreTest() override { forget_environment(); }

  static void forget_environment() {
    for (const char* const name : {"GRADWIRE_CODEC", "GRADWIRE_POLICY", "GRADWIRE_DISABLE", "GRADWIRE_DRY_RUN"}) {
      ::unsetenv(name);
    }
  }

  void run(const std::function<void(int rank, GroupEngine& engine)>& body) {
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, rank] {
        GroupEngine engine(store_.rendezvous(), {.rank = rank, .world_size = 2, .timeout = 60s, .first = false});
        body(rank, engine);
      });
    }
    for (std::thread& rank : ranks) {
      rank.join();
    }
  }

  Watchdog watchdog_;
  ThreadStore store_;
};

Asked sum_of(const std::vector<float>& values) {
  return {.dtype = DType::f32,
          .reduction = Reduction::sum,
          .count = values.size(),
          .bytes = 4 * values.size(),
          .buffer = values.data()};
}

// Returns the reduction's error, or an empty string. Its memory lives as long as the call, which may outlive the error.
std::string reduce(
    GroupEngine& engine, std::vector<float>& values, std::function<void()> pass = [] {}) {
  const auto memory = std::make_shared<std::vector<float>>(values);
  const auto ended = std::make_shared<std::promise<std::string>>();
  engine.post({.asked = sum_of(*memory),
               .output = memory->data(),
               .pass = std::move(pass),
               .done = [memory, ended](const std::exception_ptr& error) {
                 try {
                   if (error) {
                     std::rethrow_exception(error);
                   }
                   ended->set_value("");
                 } catch (const std::exception& what) {
                   ended->set_value(what.what());
                 }
               }});
  std::string error = ended->get_future().get();
  if (error.empty()) {
    values = *memory;
  }
  return error;
}

std::uint64_t calls_of(choice::Reason reason) { return test::calls_for(ledger(), reason); }

int threads_here() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "Threads:") {
      int threads = 0;
      status >> threads;
      return threads;
    }
  }
  return -1;
}

// Mutation tried: the group has a thread in every mode.
TEST_F(CoreTest, AGroupWithoutACodecOnlyObserves) {
  const std::vector<float> values(100'000, 1.0F);
  const std::uint64_t before = calls_of(choice::Reason::observing);
  const int threads = threads_here();
  std::promise<void> made[2];
  std::promise<void> counted;
  const std::shared_future<void> go_on = counted.get_future().share();
  std::thread watcher([&] {
    made[0].get_future().wait();
    made[1].get_future().wait();
    EXPECT_EQ(threads_here(), threads + 3) << "two ranks and this one";
    counted.set_value();
  });
  run([&](int rank, GroupEngine& engine) {
    EXPECT_FALSE(engine.has_thread());
    EXPECT_FALSE(engine.may_compress());
    for (int call = 0; call < 30; ++call) {
      const auto passed = engine.passes(sum_of(values));
      ASSERT_TRUE(passed);
      EXPECT_EQ(passed->what.reason, choice::Reason::observing);
      passed->ended(nullptr);
    }
    made[rank].set_value();
    go_on.wait();
  });
  watcher.join();
  EXPECT_EQ(calls_of(choice::Reason::observing) - before, 60U);
  for (const auto& [key, value] : store_.values()) {
    EXPECT_THAT(key, testing::StartsWith("settings/")) << "ranks told each other their modes and nothing else";
  }
}

TEST_F(CoreTest, ADryRunPassesAndCountsWhatWouldBeSent) {
  ::setenv("GRADWIRE_CODEC", "int8", 1);
  ::setenv("GRADWIRE_DRY_RUN", "1", 1);
  const std::vector<float> values(100'000, 1.0F);
  run([&](int, GroupEngine& engine) {
    EXPECT_FALSE(engine.has_thread());
    const auto passed = engine.passes(sum_of(values));
    ASSERT_TRUE(passed);
    EXPECT_EQ(passed->what.codec, "int8");
    EXPECT_EQ(passed->totals.compressed_calls, 1U);
    EXPECT_LT(passed->totals.bytes_sent, passed->totals.bytes_dense / 3);
  });
}

std::string what_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& what) {
    return what.what();
  }
}

testing::Matcher<std::string> names_both() {
  return AllOf(HasSubstr("rank 0: all_reduce of 10 f32, which passes"),
               HasSubstr("rank 1: all_reduce of 50000 f32, which is compressed"));
}

// Rank 0 sums few values, which pass, and rank 1 many. Each would wait for the other.
void differ(int rank, GroupEngine& engine) {
  std::vector<float> many(50'000, 1.0F);
  if (rank == 1) {
    EXPECT_THAT(reduce(engine, many), names_both());
    EXPECT_THAT(reduce(engine, many), names_both()) << "later ones fail with the same words";
    return;
  }
  const std::vector<float> few(10, 1.0F);
  std::promise<std::string> failed;
  const auto passed = engine.passes(sum_of(few), [&](const std::string& why) { failed.set_value(why); });
  ASSERT_TRUE(passed);
  auto why = failed.get_future();
  ASSERT_EQ(why.wait_for(30s), std::future_status::ready);
  EXPECT_THAT(why.get(), names_both());
  passed->ended(std::make_exception_ptr(std::runtime_error("closed")));
  EXPECT_THROW(static_cast<void>(engine.passes(sum_of(few))), std::runtime_error);
}

TEST_F(CoreTest, RanksOnTwoSidesOfTheFloorAreToldBothSizes) {
  ::setenv("GRADWIRE_CODEC", "int8", 1);
  run([&](int rank, GroupEngine& engine) {
    std::vector<float> values(50'000, 1.0F);
    EXPECT_EQ(reduce(engine, values), "");
    EXPECT_NEAR(values[1234], 2, 0.02);
    differ(rank, engine);
  });
}

TEST_F(CoreTest, RanksOnTwoSidesOfTheFloorAreToldBeforeTheyAreConnected) {
  ::setenv("GRADWIRE_CODEC", "int8", 1);
  run(differ);
}

// Under auto, the thread of the rank that may compress can be inside the library's own call, which we cannot end.
// Mutation tried: such a call ends with only the library's error.
TEST_F(CoreTest, RanksOnTwoSidesOfTheFloorAreToldWhereTheLibraryMakesBoth) {
  ::setenv("GRADWIRE_CODEC", "auto", 1);
  std::promise<void> told;
  const std::shared_future<void> go_on = told.get_future().share();
  std::atomic<bool> passed_by_thread = false;
  run([&](int rank, GroupEngine& engine) {
    if (rank == 0) {
      differ(rank, engine);
      return;
    }
    std::vector<float> many(50'000, 1.0F);
    EXPECT_THAT(reduce(engine, many,
                       [&, go_on] {
                         passed_by_thread = true;
                         go_on.wait();
                         throw std::runtime_error("Connection closed by peer");
                       }),
                names_both());
    told.set_value();
  });
  EXPECT_TRUE(passed_by_thread);
}

// Mutation tried: the error of a passed call is returned unchanged.
TEST_F(CoreTest, AnErrorOfTheLibraryNamesBothCallsOnceSomeRankHasFoundThem) {
  ::setenv("GRADWIRE_CODEC", "int8", 1);
  std::promise<void> told;
  run([&](int rank, GroupEngine& engine) {
    if (rank == 1) {
      differ(rank, engine);
      told.set_value();
      return;
    }
    const std::vector<float> few(10, 1.0F);
    const auto passed = engine.passes(sum_of(few));
    ASSERT_TRUE(passed);
    told.get_future().wait();
    const auto closed = std::make_exception_ptr(std::runtime_error("Connection closed by peer"));
    EXPECT_THAT(what_of(passed->ended(closed)), AllOf(names_both(), HasSubstr("(Connection closed by peer)")));
  });
}

// Mutation tried: an error of the library's own call ends the group.
TEST_F(CoreTest, AnErrorOfAPassedCallEndsThatCallAlone) {
  ::setenv("GRADWIRE_CODEC", "auto", 1);
  const std::uint64_t before = calls_of(choice::Reason::failed);
  std::atomic<int> failed = 0;
  run([&](int, GroupEngine& engine) {
    std::vector<float> values(50'000, 1.0F);
    for (int call = 0; call < 30; ++call) {
      const std::string error =
          reduce(engine, values, [call] { call < 20 ? throw std::runtime_error("of the library") : void(); });
      EXPECT_THAT(error, testing::AnyOf("", "of the library"));
      failed += error.empty() ? 0 : 1;
    }
  });
  EXPECT_GT(failed, 0);
  EXPECT_EQ(calls_of(choice::Reason::failed) - before, static_cast<std::uint64_t>(failed));
}

TEST_F(CoreTest, CallsThatFailAreCountedApart) {
  const std::uint64_t before = calls_of(choice::Reason::failed);
  const std::uint64_t observed = calls_of(choice::Reason::observing);
  const std::vector<float> values(100'000, 1.0F);
  run([&](int, GroupEngine& engine) {
    engine.passes(sum_of(values))->ended(std::make_exception_ptr(std::runtime_error("of the library")));
    engine.count_other_call(1000, true);
    engine.count_other_call(1000, false);
  });
  EXPECT_EQ(calls_of(choice::Reason::failed) - before, 4U);
  EXPECT_EQ(calls_of(choice::Reason::observing), observed);
}

}  // namespace
}  // namespace gradwire::torch_c10d
