// Tests the inputs of gradwire top: files of metrics, as src/watch writes them and damaged ones; rates from two
// versions of a file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/error_of.hpp"
#include "support/scratch_folder.hpp"
#include "watch/aggregate.hpp"
#include "watch/live/folder_reader.hpp"
#include "watch/live/prometheus_text.hpp"
#include "watch/live/snapshot.hpp"
#include "watch/textfile.hpp"

namespace gradwire::watch::live {
namespace {

using gradwire::test::error_of;
using gradwire::test::ScratchFolder;
using observe::EventKind;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Returns the totals of a rank after `steps` steps of a tenth of a second, a quarter of which is exposed.
watch::RankTotals totals(int steps) {
  watch::RankTotals rank;
  rank.world_size = 4;
  SessionStatistics statistics;
  statistics.steps = static_cast<std::uint64_t>(steps);
  const auto add_group = [&](const std::string& codec, std::uint64_t bytes) {
    SessionStatistics::Group group;
    group.name = "of \"" + codec + "\"\\\n";
    group.codec = codec;
    group.totals.calls = statistics.steps;
    group.totals.bytes_in = 2 * bytes * statistics.steps;
    group.totals.bytes_intra = bytes * statistics.steps;
    group.totals.bytes_inter = 3 * bytes * statistics.steps;
    group.totals.bytes_sent = 4 * bytes * statistics.steps;
    group.totals.bytes_uncompressed = 16 * bytes * statistics.steps;
    statistics.groups.push_back(group);
  };
  add_group("exact", 1000);
  add_group("auto: int4 2, int8 1", 2000);
  rank.gone = statistics;
  for (int i = 0; i < steps; ++i) {
    rank.seconds[EventKind::step_end].add(0.025);
    if (i > 0) {
      rank.steps.add(0.1);
    }
  }
  rank.events[EventKind::error] = 2;
  return rank;
}

std::vector<watch::Family> families_of(int steps, bool ended = false,
                                       std::span<const watch::ReplacedCalls> replaced = {}) {
  watch::ReaderState reader;
  reader.recorded = 100 + static_cast<std::uint64_t>(steps);
  reader.dropped = 7;
  reader.ended = ended;
  return watch::families(totals(steps), reader, replaced);
}

std::string text_of(int steps, int rank = 3, bool ended = false) {
  return watch::to_text(families_of(steps, ended), {{"part", "library"}, {"rank", std::to_string(rank)}});
}

RankValues values_of(int steps, double written, bool ended = false) {
  return rank_values(parse_metrics(text_of(steps, 3, ended)), written);
}

TEST(TopText, ReadsWhatTheProductWrites) {
  std::vector<watch::Family> families = families_of(5);
  families.push_back({"gradwire_odd",
                      "Odd \\ and\nlines.",
                      watch::MetricType::gauge,
                      {{{{"value", "not a number"}}, std::nan("")},
                       {{{"value", "above"}}, std::numeric_limits<double>::infinity()},
                       {{{"value", "below"}}, -std::numeric_limits<double>::infinity()},
                       {{{"value", "}\" 1,{\\n"}}, -1.25e-300}}});
  const std::vector<TextSample> samples = parse_metrics(watch::to_text(families, {{"rank", "3"}}));
  std::size_t at = 0;
  for (const watch::Family& family : families) {
    for (const watch::Sample& sample : family.samples) {
      ASSERT_LT(at, samples.size());
      watch::Labels labels{{"rank", "3"}};
      labels.insert(labels.end(), sample.labels.begin(), sample.labels.end());
      EXPECT_EQ(samples[at].name, family.name);
      EXPECT_EQ(samples[at].labels, labels);
      EXPECT_TRUE(samples[at].value == sample.value || (std::isnan(samples[at].value) && std::isnan(sample.value)));
      ++at;
    }
    for (const watch::HistogramSample& sample : family.histograms) {
      at += watch::Histogram::kBounds + 1;
      ASSERT_LT(at + 1, samples.size());
      EXPECT_EQ(samples[at].name, family.name + "_sum");
      EXPECT_EQ(samples[at++].value, sample.histogram.sum());
      EXPECT_EQ(samples[at++].value, static_cast<double>(sample.histogram.count()));
    }
  }
  EXPECT_EQ(at, samples.size());
}

TEST(TopText, NamesTheLineOfAMistake) {
  for (const auto& [text, what] : std::vector<std::pair<std::string, std::string>>{
           {"", "line 0: the text ends without # EOF"},
           {"a 1\n", "line 1: the text ends without # EOF"},
           {"a 1\n# EOF\nb 1\n", "line 3: nothing may follow # EOF"},
           {"a 1\n1a 2\n# EOF\n", "line 2: \"1a 2\" is not a metric's name"},
           {"a\n# EOF\n", "line 1: a blank and a number must follow a"},
           {"a one\n# EOF\n", "line 1: \"one\" is no number"},
           {"a 1 2\n# EOF\n", "line 1: \"1 2\" is no number"},
           {"a{b=1} 1\n# EOF\n", "line 1: =\"...\" must follow the label b"},
           {"a{b=\"1\"c=\"2\"} 1\n# EOF\n", "line 1: \",\" or \"}\" must follow a label"},
           {"a{b=\"1} 1\n# EOF\n", "line 1: the value of the label b does not end"},
           {"a{b=\"1\\", "line 1: the value of the label b does not end"},
           {"a{b=\"\\t\"} 1\n# EOF\n", "line 1: an escape of the label b is none of"},
           {"a{,} 1\n# EOF\n", "is not a label's name"}}) {
    EXPECT_THAT(error_of([&whole = text] { (void)parse_metrics(whole); }).what(), HasSubstr(what)) << text;
  }
}

// A damaged file is read or refused with an Error.
TEST(TopText, DamagedTextsAreReadOrRefused) {
  const std::string whole = text_of(3);
  int refused = 0;
  for (std::size_t i = 0; i < whole.size(); i += 41) {
    for (const char c : {'\0', '"', '{', '\n', '\\', '9'}) {
      std::string text = whole;
      text[i] = c;
      try {
        (void)rank_values(parse_metrics(text), 1);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        ++refused;
      }
    }
    EXPECT_THROW((void)parse_metrics(std::string_view(whole).substr(0, i)), Error) << i;
  }
  EXPECT_GT(refused, 100);
}

TEST(TopText, KnowsARankByItsMetrics) {
  const RankValues rank = values_of(11, 50);
  EXPECT_EQ(rank.name, RankName("library", 3));
  EXPECT_EQ(rank.world_size, 4);
  EXPECT_FALSE(rank.ended);
  EXPECT_TRUE(values_of(11, 50, true).ended);
  EXPECT_EQ(rank.codec, "auto:int4,exact");
  EXPECT_FALSE(rank.slow);
  const RankCounters& counters = rank.counters;
  EXPECT_EQ(counters.events, 111);
  EXPECT_EQ(counters.steps, 10);
  EXPECT_DOUBLE_EQ(counters.step_seconds, 1.0);
  EXPECT_EQ(counters.waits, 11);
  EXPECT_DOUBLE_EQ(counters.exposed_seconds, 0.275);
  EXPECT_EQ(counters.steps_published, 11);
  EXPECT_EQ(counters.calls, 22);
  EXPECT_EQ(counters.bytes_intra, 11 * 3000);
  EXPECT_EQ(counters.bytes_inter, 11 * 9000);
  EXPECT_EQ(counters.bytes_sent, 11 * 12000);
  EXPECT_EQ(counters.bytes_uncompressed, 11 * 48000);
  EXPECT_EQ(counters.errors, 2);
  EXPECT_EQ(counters.dropped, 7);
}

TEST(TopText, KnowsAnEmulatedLink) {
  EXPECT_EQ(values_of(11, 50).emulated_link, "");
  ::setenv("GRADWIRE_EMULATED_LINK", "1Gbit/s,5ms", 1);
  EXPECT_EQ(values_of(11, 50).emulated_link, "1Gbit/s,5ms");
  ::unsetenv("GRADWIRE_EMULATED_LINK");
}

TEST(TopText, RefusesWhatIsNoFileOfARank) {
  const auto refusal = [](const std::string& text) {
    return std::string(error_of([&] { (void)rank_values(parse_metrics(text), 1); }).what());
  };
  EXPECT_THAT(refusal("# EOF\n"), HasSubstr("there is no metric in it"));
  EXPECT_THAT(refusal("node_load1 0.5\n# EOF\n"),
              HasSubstr("node_load1 has not the labels part, rank and gradwire_job"));
  EXPECT_THAT(refusal("a{rank=\"1\"} 0\nb{rank=\"2\"} 0\n# EOF\n"), HasSubstr("b has not the labels"));
  EXPECT_THAT(refusal("a{rank=\"-1\"} 0\n# EOF\n"), HasSubstr("the label rank is \"-1\", which is no rank"));
  EXPECT_THAT(refusal("gradwire_steps_total{rank=\"1\"} -1\n# EOF\n"),
              HasSubstr("gradwire_steps_total counts, and is below 0 or not finite"));
  EXPECT_THAT(refusal("gradwire_steps_total{rank=\"1\"} NaN\n# EOF\n"), HasSubstr("not finite"));
}

TEST(TopRates, AreOfTheTimeBetweenTwoVersions) {
  const RankValues before = values_of(11, 100);
  const Rates rates = rates_between(&before, values_of(61, 105));
  EXPECT_EQ(rates.seconds, 5);
  EXPECT_NEAR(rates.steps.value(), 10, 1e-9);
  EXPECT_NEAR(rates.exposed.value(), 0.25, 1e-9);
  EXPECT_NEAR(rates.intra.value(), 30000, 1e-6);
  EXPECT_NEAR(rates.inter.value(), 90000, 1e-6);
  EXPECT_NEAR(rates.sent.value(), 120000, 1e-6);
  EXPECT_NEAR(rates.ratio.value(), 4, 1e-9);
  EXPECT_FALSE(rates.calls) << "only drop-ins have calls";
}

TEST(TopRates, AreMeansOfTheJobWhereThereIsOneVersion) {
  const Rates rates = rates_between(nullptr, values_of(61, 105));
  EXPECT_EQ(rates.seconds, 0);
  EXPECT_NEAR(rates.steps.value(), 10, 1e-9);
  EXPECT_NEAR(rates.exposed.value(), 0.25, 1e-9);
  EXPECT_NEAR(rates.inter.value(), 90000, 1e-6);
  EXPECT_NEAR(rates.ratio.value(), 4, 1e-9);
}

TEST(TopRates, AreNeverNegativeWhenAnotherJobReplacesTheFiles) {
  const RankValues before = values_of(61, 100);
  const RankValues fresh = values_of(5, 105);
  EXPECT_TRUE(is_another_job(before, fresh));
  EXPECT_TRUE(is_another_job(values_of(5, 100, true), values_of(6, 105))) << "the earlier job had ended";
  EXPECT_FALSE(is_another_job(before, values_of(61, 105)));
  for (const RankValues& now : {fresh, values_of(1, 105), values_of(61, 100), values_of(61, 99)}) {
    const Rates rates = rates_between(&before, now);
    EXPECT_EQ(rates.seconds, 0) << "means of the new job";
    for (const auto& rate : {rates.steps, rates.exposed, rates.sent, rates.intra, rates.inter, rates.ratio}) {
      EXPECT_GE(rate.value_or(0), 0);
    }
  }
  RankValues all = before;
  for (const auto counter : kCounters) {
    all.counters.*counter += 1;
  }
  for (const auto counter : kCounters) {
    RankValues now = all;
    EXPECT_FALSE(is_another_job(all, now));
    now.counters.*counter -= 1;
    EXPECT_TRUE(is_another_job(all, now)) << "each of these values shows it";
  }
  RateTracker history;
  history.take(std::vector<RankValues>{before});
  history.take(std::vector<RankValues>{fresh});
  EXPECT_EQ(history.rates(fresh.name).seconds, 0);
  history.take(std::vector<RankValues>{values_of(15, 110)});
  EXPECT_NEAR(history.rates(fresh.name).intra.value(), 3000 * 10 / 5.0, 1e-6);
}

TEST(TopRates, OfADropInAreByCalls) {
  const auto at = [](std::uint64_t calls, double written) {
    const std::vector<watch::ReplacedCalls> replaced{{.function = "MPI_Allreduce",
                                                      .reason = "",
                                                      .calls = calls,
                                                      .bytes_in = 8000,
                                                      .bytes_sent = 500 * calls,
                                                      .seconds = 0.01 * static_cast<double>(calls)}};
    return rank_values(
        parse_metrics(watch::to_text(watch::families(watch::RankTotals(), watch::ReaderState(), replaced),
                                     {{"part", "mpi"}, {"rank", "0"}})),
        written);
  };
  const RankValues before = at(100, 10);
  const Rates rates = rates_between(&before, at(300, 15));
  EXPECT_NEAR(rates.calls.value(), 40, 1e-9);
  EXPECT_NEAR(rates.exposed.value(), 0.4, 1e-9);
  EXPECT_NEAR(rates.sent.value(), 20000, 1e-6);
  EXPECT_FALSE(rates.steps);
  EXPECT_FALSE(rates.intra);
  EXPECT_FALSE(rates.ratio);
  EXPECT_FALSE(rates_between(nullptr, before).sent) << "the start of the counts is unknown";
}

TEST(TopRates, ReachBackToTheLastStepAndTellAStall) {
  RateTracker history;
  const RankName rank = values_of(1, 0).name;
  const auto take = [&](int steps, double written) {
    history.take(std::vector<RankValues>{values_of(steps, written)});
  };
  take(10, 100);
  take(20, 105);
  take(20, 105);  // looked at again
  EXPECT_EQ(history.rates(rank).seconds, 5);
  take(20, 110);
  EXPECT_FALSE(history.is_stalled(rank));
  EXPECT_EQ(history.rates(rank).seconds, 10) << "no step ended since 105";
  EXPECT_NEAR(history.rates(rank).steps.value(), 10, 1e-9);
  take(20, 115);
  EXPECT_TRUE(history.is_stalled(rank)) << "10 s without a step of 0.1 s";
  EXPECT_EQ(history.rates(rank).steps, 0.0);
  EXPECT_FALSE(history.rates(rank).exposed);
  EXPECT_EQ(history.rates(rank).sent, 0.0);
  take(21, 120);
  EXPECT_FALSE(history.is_stalled(rank));
  history.take({});
  EXPECT_FALSE(history.rates(rank).steps) << "its file is gone";
}

TEST(TopFolder, NamesAFileThatItSkipsAndReadsTheOthers) {
  const ScratchFolder folder;
  FolderReader reader(folder.path());
  EXPECT_THAT(reader.read().problem, HasSubstr("no rank has written its metrics to " + folder.path().string() +
                                               " yet; start the job with GRADWIRE_METRICS=file:"));
  const auto write = [&](const std::string& name, const std::string& text) {
    watch::write_whole(folder.path(), name, text);
  };
  write(watch::file_name("library", 0), text_of(5, 0));
  const std::string whole = text_of(5, 1);
  write(watch::file_name("library", 1), whole.substr(0, whole.find("gradwire_world_size{") + 30));
  write(watch::file_name("library", 2), text_of(5, 0));
  write("node.prom", "broken");
  std::filesystem::create_directory(folder.path() / watch::file_name("library", 4));
  FolderSnapshot snapshot = reader.read();
  EXPECT_EQ(snapshot.problem, "");
  ASSERT_EQ(snapshot.ranks.size(), 1U);
  EXPECT_EQ(snapshot.ranks[0].counters.steps_published, 5);
  EXPECT_NEAR(snapshot.ranks[0].written, snapshot.time, 5);
  ASSERT_EQ(snapshot.skipped.size(), 3U);
  EXPECT_EQ(snapshot.skipped[0].name, "gradwire-library-rank-1.prom");
  EXPECT_THAT(snapshot.skipped[0].reason, HasSubstr("line 6: "));
  EXPECT_THAT(snapshot.skipped[1].reason, HasSubstr("of the same rank as gradwire-library-rank-0.prom"));
  EXPECT_THAT(snapshot.skipped[2].reason, HasSubstr("gradwire-library-rank-4.prom"));

  write(watch::file_name("library", 0), text_of(8, 0));
  write(watch::file_name("library", 1), text_of(9, 1));
  std::filesystem::remove(folder.path() / watch::file_name("library", 2));
  snapshot = reader.read();
  ASSERT_EQ(snapshot.ranks.size(), 2U);
  EXPECT_EQ(snapshot.ranks[0].counters.steps_published, 8);
  EXPECT_EQ(snapshot.ranks[1].counters.steps_published, 9);
}

TEST(TopFolder, LeavesOutWhatALargerJobLeftThere) {
  const ScratchFolder folder;
  const auto write = [&](int rank, int world, int seconds_ago) {
    std::string text = text_of(5, rank);
    const std::string line = "gradwire_world_size{part=\"library\",rank=\"" + std::to_string(rank) + "\"} ";
    const std::size_t at = text.find(line + "4");
    ASSERT_NE(at, std::string::npos) << text;
    text.replace(at, line.size() + 1, line + std::to_string(world));
    const std::string name = watch::file_name("library", rank);
    watch::write_whole(folder.path(), name, text);
    std::filesystem::last_write_time(folder.path() / name,
                                     std::filesystem::file_time_type::clock::now() - std::chrono::seconds(seconds_ago));
  };
  for (int rank = 0; rank < 4; ++rank) {
    write(rank, 4, rank < 2 ? 1 : 60);
  }
  EXPECT_EQ(FolderReader(folder.path()).read().ranks.size(), 4U) << "two of four fell silent";
  for (int rank = 0; rank < 2; ++rank) {
    write(rank, 2, 1);
  }
  const FolderSnapshot snapshot = FolderReader(folder.path()).read();
  EXPECT_EQ(snapshot.ranks.size(), 2U);
  ASSERT_EQ(snapshot.skipped.size(), 2U);
  EXPECT_THAT(snapshot.skipped[0].reason, HasSubstr("an earlier job of 4 ranks left it; this one has 2"));
}

RankValues of_job(const std::string& job, double written, bool ended) {
  RankValues values = values_of(11, written, ended);
  values.job = job;
  return values;
}

// Mutation tried: the job that wrote last is shown, which changes all the time where two jobs run.
TEST(TopJobs, ShowsTheOneThatRunsAndStaysWithIt) {
  const FolderSnapshot folder{.time = 100,
                              .ranks = {of_job("a", 98, false), of_job("b", 97, false), of_job("c", 99, true)},
                              .skipped = {},
                              .problem = ""};
  const auto shown = [](FolderSnapshot snapshot, const std::optional<std::string>& named,
                        const std::optional<std::string>& before) {
    choose_job(snapshot, named, before);
    EXPECT_EQ(snapshot.other_jobs.size(), 2U);
    for (const RankValues& rank : snapshot.ranks) {
      EXPECT_EQ(rank.job, snapshot.job);
    }
    return snapshot;
  };
  EXPECT_EQ(shown(folder, std::nullopt, std::nullopt).job, "a") << "the last to write among those that run";
  EXPECT_EQ(shown(folder, std::nullopt, "b").job, "b") << "it was shown before";
  EXPECT_EQ(shown(folder, std::nullopt, "c").job, "a") << "that one is over";
  EXPECT_EQ(shown(folder, "c", "a").job, "c");
  EXPECT_EQ(next_job(shown(folder, "a", "a")), "b");
  EXPECT_EQ(next_job(shown(folder, "c", "a")), "a");
  FolderSnapshot none = folder;
  choose_job(none, "d", std::nullopt);
  EXPECT_EQ(none.problem, "no rank of the job d has written its metrics here");
  EXPECT_TRUE(none.ranks.empty());
  FolderSnapshot over{.time = 1000, .ranks = folder.ranks, .skipped = {}, .problem = ""};
  choose_job(over, std::nullopt, "b");
  EXPECT_EQ(over.job, "b") << "no job runs";
}

TEST(TopFolder, ReadsRanksOfSeveralJobs) {
  const ScratchFolder folder;
  for (const char* job : {"a", "b"}) {
    const Labels labels = labels_of_rank("library", 0, job);
    watch::write_whole(folder.path(), watch::file_name("library", 0, job),
                       to_text(families(RankTotals(), ReaderState(), {}), labels));
  }
  watch::write_whole(folder.path(), watch::file_name("library", 0), text_of(5, 0));
  const FolderSnapshot snapshot = FolderReader(folder.path()).read();
  EXPECT_TRUE(snapshot.skipped.empty()) << snapshot.skipped[0].reason;
  ASSERT_EQ(snapshot.ranks.size(), 3U);
  EXPECT_EQ(snapshot.ranks[0].job, "a");
  EXPECT_EQ(snapshot.ranks[1].job, "b");
  EXPECT_EQ(snapshot.ranks[2].job, "") << "the file of an earlier version";
}

TEST(TopFolder, SaysWhatIsMissing) {
  const ScratchFolder folder;
  EXPECT_THAT(FolderReader(folder.path() / "none").read().problem,
              AllOf(HasSubstr("none is not there"), HasSubstr("GRADWIRE_METRICS=file:" + folder.file("none"))));
  watch::write_whole(folder.path(), "file", "");
  EXPECT_THAT(FolderReader(folder.path() / "file").read().problem, HasSubstr("file is no directory"));
}

}  // namespace
}  // namespace gradwire::watch::live
