// Tests codecs that are chosen at run time: all ranks choose the same codec at the same step, and no residual is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <random>
#include <thread>

#include "gradwire/emulation.hpp"
#include "model.hpp"
#include "session/host/bucket_runner.hpp"
#include "session/parts/auto_codec/auto_codec.hpp"
#include "tests/support/faulty_transport.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using choice::LinkReport;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

std::vector<std::shared_ptr<Transport>> throttled_world(int world, const char* link,
                                                        const std::vector<std::uint32_t>& nodes = {}) {
  std::vector<std::shared_ptr<Transport>> ranks;
  for (const auto& transport : make_inproc_world(world, nodes)) {
    ranks.push_back(make_throttled(transport, Link::parse(link)));
  }
  return ranks;
}

Policy automatic(const char* allow, const char* more = "") {
  return Policy::parse(std::string("[defaults]\ncodec = \"auto\"\nallow = ") + allow + "\nsmall = \"off\"\n" + more);
}

void step(Session& session, std::vector<Gradient>& gradients) {
  for (const Gradient& gradient : gradients) {
    session.ready(gradient.id);
  }
  session.finish();
}

TEST(AutoCodec, RanksChooseAlikeAtTheSameStepUnderDelays) {
  constexpr int kWorld = 3;
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mutex mutex;
  std::vector<SessionStatistics> statistics(kWorld);
  run_ranks(throttled_world(kWorld, "200Mbit/s,20us"), [&](const std::shared_ptr<Transport>& transport) {
    std::mt19937 random(seed + static_cast<std::uint32_t>(transport->rank()));
    auto gradients = make_gradients();
    Session session(transport,
                    automatic(R"(["bf16", "int8", "int4"])",
                              "[auto]\ndwell = 2\nwindow = 1\ngain = 0\n[bucket]\nbytes = \"128KiB\""),
                    {.compare_ranks_every = 1});  // throws if results differ
    // Ranks measure different times: on the last one the backward pass hides most of the communication, on the first it
    // hides nothing.
    const auto pause = std::chrono::milliseconds(10 * transport->rank());
    add_all(session, gradients);
    for (std::uint64_t s = 0; s < 30; ++s) {
      fill(gradients, transport->rank(), s);
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
      for (std::size_t i = gradients.size(); i-- > 0;) {
        session.ready(gradients[i].id);
        std::this_thread::sleep_for(i == gradients.size() - 1 ? pause : std::chrono::milliseconds(0));
      }
      session.finish();
      EXPECT_LT(error_against(gradients, s, 2), 0.2);
    }
    const std::lock_guard lock(mutex);
    statistics[static_cast<std::size_t>(transport->rank())] = session.statistics();
  });
  ASSERT_FALSE(statistics[0].switches.empty());
  EXPECT_EQ(statistics[0].switches[0].step, 0U);
  EXPECT_THAT(statistics[0].switches[0].reason, HasSubstr("measured in"));
  EXPECT_THAT(statistics[0].groups[0].codec, ::testing::StartsWith("auto: "));
  for (int rank = 1; rank < kWorld; ++rank) {
    const auto& switches = statistics[static_cast<std::size_t>(rank)].switches;
    ASSERT_EQ(switches.size(), statistics[0].switches.size());
    for (std::size_t i = 0; i < switches.size(); ++i) {
      EXPECT_EQ(switches[i].step, statistics[0].switches[i].step);
      EXPECT_EQ(switches[i].to, statistics[0].switches[i].to);
    }
  }
}

TEST(AutoCodec, ASlowLinkIsSeenAndSaved) {
  // A busy machine may disturb the measurement for a moment, so the test tries several times; ranks choose the same, so
  // they make the same number of tries.
  run_ranks(throttled_world(2, "20Mbit/s"), [](const std::shared_ptr<Transport>& transport) {
    SessionStatistics statistics;
    LinkEstimate link;
    for (int tries = 0; tries < 5 && (tries == 0 || statistics.groups[0].codec != "auto: int8"); ++tries) {
      auto gradients = make_gradients();
      Session session(transport, automatic(R"(["bf16", "int8"])"));
      add_all(session, gradients);
      for (std::uint64_t s = 0; s < 3; ++s) {
        fill(gradients, transport->rank(), s);
        step(session, gradients);
      }
      statistics = session.statistics();
      link = session.link();
    }
    EXPECT_EQ(statistics.groups[0].codec, "auto: int8") << "computing takes almost no time beside such a link";
    EXPECT_GT(statistics.all().ratio(), 3.5);
    EXPECT_LT(link.inter.bytes_per_second, 2 * 2.5e6);
    EXPECT_GT(link.inter.bytes_per_second, 0);
    EXPECT_GT(link.measured_in_seconds, 0);
  });
}

