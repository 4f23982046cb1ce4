// Tests the bound on the age of late results with reductions that end when the test says so, and that results would be
// older without it.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "plan/plan.hpp"
#include "session/parts/sync_modes/sync_modes.hpp"

namespace gradwire::session {
namespace {

constexpr float kReduced = 1000;  // added by a reduction when it ends

// Keeps reductions under way until it is told to end the oldest.
class SlowBuckets final : public Buckets {
 public:
  void start(const plan::Plan& /*plan*/, const plan::Bucket& bucket, std::span<const TensorMemory> memory,
             const StepInfo& /*step*/) override {
    flights_.push_back({bucket.id, memory[0].gradient});
  }
  std::vector<Ended> advance(std::chrono::microseconds /*wait*/) override {
    const Flight flight = flights_.at(0);
    flights_.erase(flights_.begin());
    auto* values = static_cast<float*>(flight.values.data);
    std::for_each(values, values + flight.values.count, [](float& value) { value += kReduced; });
    return {{.bucket = flight.bucket, .nonfinite = false, .background = true}};
  }

  void fail(const Error& /*error*/) noexcept override {}

 private:
  struct Flight {
    std::uint32_t bucket;
    View values;
  };
  std::vector<Flight> flights_;
};

struct Ages {
  std::uint64_t oldest = 0;   // oldest of the values that arrived; each says which step made it
  std::uint64_t counted = 0;  // count in the statistics
  int waits = 0;
};

constexpr std::uint32_t kSteps = 40;

// Reductions take two steps each, one at a time: they fall further and further behind, unless steps wait.
bool one_ends_after(std::uint32_t step) { return step % 2 == 1; }

Ages watch(std::uint32_t staleness) {
  Policy policy = Policy::uniform("exact");
  policy.defaults.sync = {.mode = Sync::Mode::async, .staleness = staleness};
  const plan::Plan plan = plan::make_plan(policy, {{"w", 10, DType::f32, 1}}, {});
  const SyncSchedule schedule(plan);
  const std::vector<std::vector<View>> no_parameters(1);
  SyncModes modes(plan, schedule, no_parameters, false);
  SlowBuckets buckets;
  std::vector<float> gradient(10);
  const std::vector<TensorMemory> memory{{{gradient.data(), gradient.size(), DType::f32}, false}};
  Ages ages;
  const auto end_one = [&] {
    for (const Buckets::Ended& ended : buckets.advance({})) {
      modes.ended(ended);
    }
    modes.start(buckets);
  };
  for (std::uint32_t step = 0; step < kSteps; ++step) {
    std::fill(gradient.begin(), gradient.end(), static_cast<float>(step + 1));
    EXPECT_TRUE(modes.enqueue(plan.buckets[0], memory, {.step = step}, step, 1));
    modes.start(buckets);
    if (one_ends_after(step)) {
      end_one();
    }
    for (; !modes.arrived(0); ++ages.waits) {  // as finish() does
      end_one();
    }
    (void)modes.deliver(memory, 1);
    if (gradient[0] != 0) {
      EXPECT_GT(gradient[0], kReduced) << "delivered before its reduction had ended";
      ages.oldest = std::max<std::uint64_t>(ages.oldest, step + 1 - static_cast<std::uint64_t>(gradient[0] - kReduced));
    }
  }
  ages.counted = modes.ages().at(0).oldest;
  return ages;
}

// Returns the oldest value if each arrived when its reduction ends and no step waited.
std::uint64_t oldest_without_bound() {
  std::uint64_t oldest = 0;
  std::uint64_t next = 0;  // first of the steps whose reductions have not ended
  for (std::uint32_t step = 0; step < kSteps; ++step) {
    if (one_ends_after(step)) {
      oldest = std::max(oldest, step - next++);
    }
  }
  return oldest;
}

// Mutations tried: arrived() is always true; may_lag is staleness + 1.
TEST(StalenessBound, HoldsResultsToTheirAgeAndTheyWouldBeOlderWithoutIt) {
  EXPECT_GT(oldest_without_bound(), 10U);
  for (const std::uint32_t staleness : {0U, 1U, 4U}) {
    const Ages held = watch(staleness);
    EXPECT_EQ(held.oldest, staleness);
    EXPECT_EQ(held.counted, staleness);
    EXPECT_GT(held.waits, 0);
  }
}

}  // namespace
}  // namespace gradwire::session
