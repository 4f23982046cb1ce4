// Tests codec = "auto" of sessions over device memory: parts of several ranks in one thread with scripted times, and
// whole sessions over simulated devices.
#include "session/parts/auto_codec/device_auto_codec.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "device_model.hpp"
#include "plan/plan.hpp"

namespace gradwire::test {
namespace {

using session::DeviceAutoCodec;

Policy automatic(const std::string& allow = "[\"int8\"]") {
  return Policy::parse("version = 1\n[defaults]\ncodec = \"auto\"\nsmall = \"off\"\nallow = " + allow + "\n");
}

/// Seconds of a step on a rank.
using Seconds = std::function<double(std::uint64_t step, std::size_t level, int rank)>;

/// The parts of a world without sessions. Ranks wait for each other where they compare.
class PartsWorld {
 public:
  PartsWorld(int ranks, const Policy& policy, Seconds seconds) : seconds_(std::move(seconds)) {
    const auto transports = make_inproc_world(ranks);
    plan_ = plan::make_plan(policy, {{.name = "a", .count = 100'000}, {.name = "b", .count = 5'000'000}},
                            {.world_size = ranks, .checksum = false});
    for (const auto& transport : transports) {
      auto one = std::make_unique<Rank>();
      one->device = std::make_shared<HostDevice>(transport);
      one->runner = std::make_unique<session::DeviceRunner>(one->device, nullptr, SessionOptions{}, transport->nodes());
      one->part = std::make_unique<DeviceAutoCodec>(*one->runner, plan_, [clock = &one->now] { return *clock; });
      one->part->agreed({.step = 0, .steps = {}, .told = {}, .link_measured = {}});
      ranks_.push_back(std::move(one));
    }
  }

  /// Makes the next step, with a number that leaves out `missing` ones. Returns its level.
  std::size_t step(std::uint64_t missing = 0) {
    number_ += missing;
    std::optional<std::size_t> level;
    double longest = 0;
    double longest_by_nccl = 0;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      session::StepInfo info{.step = static_cast<std::uint32_t>(number_)};
      ranks_[rank]->part->tune(info);
      EXPECT_EQ(info.choices.size(), plan_.buckets.size());
      const std::size_t mine = info.choices.back().level;
      level = level.value_or(mine);
      EXPECT_EQ(mine, *level) << "step " << number_ << ", rank " << rank;
      const double took = seconds_(number_, mine, static_cast<int>(rank));
      ranks_[rank]->now += took;
      longest = std::max(longest, took);
      longest_by_nccl = std::max(longest_by_nccl, seconds_(number_, 0, static_cast<int>(rank)));
    }
    total += longest;
    by_nccl += longest_by_nccl;
    end(number_++);
    return *level;
  }
  std::size_t steps(std::uint64_t count) {
    std::size_t level = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      level = step();
    }
    return level;
  }
  [[nodiscard]] HostDevice& device(std::size_t rank) { return *ranks_[rank]->device; }
  [[nodiscard]] DeviceAutoCodec& part(std::size_t rank) { return *ranks_[rank]->part; }
  [[nodiscard]] std::uint64_t made() const { return number_; }

  double total = 0;    // seconds of the steps
  double by_nccl = 0;  // seconds, had NCCL made the sums of all steps
  std::uint64_t comparisons = 0;
  std::function<double()> late;  // seconds from a meeting until a rank's host goes on; null if it goes on at once

 private:
  struct Rank {
    std::shared_ptr<HostDevice> device;
    std::unique_ptr<session::DeviceRunner> runner;
    std::unique_ptr<DeviceAutoCodec> part;
    double now = 0;
  };

