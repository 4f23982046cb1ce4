// Gives the same job to all parts that say which rank is slow and why: the ranks' own comparison (observe/slow_ranks),
// the page, `gradwire top`, and the alert rules. They must not disagree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "observe/late_ranks.hpp"
#include "tests/observe/simulated_ranks.hpp"
#include "tests/support/step_share.hpp"
#include "tests/watch/alert_rules.hpp"
#include "watch/history.hpp"
#include "watch/live/view.hpp"
#include "watch/page/summary.hpp"

namespace gradwire::test {
namespace {

namespace live = watch::live;
namespace page = watch::page;
using observe::SlowCause;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::size_t kIntervals = 12;
constexpr std::size_t kVersions = 3;  // number of versions of the files that are kept, the last ones
constexpr unsigned kSeeds = kStepShare == 1 ? 3 : 1;
constexpr std::uint64_t kTick = 16;  // nanoseconds in a unit of an event's duration, with a tick per nanosecond

std::uint64_t ticks(double seconds) { return static_cast<std::uint64_t>(seconds * 1e9); }

/// The slow ranks, and why, such as "2: late_compute".
using Verdict = std::set<std::string>;

std::string verdict_on(int rank, std::string_view cause) { return std::to_string(rank) + ": " + std::string(cause); }

Verdict without_causes(const Verdict& verdict) {
  Verdict ranks;
  for (const std::string& each : verdict) {
    ranks.insert(each.substr(0, each.find(':')));
  }
  return ranks;
}

/// The process of a rank: it keeps events and counts, and writes its files, as in a job.
class Rank {
 public:
  Rank(int rank, int world, bool is_drop_in)
      : rank_(rank), is_drop_in_(is_drop_in), aggregate_([rank, world](observe::SourceId) {
          return std::optional(observe::Source{.rank = rank, .world_size = world});
        }) {
    aggregate_.set_home(rank);
    aggregate_.touch(rank);
  }

  void live_through(const observe::RankSeen& seen, const std::optional<observe::SlowState>& told) {
    for (int i = 0; i < static_cast<int>(seen.steps); ++i) {
      seconds_ += seen.step_seconds;
      exposed_ += seen.wait_seconds;
      is_drop_in_ ? count_call(seen) : end_step(seen);
    }
    if (!is_drop_in_) {
      SessionStatistics statistics;
      statistics.world_size = world();
      statistics.steps = steps_;
      statistics.exposed_seconds = exposed_;
      aggregate_.add({.source = 1, .statistics = statistics, .slow = told});
    }
    before_ = std::move(now_);
    now_ = watch::families(totals(), {}, calls_);
    history_.add(seconds_, totals(), {}, calls_);
    if (++intervals_ + kVersions > kIntervals) {
      versions_.push_back(live::rank_values(live::parse_metrics(watch::to_text(now_, labels())), seconds_));
    }
  }

  [[nodiscard]] page::RankHistory history() const {
    watch::HistoryHead head{.part = part(), .rank = rank_, .host = "here"};
    head.started = 1.7e9;
    head.written = head.started + seconds_;
    head.ended = true;
    return page::parse_history(history_.to_json(head), "gradwire-" + part() + "-rank-" + std::to_string(rank_));
  }
  [[nodiscard]] const std::vector<live::RankValues>& versions() const { return versions_; }
  void add_series(std::vector<PromSeries>& all) const {
    for (std::size_t f = 0; f < now_.size(); ++f) {
      for (std::size_t s = 0; s < now_[f].samples.size(); ++s) {
        const watch::Sample& sample = now_[f].samples[s];
        PromSeries series{.name = now_[f].name, .labels = {{"job", "story"}}, .value = sample.value};
        series.rate = (sample.value - before_.at(f).samples.at(s).value) / last_interval();
        series.labels.insert(sample.labels.begin(), sample.labels.end());
        for (const auto& [name, value] : labels()) {
          series.labels[name] = value;
        }
        all.push_back(series);
      }
    }
  }

 private:
  [[nodiscard]] std::string part() const { return is_drop_in_ ? "mpi" : "library"; }
  [[nodiscard]] watch::Labels labels() const { return {{"part", part()}, {"rank", std::to_string(rank_)}}; }
  [[nodiscard]] const watch::RankTotals& totals() const { return aggregate_.ranks().at(rank_); }
  [[nodiscard]] int world() const { return totals().world_size; }
  [[nodiscard]] double last_interval() const {
    return versions_.back().written - versions_[versions_.size() - 2].written;
  }

