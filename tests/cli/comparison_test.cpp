// The page that compares two runs.
#include "watch/page/comparison.hpp"

#include <gmock/gmock.h>

#include <map>
#include <string>

#include "cli/page_support.hpp"

namespace gradwire::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A run whose loss falls from 2 to `last`.
nlohmann::ordered_json run_with_loss(double last, double ratio, const std::string& name = "gradwire_note loss") {
  page::Job job = planned_job({.ranks = 2, .bytes_sent = 4e6 / ratio, .ratio = ratio});
  for (page::RankHistory& rank : job.ranks) {
    rank.groups[0].codec = ratio > 1 ? "int8" : "exact";
    page::Column& loss = rank.gauges[name];
    for (std::size_t i = 0; i < rank.time.size(); ++i) {
      loss.push_back(2 + (last - 2) * static_cast<double>(i) / static_cast<double>(rank.time.size() - 1));
    }
  }
  return page::to_json(summary_of(job));
}

TEST(Comparison, ShowsLossBytesSecondsAndCodecsOfBothRuns) {
  const auto root = page::comparison(run_with_loss(0.5, 1), run_with_loss(0.75, 4));
  const std::string html = page::comparison_html(root);
  EXPECT_EQ(root.at("runs").at(1).at("notes").at("loss"), 0.75);
  EXPECT_THAT(differences(html, root), IsEmpty());
  EXPECT_GT(shown_numbers(html).size(), 15U);
  EXPECT_THAT(html, HasSubstr("<td class=n data-n=\"/runs/0/notes/loss\" data-u=g>0.5</td><td class=n "
                              "data-n=\"/runs/1/notes/loss\" data-u=g>0.75</td><td class=n>1.50</td>"));
  for (const char* part :
       {"default: exact, two_shot", "default: int8, two_shot", "<b>loss by step</b>", "<b>loss by time</b>",
        "<b>loss by bytes</b>", "<b>Step time</b>", "<b>Bytes sent</b>", "class=\"curve second\"",
        "loss by step</title><desc id=\"f1d\">A 1.98 at the start, 0.5 at the end; B"}) {
    EXPECT_THAT(html, HasSubstr(part));
  }
  for (const char* outside : {"http://", "https://", "<script", "nan", "inf\""}) {
    EXPECT_THAT(html, Not(HasSubstr(outside)));
  }
}

// MPI makes the sums of an exact session, so that the session itself sends no message. Mutation tried: the curves count
// the bytes of messages.
TEST(Comparison, BytesOfAnExactRunEndAtItsTotal) {
  page::Job job = planned_job({.ranks = 2, .bytes_sent = 4e6, .ratio = 1});
  for (page::RankHistory& rank : job.ranks) {
    rank.columns["message_bytes"].assign(rank.time.size(), 0);
  }
  const auto exact = page::to_json(summary_of(job));
  const auto sent = exact.at("curves").at("ranks").at("sent").at("median");
  EXPECT_NEAR(sent.back().get<double>() * 2, exact.at("totals").at("bytes_sent").get<double>(), 1);
  const std::string html = page::comparison_html(page::comparison(exact, run_with_loss(0.75, 4)));
  EXPECT_THAT(html, ContainsRegex("Bytes sent</title><desc id=\"[a-z0-9]*\">A [0-9.]* [MG]B at the start, 4.00 GB at "
                                  "the end; B"));
}

// Mutation tried: the row has the codecs of sessions alone, which is "-" for both.
TEST(Comparison, ShowsTheCodecOfADropIn) {
  const auto run = [](const std::map<std::string, std::string>& environment, const std::string& reason) {
    page::Job job = planned_job({.ranks = 2});
    for (page::RankHistory& rank : job.ranks) {
      rank.groups.clear();
      rank.environment = environment;
      rank.replaced = {{"MPI_Allreduce", reason, 16, 2e6, 1e6, 2e6, 1}};
    }
    return page::to_json(summary_of(job));
  };
  const auto cells = [](const auto& a, const auto& b) { return page::comparison_html(page::comparison(a, b)); };
  EXPECT_THAT(cells(run({}, "observed"), run({{"GRADWIRE_CODEC", "int8"}}, "")),
              HasSubstr("<td class=text>drop-in: observing</td><td class=text>drop-in: int8</td>"));
  EXPECT_THAT(cells(run({{"GRADWIRE_CODEC", "none"}}, "observed"), run({}, "")),
              HasSubstr("<td class=text>drop-in: observing</td><td class=text>drop-in: compressing</td>"));
  EXPECT_THAT(cells(run({{"GRADWIRE_POLICY", "a.toml"}}, ""), run({}, "")),
              HasSubstr("<td class=text>drop-in: policy a.toml</td><td class=text>drop-in: compressing</td>"));
}

TEST(Comparison, OfARunThatNotedNothingSaysHow) {
  const auto silent = page::to_json(summary_of(planned_job({.ranks = 2})));
  const std::string none = page::comparison_html(page::comparison(silent, silent));
  EXPECT_THAT(none, HasSubstr("Neither run noted a number"));
  const std::string one = page::comparison_html(page::comparison(silent, run_with_loss(0.5, 4)));
  EXPECT_THAT(one, HasSubstr("<td class=n>-</td><td class=n data-n=\"/runs/1/notes/loss\" data-u=g>0.5</td>"));
}

TEST(Comparison, NamesFromFilesAreMadeSafe) {
  const std::string evil = "<script>/~\"";
  const auto root = page::comparison(run_with_loss(0.5, 1, "gradwire_note " + evil), run_with_loss(0.5, 4));
  const std::string html = page::comparison_html(root);
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;/~&quot; by step"));
  auto noted = run_with_loss(0.5, 1);
  EXPECT_THAT(page::comparison_html(page::comparison(noted, noted)), Not(HasSubstr("What is missing")));
  noted["job"]["notes"].push_back(evil);
  const std::string missing = page::comparison_html(page::comparison(run_with_loss(0.5, 1), noted));
  EXPECT_THAT(missing, HasSubstr("<h2>What is missing</h2><ul class=notes><li>B: &lt;script&gt;"));
}

}  // namespace
}  // namespace gradwire::test
