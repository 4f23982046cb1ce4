// Tests that ranks whose calls go different ways get an error; other ranks get none, and leave nothing in the store.
#include "plugins/torch_c10d/call_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <map>
#include <stdexcept>
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
      : watch(store.rendezvous(), {.rank = rank, .world_size = 2, .patience = patience},
              [this](const std::string& why) { aborted.set_value(why); }) {}
  std::uint64_t begin(CallWatch::Way way, const std::string& what) {
    return watch.begin(
        way, [what] { return what; }, [this](const std::string& why) { failed.set_value(why); });
  }
  // Returns the error of a call that failed with `words`.
  std::string explained(const std::string& words) {
    try {
      std::rethrow_exception(watch.explained(std::make_exception_ptr(std::runtime_error(words))));
    } catch (const std::exception& error) {
      return error.what();
    }
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

// A rank may end with its call, and take the store with it. Mutation tried: calls end before the others have read the
// reason.
TEST(CallWatch, EndsNoCallBeforeTheOthersHaveReadWhy) {
  ThreadStore store;
  std::promise<std::map<std::string, std::string>> at_the_first;
  std::atomic<bool> first = true;
  const auto fail = [&](const std::string&) {
    if (first.exchange(false)) {
      at_the_first.set_value(store.values());
    }
  };
  Rank small(store, 0);
  Rank large(store, 1);
  small.watch.begin(
      CallWatch::Way::passed, [] { return "all_reduce of 10 f32"; }, fail);
  large.watch.begin(
      CallWatch::Way::compressed, [] { return "all_reduce of 50000 f32"; }, fail);
  const auto values = at_the_first.get_future().get();
  EXPECT_THAT(values.at("late/found"), AllOf(HasSubstr("of 10 f32"), HasSubstr("of 50000 f32")));
  EXPECT_TRUE(values.contains("late/heard/0"));
  EXPECT_TRUE(values.contains("late/heard/1"));
}

// Mutation tried: a rank does not look, and its call ends with only the library's words.
TEST(CallWatch, NamesBothCallsWhereTheLibraryFailsFirst) {
  ThreadStore store;
  Rank small(store, 0);
  Rank large(store, 1);
  Rank third(store, 1, std::chrono::hours(1));  // it does not look by itself
  EXPECT_EQ(third.explained("of the library"), "of the library") << "no rank has reported a call";
  EXPECT_NO_THROW(third.watch.check());
  small.begin(CallWatch::Way::passed, "all_reduce of 10 f32");
  large.begin(CallWatch::Way::compressed, "all_reduce of 50000 f32");
  small.failed.get_future().wait();
  const auto names_both = AllOf(HasSubstr("rank 0: all_reduce of 10 f32, which passes"),
                                HasSubstr("rank 1: all_reduce of 50000 f32, which is compressed"));
  EXPECT_THAT(third.explained("Connection closed by peer"),
              AllOf(names_both, HasSubstr("(Connection closed by peer)")));
  EXPECT_THAT(test::error_of([&] { third.watch.check(); }).what(), names_both);
}

// Mutation tried: numbers are not compared; then a rank that is one call late causes an error.
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
  EXPECT_LE(store.values().size(), 2U) << "there is one key for each way";
}

TEST(CallWatch, TellsTheStoreNothingOfCallsThatAreNotLate) {
  ThreadStore store;
  Rank rank(store, 0, std::chrono::hours(1));
  rank.begin(CallWatch::Way::passed, "one that passes");
  rank.begin(CallWatch::Way::compressed, "one that is compressed");
  std::this_thread::sleep_for(1200ms);  // longer than the watch's interval
  EXPECT_TRUE(store.values().empty());
}

}  // namespace
}  // namespace gradwire::torch_c10d
