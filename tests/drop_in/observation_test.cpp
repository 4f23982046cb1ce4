// Tests the forecasts of an observing job, with scripted times, so that the correct results are known. Mutations tried:
// a fit gives all sizes the same weight, so late ranks bend it; a gain in shared memory is reported for overlapping
// work; classes with too few sizes are reported anyway.
#include "drop_in/observation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "drop_in/calls.hpp"
#include "drop_in/ledger.hpp"
#include "drop_in/value_sample.hpp"
#include "gradwire/policy.hpp"

namespace gradwire::drop_in {
namespace {

plan::CallPlanner planner_of(const std::string& text) {
  return plan::CallPlanner(Policy::parse("version = 1\n" + text));
}

ObservedClass observed_class(std::uint64_t bytes, int ranks, Function function = Function::mpi_allreduce) {
  return {.function = function, .dtype = DType::f32, .size = size_class(bytes), .communicator_size = ranks};
}

// Seconds per byte of values, as for this machine's int8.
constexpr double kEncode = 1.2e-10;
constexpr double kDecode = 0.9e-10;
constexpr double kRatio = 3.9;

SampledValues sampled() {
  constexpr double kSampleBytes = 1 << 20;
  return {.samples = 1,
          .bytes = kSampleBytes,
          .frame_bytes = kSampleBytes / kRatio,
          .encode_seconds = kEncode * kSampleBytes,
          .decode_seconds = kDecode * kSampleBytes,
          .elements = 1000,
          .zeroed = 20,
          .squared_error = 1e-4,
          .squared_norm = 1,
          .small_squared_error = 0.01,
          .small_squared_norm = 0.5};
}

struct Link {
  double latency = 0;
  double rate = 0;
};
constexpr Link kGigabit{.latency = 150e-6, .rate = 117e6};
constexpr Link kMemory{.latency = 4e-6, .rate = 3e9};

// Returns the library's time for an all-reduce: twice around a ring.
double passed_seconds(const Link& link, double bytes, int ranks) {
  return link.latency + 2 * (ranks - 1.0) / ranks * bytes / link.rate;
}

// Returns the time of two_shot: chunk after chunk is encoded, sent, added, encoded, sent and decoded; a core does one
// thing at a time, and so does the link.
double compressed_seconds(const Link& link, double bytes, int ranks) {
  const double chunk = std::min(bytes / ranks / 4, 56.0 * 1024 * kRatio);
  const int lanes = static_cast<int>(std::ceil(bytes / ranks / chunk));
  const double others = ranks - 1;
  double core = 0;
  double wire = link.latency;
  std::vector<double> arrived;
  for (int lane = 0; lane < lanes; ++lane) {
    core += others * chunk * kEncode;
    wire = std::max(wire, core + link.latency / 2) + others * chunk / kRatio / link.rate;
    arrived.push_back(wire);
  }
  std::vector<double> back;
  for (int lane = 0; lane < lanes; ++lane) {
    core = std::max(core, arrived[static_cast<std::size_t>(lane)]) + others * chunk * kDecode + chunk * kEncode;
    wire = std::max(wire, core) + others * chunk / kRatio / link.rate;
    back.push_back(wire);
  }
  for (int lane = 0; lane < lanes; ++lane) {
    core = std::max(core, back[static_cast<std::size_t>(lane)]) + ranks * chunk * kDecode;
  }
  return core;
}

// Returns the observation of a job's calls with such sizes; `disturb` turns each time into the one that a rank sees.
template <class Disturb>
Observed job(const Link& link, int ranks, const std::vector<double>& sizes, Disturb disturb) {
  const plan::CallPlanner planner = planner_of("[defaults]\ncodec = \"int8\"\n");
  Observation observation(planner);
  for (int call = 0; call < 60; ++call) {
    for (const double bytes : sizes) {
      observation.note(observed_class(static_cast<std::uint64_t>(bytes), ranks), static_cast<std::uint64_t>(bytes),
                       disturb(passed_seconds(link, bytes, ranks)));
    }
  }
  Observed observed = observation.observed();
  for (auto& [what, totals] : observed.classes) {
    if (!totals.codec.empty()) {
      totals.sampled = sampled();
    }
  }
  return observed;
}

std::vector<double> sizes_of_a_model() { return {64, 4096, 256e3, 1e6, 4.2e6, 16.8e6, 67e6}; }

double exactly(double seconds) { return seconds; }

TEST(Forecast, AtOneGigabitIsCloseToWhatIsThenTaken) {
  std::mt19937 random(1);  // NOLINT(cert-msc51-cpp)
  const auto disturbed = [&](double seconds) {
    std::uniform_real_distribution<double> noise(0.97, 1.1);
    std::uniform_int_distribution<int> late(0, 9);
    return seconds * noise(random) + (late(random) < 4 ? 0.02 : 0);  // some ranks come late
  };
  for (const int ranks : {2, 4, 8}) {
    for (const bool noisy : {false, true}) {
      const Observed observed = noisy ? job(kGigabit, ranks, sizes_of_a_model(), disturbed)
                                      : job(kGigabit, ranks, sizes_of_a_model(), exactly);
      const Forecast forecast = forecast_of(observed);
      ASSERT_EQ(forecast.classes.size(), 5U) << "only classes above the floor count";
      EXPECT_GT(forecast.saved_seconds.value_or(0), 0);
      EXPECT_GT(forecast.classes.front().bytes, 60e6) << "the class with the most bytes comes first";
      for (const ForecastClass& one : forecast.classes) {
        const double wanted = compressed_seconds(kGigabit, one.bytes, ranks);
        ASSERT_TRUE(one.compressed_seconds) << ranks << " ranks, " << one.bytes;
        EXPECT_NEAR(*one.compressed_seconds, wanted, 0.25 * wanted) << ranks << " ranks, " << one.bytes;
        EXPECT_GT(one.saved_seconds.value_or(0), 0) << ranks << " ranks, " << one.bytes;
      }
    }
  }
}

TEST(Forecast, PromisesNothingInSharedMemory) {
  for (const int ranks : {2, 4, 8}) {
    Observed observed = job(kMemory, ranks, sizes_of_a_model(), exactly);
    EXPECT_LE(forecast_of(observed).saved_seconds.value_or(0), 0) << "the hosts are not known";
    // Eight ranks share two cores: the library's calls take long because of the cores, not of a link.
    observed = job({.latency = 5e-5, .rate = 3e8}, ranks, sizes_of_a_model(), exactly);
    observed.hosts = {{"host", {.ranks = ranks, .cores = 2}}};
    const Forecast forecast = forecast_of(observed);
    EXPECT_EQ(forecast.saved_seconds, 0.0);
    for (const ForecastClass& one : forecast.classes) {
      EXPECT_EQ(one.saved_seconds, 0.0);
    }
  }
}

TEST(Forecast, KnowsHostsOfTheWholeJobAlone) {
  Observed observed = job({.latency = 20e-6, .rate = 2e9}, 8, sizes_of_a_model(), exactly);
  observed.hosts = {{"one", {.ranks = 4, .cores = 4}}, {"other", {.ranks = 4, .cores = 4}}};
  EXPECT_GT(forecast_of(observed).saved_seconds.value_or(0), 0) << "a fast link between two hosts";
  observed.hosts["other"].ranks = 12;
  EXPECT_LE(forecast_of(observed).saved_seconds.value_or(0), 0) << "eight of sixteen ranks may share a host";
}

TEST(Forecast, SaysNothingOfTimesThatFitNoLine) {
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp)
  std::lognormal_distribution<double> size_of_noise(0, 1.5);
  std::map<double, double> factors;
  const Observed observed = job(kGigabit, 4, sizes_of_a_model(), [&](double seconds) {
    return seconds * factors.try_emplace(seconds, size_of_noise(random)).first->second;
  });
  const Forecast forecast = forecast_of(observed);
  EXPECT_FALSE(forecast.saved_seconds);
  for (const ForecastClass& one : forecast.classes) {
    EXPECT_FALSE(one.saved_seconds || one.compressed_seconds);
    EXPECT_NEAR(one.ratio.value_or(0), kRatio, 1e-9) << "samples give the ratio";
  }
}

TEST(Forecast, SaysNothingOfTwoSizes) {
  EXPECT_FALSE(forecast_of(job(kGigabit, 4, {1e6, 16e6}, exactly)).saved_seconds);
  EXPECT_FALSE(forecast_of(job(kGigabit, 4, {1e6, 1.3e6, 1.7e6}, exactly)).saved_seconds) << "too close together";
  EXPECT_TRUE(forecast_of(job(kGigabit, 4, {64, 1e6, 16e6}, exactly)).saved_seconds);
}

TEST(Forecast, OneClassThatIsOffDoesNotBendTheOthers) {
  const double off = passed_seconds(kGigabit, 1e6, 4);
  const Observed observed =
      job(kGigabit, 4, sizes_of_a_model(), [&](double seconds) { return seconds == off ? 3 * seconds : seconds; });
  int known = 0;
  for (const ForecastClass& one : forecast_of(observed).classes) {
    if (!one.compressed_seconds) {
      EXPECT_NEAR(one.bytes, 1e6, 1) << "the line says nothing about this one";
      continue;
    }
    ++known;
    const double wanted = compressed_seconds(kGigabit, one.bytes, 4);
    EXPECT_NEAR(*one.compressed_seconds, wanted, 0.25 * wanted) << one.bytes;
  }
  EXPECT_EQ(known, 4);
}

// Seconds of the library at 1 Gbit/s. A link lets small messages through at once, so the line through all sizes has no
// latency. A compressed call is no quicker than the library is for as few bytes.
TEST(Forecast, PromisesNoShortCallThatWasNotSeen) {
  const std::map<double, double> took{{32768, 340e-6},    {131072, 1000e-6},  {262144, 2175e-6},   {524288, 4570e-6},
                                      {1048576, 8886e-6}, {2097152, 17.9e-3}, {16777216, 143.4e-3}};
  for (const bool saw_small_ones : {true, false}) {
    std::vector<double> sizes;
    std::map<double, double> of_link;
    for (const auto& [bytes, seconds] : took) {
      if (bytes > 32768 || saw_small_ones) {
        sizes.push_back(bytes);
      }
      of_link[passed_seconds(kGigabit, bytes, 2)] = seconds;
    }
    const Observed observed = job(kGigabit, 2, sizes, [&](double seconds) { return of_link.at(seconds); });
    int known = 0;
    for (const ForecastClass& one : forecast_of(observed).classes) {
      known += one.compressed_seconds ? 1 : 0;
      if (one.bytes < 200e3 && saw_small_ones) {
        EXPECT_GE(one.compressed_seconds.value_or(0), 339e-6) << "what 32 KiB take";
      } else if (one.bytes < 200e3) {
        EXPECT_FALSE(one.compressed_seconds) << "no call of 32 KiB was observed";
      }
    }
    EXPECT_EQ(known, saw_small_ones ? 6 : 5);
  }
}

// Real frames represent the link if there are few sizes, and if the fit would be wrong.
TEST(Forecast, GoesByRealMessagesWhereThereAreSome) {
  constexpr double kSampleBytes = 16e6;
  Observed observed = job(kGigabit, 2, {kSampleBytes}, exactly);
  ASSERT_FALSE(forecast_of(observed).saved_seconds);
  const double frames = kSampleBytes / kRatio;
  observed.classes.begin()->second.transfer = {.dense_bytes = kSampleBytes,
                                               .dense_seconds = passed_seconds(kGigabit, kSampleBytes, 2),
                                               .frame_bytes = frames,
                                               .frame_seconds = kGigabit.latency + frames / kGigabit.rate};
  const Forecast forecast = forecast_of(observed);
  const double wanted = compressed_seconds(kGigabit, kSampleBytes, 2);
  EXPECT_NEAR(forecast.classes.at(0).compressed_seconds.value_or(0), wanted, 0.25 * wanted);
  EXPECT_GT(forecast.saved_seconds.value_or(0), 0);
}

TEST(Forecast, ReduceScattersSendOnce) {
  Observed observed;
  const double bytes = 16e6;
  for (const double size : {1e3, 1e6, bytes}) {
    ObservedTotals& totals =
        observed.classes[observed_class(static_cast<std::uint64_t>(size), 4, Function::mpi_reduce_scatter_block)];
    totals.sizes[0] = {
        .calls = 10, .bytes = 10 * size, .seconds = 1, .quick_seconds = kGigabit.latency + 0.75 * size / kGigabit.rate};
    totals.codec = size > 1e5 ? "int8" : "";
    totals.sampled = sampled();
  }
  const Forecast forecast = forecast_of(observed);
  ASSERT_EQ(forecast.classes.size(), 2U);
  const double wire = 0.75 * bytes / kRatio / kGigabit.rate;
  EXPECT_NEAR(forecast.classes[0].compressed_seconds.value_or(0), wire, 0.1 * wire);
}

TEST(Observed, TravelsAndAddsUp) {
  Observed one = job(kGigabit, 4, sizes_of_a_model(), exactly);
  const Observed other =
      job({.latency = 2 * kGigabit.latency, .rate = kGigabit.rate / 2}, 4, sizes_of_a_model(), exactly);
  Ledger ledger;
  ledger.add_observed(one);
  Ledger told;
  told.add_observed(other);
  ledger.merge(told.to_text());
  const Observed both = ledger.observed();
  ASSERT_EQ(both.classes.size(), one.classes.size());
  EXPECT_EQ(both.hosts.size(), 1U);
  EXPECT_EQ(both.hosts.begin()->second.ranks, 2);
  for (const auto& [what, totals] : both.classes) {
    const ObservedTotals& first = one.classes.at(what);
    EXPECT_EQ(totals.calls(), 2 * first.calls());
    EXPECT_EQ(totals.codec, first.codec);
    for (std::size_t i = 0; i < totals.sizes.size(); ++i) {
      EXPECT_EQ(totals.sizes[i].quick_seconds, first.sizes[i].quick_seconds) << "the rank that waited least counts";
    }
    EXPECT_EQ(totals.sampled.samples, 2 * first.sampled.samples);
  }
  const auto report = nlohmann::json::parse(report_json({.world_size = 2}, ledger));
  EXPECT_EQ(report.at("forecast").at("classes").size(), 5U);
  EXPECT_TRUE(nlohmann::json::parse(report_json({}, Ledger())).at("forecast").is_null());
}

TEST(Observed, TheSummaryNamesTheCommandAndTheForecast) {
  Ledger ledger;
  ledger.add({.function = Function::mpi_allreduce, .reason = Reason::observing}, {.calls = 60, .bytes_in = 1 << 20});
  const ReportHead head{.world_size = 2};
  EXPECT_EQ(report_summary(head, ledger),
            "0 of 60 calls compressed; main reason: observed: no codec was named; to "
            "compress: gradwire run --codec auto -- ...");
  ledger.add_observed(job(kGigabit, 2, sizes_of_a_model(), exactly));
  EXPECT_NE(report_summary(head, ledger).find("; forecast: gradwire run --codec auto -- ... would save "),
            std::string::npos)
      << report_summary(head, ledger);
}

TEST(Observation, AsksForSamplesOnlyOfWhatWouldBeCompressedAndSeldom) {
  const plan::CallPlanner planner = planner_of("[defaults]\ncodec = \"auto\"\n");
  Observation observation(planner);
  const ObservedClass large = observed_class(4 << 20, 4);
  const ObservedClass small = observed_class(1 << 10, 4);
  EXPECT_FALSE(observation.wants_sample(large)) << "the class has no note yet";
  const std::vector<float> values(1 << 20, 0.5F);
  const auto begin = Observation::Clock::now();
  int samples = 0;
  int calls = 0;
  while (std::chrono::duration<double>(Observation::Clock::now() - begin).count() < 0.3) {
    observation.note(large, 4 << 20, 0.01);
    observation.note(small, 1 << 10, 0.0001);
    EXPECT_FALSE(observation.wants_sample(small));
    ++calls;
    if (observation.wants_sample(large)) {
      observation.sample(large, view(values.data(), values.size()));
      EXPECT_FALSE(observation.wants_sample(large)) << "the next sample comes later";
      ++samples;
    }
  }
  EXPECT_GT(samples, 0);
  EXPECT_LT(samples, 24);
  EXPECT_GT(calls, 100);
  const ObservedTotals totals = observation.observed().classes.at(large);
  EXPECT_EQ(totals.codec, "int8") << "of the allowed codecs, the one that sends least counts";
  EXPECT_EQ(totals.sampled.samples, static_cast<std::uint64_t>(samples));
  EXPECT_LE(totals.sampled.bytes, samples * static_cast<double>(kMostSampledBytes));
  EXPECT_GT(observation.cost_seconds(), 0);
}

TEST(Observation, CountsCallsByQuartersOfAClassAndForgetsNone) {
  const plan::CallPlanner planner = planner_of("");
  Observation observation(planner);
  for (const std::uint64_t bytes : {1U << 20, 5U << 18, 6U << 18, 7U << 18}) {
    for (int call = 0; call < 100; ++call) {
      observation.note(observed_class(bytes, 2), bytes, 1e-3);
    }
  }
  const Observed observed = observation.observed();
  ASSERT_EQ(observed.classes.size(), 1U);
  for (const ObservedTotals::Size& size : observed.classes.begin()->second.sizes) {
    EXPECT_EQ(size.calls, 100U);
    EXPECT_NEAR(size.seconds, 0.1, 1e-9);
    EXPECT_NEAR(size.quick_seconds, 1e-3, 1e-6);
  }
}

// Calls take a microsecond, a million per second: one note stands for many, and the two sizes that take turns both
// count.
TEST(Observation, CostsLittleWhereCallsAreShort) {
  const plan::CallPlanner planner = planner_of("");
  Observation observation(planner);
  const auto begin = Observation::Clock::now();
  std::uint64_t calls = 0;
  while (std::chrono::duration<double>(Observation::Clock::now() - begin).count() < 0.5) {
    ++calls;
    observation.note(observed_class(4096, 2), 4096, 1e-6);
  }
  EXPECT_LT(observation.cost_seconds(), 0.01 * 0.5);
  EXPECT_NEAR(static_cast<double>(observation.observed().classes.begin()->second.calls()), static_cast<double>(calls),
              4096);
}

// A look takes a microsecond: it is made at one of many short calls, and at every long one.
TEST(Observation, LooksAtFewOfShortCallsAndStandsForAll) {
  const plan::CallPlanner planner = planner_of("");
  Observation observation(planner);
  for (const double call_seconds : {4e-6, 1e-3}) {
    std::uint64_t since = 0;
    std::uint64_t left = 0;
    std::uint64_t looks = 0;
    constexpr std::uint64_t kCalls = 100000;
    const auto bytes = static_cast<std::uint64_t>(call_seconds * 1e9);
    for (std::uint64_t call = 0; call < kCalls; ++call) {
      ++since;
      if (left > 0) {
        --left;
        continue;
      }
      ++looks;
      observation.note_for(observed_class(bytes, 2), bytes, call_seconds, std::exchange(since, 0));
      left = observation.next_look(call + 1, 1e-6, call_seconds);
    }
    EXPECT_LE(static_cast<double>(looks) * 1e-6, 0.003 * static_cast<double>(kCalls) * call_seconds);
    EXPECT_GE(static_cast<double>(looks), std::min<double>(kCalls, 0.001 * kCalls * call_seconds / 1e-6));
    const Observed observed = observation.observed();
    const auto& totals = observed.classes.at(observed_class(bytes, 2));
    EXPECT_NEAR(static_cast<double>(totals.calls()), kCalls, 1024);
    EXPECT_NEAR(totals.sizes.at(0).seconds + totals.sizes.at(1).seconds + totals.sizes.at(2).seconds +
                    totals.sizes.at(3).seconds,
                static_cast<double>(totals.calls()) * call_seconds, 1e-6);
  }
}

// Otherwise every look of every rank would delay all other ranks.
TEST(Observation, RanksLookAtTheSameCallsOrAtSomeOfThem) {
  const plan::CallPlanner planner = planner_of("");
  const auto looks_at = [&](double cost) {
    Observation observation(planner);
    std::set<std::uint64_t> looks;
    std::uint64_t call = 1;
    for (; call < 100000; call += 1 + observation.next_look(call, cost, 1e-5)) {
      looks.insert(call);
    }
    return looks;
  };
  const std::set<std::uint64_t> often = looks_at(0.9e-7);  // every eighth call, with the clock
  EXPECT_EQ(often, looks_at(0.8e-7));
  EXPECT_NEAR(static_cast<double>(often.size()), 12500, 1250);
  for (const double cost : {1.9e-7, 1e-6, 5e-6}) {
    std::set<std::uint64_t> seldom = looks_at(cost);
    EXPECT_LT(seldom.size(), often.size());
    EXPECT_GT(seldom.size(), 200U);
    seldom.erase(1);  // the first call of a kind, wherever it is
    EXPECT_TRUE(std::includes(often.begin(), often.end(), seldom.begin(), seldom.end())) << cost;
  }
}

TEST(Observation, NamesTheClassesOfMostBytesForRealMessages) {
  const plan::CallPlanner planner = planner_of("[defaults]\ncodec = \"int8\"\n");
  Observation observation(planner);
  const std::vector<float> values(1 << 16, 0.5F);
  for (const std::uint64_t bytes : {1U << 10, 1U << 18, 1U << 24, 1U << 20}) {
    observation.note(observed_class(bytes, 4), bytes, 1e-3);
    observation.sample(observed_class(bytes, 4), view(values.data(), values.size()));
  }
  const std::vector<Observation::Candidate> largest = observation.largest(2);
  ASSERT_EQ(largest.size(), 2U);
  EXPECT_EQ(largest[0].what, observed_class(1 << 24, 4));
  EXPECT_EQ(largest[0].bytes, 1U << 24);
  EXPECT_NEAR(static_cast<double>(largest[0].frame_bytes), 1.5 * (1 << 24) / 3.97, 1e5) << "two hops of 3 in 4 parts";
  EXPECT_EQ(largest[1].what, observed_class(1 << 20, 4));
}

TEST(Observation, BoundsItsClasses) {
  const plan::CallPlanner planner = planner_of("");
  Observation observation(planner);
  for (int ranks = 2; ranks < 1000; ++ranks) {
    observation.note(observed_class(1 << 20, ranks), 1 << 20, 1e-3);
  }
  EXPECT_EQ(observation.observed().classes.size(), Observation::kMostClasses);
}

}  // namespace
}  // namespace gradwire::drop_in
