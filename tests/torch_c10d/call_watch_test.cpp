// Ranks whose calls go two ways are told of it; others hear nothing, and leave nothing behind.
#include "plugins/torch_c10d/call_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "gradwire/error.hpp"
#include "tests/support/error_of.hpp"
#include "tests/torch_c10d/thread_store.hpp"

namespace gradwire::torch_c10d {
namespace {

using namespace std::chrono_literals;
using test::ThreadStore;
using testing::AllOf;
using testing::HasSubstr;

constexpr auto kPatience = 50ms;

struct Rank {
  Rank(ThreadStore& store, int rank, std::chrono::milliseconds patience = kPatience)
      : watch(store.rendezvous(), {.rank = rank, .patience = patience},
              [this](const std::string& why) { aborted.set_value(why); }) {}
  std::uint64_t begin(CallWatch::Way way, const std::string& what) {
    return watch.begin(
        way, [what] { return what; }, [this](const std::string& why) { failed.set_value(why); });
  }
  std::promise<std::string> aborted;
  std::promise<std::string> failed;
  CallWatch watch;
};

TEST(CallWatch, NamesBothCallsOnBothRanks) {
  ThreadStore store;
  Rank small(store, 0);
  Rank large(store, 1);
  small.watch.end(small.begin(CallWatch::Way::passed, "an earlier one"));
  large.watch.end(large.begin(CallWatch::Way::passed, "an earlier one"));
  small.begin(CallWatch::Way::passed, "all_reduce of 10 f32");
  large.begin(CallWatch::Way::compressed, "all_reduce of 50000 f32");
  const auto expected =
      AllOf(HasSubstr("rank 0: all_reduce of 10 f32, which passes"),
            HasSubstr("rank 1: all_reduce of 50000 f32, which is compressed"), HasSubstr("reduction 1"));
  for (Rank* const rank : {&small, &large}) {
    auto told = rank->failed.get_future();
    ASSERT_EQ(told.wait_for(20s), std::future_status::ready);
    EXPECT_THAT(told.get(), expected);
    EXPECT_THAT(rank->aborted.get_future().get(), expected);
    const Error later = test::error_of([&] { rank->begin(CallWatch::Way::passed, "a later one"); });
    EXPECT_EQ(later.code(), ErrorCode::mismatch);
    EXPECT_THAT(later.what(), expected);
  }
}

// Mutation tried: numbers are not compared; then a rank that is late by a call is an error.
TEST(CallWatch, LetsRanksBeLate) {
  ThreadStore store;
  Rank first(store, 0);
  Rank second(store, 1);
  first.begin(CallWatch::Way::passed, "the first call, in which this rank waits");
  second.watch.end(second.begin(CallWatch::Way::passed, "the first call"));
  second.begin(CallWatch::Way::compressed, "the second call, for which the other is late");
  std::this_thread::sleep_for(40 * kPatience / 10);
  EXPECT_NO_THROW(first.watch.check());
  EXPECT_NO_THROW(second.watch.check());
  EXPECT_LE(store.values().size(), 2U) << "a key for each way";
}

TEST(CallWatch, TellsTheStoreNothingOfCallsThatAreNotLate) {
  ThreadStore store;
  Rank rank(store, 0, std::chrono::hours(1));
  rank.begin(CallWatch::Way::passed, "one that passes");
  rank.begin(CallWatch::Way::compressed, "one that is compressed");
  std::this_thread::sleep_for(1200ms);  // longer than the watch rests
  EXPECT_TRUE(store.values().empty());
}

}  // namespace
}  // namespace gradwire::torch_c10d