  void add_event(observe::EventKind kind, double from, double duration) {
    observe::Event event{.begin = ticks(from), .source = 1};
    event.duration = static_cast<std::uint32_t>(ticks(duration) / kTick);
    event.kind = kind;
    aggregate_.add({&event, 1}, {.nanoseconds_per_tick = 1});
  }
  void end_step(const observe::RankSeen& seen) {
    ++steps_;
    add_event(observe::EventKind::encode, seconds_, seen.codec_seconds_per_byte * seen.bytes_in);
    add_event(observe::EventKind::step_end, seconds_ - seen.wait_seconds, seen.wait_seconds);
  }
  void count_call(const observe::RankSeen& seen) {
    add_event(observe::EventKind::replaced, seconds_ - seen.wait_seconds, seen.wait_seconds);
    calls_.resize(1, {.function = "MPI_Allreduce", .reason = ""});
    ++calls_[0].calls;
    calls_[0].bytes_in += 1000;
    calls_[0].bytes_sent += 250;
    calls_[0].seconds += seen.wait_seconds;
  }

  int rank_;
  bool is_drop_in_;
  watch::Aggregate aggregate_;
  watch::History history_{0.1};
  std::vector<watch::ReplacedCalls> calls_;
  std::vector<watch::Family> before_, now_;
  std::vector<live::RankValues> versions_;
  double seconds_ = 0;
  double exposed_ = 0;
  std::size_t intervals_ = 0;
  std::uint64_t steps_ = 0;
};

/// The findings of all ranks.
struct Opinions {
  Verdict ranks_say;  // their own comparison, whether or not the others hear about it
  Verdict page_says;
  std::vector<std::string> advice;
  Verdict top_says;         // without causes
  Verdict slow_alert_says;  // GradwireRankSlow
  Verdict late_alert_says;  // GradwireRankLate, which knows no causes
};

enum class Kind { compared, not_compared, drop_in };

Opinions ask_all(const std::vector<Rank>& ranks) {
  Opinions say;
  std::vector<page::RankHistory> histories;
  std::vector<PromSeries> series;
  live::RateTracker history;
  live::FolderSnapshot snapshot;
  for (std::size_t i = 0; i < kVersions; ++i) {
    snapshot = {};
    for (const Rank& rank : ranks) {
      snapshot.ranks.push_back(rank.versions()[i]);
      snapshot.time = std::max(snapshot.time, rank.versions()[i].written);
    }
    history.take(snapshot.ranks);
  }
  for (const live::RankRow& row : live::rows_of(snapshot, history)) {
    if (row.state == live::RankState::slow) {
      say.top_says.insert(std::to_string(row.now.name.second));
    }
  }
  for (const Rank& rank : ranks) {
    histories.push_back(rank.history());
    rank.add_series(series);
  }
  const page::Summary summary = page::summarize(page::newest_job(std::move(histories), {}, "/tmp"));
  for (const page::RankSummary& row : summary.ranks) {
    if (row.is_slow()) {
      say.page_says.insert(verdict_on(row.rank, row.cause));
    }
  }
  say.advice = page::advice(summary);
  for (const PromElement& each : firing("GradwireRankSlow", series)) {
    say.slow_alert_says.insert(each.labels.at("rank") + ": " + each.labels.at("cause"));
  }
  for (const PromElement& each : firing("GradwireRankLate", series)) {
    say.late_alert_says.insert(each.labels.at("rank"));
  }
  return say;
}

Opinions tell(const std::vector<observe::test::SimulatedRank>& planted, unsigned seed, Kind kind) {
  const int world = static_cast<int>(planted.size());
  std::vector<Rank> ranks;
  for (int rank = 0; rank < world; ++rank) {
    ranks.emplace_back(rank, world, kind == Kind::drop_in);
  }
  observe::test::SimulatedJob job(planted, seed);
  observe::SlowWatch watch;
  for (std::size_t i = 0; i < kIntervals; ++i) {
    const std::vector<observe::RankSeen> seen = job.run(30);
    const std::vector<observe::Diagnosis> found = observe::diagnose(seen);
    static_cast<void>(watch.update(found));
    for (int rank = 0; rank < world; ++rank) {
      const auto place = static_cast<std::size_t>(rank);
      const observe::SlowState state{.cause = watch.cause(rank), .latest = found[place], .comparisons = i + 1};
      ranks[place].live_through(seen[place], kind == Kind::compared ? std::optional(state) : std::nullopt);
    }
  }
  Opinions say = ask_all(ranks);
  for (int rank = 0; rank < world; ++rank) {
    if (watch.cause(rank) != SlowCause::none) {
      say.ranks_say.insert(verdict_on(rank, to_string(watch.cause(rank))));
    }
  }
  return say;
}

std::vector<observe::test::SimulatedRank> healthy(int world) {
  std::vector<observe::test::SimulatedRank> ranks(static_cast<std::size_t>(world));
  for (observe::test::SimulatedRank& rank : ranks) {
    rank.out = rank.in = 56 * 1024 * 16.0 * (world - 1) / 2e-3;
  }
  return ranks;
}

std::vector<observe::test::SimulatedRank> with(int world, int slow, SlowCause cause) {
  std::vector<observe::test::SimulatedRank> ranks = healthy(world);
  observe::test::SimulatedRank& rank = ranks[static_cast<std::size_t>(slow)];
  const double link = 56 * 1024 * 16.0 * (world - 1) / 20e-3;
  switch (cause) {
    case SlowCause::late_compute: rank.compute += 20e-3; break;
    case SlowCause::slow_link_out: rank.out = link; break;
    case SlowCause::slow_link_in: rank.in = link; break;
    case SlowCause::slow_encoding: rank.encode += 20e-3 / 8; break;
    case SlowCause::cores_shared: rank.delayed += 20e-3; break;
    case SlowCause::paused: rank.pause = 2; break;
    default: break;
  }
  return ranks;
}

class SlowStories : public ::testing::TestWithParam<int> {
 protected:
  template <typename Check>
  void each_story(Kind kind, Check&& check) const {
    for (int cause = 0; cause < observe::kSlowCauses; ++cause) {
      for (unsigned seed = 0; seed < kSeeds; ++seed) {
        SCOPED_TRACE(std::string(to_string(static_cast<SlowCause>(cause))) + ", seed " + std::to_string(seed));
        const int slow = static_cast<int>(seed) % GetParam();
        check(tell(with(GetParam(), slow, static_cast<SlowCause>(cause)), seed, kind), static_cast<SlowCause>(cause));
      }
    }
  }
};

TEST_P(SlowStories, OfRanksThatCompareThemselvesAllSayWhatTheseSay) {
  each_story(Kind::compared, [](const Opinions& say, SlowCause cause) {
    EXPECT_EQ(say.ranks_say.size(), cause == SlowCause::none ? 0U : 1U);
    EXPECT_EQ(say.page_says, say.ranks_say);
    EXPECT_EQ(say.top_says, without_causes(say.ranks_say));
    EXPECT_EQ(say.slow_alert_says, say.ranks_say);
    EXPECT_THAT(say.late_alert_says, IsEmpty());
  });
}

// Ranks are not compared, as with GRADWIRE_SLOW=off. From outside, a rank that was stopped or had no core seems to
// compute longer; a slow link and slow encoding delay all ranks equally.
TEST_P(SlowStories, OfOtherRanksAllSayTheSameAndNobodyIsNamedWhomThoseWouldNotName) {
  int named = 0;
  each_story(Kind::not_compared, [&](const Opinions& say, SlowCause cause) {
    EXPECT_EQ(without_causes(say.page_says), say.top_says);
    EXPECT_EQ(say.late_alert_says, say.top_says);
    EXPECT_THAT(say.slow_alert_says, IsEmpty());
    if (!say.top_says.empty()) {
      ++named;
      EXPECT_EQ(say.top_says, without_causes(say.ranks_say));
      EXPECT_THAT(*say.page_says.begin(), HasSubstr("late_compute"));
    }
    if (cause == SlowCause::late_compute) {
      EXPECT_EQ(say.page_says, say.ranks_say);
    }
  });
  EXPECT_GE(named, 2 * static_cast<int>(kSeeds)) << "late compute and pauses at least";
}

TEST_P(SlowStories, OfADropInAllNameTheSameRankAndNobodyACause) {
  each_story(Kind::drop_in, [](const Opinions& say, SlowCause cause) {
    EXPECT_EQ(without_causes(say.page_says), say.top_says);
    EXPECT_EQ(say.late_alert_says, say.top_says);
    EXPECT_THAT(say.slow_alert_says, IsEmpty());
    if (cause == SlowCause::late_compute) {
      ASSERT_EQ(say.page_says.size(), 1U);
      EXPECT_EQ(without_causes(say.page_says), without_causes(say.ranks_say));
      EXPECT_THAT(*say.page_says.begin(), HasSubstr("unknown"));
      ASSERT_FALSE(say.advice.empty());
      EXPECT_THAT(say.advice[0], HasSubstr("of the time for rank "));
      EXPECT_THAT(say.advice[0], HasSubstr("the numbers do not say why"));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, SlowStories, ::testing::Values(2, 4, 7));

// Expects the same verdict for any shares; `told` has the comparison's results for some of the ranks, unless it is
// empty.
void expect_same(const std::vector<double>& exposed, const std::vector<std::optional<bool>>& told = {}) {
  std::vector<live::RankRow> rows(exposed.size());
  std::vector<PromSeries> series;
  page::Summary summary;
  summary.has_steps = true;
  for (std::size_t i = 0; i < exposed.size(); ++i) {
    const PromLabels labels{{"job", "a"}, {"part", "library"}, {"rank", std::to_string(i)}};
    rows[i].rates.exposed = exposed[i];
    series.push_back({.name = "gradwire_exposed_seconds_total", .labels = labels, .rate = exposed[i]});
    summary.ranks.push_back({.rank = static_cast<int>(i), .host = {}, .state = {}, .split = {}, .cause = {}});
    summary.ranks.back().exposed_share = exposed[i];
    if (i < told.size() && told[i]) {
      rows[i].now.slow = *told[i];
      summary.ranks.back().is_judged = true;
      summary.ranks.back().slow_share = *told[i] ? 1 : 0;
      summary.ranks.back().cause = *told[i] ? "paused" : "";
      PromLabels slow = labels;
      slow["cause"] = "paused";
      series.push_back({.name = "gradwire_rank_slow", .labels = slow, .value = *told[i] ? 1.0 : 0.0});
    }
  }
  live::mark_slow(rows);
  page::find_slow_ranks(summary);
  Verdict top, page, alerts;
  for (std::size_t i = 0; i < exposed.size(); ++i) {
    if (rows[i].state == live::RankState::slow) {
      top.insert(std::to_string(i));
    }
    if (summary.ranks[i].is_slow()) {
      page.insert(std::to_string(i));
    }
  }
  for (const char* alert : {"GradwireRankLate", "GradwireRankSlow"}) {
    for (const PromElement& each : firing(alert, series)) {
      alerts.insert(each.labels.at("rank"));
    }
  }
  EXPECT_EQ(top, page);
  EXPECT_EQ(top, alerts);
}

TEST(SlowStoriesOfShares, TopPageAndAlertsNameTheSameRanksOnManySeeds) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::vector<double> exposed(1 + seed % 9);
    for (double& each : exposed) {
      each = std::uniform_real_distribution<>(0, 0.5)(random);
    }
    std::vector<std::optional<bool>> told(seed % 4 == 0 ? exposed.size() / 2 : 0);
    for (std::optional<bool>& each : told) {
      each = random() % 2 == 0;
    }
    expect_same(exposed, told);
  }
  expect_same({0, 0.2, 0.9});
  expect_same({0.1, 0.1, 0.5});
  expect_same({0.1, 0.1, 0.4, 0.4});
  expect_same({0.3, 0.3, 0.3});
}

TEST(SlowStoriesOfShares, APartIsComparedWithItself) {
  const std::vector<observe::RankFromOutside> ranks{{.exposed = 0.1, .part = "library"},
                                                    {.exposed = 0.1, .part = "library"},
                                                    {.exposed = 0.6, .part = "mpi"},
                                                    {.exposed = 0.3, .part = "mpi"}};
  std::vector<bool> slow;
  for (const observe::WaitedFor& each : observe::waited_for(ranks)) {
    slow.push_back(each.is_slow);
  }
  EXPECT_THAT(slow, ElementsAre(false, false, false, true));
}

}  // namespace
}  // namespace gradwire::test
