// Tests the output of gradwire_doctor and its JSON.
#include "plugins/mpi_doctor/report.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <map>

#include <nlohmann/json.hpp>
#include <sstream>

#include "doctor/cluster.hpp"
#include "gradwire/policy.hpp"
#include "plugins/mpi_doctor/link_report.hpp"

namespace gradwire::doctor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(DoctorReport, BeginsWithWhatIsWrongAndEndsWithTheMatrix) {
  Cluster cluster(2, 1);
  cluster.facts[1].policy = {};
  cluster.pairs.seconds = 0.21;
  const Findings findings = cluster.examine();
  const std::string text = report_text(cluster.facts, cluster.pairs, findings);
  EXPECT_THAT(text, StartsWith("gradwire doctor: 2 ranks on 2 hosts, 1 problem, 0 warnings, in 0.21 s\n\n"
                               "problem  policy, rank 1 (host1): GRADWIRE_POLICY is not set, where rank 0 (host0) "
                               "has /p/policy.toml\n         -> give every rank"));
  EXPECT_THAT(text, HasSubstr("ok       gradwire: 0.2.0 (Release)\n"));
  EXPECT_THAT(text,
              HasSubstr("\nBandwidth, Mbit/s, sender by row\nrank       0    1\n0 host0    -  990\n1 host1  990    -\n"
                        "Latency one way, us\nrank      0   1\n0 host0   -  30\n1 host1  30   -\n"));
  EXPECT_EQ(exit_status(findings), 1);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 100U) << line;
  }
}

TEST(DoctorReport, WarningsAreNoProblem) {
  Cluster cluster(2, 1);
  cluster.facts[1].clock_offset = 3;
  EXPECT_EQ(exit_status(cluster.examine()), 0);
}

TEST(DoctorReport, ManyRanksHaveACharacterALink) {
  Cluster cluster(64, 1);
  cluster.slow_host(3, 0.25, true, true);
  const std::string text = report_text(cluster.facts, cluster.pairs, cluster.examine());
  EXPECT_THAT(text, HasSubstr("in tenths of the fastest, between hosts 1Gbit/s"));
  EXPECT_THAT(text, HasSubstr("\n3 host3    222-222"));
  EXPECT_THAT(text, Not(HasSubstr("not all pairs")));
}

TEST(DoctorReport, SaysWhatIsLeftOutBeyond64Ranks) {
  const auto text_of = [](const Cluster& large) {
    const std::vector<int> chosen = choose_ranks(large.facts);
    Cluster measured(static_cast<int>(chosen.size()), 1);
    measured.pairs.ranks = chosen;
    std::string text = report_text(large.facts, measured.pairs, {});
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
  };
  EXPECT_THAT(text_of({1, 65}),
              HasSubstr("These are 64 of 65 ranks, spread over the hosts; the links of 1 rank were not "
                        "measured."));
  EXPECT_THAT(text_of({70, 1}), HasSubstr("No link was measured of host11, host23, host34, host46 and 2 more hosts."));
  EXPECT_THAT(text_of({2, 32}), Not(HasSubstr("not measured")));
}

TEST(DoctorFindings, OfManyRanks64AreChosenOverAllHosts) {
  const auto of_hosts = [](int hosts, int ranks_per_host) {
    const Cluster cluster(hosts, ranks_per_host);
    std::map<std::string, int> counts;
    const std::vector<int> chosen = choose_ranks(cluster.facts);
    EXPECT_EQ(chosen.size(), std::min<std::size_t>(cluster.facts.size(), 64));
    EXPECT_TRUE(std::is_sorted(chosen.begin(), chosen.end()));
    EXPECT_EQ(std::adjacent_find(chosen.begin(), chosen.end()), chosen.end());
    for (const int rank : chosen) {
      ++counts[cluster.facts[static_cast<std::size_t>(rank)].host];
    }
    return counts;
  };
  EXPECT_EQ(of_hosts(1, 65)["host0"], 64) << "one host of many ranks is measured too";
  EXPECT_EQ(of_hosts(2, 40)["host1"], 32);
  EXPECT_EQ(of_hosts(3, 40)["host0"], 22);
  EXPECT_EQ(of_hosts(100, 2).size(), 64U);
  EXPECT_TRUE(of_hosts(128, 1).contains("host126")) << "more than the first hosts are measured";
  EXPECT_EQ(of_hosts(4, 4).size(), 4U);
}

