// Tests the page of all ranks of a process.
#include "watch/metrics_page.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace gradwire::watch {
namespace {

Aggregate of_ranks(int ranks) {
  Aggregate aggregate([](observe::SourceId id) {
    return std::optional(observe::Source{.rank = id - 1, .world_size = 4, .shares_process = true});
  });
  for (int rank = 0; rank < ranks; ++rank) {
    SessionStatistics statistics;
    statistics.steps = 10U + static_cast<std::uint64_t>(rank);
    statistics.groups.resize(2);
    aggregate.add({.source = static_cast<observe::SourceId>(rank + 1), .statistics = statistics});
    const observe::Event wait{
        .source = static_cast<std::uint64_t>(rank + 1), .duration = 1000, .kind = observe::EventKind::wait};
    aggregate.add(std::span(&wait, 1), {.nanoseconds_per_tick = 1});
  }
  return aggregate;
}

TEST(Page, OfOneRankIsItsFile) {
  const Aggregate aggregate = of_ranks(1);
  const ReaderState reader{.recorded = 7};
  const std::vector<ReplacedCalls> calls{{"MPI_Allreduce", "too \"small\"", 3, 300, 100, 0.5}};
  EXPECT_EQ(to_text(page_of(aggregate, reader, calls, "mpi"), {}),
            to_text(families(aggregate.ranks().at(0), reader, calls), {{"part", "mpi"}, {"rank", "0"}}));
}

TEST(Page, HasEachFamilyOnceWithTheSamplesOfAllRanks) {
  std::map<std::string, int> seen;
  for (const Family& family : page_of(of_ranks(3), {}, {}, "library")) {
    EXPECT_EQ(++seen[family.name], 1) << family.name;
    if (family.name == "gradwire_steps_total") {
      ASSERT_EQ(family.samples.size(), 3U);
      EXPECT_EQ(family.samples[2].value, 12);
      EXPECT_EQ(family.samples[2].labels, (Labels{{"part", "library"}, {"rank", "2"}}));
    }
  }
  EXPECT_EQ(seen.count("gradwire_steps_total"), 1U);
}

// The unpacked page is the original text.
TEST(Page, IsTheSameInPlainC) {
  const std::vector<Family> page = page_of(of_ranks(2), {}, {}, "library");
  std::vector<Family> back;
  hand_over(page, &back, [](void* to, const PlainFamily* plain) noexcept {
    Family family{plain->name, plain->help, static_cast<MetricType>(plain->type)};
    for (const PlainSample& sample : std::span(plain->samples, plain->sample_count)) {
      Labels labels;
      for (const PlainLabel& label : std::span(sample.labels, sample.label_count)) {
        labels.emplace_back(label.name, label.value);
      }
      if (family.type != MetricType::histogram) {
        family.samples.push_back({labels, sample.value});
        continue;
      }
      ASSERT_EQ(sample.bound_count, Histogram::kBounds);
      Histogram histogram(sample.bounds[0]);
      std::uint64_t before = 0;
      for (std::size_t i = 0; i < sample.bound_count; ++i) {
        for (std::uint64_t n = before; n < sample.below[i]; ++n) {
          histogram.add(sample.bounds[i]);
        }
        before = sample.below[i];
      }
      EXPECT_EQ(histogram.count(), sample.count) << "nothing lay above the bounds";
      family.histograms.push_back({labels, histogram});
    }
    static_cast<std::vector<Family>*>(to)->push_back(std::move(family));
  });
  // The sums of histograms were invented.
  const auto without_sums = [](const std::string& text) {
    std::string kept;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      const std::string line = text.substr(at, end - at + 1);
      kept += line.find("_sum{") == std::string::npos ? line : "";
      at = end + 1;
    }
    return kept;
  };
  EXPECT_EQ(without_sums(to_text(back, {})), without_sums(to_text(page, {})));
}

}  // namespace
}  // namespace gradwire::watch