  void end(std::uint64_t step) {
    std::vector<std::vector<double>> numbers(ranks_.size());
    double latest = 0;
    for (const auto& rank : ranks_) {
      rank->part->step_ended(step, {});
      EXPECT_EQ(rank->part->due(step), ranks_[0]->part->due(step));
      latest = std::max(latest, rank->now);
    }
    if (!ranks_[0]->part->due(step)) {
      return;
    }
    ++comparisons;
    session::ComparedPart::Compared compared{.step = step, .ranks = {}};
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      ranks_[rank]->part->append(numbers[rank]);
      ranks_[rank]->now = latest + (late ? late() : 0);
    }
    compared.ranks.assign(numbers.begin(), numbers.end());
    for (const auto& rank : ranks_) {
      rank->part->take(compared);
    }
  }

  Seconds seconds_;
  plan::Plan plan_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::uint64_t number_ = 0;
};

Seconds ratio_of(double ratio) {
  return [ratio](std::uint64_t, std::size_t level, int) { return level == 0 ? 1e-2 : 1e-2 * ratio; };
}

// Mutations tried: the first level is that of the first codec; the halves of a trial are taken for each other.
TEST(DeviceAutoCodec, StartsWithTheLibrarysSumsAndTakesAFasterCodec) {
  PartsWorld world(3, automatic(), ratio_of(0.8));
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(world.step(), 0U) << i;
  }
  EXPECT_EQ(world.steps(500), 1U);
  SessionStatistics statistics;
  statistics.groups.resize(1);
  world.part(0).add_to(statistics);
  EXPECT_EQ(statistics.groups[0].codec, "auto: int8");
  ASSERT_EQ(statistics.switches.size(), 2U);
  EXPECT_EQ(statistics.switches[0].to, "dense");
  EXPECT_EQ(statistics.switches[1].to, "int8");
  EXPECT_EQ(statistics.switches[1].reason, "a step takes 8 ms instead of 10 ms");
  world.steps(4000);
  EXPECT_LT(world.total, 0.87 * world.by_nccl);
  EXPECT_LT(world.comparisons, 0.06 * static_cast<double>(world.made())) << "hosts seldom wait";
}

// Mutation tried: what is slower is adopted, too.
TEST(DeviceAutoCodec, NeverSlowerThanTheLibraryByMoreThanTheTrials) {
  for (const double gain : {0.08, 0.3, 0.58, 0.91, 1.0, 1.65, 3.8}) {
    PartsWorld world(2, automatic(), ratio_of(1 / gain));
    std::uint64_t compressed = 0;
    for (int i = 0; i < 20000; ++i) {
      compressed += world.step();
    }
    EXPECT_GE(world.by_nccl / world.total, 0.97) << gain;
    if (gain <= 1) {
      EXPECT_LE(static_cast<double>(compressed), 0.015 * static_cast<double>(world.made())) << gain;
      EXPECT_GE(compressed, session::StepPairs::kSteps * 4) << "it is tried";
    } else {
      EXPECT_GE(world.by_nccl / world.total, 0.9 * gain) << gain;
    }
  }
}

TEST(DeviceAutoCodec, OfSeveralCodecsTheFastestWinsAndOneThatBecomesSlowerIsDropped) {
  PartsWorld world(2, automatic("[\"bf16\", \"int8\"]"), [](std::uint64_t step, std::size_t level, int) {
    return level == 0 ? 1e-2 : level == 1 ? 0.8e-2 : step < 4000 ? 0.6e-2 : 1.2e-2;
  });
  EXPECT_EQ(world.steps(4000), 2U);
  world.steps(20000);
  EXPECT_NE(world.steps(1), 2U);
  EXPECT_LE(world.total, world.by_nccl);
}

// Mutation tried: ranks decide by their own medians.
TEST(DeviceAutoCodec, RanksThatSeeDifferentTimesTakeTheSameCodecs) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> share(0.5, 1.5);
  PartsWorld world(3, automatic("[\"bf16\", \"int8\"]"), [&](std::uint64_t, std::size_t level, int) {
    return 1e-2 * share(random) * (1 - 0.1 * static_cast<double>(level));
  });
  world.late = [&] { return 1e-2 * share(random); };
  for (int i = 0; i < 6000 && !::testing::Test::HasFailure(); ++i) {
    world.step(random() % 50 == 0 ? 1 + random() % 3 : 0);
  }
  EXPECT_EQ(world.part(1).gate().choices(), world.part(0).gate().choices());
  EXPECT_GT(world.part(0).gate().trials(), 30U);
}

