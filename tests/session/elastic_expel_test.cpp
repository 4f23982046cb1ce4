// Tests that a rank for which all others wait too long must leave, if the policy says so.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gradwire/session.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kProcesses = 4;
constexpr std::size_t kLate = 2;

// Enough intervals to expel a rank: it is named slow after two, and leaves after about four more.
constexpr std::uint64_t kComparisons = 7;

struct Ended {
  std::optional<Error> error;
  int world_size = 0;
  std::vector<float> values;
  std::string explained;
};

// Rank 2 computes for 80 ms, the others for 2 ms, until rank 2 has left or ranks were compared often enough.
std::vector<Ended> run_with_a_slow_rank(const std::string& elastic) {
  const Watchdog watchdog(::testing::UnitTest::GetInstance()->current_test_info()->name(), std::chrono::seconds(600));
  const Policy policy = Policy::parse("[defaults]\ncodec = \"int4\"\n[elastic]\n" + elastic);
  auto processes = make_inproc_processes(kProcesses);
  std::vector<Ended> ended(kProcesses);
  std::atomic<std::uint64_t> last = ~std::uint64_t{0};  // the last step, which rank 0 sets
  std::vector<std::thread> threads;
  for (std::size_t id = 0; id < kProcesses; ++id) {
    threads.emplace_back([&, id, own = std::exchange(processes[id], nullptr)]() mutable {
      try {
        Session session(std::move(own), policy);
        std::vector<float> gradient(500), values(gradient.size());
        const TensorId tensor = session.add("t", view(gradient.data(), gradient.size()));
        while (session.step() < last) {
          std::this_thread::sleep_for(milliseconds(id == kLate ? 80 : 2));
          for (std::size_t i = 0; i < gradient.size(); ++i) {
            gradient[i] = values[i] - static_cast<float>(i % 7) - 0.1F * static_cast<float>(id);
          }
          session.ready(tensor);
          if (session.finish().repeat) {
            continue;
          }
          for (std::size_t i = 0; i < gradient.size(); ++i) {
            values[i] -= 0.1F * gradient[i];
          }
          const bool gone = session.world_size() < static_cast<int>(kProcesses);
          if (id == 0 && last == ~std::uint64_t{0} && (gone || session.statistics().comparisons >= kComparisons)) {
            last = session.step() + 5;  // no rank is more than a step ahead
          }
        }
        ended[id].world_size = session.world_size();
        ended[id].values = values;
        ended[id].explained = session.explain();
      } catch (const Error& error) {
        ended[id].error = error;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return ended;
}

std::string said_by(const Ended& one) { return one.error ? one.error->what() : ""; }

void expect_all_there(const std::vector<Ended>& ended) {
  for (const Ended& one : ended) {
    EXPECT_EQ(said_by(one), "");
    EXPECT_EQ(one.world_size, static_cast<int>(kProcesses));
  }
}

// Mutations tried, each fails here: all ranks throw; no rank throws.
TEST(Expel, ARankThatIsTooSlowGoesAndTheOthersGoOn) {
  const std::vector<Ended> ended = run_with_a_slow_rank("expel_slower_than = 2\n");
  ASSERT_TRUE(ended[kLate].error);
  EXPECT_EQ(ended[kLate].error->code(), ErrorCode::expelled);
  const std::string text = said_by(ended[kLate]);
  EXPECT_NE(text.find("rank 2 must go, by [elastic] expel_slower_than: steps take "), std::string::npos) << text;
  for (const std::size_t id : {0U, 1U, 3U}) {
    EXPECT_EQ(said_by(ended[id]), "");
    EXPECT_EQ(ended[id].world_size, static_cast<int>(kProcesses) - 1);
    EXPECT_EQ(ended[id].values, ended[0].values);
    const std::string& explained = ended[id].explained;
    EXPECT_NE(explained.find("a rank must go once steps take 2 times as long because of it"), std::string::npos)
        << explained;
    EXPECT_NE(explained.find("have a second buffer"), std::string::npos) << explained;
  }
}

TEST(Expel, NobodyGoesWhereTooFewWouldBeLeft) {
  expect_all_there(run_with_a_slow_rank("expel_slower_than = 2\nmin_ranks = 4\n"));
}

TEST(Expel, NobodyGoesBelowTheFactor) { expect_all_there(run_with_a_slow_rank("expel_slower_than = 900\n")); }

TEST(Expel, AFactorThatEveryRankHasIsRefused) {
  Policy policy;
  policy.elastic = Policy::Elastic{.expel_slower_than = 1};
  const Error error = error_of([&] { const Session session(make_inproc_processes(1)[0], policy); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_NE(std::string(error.what()).find("expel_slower_than = 1 is below 1.5"), std::string::npos) << error.what();
}

}  // namespace
}  // namespace gradwire::test