TEST(AutoCodec, AGivenLinkIsNotMeasured) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    Session session(transport, automatic(R"(["bf16"])", "[link]\nbandwidth = \"1Mbit/s\"\nlatency = \"1ms\""));
    add_all(session, gradients);
    step(session, gradients);
    EXPECT_EQ(session.link().inter.bytes_per_second, 125e3);
    EXPECT_EQ(session.link().inter.latency_seconds, 1e-3);
  });
}

TEST(AutoCodec, AnySessionMeasuresItsLinkWhenAsked) {
  // The link is long: the bytes in flight must not hide its rate of 50e6. A busy machine may hide it for a moment, so
  // the test tries several times; ranks know the same about the link, so they make the same number of tries.
  run_ranks(throttled_world(2, "400Mbit/s,20ms"), [](const std::shared_ptr<Transport>& transport) {
    double seen = 0;
    for (int tries = 0; tries < 10 && (seen < 10e6 || seen > 65e6); ++tries) {
      Session session(transport, Policy());
      seen = session.link().inter.bytes_per_second;
    }
    EXPECT_GT(seen, 10e6) << "it is 3.2e6 with 64 KiB in each round trip";
    EXPECT_LT(seen, 65e6);
  });
  run_ranks(throttled_world(2, "50Mbit/s,2ms"), [](const std::shared_ptr<Transport>& transport) {
    Session session(transport, Policy::uniform("int8"));
    const LinkEstimate link = session.link();
    EXPECT_GE(link.inter.latency_seconds, 2e-3);
    EXPECT_GT(link.inter.bytes_per_second, 0);
    EXPECT_LT(link.inter.bytes_per_second, 2 * 6.25e6);
  });
}

TEST(AutoCodec, TiersAreMeasuredApartAndChosenFor) {
  run_ranks(make_inproc_world(4, {0, 0, 1, 1}), [](const std::shared_ptr<Transport>& transport) {
    Session session(transport, automatic(R"(["bf16", "int8"])", "[tier.intra]\ncodec = \"bf16\"\n"));
    EXPECT_EQ(session.link().ranks_per_node, 2);
    EXPECT_GT(session.link().intra.bytes_per_second, 0);
    EXPECT_GT(session.link().inter.bytes_per_second, 0);
  });
  Policy policy = automatic(R"(["int8"])");
  policy.defaults.algorithm = Algorithm::hierarchical;
  run_ranks(throttled_world(4, "10Mbit/s", {0, 1, 0, 1}), [&](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    Session session(transport, policy);
    add_all(session, gradients);
    fill(gradients, transport->rank(), 5);
    step(session, gradients);
    EXPECT_LT(error_against(gradients, 5, 2.5), 0.02);
    EXPECT_EQ(session.statistics().groups[0].codec, "auto: int8");
    EXPECT_GT(session.statistics().all().bytes_intra, session.statistics().all().bytes_inter)
        << "bf16 inside, int8 between";
  });
}

TEST(Neighbours, AroundTheNodeAndAroundTheNodes) {
  const std::vector<std::uint32_t> nodes{0, 1, 2, 0, 1, 2};
  const exchange::Tiers tiers(nodes, 6);
  EXPECT_EQ(choice::neighbours_inside(tiers, 1).to, 4);
  EXPECT_EQ(choice::neighbours_inside(tiers, 4).from, 1);
  EXPECT_EQ(choice::neighbours_between(tiers, 3).to, 4);
  EXPECT_EQ(choice::neighbours_between(tiers, 3).from, 5);
}

TEST(AutoCodec, AWorldOfOneHasNothingToChoose) {
  run_ranks(1, [](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    Session session(transport, Policy::automatic());
    add_all(session, gradients);
    fill(gradients, 0, 7);
    step(session, gradients);
    EXPECT_EQ(error_against(gradients, 7, 1), 0);
    EXPECT_TRUE(session.statistics().switches.empty());
  });
}