// Between the two steps of every trial there are others, which take long and are not counted. Mutation tried: a trial
// with a gap counts.
TEST(DeviceAutoCodec, ATrialWithStepsBetweenDoesNotCount) {
  PartsWorld world(2, automatic(), ratio_of(0.5));
  for (int i = 0; i < 3000; ++i) {
    world.step(i % 2);
  }
  EXPECT_EQ(world.step(), 0U);
  EXPECT_GE(world.part(0).gate().trials(), 8U);
  EXPECT_FALSE(world.part(0).gate().compared({.function = choice::Function::nccl_all_reduce}).has_value());
}

// A step of the library takes longer where it adds residuals, which it does behind a step by int4. The codec is slower
// than the library's own step, and faster than such a one. Mutation tried: each half of a trial is one step.
TEST(DeviceAutoCodec, AStepThatAddsResidualsIsNotTakenForTheLibrarys) {
  std::size_t before = 0;
  const auto seconds = [&](std::uint64_t step, std::size_t level, int) {
    const double by_codec = step < 1500 ? 0.8e-2 : 1.2e-2;
    return level != 0 ? by_codec : before != 0 ? 1.5e-2 : 1e-2;
  };
  PartsWorld world(2, automatic("[\"int4\"]"), seconds);
  const auto steps = [&](int count) {
    for (int i = 0; i < count; ++i) {
      before = world.step();
    }
    return before;
  };
  EXPECT_EQ(steps(1500), 1U);
  EXPECT_EQ(steps(3000), 0U) << "dropped";
}

// Mutation tried: a captured step takes part in a trial.
TEST(DeviceAutoCodec, ACapturedStepTakesWhatIsInUse) {
  PartsWorld world(2, automatic(), ratio_of(1.5));
  while (world.step() == 0) {
    ASSERT_LT(world.made(), 2000U) << "no trial";
  }
  session::StepInfo info;
  std::size_t tries = 0;
  for (int i = 0; i < 20; ++i) {
    world.part(0).tune(info);
    tries += info.choices[0].level;
    world.device(0).begin_capture();
    world.part(0).tune(info);
    EXPECT_EQ(info.choices[0].level, 0U);
    static_cast<void>(world.device(0).end_capture());
    world.step();
  }
  EXPECT_GE(tries, 5U);
}

Policy dense() { return Policy::parse("version = 1\n[defaults]\ncodec = \"exact\"\nalgorithm = \"dense\"\n"); }

// Returns the results of a step by the library, on two ranks.
std::vector<std::string> longest_by_nccl(std::uint64_t step) {
  return on_ranks(2, [&](const auto& transport) {
    Trainer trainer(transport, true, dense());
    trainer.step(step);
    return trainer.seen;
  });
}

// The simulated device sleeps. Mutation tried: buckets ignore the choice.
TEST(DeviceAutoSession, ASlowLibraryIsReplacedAndAFastOneIsNot) {
  const std::vector<std::string> wanted = longest_by_nccl(0);
  for (const bool slow_library : {true, false}) {
    const auto codecs = on_ranks(2, [&](const auto& transport) {
      Trainer trainer(transport, true, automatic());
      trainer.device->sum_takes = std::chrono::microseconds(slow_library ? 500 : 0);
      trainer.device->group_takes = std::chrono::microseconds(slow_library ? 0 : 250);
      trainer.step(0);
      EXPECT_TRUE(trainer.seen == wanted[static_cast<std::size_t>(transport->rank())]) << "NCCL's own sums at first";
      for (std::uint64_t step = 1; step < 760; ++step) {
        for (const TypedGradient& gradient : trainer.gradients) {
          trainer.session.ready(gradient.id);
        }
        trainer.session.finish();
      }
      trainer.wait_for_device();
      return trainer.session.statistics().groups[0].codec;
    });
    EXPECT_EQ(codecs[0], slow_library ? "auto: int8" : "auto: dense");
    EXPECT_EQ(codecs[1], codecs[0]);
  }
}

