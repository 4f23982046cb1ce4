// Runs sessions of ranks, one of which is delayed, and collects what the log says about them.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "gradwire/session.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {

using std::chrono::milliseconds;

inline constexpr int kRanks = 4;
inline constexpr int kSlow = 2;

/// Collects lines of a level that contain `part`, starting when the object is made.
class Lines {
 public:
  explicit Lines(const std::string& part = ": rank ", LogLevel level = LogLevel::warning) {
    run_ranks(1, [](const std::shared_ptr<Transport>& transport) { const Session binds_the_log(transport, Policy{}); });
    const std::lock_guard lock(mutex());
    texts().clear();
    wanted() = part;
    wanted_level() = level;
    set_log_sink([](LogLevel told, std::string_view text) {
      const std::lock_guard inner(mutex());
      if (told == wanted_level() && text.find(wanted()) != std::string_view::npos) {
        texts().emplace_back(text);
      }
    });
  }
  [[nodiscard]] static std::vector<std::string> take() {
    const std::lock_guard lock(mutex());
    return texts();
  }

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static std::string& wanted() {
    static std::string one;
    return one;
  }
  static LogLevel& wanted_level() {
    static LogLevel one;
    return one;
  }
  static std::vector<std::string>& texts() {
    static std::vector<std::string> one;
    return one;
  }
};

/// Sets GRADWIRE_SLOW.
class Environment {
 public:
  explicit Environment(const char* value) { ::setenv("GRADWIRE_SLOW", value, 1); }
  ~Environment() { ::unsetenv("GRADWIRE_SLOW"); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
};

struct Job {
  int steps = 60;
  bool until_named = false;  // stops a few steps after a rank is named
  int ranks = kRanks;
  std::size_t elements = 400'000;
  Policy policy = Policy::uniform("int8");
  SessionOptions options = {};
  std::function<milliseconds(int rank, int step)> compute = [](int, int) { return milliseconds(15); };
  std::function<std::shared_ptr<Transport>(std::shared_ptr<Transport>)> link = [](auto inner) { return inner; };
};

inline std::vector<std::string> run(const Job& job) {
  const Lines lines;
  std::atomic<int> steps = job.steps;
  run_ranks(job.ranks, [&](const std::shared_ptr<Transport>& inner) {
    const std::shared_ptr<Transport> transport = job.link(inner);
    std::vector<float> values(job.elements, 1.0F);
    Session session(transport, job.policy, job.options);
    const TensorId id = session.add("values", view(values.data(), values.size()));
    for (int step = 0; step < steps; ++step) {
      std::this_thread::sleep_for(job.compute(transport->rank(), step));
      session.ready(id);
      session.finish();
      if (job.until_named && transport->rank() == 0 && steps > step + 3 && !Lines::take().empty()) {
        steps = step + 3;  // no rank is more than a step ahead
      }
    }
  });
  return Lines::take();
}

inline std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) {
    all += text + "\n";
  }
  return all;
}

inline void expect_only(const std::vector<std::string>& named, const std::string& rank, const std::string& cause) {
  ASSERT_EQ(named.size(), 1U) << joined(named);
  EXPECT_NE(named[0].find(rank + " is slow"), std::string::npos) << named[0];
  EXPECT_NE(named[0].find(cause), std::string::npos) << named[0];
}

inline Job late(int ranks, int slow) {
  return {.ranks = ranks, .compute = [slow](int rank, int) { return milliseconds(rank == slow ? 35 : 15); }};
}

}  // namespace gradwire::test
