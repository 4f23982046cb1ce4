// Runs ranks as threads: run_ranks(world, body) calls body(transport) on one thread per rank, under a watchdog.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gradwire/threading.hpp"
#include "gradwire/transport.hpp"
#include "tests/support/step_share.hpp"

namespace gradwire::test {

/// Every way in which a session may make progress.
inline constexpr Threading kThreading[] = {Threading::background, Threading::serialized, Threading::main_thread};

/// Ends the process with a named failure when a test does not finish in time: a deadlock must not look like slowness.
class Watchdog {
 public:
  explicit Watchdog(std::string what, std::chrono::seconds limit = std::chrono::seconds(120))
      : what_(std::move(what)), thread_([this, limit] {
          std::unique_lock lock(mutex_);
          if (!condition_.wait_for(lock, limit, [this] { return done_; })) {
            std::fprintf(stderr, "watchdog: \"%s\" did not finish within %lld s\n", what_.c_str(),
                         static_cast<long long>(limit.count()));
            std::_Exit(3);
          }
        }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    condition_.notify_all();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::string what_;
  std::mutex mutex_;
  std::condition_variable condition_;
  bool done_ = false;
  std::thread thread_;
};

using RankBody = std::function<void(std::shared_ptr<Transport>)>;

/// Runs `body` for each transport on its own thread; returns the exception of each rank (null if there was none).
inline std::vector<std::exception_ptr> run_ranks_catching(std::vector<std::shared_ptr<Transport>> world,
                                                          const RankBody& body) {
  const Watchdog watchdog(::testing::UnitTest::GetInstance()->current_test_info() != nullptr
                              ? ::testing::UnitTest::GetInstance()->current_test_info()->name()
                              : "ranks");
  std::vector<std::exception_ptr> errors(world.size());
  std::vector<std::thread> threads;
  threads.reserve(world.size());
  for (std::size_t rank = 0; rank < world.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(world[rank]);
      } catch (...) {
        errors[rank] = std::current_exception();
        world[rank]->abort(Error(ErrorCode::internal, "test body failed"));  // so that no other rank waits for this one
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return errors;
}

/// Does the same; any exception fails the test with its message.
inline void run_ranks(std::vector<std::shared_ptr<Transport>> world, const RankBody& body) {
  const auto errors = run_ranks_catching(std::move(world), body);
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    if (errors[rank]) {
      try {
        std::rethrow_exception(errors[rank]);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    }
  }
}

inline void run_ranks(int world_size, const RankBody& body) { run_ranks(make_inproc_world(world_size), body); }

}  // namespace gradwire::test
