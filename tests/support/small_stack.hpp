// A thread with a small stack, as in jobs that make thousands of threads. A stack overflow ends the test program by
// SIGSEGV.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>

#include <cstddef>
#include <exception>
#include <functional>

namespace gradwire::test {

/// Runs `body` on a thread whose stack has that many bytes; a thread needs at least 16 KiB. Exceptions of `body` are
/// passed on.
inline void run_on_stack_of(std::size_t bytes, const std::function<void()>& body) {
  struct Work {
    const std::function<void()>& body;
    std::exception_ptr thrown;
  } work{body, nullptr};
  pthread_attr_t attributes;
  pthread_t thread{};
  ASSERT_EQ(::pthread_attr_init(&attributes), 0);
  ASSERT_EQ(::pthread_attr_setstacksize(&attributes, bytes), 0);
  const auto run = [](void* given) -> void* {
    auto& mine = *static_cast<Work*>(given);
    try {
      mine.body();
    } catch (...) {
      mine.thrown = std::current_exception();
    }
    return nullptr;
  };
  ASSERT_EQ(::pthread_create(&thread, &attributes, run, &work), 0);
  ASSERT_EQ(::pthread_join(thread, nullptr), 0);
  ::pthread_attr_destroy(&attributes);
  if (work.thrown) {
    std::rethrow_exception(work.thrown);
  }
}

}  // namespace gradwire::test
