// Tests the communication hook of DDP without Torch: ranks are threads, buckets are arranged as DDP does it.
#include "plugins/torch_c10d/hook_engine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "session/device/device_runner.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/host_device.hpp"
#include "tests/support/ranks.hpp"
#include "tests/torch_c10d/thread_store.hpp"

namespace gradwire::torch_c10d {
namespace {

using namespace std::chrono_literals;
using test::error_of;
using test::ThreadStore;
using test::Watchdog;
using testing::HasSubstr;

using Values = std::vector<float>;
using Layout = std::vector<std::vector<std::size_t>>;  // the parameters of each bucket

const std::vector<std::uint64_t> kCounts{5000, 12289, 300, 40001};
const Layout kFirst{{3, 2}, {1, 0}};    // as DDP begins: in reverse order
const Layout kRebuilt{{2, 3, 1}, {0}};  // in the order in which gradients came

std::vector<HookParameter> parameters() {
  return {{"embed.weight", 2}, {"body.weight", 2}, {"body.bias", 1}, {"head.weight", 2}};
}

Policy feedback(const char* codec, ErrorFeedback on = ErrorFeedback::on) {
  Policy policy = Policy::uniform(codec);
  policy.defaults.error_feedback = on;
  return policy;
}

// The gradient of a parameter.
Values gradient(std::size_t parameter, int rank, std::uint64_t step) {
  std::mt19937 random(static_cast<unsigned>(1 + parameter + 10 * static_cast<std::size_t>(rank) + 1000 * step));
  std::normal_distribution<float> normal;
  Values values(kCounts[parameter]);
  std::ranges::generate(values, [&] { return normal(random); });
  return values;
}

// Posts a backward pass in new memory, and returns the results by parameter. `given` makes the gradients.
std::vector<Values> pass(HookEngine& engine, const Layout& layout, const std::function<Values(std::size_t)>& given) {
  std::vector<Values> buffers;
  std::vector<std::promise<void>> ends(layout.size());
  for (std::size_t b = 0; b < layout.size(); ++b) {
    Values& buffer = buffers.emplace_back();
    HookBucket bucket{.first = b == 0, .last = b + 1 == layout.size()};
    for (const std::size_t parameter : layout[b]) {
      const Values values = given(parameter);
      buffer.insert(buffer.end(), values.begin(), values.end());
    }
    std::size_t at = 0;
    for (const std::size_t parameter : layout[b]) {
      bucket.gradients.push_back({parameter, {buffer.data() + at, kCounts[parameter], DType::f32}});
      at += kCounts[parameter];
    }
    bucket.done = [&ends, b](const std::exception_ptr& error) {
      error ? ends[b].set_exception(error) : ends[b].set_value();
    };
    engine.post(std::move(bucket));
  }
  std::exception_ptr failure;
  for (std::promise<void>& end : ends) {
    try {
      end.get_future().get();
    } catch (...) {
      failure = std::current_exception();
    }
  }
  if (failure) {
    std::rethrow_exception(failure);
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

std::vector<Values> step(HookEngine& engine, const Layout& layout, int rank, std::uint64_t number) {
  return pass(engine, layout, [&](std::size_t parameter) { return gradient(parameter, rank, number); });
}

class HookTest : public testing::Test {
 protected:
  HookTest() : watchdog_("a communication hook") {}

  // Runs `body` on ranks that are threads; its errors are failures.
  template <typename Body>
  void run(int world_size, const Policy& policy, Body&& body) {
    ThreadStore store;
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

  Watchdog watchdog_;
  ThreadStore store_;
};

TEST_F(HookTest, GivesTheMeanWhateverTheBuckets) {
  const std::vector<Values> results = last_of(Policy::uniform("exact"), 3, kRebuilt);
  for (std::size_t p = 0; p < kCounts.size(); ++p) {
    const Values given[] = {gradient(p, 0, 2), gradient(p, 1, 2), gradient(p, 2, 2)};
    for (std::size_t i = 0; i < kCounts[p]; ++i) {
      const double mean = (double{given[0][i]} + double{given[1][i]} + double{given[2][i]}) / 3;
      ASSERT_NEAR(results[p][i], mean, 1e-6) << "parameter " << p << ", element " << i;
    }
  }
}

TEST_F(HookTest, KeepsResidualsWhenBucketsAreRebuilt) {
  const std::vector<Values> same = last_of(feedback("int4"), 6, kFirst);
  EXPECT_EQ(last_of(feedback("int4"), 6, kRebuilt), same);
  EXPECT_NE(last_of(feedback("int4", ErrorFeedback::off), 6, kFirst), same) << "there are no residuals to keep";
}

TEST_F(HookTest, GoesOnFromASavedState) {
  const std::vector<Values> whole = last_of(feedback("int4"), 8, kRebuilt);
  std::vector<std::string> states(3);
  run(3, feedback("int4"), [&](int rank, HookEngine& engine) {
    EXPECT_EQ(engine.save(), "");
    for (std::uint64_t number = 0; number < 5; ++number) {
      step(engine, kFirst, rank, number);
    }
    states[static_cast<std::size_t>(rank)] = engine.save();
  });
  run(3, feedback("int4"), [&](int rank, HookEngine& engine) {
    engine.load({states[static_cast<std::size_t>(rank)]});
    EXPECT_EQ(engine.step(), 5U);
    EXPECT_EQ(engine.save(), states[static_cast<std::size_t>(rank)]);
    for (std::uint64_t number = 5; number < 8; ++number) {
      const std::vector<Values> results = step(engine, number == 5 ? kFirst : kRebuilt, rank, number);
      EXPECT_TRUE(number < 7 || results == whole);
    }
    engine.load(states);  // in the middle of the training, with the states of all ranks
    for (std::uint64_t number = 5; number < 8; ++number) {
      const std::vector<Values> results = step(engine, kRebuilt, rank, number);
      EXPECT_TRUE(number < 7 || results == whole) << "after the second load()";
    }
    EXPECT_EQ(engine.step(), 8U);
  });
}

double norm(const Values& values) {
  double sum = 0;
  for (const float value : values) {
    sum += double{value} * value;
  }
  return std::sqrt(sum);
}

TEST_F(HookTest, HandsResidualsToAnotherNumberOfRanks) {
  constexpr std::uint64_t kSteps = 6;
  std::vector<Values> missing;  // what the results of these steps lack of the true means, by parameter
  for (const std::uint64_t count : kCounts) {
    missing.emplace_back(count, 0.0F);
  }
  const auto subtract = [&](const std::vector<Values>& results) {
    for (std::size_t p = 0; p < results.size(); ++p) {
      std::ranges::transform(missing[p], results[p], missing[p].begin(), std::minus<>());
    }
  };
  std::vector<std::string> states(4);
  run(4, feedback("int4"), [&](int rank, HookEngine& engine) {
    for (std::uint64_t number = 0; number < kSteps; ++number) {
      const std::vector<Values> results = step(engine, kFirst, rank, number);
      if (rank == 0) {
        subtract(results);
      }
    }
    states[static_cast<std::size_t>(rank)] = engine.save();
  });
  for (std::size_t p = 0; p < kCounts.size(); ++p) {
    for (std::uint64_t number = 0; number < kSteps; ++number) {
      for (int rank = 0; rank < 4; ++rank) {
        std::ranges::transform(missing[p], gradient(p, rank, number), missing[p].begin(),
                               [](float sum, float value) { return sum + value / 4; });
      }
    }
  }
  const std::vector<Values> before = missing;
  // With gradients of zero the residuals alone travel, until all of them have arrived.
  run(2, feedback("int4"), [&](int rank, HookEngine& engine) {
    engine.load({states[2], states[0], states[3], states[1]});
    EXPECT_EQ(engine.step(), kSteps);
    for (int number = 0; number < 8; ++number) {
      const auto results =
          pass(engine, number == 0 ? kFirst : kRebuilt, [](std::size_t p) { return Values(kCounts[p], 0.0F); });
      if (rank == 0) {
        subtract(results);
      }
    }
    EXPECT_EQ(engine.step(), kSteps + 8);
  });
  for (std::size_t p = 0; p < kCounts.size(); ++p) {
    EXPECT_GT(norm(before[p]), 0.01 * std::sqrt(static_cast<double>(kCounts[p])));
    EXPECT_LT(norm(missing[p]), 1e-3 * norm(before[p])) << "parameter " << p;
  }
}

TEST_F(HookTest, RefusesStatesThatDoNotFit) {
  std::vector<std::string> states(3);
  std::vector<std::string> later(3);
  run(3, feedback("int4"), [&](int rank, HookEngine& engine) {
    step(engine, kFirst, rank, 0);
    states[static_cast<std::size_t>(rank)] = engine.save();
    step(engine, kFirst, rank, 1);
    later[static_cast<std::size_t>(rank)] = engine.save();
  });
  const auto engine = make_host_hook_engine({.rank = 1,
                                             .world_size = 2,
                                             .policy = feedback("int4"),
                                             .parameters = parameters(),
                                             .store = store_.rendezvous()});
  const auto refusal = [&](const std::vector<std::string>& given) {
    return std::string(error_of([&] { engine->load(given); }).what());
  };
  EXPECT_THAT(refusal({states[1]}), HasSubstr("that of rank 0 is not among them"));
  EXPECT_THAT(refusal({states[0], states[2]}), HasSubstr("that of rank 1 is not among them"));
  EXPECT_THAT(refusal({states[0], states[1], later[2]}), HasSubstr("several jobs or steps"));
  EXPECT_THAT(refusal({states[0], states[1], states[2], states[2]}), HasSubstr("there are 4 states of 3 ranks"));
  EXPECT_THAT(refusal({states[0].substr(0, 100)}), HasSubstr("state 0"));
  engine->load(states);
  EXPECT_EQ(engine->step(), 1U);
  EXPECT_THAT(error_of([&] { static_cast<void>(engine->save()); }).what(), HasSubstr("another number of ranks"));
}

std::string failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST_F(HookTest, AnErrorOfOneRankEndsTheOthers) {
  std::barrier all_have_stepped(3);
  run(3, feedback("int4"), [&](int rank, HookEngine& engine) {
    step(engine, kFirst, rank, 0);
    all_have_stepped.arrive_and_wait();
    if (rank == 1) {
      engine.abort("its loss is a matter of taste");
    }
    EXPECT_THAT(failure_of([&] { step(engine, kFirst, rank, 1); }), HasSubstr("a matter of taste"));
    EXPECT_THAT(failure_of([&] { step(engine, kFirst, rank, 2); }), HasSubstr("an earlier backward pass failed"));
  });
}

TEST_F(HookTest, ARankThatEndsInABackwardPassEndsTheOthers) {
  std::barrier all_have_stepped(3);
  run(3, feedback("int4"), [&](int rank, HookEngine& engine) {
    step(engine, kFirst, rank, 0);
    all_have_stepped.arrive_and_wait();
    if (rank == 1) {
      Values buffer(kCounts[0]);
      engine.post({.first = true,
                   .gradients = {{0, {buffer.data(), kCounts[0], DType::f32}}},
                   .done = [](const std::exception_ptr&) {}});
      engine.close();
      return;
    }
    EXPECT_THAT(failure_of([&] { step(engine, kFirst, rank, 1); }),
                HasSubstr("this rank ended during a backward pass"));
  });
}

TEST_F(HookTest, ARankThatCannotBeginIsNamed) {
  const auto engine = make_host_hook_engine(
      {.rank = 0, .world_size = 2, .timeout = 60s, .parameters = parameters(), .store = store_.rendezvous()});
  std::thread other([&] {
    std::this_thread::sleep_for(100ms);  // rank 0 waits in its first backward pass
    tell_of_failure(store_.rendezvous(), 1, "policy.toml:3:1: unknown key");
  });
  EXPECT_THAT(failure_of([&] { step(*engine, kFirst, 0, 0); }), HasSubstr("rank 1: policy.toml:3:1: unknown key"));
  other.join();
}

TEST_F(HookTest, ClosingEndsTheWaitForOtherRanks) {
  const auto engine = make_host_hook_engine(
      {.rank = 0, .world_size = 2, .timeout = 60s, .parameters = parameters(), .store = store_.rendezvous()});
  std::thread waits([&] { EXPECT_THAT(failure_of([&] { step(*engine, kFirst, 0, 0); }), HasSubstr("closed")); });
  std::this_thread::sleep_for(100ms);
  engine->close();
  waits.join();
  EXPECT_THAT(failure_of([&] { step(*engine, kFirst, 0, 1); }), HasSubstr("closed"));
}

TEST_F(HookTest, NamesMistakesInTheOrderOfBuckets) {
  std::barrier all_have_stepped(2);
  run(2, feedback("int4"), [&](int rank, HookEngine& engine) {
    step(engine, kFirst, rank, 0);
    all_have_stepped.arrive_and_wait();
    engine.post({.first = true, .done = [](const std::exception_ptr&) {}});
    EXPECT_THAT(failure_of([&] { step(engine, kFirst, rank, 1); }),
                HasSubstr("began before all buckets of the one before were there"));
  });
  run(2, feedback("int4"), [&](int rank, HookEngine& engine) {
    step(engine, {{3}, {1, 0}}, rank, 0);
    all_have_stepped.arrive_and_wait();
    EXPECT_THAT(failure_of([&] { step(engine, kFirst, rank, 1); }),
                HasSubstr("\"body.bias\" was in no bucket of the first backward pass"));
  });
}

// A member on a simulated device. It keeps the streams that it was told.
class SimulatedMember final : public HookMember {
 public:
  SimulatedMember(std::shared_ptr<Transport> transport, std::shared_ptr<test::HostDevice>& device,
                  std::vector<void*>& streams)
      : transport_(std::move(transport)), device_(device), streams_(streams) {}

  Session make_session(const HookOptions& options, const transport::Rendezvous& /*store*/,
                       const std::function<void()>& /*go_on*/) override {
    device_ = std::make_shared<test::HostDevice>(transport_);
    const SessionOptions ours = session_options(options);
    return session::make_session(std::make_unique<session::DeviceRunner>(device_, nullptr, ours), options.policy, ours);
  }
  bool enqueues() const noexcept override { return true; }
  void set_stream(void* stream) override { streams_.push_back(stream); }

 private:
  std::shared_ptr<Transport> transport_;
  std::shared_ptr<test::HostDevice>& device_;
  std::vector<void*>& streams_;
};

TEST_F(HookTest, OnADeviceItEnqueuesOnTheStreamOfEachBucket) {
  Policy policy = feedback("int4");
  policy.deterministic = true;
  policy.defaults.algorithm = Algorithm::two_shot;  // the device's
  std::vector<std::vector<Values>> all(2);
  test::run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    const int rank = transport->rank();
    std::shared_ptr<test::HostDevice> device;
    std::vector<void*> streams;
    const auto engine = make_hook_engine(
        {.rank = rank, .world_size = 2, .policy = policy, .parameters = parameters(), .store = store_.rendezvous()},
        std::make_unique<SimulatedMember>(transport, device, streams));
    int places[2];
    for (std::uint64_t number = 0; number < 4; ++number) {
      std::vector<Values> buffers(2);
      const Layout& layout = number == 0 ? kFirst : kRebuilt;
      for (std::size_t b = 0; b < 2; ++b) {
        HookBucket bucket{.first = b == 0, .last = b == 1, .stream = &places[b]};
        for (const std::size_t parameter : layout[b]) {
          const Values values = gradient(parameter, rank, number);
          buffers[b].insert(buffers[b].end(), values.begin(), values.end());
        }
        float* at = buffers[b].data();
        for (const std::size_t parameter : layout[b]) {
          bucket.gradients.push_back({parameter, {at, kCounts[parameter], DType::f32}});
          at += kCounts[parameter];
        }
        bool done = false;
        bucket.done = [&, b](const std::exception_ptr& error) {
          EXPECT_FALSE(error);
          done = b == 1;  // the first bucket ends with the last one
        };
        streams.clear();
        engine->post(std::move(bucket));
        EXPECT_EQ(done, b == 1) << "post() does the work itself";
        if (number > 0) {
          EXPECT_EQ(streams, std::vector<void*>(b + 1, &places[b]));
        }
      }
      device->synchronize();
      all[static_cast<std::size_t>(rank)] = buffers;
    }
    EXPECT_GT(device->followed, 0U);
    EXPECT_GT(device->led, 0U);
    EXPECT_THAT(engine->statistics(), HasSubstr("host device"));
  });
  EXPECT_EQ(all[0], all[1]);
  std::vector<Values> on_hosts;
  run(2, policy, [&](int rank, HookEngine& engine) {
    for (std::uint64_t number = 0; number < 4; ++number) {
      const std::vector<Values> results = step(engine, number == 0 ? kFirst : kRebuilt, rank, number);
      if (rank == 0) {
        on_hosts = results;
      }
    }
  });
  EXPECT_EQ(all[0][1], on_hosts[0]) << "the device's bytes are the host's";
}

}  // namespace
}  // namespace gradwire::torch_c10d
