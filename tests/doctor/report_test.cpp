// What doctor prints, and its JSON.
#include "plugins/mpi_doctor/report.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "doctor/cluster.hpp"

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

TEST(DoctorReport, SaysThatBeyond64RanksOneAHostIsMeasured) {
  Cluster cluster(2, 1);
  Cluster large(2, 40);
  large.pairs = cluster.pairs;
  large.pairs.ranks = {0, 40};
  EXPECT_THAT(report_text(large.facts, large.pairs, {}), HasSubstr("of more than 64 ranks not all pairs are measured"));
}

TEST(DoctorReport, OneRankSaysHowToStartAJob) {
  const Cluster cluster(1, 1);
  const std::string text = report_text(cluster.facts, {}, cluster.examine());
  EXPECT_THAT(text, StartsWith("gradwire doctor: 1 rank on 1 host, 0 problems, 0 warnings\n"));
  EXPECT_THAT(text, HasSubstr("gradwire doctor -- mpirun --host a,b -np 4"));
  EXPECT_THAT(text, Not(HasSubstr("Bandwidth")));
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

}  // namespace
}  // namespace gradwire::doctor