void make_step(Trainer& trainer) {
  for (const TypedGradient& gradient : trainer.gradients) {
    trainer.session.ready(gradient.id);
  }
  trainer.session.finish();
}

// Mutation tried: a rank always says that it has memory.
TEST(DeviceAutoSession, ACodecForWhichOneRankHasNoMemoryIsNotTried) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true, automatic("[\"int4\"]"));
    HostDevice& device = *trainer.device;
    device.sum_takes = std::chrono::microseconds(600);
    for (int i = 0; i < 3; ++i) {
      make_step(trainer);
    }
    const std::uint64_t before = device.arena().footprint().held_bytes;
    if (transport->rank() == 1) {
      device.set_memory_left(100'000);
    }
    for (int i = 0; i < 800; ++i) {
      make_step(trainer);
    }
    EXPECT_EQ(trainer.session.statistics().groups[0].codec, "auto: dense");
    EXPECT_EQ(device.arena().footprint().held_bytes, before) << "given back";
    device.set_memory_left(~std::size_t{0});
    for (int i = 0; i < 800; ++i) {
      make_step(trainer);
    }
    EXPECT_EQ(trainer.session.statistics().groups[0].codec, "auto: int4") << "ranks ask again";
    trainer.wait_for_device();
  });
}

// Mutation tried: nothing is reserved.
TEST(DeviceAutoSession, TrialsTakeNoMemoryBeyondWhatWasReserved) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true, automatic("[\"int4\", \"topk(5%)+int8\"]"));
    HostDevice& device = *trainer.device;
    device.sum_takes = std::chrono::microseconds(600);
    make_step(trainer);
    make_step(trainer);
    std::uint64_t codecs = 0;
    std::string codec;
    for (int i = 0; i < 1000; ++i) {
      const std::uint64_t allocations = device.allocations;
      device.set_memory_left(i % 64 == 61 ? ~std::size_t{0} : 0);  // ranks ask behind every 64th step
      make_step(trainer);
      codecs += device.allocations > allocations ? 1 : 0;
      codec = trainer.session.statistics().groups[0].codec;
    }
    EXPECT_GE(codecs, 1U);
    EXPECT_NE(codec, "auto: dense");
    trainer.wait_for_device();
  });
}

// Another codec may be chosen until a capture begins. Mutation tried: memory is reserved for the library's sums alone.
TEST(DeviceAutoSession, ReservesMemoryForEveryCodec) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    Trainer trainer(transport, true, automatic("[\"topk(5%)+int8\"]"));
    trainer.session.reserve();
    EXPECT_GT(trainer.device->arena().footprint().bytes_in_use, 200'000U) << "4 bytes an element";
    EXPECT_EQ(trainer.session.residual_bytes(), 0U) << "no step has left any";
  });
}

TEST(DeviceAutoSession, ACapturedStepKeepsTheLibrarysSums) {
  const std::vector<std::string> wanted = longest_by_nccl(3);
  const auto seen = on_ranks(2, [&](const auto& transport) {
    Trainer trainer(transport, true, automatic("[\"int8\", \"int4\"]"));
    trainer.session.reserve();
    trainer.device->begin_capture();
    trainer.ready_all();
    trainer.session.finish();
    const HostDevice::Work graph = trainer.device->end_capture();
    trainer.replay(0, graph);
    trainer.replay(3, graph);
    return trainer.seen;
  });
  EXPECT_TRUE(seen == wanted);
}

}  // namespace
}  // namespace gradwire::test
