// Tests that the caller of a wait keeps the mutex, whatever happens in it.
#include "base/mutex.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <thread>

namespace gradwire {
namespace {

using namespace std::chrono_literals;

bool is_free(Mutex& mutex) {
  bool free = false;
  std::thread([&] {
    if (mutex.try_lock()) {
      const MutexLock lock(mutex, std::adopt_lock);
      free = true;
    }
  }).join();
  return free;
}

TEST(Mutex, AScopeHoldsItOrGivesItBack) {
  Mutex mutex;
  {
    const MutexLock lock(mutex);
    EXPECT_FALSE(is_free(mutex));
    {
      const MutexUnlock meanwhile(mutex);
      EXPECT_TRUE(is_free(mutex));
    }
    EXPECT_FALSE(is_free(mutex));
  }
  EXPECT_TRUE(is_free(mutex));
}

TEST(Mutex, AnExceptionTakesItBack) {
  Mutex mutex;
  const MutexLock lock(mutex);
  EXPECT_THROW(
      {
        const MutexUnlock meanwhile(mutex);
        throw std::runtime_error("");
      },
      std::runtime_error);
  EXPECT_FALSE(is_free(mutex));
}

TEST(CondVar, AWaitGivesTheMutexBackAndTakesItAgain) {
  Mutex mutex;
  CondVar changed;
  bool there = false;
  const MutexLock lock(mutex);
  std::thread other([&] {
    const MutexLock others(mutex);
    there = true;
    changed.notify_all();
  });
  changed.wait(mutex, [&] { return there; });
  EXPECT_FALSE(is_free(mutex));
  EXPECT_FALSE(changed.wait_for(mutex, 1ms, [] { return false; }));
  changed.wait_for(mutex, 1ms);
  EXPECT_FALSE(is_free(mutex));
  const MutexUnlock meanwhile(mutex);
  other.join();
}

TEST(CondVar, AWaitWhoseConditionThrowsKeepsTheMutex) {
  Mutex mutex;
  CondVar changed;
  {
    const MutexLock lock(mutex);
    EXPECT_THROW(changed.wait(mutex, []() -> bool { throw std::runtime_error(""); }), std::runtime_error);
    EXPECT_FALSE(is_free(mutex));
  }
  EXPECT_TRUE(is_free(mutex));
}

}  // namespace
}  // namespace gradwire
