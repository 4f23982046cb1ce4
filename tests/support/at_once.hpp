// Runs independent cases of a test at the same time, for cases that mostly wait.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <thread>
#include <vector>

namespace gradwire::test {

/// Returns an environment variable that is a whole number, or `otherwise` if it is not set.
inline int environment_int(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

/// Calls body(value) once for each of `values`, from threads of its own, of which there are four or as many as
/// GRADWIRE_SEEDS_AT_ONCE says. An ASSERT in `body` ends only that call.
template <class Values, class Body>
void for_each_at_once(const Values& values, const Body& body) {
  const auto at_once = static_cast<std::size_t>(environment_int("GRADWIRE_SEEDS_AT_ONCE", 4));
  const std::size_t count = std::size(values);
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < std::min(at_once, count); ++i) {
    threads.emplace_back([&] {
      try {
        for (std::size_t at = next++; at < count; at = next++) {
          body(std::begin(values)[static_cast<std::ptrdiff_t>(at)]);
        }
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace gradwire::test
