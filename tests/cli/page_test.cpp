// Tests the page of a job: numbers, escaped text, size, and the contents that a folder may have instead of a job.
#include <gmock/gmock.h>

#include <random>

#include "cli/page_support.hpp"
#include "gradwire/error.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

PlannedJob one_slow() {
  return {.rank = [](int rank) {
    return rank == 2 ? PlannedRank{.compute = 0.045, .wait = 0.001} : PlannedRank{.compute = 0.025, .wait = 0.02};
  }};
}

TEST(PageUnits, ShowThreeDigits) {
  using page::shown;
  using page::Unit;
  EXPECT_EQ(shown(Unit::count, 1234567), "1,234,567");
  EXPECT_EQ(shown(Unit::count, 12), "12");
  EXPECT_EQ(shown(Unit::seconds, 0.0123), "12.3 ms");
  EXPECT_EQ(shown(Unit::seconds, 0.99999), "1.00 s");
  EXPECT_EQ(shown(Unit::seconds, 125), "2 min 5 s");
  EXPECT_EQ(shown(Unit::seconds, 7260), "2 h 1 min");
  EXPECT_EQ(shown(Unit::bytes, 1.59e6), "1.59 MB");
  EXPECT_EQ(shown(Unit::bytes, 999), "999 B");
  EXPECT_EQ(shown(Unit::bits, 30e6), "240 Mbit/s");
  EXPECT_EQ(shown(Unit::share, 0.31), "31%");
  EXPECT_EQ(shown(Unit::share, 0.0012), "0.12%");
  EXPECT_EQ(shown(Unit::share, 0), "0%");
  EXPECT_EQ(shown(Unit::factor, 3.965), "3.96");
  EXPECT_EQ(shown(Unit::seconds, std::nan("")), "-");
  EXPECT_EQ(shown(Unit::share, -1), "-");
}

TEST(PageSummary, IsWhatWasPlanted) {
  const page::Summary summary = summary_of(planned_job(one_slow()));
  EXPECT_NEAR(summary.seconds, 50, 1e-9);
  EXPECT_EQ(summary.steps, 1000);
  EXPECT_NEAR(summary.split.step, 0.05, 1e-9);
  EXPECT_NEAR(summary.split.compute, 0.03, 1e-9);
  EXPECT_NEAR(summary.split.exposed, 0.02, 1e-9);
  EXPECT_NEAR(summary.exposed_share(), 0.4, 1e-9);
  EXPECT_NEAR(summary.ranks[2].wait_share, 0.02, 1e-9);
  EXPECT_NEAR(summary.bytes_sent, 4e9, 1);
  EXPECT_NEAR(summary.ratio(), 4, 1e-9);
  EXPECT_NEAR(summary.bytes_sent_a_step, 1e6, 1e-3);
  ASSERT_EQ(summary.groups.size(), 1U);
  EXPECT_EQ(summary.groups[0].calls, 1000);
  ASSERT_EQ(summary.times.size(), 50U);
  for (std::size_t i = 0; i < summary.times.size(); ++i) {
    EXPECT_NEAR(summary.bands.at("step").median[i], 0.05, 1e-9);
    EXPECT_NEAR(summary.bands.at("wait_share").low[i], 0.02, 1e-9);
    EXPECT_NEAR(summary.bands.at("wait_share").high[i], 0.4, 1e-9);
    EXPECT_NEAR(summary.means.at("compute")[i], 0.03, 1e-9);
    EXPECT_NEAR(summary.bands.at("sending_rate").median[i], 1e9, 1);
    EXPECT_NEAR(summary.bands.at("ratio").median[i], 4, 1e-9);
  }
  EXPECT_EQ(summary.step_numbers.back(), 1000);
}

