// Tests which histories in a folder are those of the job that a page shows, and what damaged ones do.
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
  mpi.started -= 100;  // MPI_Init was long before the session
  for (double& time : mpi.time) {
    time += 100;
  }
  mpi.columns["passed_bytes_sent"] = mpi.time;
  const page::Job job = page::newest_job({mpi, library}, {}, "d");
  ASSERT_EQ(job.ranks.size(), 1U);
  EXPECT_EQ(job.ranks[0].part, "library");
  ASSERT_EQ(job.ranks[0].replaced.size(), 1U);
  EXPECT_EQ(job.ranks[0].last("passed_bytes_sent"), mpi.time.back()) << "curves count what the total counts";
  EXPECT_NEAR(job.ranks[0].columns.at("passed_bytes_sent")[64], library.time[64] + 100, 1e-6) << "at the same moment";
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