// The peer agrees on the plan with its first sends, and goes silent among those of the calibration.
TEST(AutoCodec, APeerThatStallsDuringCalibrationIsNamed) {
  auto world = make_inproc_world(2);
  world[1] = transport::make_faulty(world[1], {{.kind = transport::Fault::Kind::kill, .rank = 1, .nth = 20}});
  const auto errors = run_ranks_catching(world, [](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    Session session(transport, Policy::automatic(), {.timeout = std::chrono::milliseconds(1000)});
    add_all(session, gradients);
    step(session, gradients);
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      // The error may name either rank, since the silent one hears nothing either and may time out first.
      EXPECT_THAT(e.what(),
                  AllOf(AnyOf(HasSubstr("calibration"), HasSubstr("measurement of the link"), HasSubstr("barrier")),
                        ContainsRegex("waiting for rank(\\(s\\))? [01]")));
    }
  }
}

plan::Plan one_bucket_plan(int world, std::uint64_t count, ErrorFeedback feedback) {
  Policy policy = automatic(R"(["bf16", "int8", "int4", "topk(5%)+int8"])");
  policy.defaults.error_feedback = feedback;
  policy.defaults.algorithm = Algorithm::two_shot;
  return plan::make_plan(policy, {{"w", count, DType::f32}}, {.world_size = world});
}

// The chosen chunk is the unit that travels, and changes no bit of the result.
TEST(AutoCodec, BucketsTravelInTheChunkThatWasChosen) {
  constexpr std::uint64_t kCount = 1ULL << 20;  // bf16 elements: 1 MiB to each rank in each of two hops
  const plan::Plan plan = one_bucket_plan(2, kCount, ErrorFeedback::automatic);
  std::vector<std::vector<float>> results;
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    session::BucketRunner runner(transport, {});
    runner.agree(plan, false, 0, "", "");
    for (const auto& [chunk, messages] : {std::pair(64ULL << 10, 32U), {256ULL << 10, 8U}}) {
      std::vector<float> values(kCount);
      for (std::uint64_t i = 0; i < kCount; ++i) {
        values[i] = gradient_value(0, i, transport->rank(), 0);
      }
      const session::BucketChoice choice{.level = 1, .native = false, .chunk_bytes = chunk};
      const session::TensorMemory memory{view(values.data(), kCount), false};
      const std::uint64_t before = transport->counters().messages_sent;
      runner.start(plan, plan.buckets[0], std::span(&memory, 1), {.choices = std::span(&choice, 1)});
      while (runner.advance(std::chrono::milliseconds(1)).empty()) {
      }
      EXPECT_NEAR(static_cast<double>(transport->counters().messages_sent - before), messages, 2) << chunk;
      if (transport->rank() == 0) {
        results.push_back(values);
      }
    }
  });
  EXPECT_TRUE(results.at(0) == results.at(1));
}

// After any sequence of choices and one exact step, the sum of the results is that of the inputs. Mutation tried: the
// dense level without the residuals that other levels left.
TEST(AutoCodec, SwitchesOfCodecConserveTheSum) {
  constexpr std::uint64_t kCount = 3 * 4096 + 57;
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (const int world : {2, 3}) {
    run_ranks(world, [&](const std::shared_ptr<Transport>& transport) {
      const plan::Plan plan = one_bucket_plan(world, kCount, ErrorFeedback::on);
      session::BucketRunner runner(transport, {.reduction = Reduction::sum});
      runner.agree(plan, false, 0, "", "");
      std::mt19937 random(seed);  // gives the same numbers on every rank
      std::vector<double> wanted(kCount);
      std::vector<double> got(kCount);
      std::vector<float> values(kCount);
      constexpr std::uint32_t kSteps = 40;
      for (std::uint32_t s = 0; s <= kSteps; ++s) {
        for (std::uint64_t i = 0; i < kCount; ++i) {
          for (int rank = 0; rank < world; ++rank) {
            wanted[i] += static_cast<double>(gradient_value(0, i, rank, s));
          }
          values[i] = gradient_value(0, i, transport->rank(), s);
        }
        const session::BucketChoice choice{random() % 5, random() % 2 == 0};
        const session::TensorMemory memory{view(values.data(), kCount), false};
        runner.start(plan, plan.buckets[0], std::span(&memory, 1),
                     {.step = s, .flush = s == kSteps, .choices = std::span(&choice, 1)});
        while (runner.advance(std::chrono::milliseconds(1)).empty()) {
        }
        for (std::uint64_t i = 0; i < kCount; ++i) {
          got[i] += static_cast<double>(values[i]);
        }
      }
      double error = 0;
      double norm = 0;
      for (std::uint64_t i = 0; i < kCount; ++i) {
        error += (got[i] - wanted[i]) * (got[i] - wanted[i]);
        norm += wanted[i] * wanted[i];
      }
      EXPECT_LT(std::sqrt(error / norm), 1e-6);
    });
  }
}