TEST(PageOfAJob, ShowsTheNumbersOfTheJsonAndNothingElse) {
  page::Job job = planned_job(one_slow());
  job.ranks[0].replaced.push_back({"MPI_Allreduce", "below the floor", 3, 400, 300, 300, 0.1});
  job.ranks[1].gauges["gradwire_relative_error_ratio default, int8"].assign(128, 0.01);
  job.ranks[1].groups[0].columns["nonfinite_frames"].assign(128, 2);
  const page::Summary summary = summary_of(job);
  const auto report = page::to_json(summary);
  const std::string html = page::to_html(report);
  EXPECT_GT(shown_numbers(html).size(), 50U);
  EXPECT_THAT(differences(html, report), IsEmpty());
  EXPECT_THAT(broken_anchors(html), IsEmpty());
  for (const char* part : {"<b data-n=\"/totals/split/step\" data-u=s>50.0 ms</b>", "NaN or Inf", "below the floor",
                           "relative error", "slow</span>: computes longer", "prefers-color-scheme:dark"}) {
    EXPECT_THAT(html, HasSubstr(part));
  }
  for (const char* outside : {"http://", "https://", "<script", "@import", "url("}) {
    EXPECT_THAT(html, Not(HasSubstr(outside))) << "the page needs no other file";
  }
  // The test would notice a difference.
  std::string other = html;
  other.replace(other.find("50.0 ms</b>"), 4, "50.1");
  EXPECT_THAT(differences(other, report), ElementsAre(HasSubstr("/totals/split/step")));
}

// Tried by hand, red: bytes of compressed calls alone, whose ratio is 3.96.
TEST(PageOfAJob, OfADropInCountsTheBytesOfAllCalls) {
  page::Job job = planned_job({.ranks = 2});
  for (page::RankHistory& rank : job.ranks) {
    rank.part = "mpi";
    rank.groups.clear();
    for (auto& [name, values] : rank.columns) {
      values.assign(values.size(), 0);
    }
    rank.columns["compressed_bytes_sent"].back() = 1e6;
    rank.columns["compressed_bytes_dense"].back() = 3.96e6;
    rank.columns["passed_bytes_sent"].back() = 99e6;
    rank.replaced = {{"MPI_Allreduce", "", 16, 2e6, 1e6, 3.96e6, 1},
                     {"MPI_Bcast", "no sum", 3584, 99e6, 99e6, 99e6, 2}};
  }
  const auto report = page::to_json(summary_of(job));
  const auto& totals = report.at("totals");
  EXPECT_EQ(totals.at("calls"), 7200);
  EXPECT_EQ(totals.at("compressed_calls"), 32);
  EXPECT_EQ(totals.at("bytes_sent"), 200e6);
  EXPECT_NEAR(totals.at("ratio").get<double>(), 102.96 / 100, 1e-9);
  EXPECT_NEAR(report.at("curves").at("ranks").at("ratio").at("median").back().get<double>(), 102.96 / 100, 1e-9);
  const std::string html = page::to_html(report);
  EXPECT_THAT(html, HasSubstr("<b data-n=\"/totals/compressed_calls\" data-u=n>32</b><span>of <i class=v "
                              "data-n=\"/totals/calls\" data-u=n>7,200</i> calls were compressed</span>"));
  EXPECT_THAT(differences(html, report), IsEmpty());
}

TEST(PageOfAJob, SharesReachToAllAndTermsHaveTooltips) {
  page::Job job = planned_job(one_slow());
  job.ranks[0].messages = {{.up_to = 65536, .count = 10, .bytes = 4e5, .seconds = 1e-3},
                           {.up_to = std::numeric_limits<double>::infinity(), .count = 1, .bytes = 4e9, .seconds = 4}};
  job.ranks[1].messages = {{.up_to = 65536, .count = 10, .bytes = 4e5, .seconds = 3e-3}};
  const auto report = page::to_json(summary_of(job));
  const std::string html = page::to_html(report);
  const std::size_t share = html.find("<b>Exposed share</b>");
  EXPECT_THAT(html.substr(share, html.find("</figure>", share) - share), HasSubstr(">100%</text>"));
  EXPECT_THAT(html, HasSubstr(">time since the start</text>"));
  EXPECT_THAT(html, HasSubstr("<th scope=col class=n><abbr title=\"uncompressed bytes over sent bytes\">ratio</abbr>"));
  ASSERT_EQ(report.at("messages").size(), 2U);
  EXPECT_NEAR(report.at("messages").at(0).at("rate").get<double>(), 8e5 / 4e-3, 1);
  EXPECT_THAT(html, HasSubstr("<th scope=row class=n>to 64 KiB</th>"));
  EXPECT_THAT(html, HasSubstr("<th scope=row class=n>more</th>"));
  EXPECT_THAT(differences(html, report), IsEmpty());
}

