// Tests the page of a job: numbers, escaped text and size.
#include <gmock/gmock.h>

#include "cli/page_support.hpp"

namespace gradwire::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

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

// Mutation tried: the totals and the curve of the ratio count the bytes of compressed calls alone, whose ratio is 3.96.
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
  const auto& curves = report.at("curves").at("ranks");
  EXPECT_NEAR(curves.at("ratio").at("median").back().get<double>(), 102.96 / 100, 1e-9);
  EXPECT_NEAR(curves.at("sent").at("median").back().get<double>(), 100e6, 1) << "the curve ends at the total";
  EXPECT_GT(curves.at("sent_rate").at("median").back().get<double>(), 0);
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

TEST(PageOfAJob, SaysThatItsLinkIsEmulated) {
  page::Job job = planned_job(one_slow());
  EXPECT_TRUE(page::to_json(summary_of(job)).at("job").at("emulated_link").is_null());
  for (page::RankHistory& rank : job.ranks) {
    rank.environment.emplace("GRADWIRE_EMULATED_LINK", "1Gbit/s");
    rank.transport = "";  // as under a drop-in
  }
  const auto report = page::to_json(summary_of(job));
  EXPECT_EQ(report.at("job").at("emulated_link"), "1Gbit/s");
  const std::string html = page::to_html(report);
  EXPECT_THAT(html, HasSubstr(" ranks over an emulated link</h1>"));
  EXPECT_THAT(html, HasSubstr("<dt>over</dt><dd>emulated 1Gbit/s</dd>"));
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

}  // namespace
}  // namespace gradwire::test