TEST(DoctorReport, SaysHowFarClocksAreOffAndHowWellThatIsKnown) {
  const Cluster cluster(2, 2);
  EXPECT_THAT(report_text(cluster.facts, cluster.pairs, cluster.examine()),
              HasSubstr("clock: 2 ms off rank 0's at most, measured to 40 us\n"));
}

TEST(DoctorReport, OneRankSaysHowToStartAJob) {
  const Cluster cluster(1, 1);
  const std::string text = report_text(cluster.facts, {}, cluster.examine());
  EXPECT_THAT(text, StartsWith("gradwire doctor: 1 rank on 1 host, 0 problems, 0 warnings\n"));
  EXPECT_THAT(text, HasSubstr("gradwire doctor -- mpirun --host a,b -np 4"));
  EXPECT_THAT(text, Not(HasSubstr("Bandwidth")));
}

// Names of hosts and files come from others: a terminal must not obey them.
TEST(DoctorReport, ControlCharactersAreNoCommands) {
  Cluster cluster(2, 2);
  for (Facts& rank : cluster.facts) {
    rank.host += "\x1b]0;gotcha\a\xff";
  }
  cluster.facts[3].policy = {"/p/\x1b[2J.toml", "", "ü\nok       all is well"};
  const std::string text = report_text(cluster.facts, cluster.pairs, cluster.examine());
  EXPECT_EQ(text.find_first_of("\x1b\a\xff"), std::string::npos);
  EXPECT_THAT(text, HasSubstr("host1?]0;gotcha??"));
  EXPECT_THAT(text, HasSubstr(": ü?ok       all is well"));
}

TEST(DoctorReport, JsonHoldsEverything) {
  Cluster cluster(2, 2);
  cluster.facts[3].policy = {};
  const auto all = nlohmann::json::parse(report_json(cluster.facts, cluster.pairs, cluster.examine()));
  EXPECT_EQ(all["problems"], 1);
  EXPECT_EQ(all["findings"][0]["level"], "problem");
  EXPECT_EQ(all["findings"][0]["where"], "rank 3 (host1)");
  EXPECT_EQ(all["ranks"][3]["host"], "host1");
  EXPECT_EQ(all["pairs"]["bytes_per_second"][0][1], kInside);
}

TEST(LinkReport, TellsWhatAPolicyCanSayOfANetwork) {
  LinkEstimate link{.inter = {30e-6, 125e6}, .intra = {1e-6, 5e9}, .measured_in_seconds = 0.0421};
  EXPECT_EQ(link_report(link, 2, 2),
            "Links of 2 ranks on 2 hosts, measured in 42.1 ms\n"
            "link           latency  bandwidth\n"
            "between hosts     30us    1Gbit/s\n"
            "In a policy:\n[link]\nbandwidth = \"1Gbit/s\"\nlatency = \"30us\"\n");
  link.ranks_per_node = 2;
  const std::string tiers = link_report(link, 4, 2);
  EXPECT_THAT(tiers, HasSubstr("inside a host      1us   40Gbit/s\nbetween hosts     30us    1Gbit/s\n"));
  const Policy policy = Policy::parse(tiers.substr(tiers.find("[link]")));
  ASSERT_TRUE(policy.link);
  EXPECT_EQ(policy.link->bytes_per_second, 125e6);
  EXPECT_EQ(policy.link->latency, std::chrono::microseconds(30));
}

}  // namespace
}  // namespace gradwire::doctor