TEST(PageOfAJob, TextFromFilesIsMadeSafe) {
  const std::string evil = "<script>alert(1)</script>\"'&";
  page::Job job = planned_job(one_slow());
  for (page::RankHistory& rank : job.ranks) {
    rank.host = rank.transport = rank.version = evil + std::to_string(rank.rank);
    rank.command = {evil};
    rank.environment = {{evil, evil}};
    rank.groups[0].name = rank.groups[0].algorithm = rank.groups[0].sync = rank.groups[0].codec = evil;
    rank.codecs = {evil};
    rank.causes = {"", evil};
    rank.columns["slow"].assign(128, 1);
    rank.replaced.push_back({evil, evil, 1, 1, 1, 1, 1});
    rank.switches.push_back({1, evil, evil, 1, evil});
    rank.gauges[evil].assign(128, 1);
  }
  job.notes.push_back(evil);
  const std::string html = page::to_html(page::to_json(summary_of(job)));
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("\"'&")));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;"));
}

TEST(PageOfAJob, ItsTitleIsCutBetweenCharacters) {
  page::Summary summary = summary_of(planned_job(one_slow()));
  summary.command = {std::string(79, 'a') + "\xc3\xa9"};
  EXPECT_THAT(page::to_html(page::to_json(summary)),
              HasSubstr("<title>" + std::string(79, 'a') + " - gradwire report"));
}

TEST(PageOfAJob, OfAThousandRanksIsSmall) {
  const PlannedJob plan{.ranks = 1024, .steps = 100'000, .samples = 128, .rank = [](int rank) {
                          return rank == 700 ? PlannedRank{.step = 0.1, .compute = 0.09, .wait = 0.001}
                                             : PlannedRank{.step = 0.1, .compute = 0.06, .wait = 0.03};
                        }};
  const auto report = page::to_json(summary_of(planned_job(plan)));
  const std::string html = page::to_html(report);
  EXPECT_LT(html.size(), 5'000'000U);
  EXPECT_THAT(report.at("advice").dump(), HasSubstr("for rank 700, which computes longer"));
  EXPECT_THAT(html, HasSubstr("All 1024 ranks"));
  EXPECT_THAT(html, HasSubstr("The 16 ranks that the others wait for most"));
  const std::size_t worst = html.find("The 16 ranks");
  EXPECT_LT(html.find("<th scope=row class=n>700</th>", worst), html.find("<th scope=row class=n>0</th>", worst));
  EXPECT_THAT(differences(html, report), IsEmpty());
}

TEST(PageOfAJob, OfOneShortSampleHasNoNonsense) {
  PlannedJob plan{.steps = 3, .samples = 2};
  page::Job job = planned_job(plan);
  for (page::RankHistory& rank : job.ranks) {
    rank.time = {0, 0};
  }
  const auto report = page::to_json(summary_of(job));
  const std::string html = page::to_html(report);
  EXPECT_THAT(html, Not(HasSubstr("nan")));
  EXPECT_THAT(html, Not(HasSubstr("inf\"")));
  EXPECT_THAT(differences(html, report), IsEmpty());
}

// A history that the library wrote is read unchanged.
TEST(Histories, AreReadAsTheyAreWritten) {
  watch::RankTotals totals;
  totals.world_size = 3;
  SessionStatistics session;
  session.steps = 9;
  session.transport = "tcp";
  SessionStatistics::Group group;
  group.name = "rule 1";
  group.codec = "auto: int8 3";
  group.totals.squared_error = 1;
  group.totals.squared_norm = 4;
  session.groups.push_back(group);
  session.switches.push_back({5, "dense", "int8", 3, "why"});
  totals.sessions[1] = session;
  watch::History history(1);
  history.add(0, totals, {}, {});
  history.add(1, totals, {}, std::vector<watch::ReplacedCalls>{{"f", "r", 1, 2, 3, 4, 5}});
  const page::RankHistory read =
      page::parse_history(history.to_json({.rank = 2, .host = "h", .command = {"a", "b"}, .started = 7}), "x.history");
  EXPECT_EQ(read.rank, 2);
  EXPECT_EQ(read.world, 3);
  EXPECT_EQ(read.transport, "tcp");
  EXPECT_EQ(read.host, "h");
  EXPECT_THAT(read.command, ElementsAre("a", "b"));
  EXPECT_EQ(read.last("steps"), 9);
  EXPECT_EQ(read.groups.at(0).codec, "auto");
  EXPECT_EQ(read.codecs.at(static_cast<std::size_t>(read.groups[0].in_use[1])), "auto: int8 3");
  EXPECT_EQ(read.switches.at(0).reason, "why");
  EXPECT_EQ(read.replaced.at(0).bytes_dense, 5);
  ASSERT_EQ(read.gauges.size(), 1U);
  EXPECT_EQ(read.gauges.begin()->first, "gradwire_relative_error_ratio rule 1, auto");
  EXPECT_EQ(read.gauges.begin()->second.back(), 0.5);
}

