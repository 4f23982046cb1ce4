// A rank for which all others wait too long must go, where the policy says so.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gradwire/session.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kProcesses = 4;
constexpr std::size_t kLate = 2;

struct Ended {
  std::optional<Error> error;
  int world_size = 0;
  std::vector<float> values;
  std::string explained;
};

// Rank 2 computes ten times as long as the others. `steps` end early once it has gone.
std::vector<Ended> run_with_a_slow_rank(const std::string& elastic, int steps) {
  const Watchdog watchdog(::testing::UnitTest::GetInstance()->current_test_info()->name());
  const Policy policy = Policy::parse("[defaults]\ncodec = \"int4\"\n[elastic]\n" + elastic);
  auto processes = make_inproc_processes(kProcesses);
  std::vector<Ended> ended(kProcesses);
  std::vector<std::thread> threads;
  for (std::size_t id = 0; id < kProcesses; ++id) {
    threads.emplace_back([&, id, own = std::exchange(processes[id], nullptr)]() mutable {
      try {
        Session session(std::move(own), policy);
        std::vector<float> gradient(20'000), values(gradient.size());
        const TensorId tensor = session.add("t", view(gradient.data(), gradient.size()));
        int after = 0;  // steps since it has gone
        while (session.step() < static_cast<std::uint64_t>(steps) && after < 5) {
          std::this_thread::sleep_for(milliseconds(id == kLate ? 50 : 5));
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
          after += session.world_size() < static_cast<int>(kProcesses) ? 1 : 0;
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

void expect_all_there(const std::vector<Ended>& ended) {
  for (const Ended& one : ended) {
    EXPECT_FALSE(one.error) << (one.error ? one.error->what() : "");
    EXPECT_EQ(one.world_size, static_cast<int>(kProcesses));
  }
}

// Tried by hand, each red here: all ranks throw; nobody does.
TEST(Expel, ARankThatIsTooSlowGoesAndTheOthersGoOn) {
  const std::vector<Ended> ended = run_with_a_slow_rank("expel_slower_than = 3\n", 2000);
  ASSERT_TRUE(ended[kLate].error);
  EXPECT_EQ(ended[kLate].error->code(), ErrorCode::expelled);
  const std::string text = ended[kLate].error->what();
  EXPECT_NE(text.find("rank 2 must go, by [elastic] expel_slower_than: steps take "), std::string::npos) << text;
  EXPECT_NE(text.find("late_compute"), std::string::npos) << text;
  for (const std::size_t id : {0U, 1U, 3U}) {
    EXPECT_FALSE(ended[id].error) << (ended[id].error ? ended[id].error->what() : "");
    EXPECT_EQ(ended[id].world_size, static_cast<int>(kProcesses) - 1);
    EXPECT_EQ(ended[id].values, ended[0].values);
    const std::string& explained = ended[id].explained;
    EXPECT_NE(explained.find("a rank goes for which steps take 3 times as long"), std::string::npos) << explained;
    EXPECT_EQ(explained.find("residuals, 0 B now"), std::string::npos) << explained;
    EXPECT_NE(explained.find(" now, have a second buffer"), std::string::npos) << explained;
  }
}

TEST(Expel, NobodyGoesWhereTooFewWouldBeLeft) {
  expect_all_there(run_with_a_slow_rank("expel_slower_than = 3\nmin_ranks = 4\n", 80));
}

TEST(Expel, NobodyGoesBelowTheFactor) { expect_all_there(run_with_a_slow_rank("expel_slower_than = 100\n", 80)); }

}  // namespace
}  // namespace gradwire::test
