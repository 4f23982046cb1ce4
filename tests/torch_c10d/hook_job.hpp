// A job for tests of DDP's communication hook: parameters, their gradients, and backward passes on ranks that are
// threads.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "plugins/torch_c10d/hook_engine.hpp"
#include "tests/support/ranks.hpp"
#include "tests/torch_c10d/thread_store.hpp"

namespace gradwire::torch_c10d {

using namespace std::chrono_literals;

using Values = std::vector<float>;
using Layout = std::vector<std::vector<std::size_t>>;  // the parameters of each bucket

inline const std::vector<std::uint64_t> kCounts{5000, 12289, 300, 40001};
inline const Layout kFirst{{3, 2}, {1, 0}};    // as DDP begins: in reverse order
inline const Layout kRebuilt{{2, 3, 1}, {0}};  // in the order in which gradients came

inline std::vector<HookParameter> parameters() {
  return {{"embed.weight", 2}, {"body.weight", 2}, {"body.bias", 1}, {"head.weight", 2}};
}

inline Policy feedback(const char* codec, ErrorFeedback on = ErrorFeedback::on) {
  Policy policy = Policy::uniform(codec);
  policy.defaults.error_feedback = on;
  return policy;
}

// The gradient of a parameter.
inline Values gradient(std::size_t parameter, int rank, std::uint64_t step) {
  std::mt19937 random(static_cast<unsigned>(1 + parameter + 10 * static_cast<std::size_t>(rank) + 1000 * step));
  std::normal_distribution<float> normal;
  Values values(kCounts[parameter]);
  std::ranges::generate(values, [&] { return normal(random); });
  return values;
}

// Returns what an exception says; empty: there is none. Threads hand texts to each other, not exceptions: the C++
// library counts references to an exception where ThreadSanitizer does not see it.
inline std::string text_of(const std::exception_ptr& error) {
  try {
    if (error) {
      std::rethrow_exception(error);
    }
  } catch (const std::exception& exception) {
    return exception.what();
  }
  return "";
}

// Puts the gradients of a bucket's parameters one after another into its memory, and says where they are. `given` makes
// the gradients.
inline std::vector<HookGradient> fill(Values& buffer, const std::vector<std::size_t>& parameters,
                                      const std::function<Values(std::size_t)>& given) {
  for (const std::size_t parameter : parameters) {
    const Values values = given(parameter);
    buffer.insert(buffer.end(), values.begin(), values.end());
  }
  std::vector<HookGradient> gradients;
  float* at = buffer.data();
  for (const std::size_t parameter : parameters) {
    gradients.push_back({parameter, {at, kCounts[parameter], DType::f32}});
    at += kCounts[parameter];
  }
  return gradients;
}

// Posts a backward pass in new memory, and returns the results by parameter. `given` makes the gradients.
inline std::vector<Values> pass(HookEngine& engine, const Layout& layout,
                                const std::function<Values(std::size_t)>& given) {
  std::vector<Values> buffers;
  std::vector<std::promise<std::string>> ends(layout.size());
  for (std::size_t b = 0; b < layout.size(); ++b) {
    Values& buffer = buffers.emplace_back();
    HookBucket bucket{.first = b == 0, .last = b + 1 == layout.size(), .gradients = fill(buffer, layout[b], given)};
    bucket.done = [&ends, b](const std::exception_ptr& error) { ends[b].set_value(text_of(error)); };
    engine.post(std::move(bucket));
  }
  std::string failure;
  for (std::promise<std::string>& end : ends) {
    const std::string text = end.get_future().get();
    failure = text.empty() ? failure : text;
  }
  if (!failure.empty()) {
    throw std::runtime_error(failure);
  }
  std::vector<Values> results(kCounts.size());
  for (std::size_t b = 0; b < layout.size(); ++b) {
    auto at = buffers[b].begin();
    for (const std::size_t parameter : layout[b]) {
      results[parameter].assign(at, at + static_cast<std::ptrdiff_t>(kCounts[parameter]));
      at += static_cast<std::ptrdiff_t>(kCounts[parameter]);
    }
  }
  return results;
}

inline std::vector<Values> step(HookEngine& engine, const Layout& layout, int rank, std::uint64_t number) {
  return pass(engine, layout, [&](std::size_t parameter) { return gradient(parameter, rank, number); });
}

/// Runs hooks on ranks that are threads.
class HookTest : public testing::Test {
 protected:
  HookTest() : watchdog_("a communication hook") {}

  // Runs `body` on ranks that are threads; its errors are failures.
  template <typename Body>
  void run(int world_size, const Policy& policy, Body&& body) {
    test::ThreadStore store;
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < world_size; ++rank) {
      ranks.emplace_back([&, rank] {
        try {
          const auto engine = make_host_hook_engine({.rank = rank,
                                                     .world_size = world_size,
                                                     .policy = policy,
                                                     .timeout = 60s,
                                                     .parameters = parameters(),
                                                     .store = store.rendezvous()});
          body(rank, *engine);
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << rank << ": " << error.what();
        }
      });
    }
    for (std::thread& rank : ranks) {
      rank.join();
    }
  }

  // Returns rank 0's results of the last of `steps` steps, which all ranks have.
  std::vector<Values> last_of(const Policy& policy, std::uint64_t steps, const Layout& later) {
    std::vector<std::vector<Values>> all(3);
    run(3, policy, [&](int rank, HookEngine& engine) {
      for (std::uint64_t number = 0; number < steps; ++number) {
        all[static_cast<std::size_t>(rank)] = step(engine, number == 0 ? kFirst : later, rank, number);
      }
    });
    EXPECT_EQ(all[0], all[1]);
    EXPECT_EQ(all[0], all[2]);
    return all[0];
  }

  test::Watchdog watchdog_;
  test::ThreadStore store_;
};

}  // namespace gradwire::torch_c10d