TEST(Histories, WhatIsNoneIsNamed) {
  const ScratchFolder folder;
  const auto said = [&](const std::filesystem::path& path) {
    return std::string(error_of([&] { static_cast<void>(page::read_job(path)); }).what());
  };
  EXPECT_THAT(said(folder.path() / "nowhere"), HasSubstr("nowhere is not there"));
  std::ofstream(folder.path() / "file") << "x";
  EXPECT_THAT(said(folder.path() / "file"), HasSubstr("file is no directory"));
  EXPECT_THAT(said(folder.path()),
              HasSubstr("holds no history of a rank; start the job with GRADWIRE_REPORT=" + folder.path().string()));
  std::ofstream(folder.path() / "gradwire-library-rank-0.history") << "{\"format\":\"grad";
  EXPECT_THAT(said(folder.path()), HasSubstr("gradwire-library-rank-0.history is cut off or damaged at byte 16"));
}

TEST(Histories, ADamagedOneOfManyIsLeftOutAndNamed) {
  const ScratchFolder folder;
  write_histories(planned_job(one_slow()), folder.path());
  const std::string whole = read_text(folder.path() / "gradwire-library-rank-1.history");
  std::ofstream(folder.path() / "gradwire-library-rank-1.history") << whole.substr(0, whole.size() / 2);
  const page::Job job = page::read_job(folder.path());
  EXPECT_EQ(job.ranks.size(), 3U);
  EXPECT_THAT(job.notes, ElementsAre(HasSubstr("gradwire-library-rank-1.history is cut off"),
                                     HasSubstr("rank 1 of 4 left no history here")));
  const auto told = [&](const char* from, const char* to) {
    std::string changed = whole;
    changed.replace(changed.find(from), std::string(from).size(), to);
    return std::string(error_of([&] { static_cast<void>(page::parse_history(changed, "r.history")); }).what());
  };
  EXPECT_THAT(told("gradwire history", "other"), HasSubstr("r.history is no history of a rank: it has another format"));
  EXPECT_THAT(told("\"version\":1", "\"version\":9"), HasSubstr("it is of version 9"));
  EXPECT_THAT(told("\"time\":[0.0,", "\"time\":["), HasSubstr("differ in length"));
  EXPECT_THAT(told("\"time\":[0.0,", "\"time\":[9e9,"), HasSubstr("its times do not rise"));
  EXPECT_THAT(told("\"rank\":1", "\"rank\":-1"), HasSubstr("its rank is -1"));
  EXPECT_THAT(told("\"world\"", "\"word\""), HasSubstr("world"));
}

// A damaged file is either refused by its name or shown; it has no other effect.
TEST(Histories, DamageNeverDoesMore) {
  page::RankHistory small = planned_history({.samples = 6}, 1);
  small.gauges["gradwire_nmse default"].assign(6, 0.1);
  small.replaced.push_back({"MPI_Bcast", "not a sum", 1, 2, 3, 4, 5});
  const std::string whole = file_text(small);
  std::mt19937 random(7);
  constexpr std::string_view kBytes = "0179-.,:e\"[]{}ntx \xFF";
  int read = 0;
  for (int i = 0; i < 1500; ++i) {
    std::string text = whole;
    for (int k = 0; k <= i % 3; ++k) {
      text[random() % text.size()] = kBytes[random() % kBytes.size()];
    }
    try {
      const auto report = page::to_json(summary_of(page::newest_job({page::parse_history(text, "f")}, {}, "d")));
      EXPECT_FALSE(page::to_html(report).empty());
      ++read;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("f ")) << i;
    }
  }
  EXPECT_GT(read, 100);
}

