// The bound on ages of late results, and what ages become without it, on reductions that end when the test says so.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "plan/plan.hpp"
#include "session/sync_modes.hpp"

namespace gradwire::session {
namespace {

constexpr float kReduced = 1000;  // added to what a reduction has ended with

// Keeps reductions under way until it is told to end the oldest.
class SlowRunner final : public Runner {
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

  [[nodiscard]] int rank() const noexcept override { return 0; }
  [[nodiscard]] int world_size() const noexcept override { return 1; }
  [[nodiscard]] std::string transport() const override { return "none"; }
  [[nodiscard]] bool checksum() const override { return false; }
  void abort(ErrorCode /*code*/, const std::string& /*message*/) noexcept override {}
  [[nodiscard]] std::vector<Statistics> statistics() const override { return {}; }
  void reset_statistics() override {}
  void check_memory(const View& /*gradient*/, const std::string& /*what*/) override {}
  void agree(const plan::Plan& /*plan*/, bool /*weighted*/, std::uint64_t /*step*/) override {}
  bool end_step(bool /*skipped*/) override { return false; }
  bool complete(std::uint64_t /*step*/, std::uint32_t /*bucket*/) override { return true; }
  void wait_complete(std::uint64_t /*step*/, std::uint32_t /*bucket*/) override {}
  void reserve(const plan::Plan& /*plan*/, const StepInfo& /*step*/) override {}
  void set_step(std::uint64_t /*step*/) override {}
  std::vector<int> nonfinite_ranks(std::span<const TensorMemory> /*memory*/, double /*scale*/,
                                   std::uint64_t /*step*/) override {
    return {};
  }
  void broadcast(std::span<const View> /*values*/, int /*root*/) override {}
  void compare(std::span<const View> /*values*/, std::uint64_t /*step*/) override {}
  void fail(ErrorCode /*code*/, const std::string& /*message*/) noexcept override {}
  std::vector<SavedState::Residual> save_residuals(const plan::Plan& /*plan*/) override { return {}; }
  void load_residuals(plan::ResidualStore /*residuals*/, const plan::Plan& /*plan*/) override {}
  void scale_residuals(float /*factor*/) override {}
  std::uint64_t residual_bytes() override { return 0; }

 private:
  struct Flight {
    std::uint32_t bucket;
    View values;
  };
  std::vector<Flight> flights_;
};

struct Ages {
  std::uint64_t oldest = 0;   // of the values that arrived, each of which says which step made it
  std::uint64_t counted = 0;  // what the statistics say
  int waits = 0;
};

// 40 steps of a session whose reductions take two steps each, one at a time: they fall behind for ever, unless steps
// wait.
Ages watch(std::uint32_t staleness, bool bounded) {
  Policy policy = Policy::uniform("exact");
  policy.defaults.sync = {.mode = Sync::Mode::async, .staleness = staleness};
  const plan::Plan plan = plan::make_plan(policy, {{"w", 10, DType::f32, 1}}, {});
  SyncModes modes(plan, {{}});
  if (!bounded) {
    modes.remove_bound();
  }
  SlowRunner runner;
  std::vector<float> gradient(10);
  const std::vector<TensorMemory> memory{{{gradient.data(), gradient.size(), DType::f32}, false}};
  Ages ages;
  const auto end_one = [&] {
    for (const Runner::Ended& ended : runner.advance({})) {
      modes.ended(ended);
    }
    modes.start(runner);
  };
  for (std::uint32_t step = 0; step < 40; ++step) {
    std::fill(gradient.begin(), gradient.end(), static_cast<float>(step + 1));
    EXPECT_TRUE(modes.take(plan.buckets[0], memory, {.step = step}, step, 1));
    modes.start(runner);
    if (step % 2 == 1) {
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

// Mutations tried: arrived() is always true; may_lag is staleness + 1; the bound is removed.
TEST(StalenessBound, HoldsResultsToTheirAgeAndTheyWouldBeOlderWithoutIt) {
  for (const std::uint32_t staleness : {0U, 1U, 4U}) {
    const Ages held = watch(staleness, true);
    EXPECT_EQ(held.oldest, staleness);
    EXPECT_EQ(held.counted, staleness);
    EXPECT_GT(held.waits, 0);
    const Ages loose = watch(staleness, false);  // the control: the same instrument sees them
    EXPECT_GT(loose.oldest, 10U);
    EXPECT_EQ(loose.counted, loose.oldest);
    EXPECT_EQ(loose.waits, 0);
  }
}

}  // namespace
}  // namespace gradwire::session