TEST(AutoCodec, EncodersAreSampled) {
  constexpr std::uint64_t kCount = 40 * 4096;
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    const plan::Plan plan = one_bucket_plan(2, kCount, ErrorFeedback::automatic);
    session::BucketRunner runner(transport, {});
    runner.agree(plan, false, 0, "", "");
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::vector<float> values(kCount);
    std::vector<choice::QualitySample> samples;
    for (const std::size_t level : {0, 2, 3, 3, 2}) {
      std::generate(values.begin(), values.end(), [&] { return normal(random); });
      const session::BucketChoice choice{level, false};
      const session::TensorMemory memory{view(values.data(), kCount), false};
      runner.start(plan, plan.buckets[0], std::span(&memory, 1), {.choices = std::span(&choice, 1), .sample = true});
      std::vector<session::Runner::Ended> ended;
      while (ended.empty()) {
        ended = runner.advance(std::chrono::milliseconds(1));
      }
      EXPECT_EQ(ended[0].sample.has_value(), level != 0);
      samples.push_back(ended[0].sample.value_or(choice::QualitySample{}));
    }
    EXPECT_NEAR(samples[1].nmse, 4.8e-5, 1e-5) << "this is the error of int8 on a Gaussian";
    EXPECT_NEAR(samples[2].nmse, 9.3e-3, 1e-3) << "int4";
    EXPECT_EQ(samples[2].residual_ratio, 0) << "int8 keeps nothing";
    EXPECT_NEAR(samples[3].residual_ratio, std::sqrt(9.3e-3 / 2), 0.01) << "int4 left this of the other rank's half";
  });
}

TEST(LinkReports, TheSlowestRankAndTheOneThatWaitedLeast) {
  const LinkReport all = choice::combined({{.step_seconds = 1,
                                            .busy_seconds = 0.5,
                                            .wait_share = 0.9,
                                            .bytes_per_second = 10,
                                            .probed = 0,
                                            .ready_seconds = {0.1, 0.4}},
                                           {.step_seconds = 2,
                                            .busy_seconds = 0.3,
                                            .wait_share = 0.4,
                                            .bytes_per_second = 16,
                                            .probed = 5,
                                            .ready_seconds = {0.2, 0.3}}});
  EXPECT_EQ(all.step_seconds, 2);
  EXPECT_EQ(all.busy_seconds, 0.3);
  EXPECT_EQ(all.wait_share, 0.4);
  EXPECT_EQ(all.bytes_per_second, 16);
  EXPECT_EQ(all.probed, 5);
  EXPECT_THAT(all.ready_seconds, ::testing::ElementsAre(0.2, 0.4));
}

TEST(LinkReports, WhatIsSentIsTheLinkOnlyWhereRanksWaitForIt) {
  const LinkReport waiting{.wait_share = 0.8, .bytes_per_second = 10};
  EXPECT_EQ(choice::bandwidth_after(100, waiting), 10);
  const LinkReport computing{.wait_share = 0.1, .bytes_per_second = 10};
  EXPECT_EQ(choice::bandwidth_after(100, computing), 100) << "codecs were the limit";
  EXPECT_EQ(choice::bandwidth_after(5, computing), 10) << "the link carries at least that much";
  const LinkReport both{.wait_share = 0.5, .bytes_per_second = 10, .probed = 50};
  EXPECT_EQ(choice::bandwidth_after(100, both), 50) << "codecs and link took turns";
  const LinkReport probed{.wait_share = 0.1, .bytes_per_second = 10, .probed = 50};
  EXPECT_EQ(choice::bandwidth_after(100, probed), 50) << "the probe gave this rate";
  EXPECT_EQ(choice::bandwidth_after(100, {.wait_share = 1, .bytes_per_second = 0}), 100) << "no number, no change";
}

}  // namespace
}  // namespace gradwire::test
