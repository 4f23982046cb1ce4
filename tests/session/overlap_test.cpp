// Tests that communication overlaps with the backward pass, and that chunk size and buckets reach the wire.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "gradwire/emulation.hpp"
#include "model.hpp"
#include "tests/support/ranks.hpp"
#include "transport/foreground.hpp"

namespace gradwire::test {
namespace {

using std::chrono::milliseconds;

// Mutation tried: buckets start only in finish().
TEST(Overlap, TheFirstFrameLeavesBeforeTheLastReady) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    Policy policy;
    policy.bucket_bytes = 256 << 10;
    auto gradients = make_gradients();
    Session session(transport, policy);
    add_all(session, gradients);
    fill(gradients, transport->rank(), 0);
    for (std::size_t t = gradients.size() - 1; t > 0; --t) {
      session.ready(gradients[t].id);
    }
    // The backward pass of the first layer goes on; meanwhile the other layers must be on their way.
    const auto deadline = std::chrono::steady_clock::now() + milliseconds(10000);
    while (transport->counters().bytes_sent < 100000 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    EXPECT_GE(transport->counters().bytes_sent, 100000U) << "nothing was sent before the last ready()";
    session.ready(gradients[0].id);
    session.finish();
    EXPECT_LE(error_against(gradients, 0, 1.5), 0.02);
  });
}

TEST(Overlap, SerializedSessionsSendInsideReady) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    Policy policy;
    policy.bucket_bytes = 256 << 10;
    auto gradients = make_gradients();
    Session session(transport, policy, {.threading = Threading::serialized});
    add_all(session, gradients);
    fill(gradients, transport->rank(), 0);
    for (std::size_t t = gradients.size() - 1; t > 0; --t) {
      session.ready(gradients[t].id);
    }
    EXPECT_GT(transport->counters().bytes_sent, 0U);
    session.ready(gradients[0].id);
    session.finish();
  });
}

// A bucket of rank 0 waits for rank 1 while ready() goes on. The test would hang if ready() took the lock of the wire.
TEST(Overlap, OneThreadDrivesTwoRanks) {
  const Watchdog watchdog("one thread drives two ranks", std::chrono::seconds(20));
  Policy policy = Policy::uniform("exact");
  policy.bucket_bytes = 16 << 10;  // one tensor per bucket
  const auto world = make_inproc_world(2);
  const SessionOptions options{.threading = Threading::background};
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<std::vector<float>> gradients(4, std::vector<float>(5000, 1.0F));
  std::vector<TensorId> ids;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    sessions.push_back(std::make_unique<Session>(world[rank], policy, options));
    for (const std::size_t tensor : {0, 1}) {
      std::vector<float>& gradient = gradients[2 * rank + tensor];
      ids.push_back(sessions[rank]->add(tensor == 0 ? "first" : "last", view(gradient.data(), gradient.size())));
    }
  }
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (const std::size_t tensor : {1, 0}) {
      sessions[rank]->ready(ids[2 * rank + tensor]);
      std::this_thread::sleep_for(milliseconds(20));
    }
  }
  std::thread other([&] { sessions[1]->finish(); });
  sessions[0]->finish();
  other.join();
  for (const std::vector<float>& gradient : gradients) {
    EXPECT_EQ(gradient, std::vector<float>(5000, 1.0F));
  }
}

std::uint64_t messages_of_a_step(const Policy& policy) {
  std::uint64_t messages = 0;
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    Session session(transport, policy);
    add_all(session, gradients);
    for (const int step : {0, 1}) {
      const std::uint64_t before = transport->counters().messages_sent;
      for (const Gradient& gradient : gradients) {
        session.ready(gradient.id);
      }
      session.finish();
      if (step == 1 && transport->rank() == 0) {  // step 0 also agrees on the plan
        messages = transport->counters().messages_sent - before;
      }
    }
  });
  return messages;
}

// If a step's last bucket is small, no call wakes the progress thread: it must notice by itself that the caller does
// something else before finish(), or the test hangs. Mutation tried: the thread waits until it is woken.
TEST(Overlap, AStepGoesOnWhileItsCallerIsElsewhere) {
  constexpr std::uint64_t kSteps = 5;  // the first step wakes the thread
  std::atomic<std::uint64_t> ended = 0;
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    std::vector<float> gradient(2000, 1.0F);
    Session session(transport, Policy::uniform("int8"));
    const TensorId id = session.add("w", view(gradient.data(), gradient.size()));
    for (std::uint64_t step = 1; step <= kSteps; ++step) {
      session.ready(id);
      while (transport->rank() == 0 && ended < step) {
        std::this_thread::yield();
      }
      session.finish();
      ended += transport->rank() == 1 ? 1 : 0;
    }
  });
}

TEST(Overlap, ChunksAndBucketsOfThePolicyReachTheWire) {
  Policy coarse;
  Policy fine;
  fine.chunk_bytes = 8 << 10;
  Policy many_buckets;
  many_buckets.bucket_bytes = 64 << 10;
  EXPECT_GT(messages_of_a_step(fine), messages_of_a_step(coarse));
  EXPECT_GT(messages_of_a_step(many_buckets), messages_of_a_step(coarse));
}

// Asks as of time 0, relative to which every send is recent.
bool others_see_a_step() { return transport::foreground_sends(transport::Foreground::Clock::time_point{}); }

TEST(Overlap, OthersSeeWhetherAStepIsUnderWay) {
  for (const Threading threading : {Threading::background, Threading::serialized}) {
    std::atomic<bool> seen{false};
    std::barrier<> both(2);
    run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
      std::vector<float> gradient(100000, 1.0F);
      Session session(transport, Policy::uniform("int8"), {.threading = threading});
      const TensorId id = session.add("w", view(gradient.data(), gradient.size()));
      session.reserve();  // the agreement on the plan needs all ranks
      EXPECT_FALSE(others_see_a_step());
      both.arrive_and_wait();
      if (transport->rank() == 1) {  // the exchange of its peer cannot end
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        while (!seen && std::chrono::steady_clock::now() < deadline) {
          seen = others_see_a_step();
          std::this_thread::yield();
        }
      }
      session.ready(id);
      session.finish();
      EXPECT_TRUE(seen);
      both.arrive_and_wait();
      EXPECT_FALSE(others_see_a_step());
      both.arrive_and_wait();
    });
  }
}

TEST(Overlap, AnEmulatedLinkIsFeltAndSaid) {
  run_ranks(2, [](const std::shared_ptr<Transport>& inner) {
    const auto transport = make_throttled(inner, Link::parse("100Mbit/s,1ms"));
    std::vector<float> gradient(100000, 1.0F);
    Session session(transport, Policy::uniform("exact"));
    const TensorId id = session.add("w", view(gradient.data(), gradient.size()));
    const auto begin = std::chrono::steady_clock::now();
    session.ready(id);
    session.finish();
    // 400 kB travel each way at 12.5 MB/s; half of that time as the bound leaves room for bursts.
    EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(16));
    EXPECT_NE(session.statistics().transport.find("emulated"), std::string::npos);
    EXPECT_NE(session.statistics().to_text().find("emulated"), std::string::npos);
  });
}

}  // namespace
}  // namespace gradwire::test