TEST(Histories, OfTwoJobsTheNewestCounts) {
  std::vector<page::RankHistory> all;
  PlannedJob old = one_slow();
  old.ranks = 6;
  for (int rank = 0; rank < 6; ++rank) {
    all.push_back(planned_history(old, rank));
    all.back().file = "old-" + std::to_string(rank);
  }
  for (int rank = 0; rank < 4; ++rank) {
    all.push_back(planned_history(one_slow(), rank));
    all.back().started += 1000;
    all.back().written += 1000;
  }
  const page::Job job = page::newest_job(all, {}, "d");
  ASSERT_EQ(job.ranks.size(), 4U);
  EXPECT_EQ(job.ranks[0].started, 1.7e9 + 1000);
  EXPECT_THAT(job.notes, ElementsAre(HasSubstr("an earlier job wrote them: old-0, old-1, old-2, old-3 and 2 more")));
}

// Two jobs at a time: only their names tell them apart.
TEST(Histories, OfJobsWithNamesOneCounts) {
  std::vector<page::RankHistory> all;
  for (const char* name : {"a", "b"}) {
    for (int rank = 0; rank < 4; ++rank) {
      all.push_back(planned_history(one_slow(), rank));
      all.back().job = name;
      all.back().started += name[0] == 'b' ? 1 : 0;
    }
  }
  const page::Job newest = page::newest_job(all, {}, "d");
  ASSERT_EQ(newest.ranks.size(), 4U);
  EXPECT_EQ(newest.ranks[0].job, "b");
  EXPECT_THAT(newest.notes,
              ElementsAre("left out: histories of another job, a; --job NAME makes a page of one of them"));
  EXPECT_EQ(page::newest_job(all, {}, "d", "a").ranks[0].job, "a");
  EXPECT_EQ(page::to_json(summary_of(page::newest_job(all, {}, "d", "a"))).at("job").at("name"), "a");
  EXPECT_THAT(error_of([&] { static_cast<void>(page::newest_job(all, {}, "d", "c")); }).what(),
              HasSubstr("d holds no history of the job c, but of a, b"));
}

// Mutation tried: only dates count.
TEST(Histories, AHostWhoseDateIsWrongIsInTheJob) {
  for (const double wrong : {-86400.0, 86400.0}) {
    std::vector<page::RankHistory> all;
    for (int rank = 0; rank < 4; ++rank) {
      all.push_back(planned_history(one_slow(), rank));
      all.back().ended = true;
    }
    all[3].host = "elsewhere";
    all[3].started += wrong;
    all[3].written += wrong;
    const page::Job job = page::newest_job(all, {}, "d");
    ASSERT_EQ(job.ranks.size(), 4U);
    EXPECT_EQ(job.ranks[3].host, "elsewhere");
    EXPECT_EQ(job.ranks[3].started, job.ranks[0].started);
    EXPECT_THAT(job.notes, ElementsAre(HasSubstr(wrong < 0 ? "86400 s behind" : "86400 s ahead")));
    all[3].command = {"another"};
    EXPECT_EQ(page::newest_job(all, {}, "d").ranks.size(), 3U);
  }
}

// Sessions of an unchanged job's process, and calls that the drop-in saw, belong to one rank.
TEST(Histories, OfTwoPartsOfARankAreOne) {
  page::RankHistory library = planned_history(one_slow(), 0);
  page::RankHistory mpi = library;
  mpi.part = "mpi";
  mpi.file = "gradwire-mpi-rank-0.history";
  mpi.columns["timed_steps"].assign(128, 0);
  mpi.replaced.push_back({"MPI_Bcast", "not a sum", 1, 2, 3, 4, 5});
  const page::Job job = page::newest_job({mpi, library}, {}, "d");
  ASSERT_EQ(job.ranks.size(), 1U);
  EXPECT_EQ(job.ranks[0].part, "library");
  ASSERT_EQ(job.ranks[0].replaced.size(), 1U);
}

// Under `gradwire run` the drop-in of every rank writes a history too, and a drop-in that saw no call takes its rank to
// be alone.
TEST(Histories, OfADropInThatWasNotUsedAreNoJobOfTheirOwn) {
  std::vector<page::RankHistory> all;
  for (int rank = 0; rank < 4; ++rank) {
    all.push_back(planned_history(one_slow(), rank));
    page::RankHistory idle = all.back();
    idle.started -= 0.001 * (4 - rank);  // each begins before all sessions
    idle.world = 1;
    idle.part = "mpi";
    idle.columns["timed_steps"].assign(idle.columns["timed_steps"].size(), 0);
    all.push_back(idle);
  }
  const page::Job job = page::newest_job(all, {}, "d");
  ASSERT_EQ(job.ranks.size(), 4U);
  EXPECT_TRUE(job.notes.empty());
  for (const page::RankHistory& history : job.ranks) {
    EXPECT_EQ(history.part, "library");
  }
}

// A host whose clock is wrong must not exclude all others.
TEST(Histories, AClockThatIsAheadIsOneRankAndNotTheJob) {
  std::vector<page::RankHistory> all;
  for (int rank = 0; rank < 4; ++rank) {
    all.push_back(planned_history(one_slow(), rank));
  }
  all[2].started += 1e6;
  all[2].written += 1e6;
  const page::Job job = page::newest_job(all, {}, "d");
  ASSERT_EQ(job.ranks.size(), 3U);
  EXPECT_THAT(job.notes, ElementsAre(HasSubstr("or a host whose clock is ahead: " + all[2].file),
                                     HasSubstr("rank 2 of 4 left no history here")));
}

TEST(Histories, OfAShortJobClocksMayDifferBySeconds) {
  std::vector<page::RankHistory> all;
  for (int rank = 0; rank < 4; ++rank) {
    all.push_back(planned_history(one_slow(), rank));
    all.back().written = all.back().started + 1;
  }
  all[1].started += 3;
  all[1].written += 3;
  EXPECT_EQ(page::newest_job(all, {}, "d").ranks.size(), 4U);
}

TEST(Histories, FilesThatALargerJobLeftAreNotTheJob) {
  std::vector<page::RankHistory> all;
  PlannedJob large = one_slow();
  large.ranks = 8;
  for (int rank = 2; rank < 8; ++rank) {  // 0 and 1 are overwritten
    all.push_back(planned_history(large, rank));
  }
  PlannedJob small = one_slow();
  small.ranks = 2;
  for (int rank = 0; rank < 2; ++rank) {
    all.push_back(planned_history(small, rank));
    all.back().started = all.front().written + 1;
    all.back().written = all.front().written + 100;
  }
  EXPECT_EQ(page::newest_job(all, {}, "d").ranks.size(), 2U);
}

// In an elastic job some processes never ran at the same time. Processes of an earlier job overlap with none of them.
TEST(Histories, WhoJoinedBelongsToTheJob) {
  std::vector<page::RankHistory> all;
  for (int number = 0; number < 6; ++number) {
    all.push_back(planned_history(one_slow(), number % 3));
    page::RankHistory& one = all.back();
    one.rank = number;
    one.file = "gradwire-library-rank-" + std::to_string(number) + ".history";
    one.world = 3;
    one.environment[number < 3 ? "GRADWIRE_LET_JOIN" : "GRADWIRE_JOIN"] = number < 3 ? "/shared/join" : "join";
    one.started = 10000.0 + (number < 3 ? 0 : 1000 * number);
    one.written = number == 1 ? 12000 : one.started + 3500;
  }
  all[0].written = 16000;
  page::RankHistory before = all[5];
  before.rank = 6;
  before.file = "gradwire-library-rank-6.history";
  before.started = 1000;
  before.written = 9000;
  all.push_back(before);
  const page::Job job = page::newest_job(all, {}, "d");
  EXPECT_EQ(job.ranks.size(), 6U);
  EXPECT_THAT(job.notes, ElementsAre(HasSubstr("an earlier job wrote it: " + before.file)));
}

TEST(Histories, MissingRanksAreCounted) {
  page::RankHistory alone = planned_history(one_slow(), 1);
  alone.world = 1 << 20;
  EXPECT_THAT(page::newest_job({alone}, {}, "d").notes,
              ElementsAre(HasSubstr("ranks 0, 2, 3, 4 and 1048571 more of 1048576 left no history")));
}

TEST(Histories, NumbersBeyondAnyRankAreRefused) {
  for (const char* number : {"1e300", "-1e300", "3e9"}) {
    auto root = nlohmann::json::parse(file_text(planned_history(one_slow(), 0)));
    root["rank"] = nlohmann::json::parse(number);
    EXPECT_THAT(test::error_of([&] { (void)page::parse_history(root.dump(), "f"); }).what(),
                HasSubstr("f is no history of a rank: its rank is "));
  }
}

}  // namespace
}  // namespace gradwire::test
