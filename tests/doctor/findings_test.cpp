// Tests planted faults: each is reported once, with its place, and a healthy cluster has none.
#include "plugins/mpi_doctor/findings.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "doctor/cluster.hpp"

namespace gradwire::doctor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::string told(const Findings& findings) {
  std::string text;
  for (const Finding& one : findings) {
    text += std::string(to_string(one.level)) + " " + one.subject + ": " + one.seen + "\n";
  }
  return text;
}

TEST(DoctorFindings, AHealthyClusterHasNone) {
  for (const auto& [hosts, ranks] : std::vector<std::pair<int, int>>{{1, 1}, {1, 4}, {2, 1}, {2, 4}, {8, 4}, {64, 1}}) {
    const Cluster cluster(hosts, ranks);
    const Findings all = cluster.examine();
    EXPECT_EQ(told(complaints(all)), "") << hosts << " hosts of " << ranks;
    EXPECT_GT(all.size(), 8U);
  }
}

struct Planted {
  std::string name;
  std::function<void(Cluster&)> damage;
  Severity level;
  std::string subject;
  std::string seen;    // part of the finding
  std::string advice;  // part of the advice
  std::string where;

  friend void PrintTo(const Planted& planted, std::ostream* out) { *out << planted.name; }
};

// There are two hosts of two ranks each.
const std::vector<Planted> kPlanted = {
    {"version", [](Cluster& c) { c.facts[3].version = "0.1.0"; }, Severity::problem, "gradwire",
     "0.1.0 (Release), where ranks 0,1 (host0), 2 (host1) have 0.2.0 (Release)", "same package", "rank 3 (host1)"},
    {"no preload", [](Cluster& c) { c.facts[2].preloads[0].path = c.facts[3].preloads[0].path = ""; },
     Severity::problem, "preload (Open MPI)", "none, where ranks 0,1 (host0) have libgradwire_mpi.so 01234567",
     "install", "ranks 2,3 (host1)"},
    {"another preload", [](Cluster& c) { c.facts[2].preloads[0].fingerprint = "abcdefgh"; }, Severity::problem,
     "preload (Open MPI)", "libgradwire_mpi.so abcdefgh, where", "install", "rank 2 (host1)"},
    {"no preload at all",
     [](Cluster& c) {
       for (Facts& rank : c.facts) {
         rank.preloads[0].path = "";
       }
     },
     Severity::problem, "preload", "no library", "install", "all ranks"},
    {"MPI", [](Cluster& c) { c.facts[1].mpi = "Open MPI v4.1.6"; }, Severity::problem, "MPI", "Open MPI v4.1.6, where",
     "one MPI", "rank 1 (host0)"},
    {"threads",
     [](Cluster& c) {
       for (Facts& rank : c.facts) {
         rank.threads = "MPI_THREAD_SERIALIZED";
       }
     },
     Severity::warning, "threads", "MPI_THREAD_SERIALIZED is all", "calls that return a request", "all ranks"},
    {"key missing", [](Cluster& c) { c.facts[0].key.check = c.facts[1].key.check = c.facts[2].key.check = "5d902d6b"; },
     Severity::problem, "encryption", "none, where ranks 0,1 (host0), 2 (host1) have 5d902d6b", "copy one key file",
     "rank 3 (host1)"},
    {"another key",
     [](Cluster& c) {
       for (Facts& rank : c.facts) {
         rank.key.check = rank.rank == 2 ? "bbbbbbbb" : "5d902d6b";
       }
     },
     Severity::problem, "encryption", "bbbbbbbb, where ranks 0,1 (host0), 3 (host1) have 5d902d6b", "every host",
     "rank 2 (host1)"},
    {"bad key", [](Cluster& c) { c.facts[1].key.error = "key file /k: its mode is 0644"; }, Severity::problem,
     "encryption", "its mode is 0644", "mend that on this host", "rank 1 (host0)"},
    {"policy missing", [](Cluster& c) { c.facts[3].policy = {}; }, Severity::problem, "policy",
     "GRADWIRE_POLICY is not set, where ranks 0,1 (host0), 2 (host1) have /p/policy.toml", "--policy FILE",
     "rank 3 (host1)"},
    {"policy differs", [](Cluster& c) { c.facts[2].policy.fingerprint = c.facts[3].policy.fingerprint = "x"; },
     Severity::problem, "policy", "another file of this name", "same file", "ranks 2,3 (host1)"},
    {"policy invalid",
     [](Cluster& c) {
       c.facts[1].policy = {"/p/policy.toml", "", "policy.toml:3: no"};
     },
     Severity::problem, "policy", "policy.toml:3: no", "mend", "rank 1 (host0)"},
    {"codec differs", [](Cluster& c) { c.facts[1].variables["GRADWIRE_CODEC"] = "int8"; }, Severity::problem,
     "GRADWIRE_CODEC", "int8, where ranks 0 (host0), 2,3 (host1) have none", "same value", "rank 1 (host0)"},
    {"log differs", [](Cluster& c) { c.facts[0].variables["GRADWIRE_LOG"] = "info"; }, Severity::note, "GRADWIRE_LOG",
     "info, where", "if that is meant", "rank 0 (host0)"},
    {"bad value", [](Cluster& c) { c.facts[0].environment_errors = {"GRADWIRE_SIMD is \"x\""}; }, Severity::problem,
     "environment", "GRADWIRE_SIMD", "correct", "rank 0 (host0)"},
    {"no place", [](Cluster& c) { c.facts[1].unwritable = {"GRADWIRE_TRACE names /x, but / cannot be written"}; },
     Severity::warning, "environment", "GRADWIRE_TRACE names /x", "may write", "rank 1 (host0)"},
    {"misspelt", [](Cluster& c) { c.facts[0].variables["GRADWIRE_POLICI"] = "x"; }, Severity::warning, "environment",
     "GRADWIRE_POLICI is no variable", "GRADWIRE_POLICY?", "rank 0 (host0)"},
    {"disabled",
     [](Cluster& c) {
       for (Facts& rank : c.facts) {
         rank.variables["GRADWIRE_DISABLE"] = "1";
       }
     },
     Severity::warning, "environment", "no rank compresses", "unset", "all ranks"},
    {"same core", [](Cluster& c) { c.facts[2].mask = c.facts[3].mask = {5}; }, Severity::problem, "binding",
     "2 ranks are bound to core 5, of 8 cores", "--bind-to core", "ranks 2,3 (host1)"},
    {"same core, MPICH",
     [](Cluster& c) {
       for (Facts& rank : c.facts) {
         rank.mpi = "MPICH Version: 4.0.2";
       }
       c.facts[2].mask = c.facts[3].mask = {5};
     },
     Severity::problem, "binding", "2 ranks are bound to core 5", "mpiexec -bind-to core", "ranks 2,3 (host1)"},
    {"too few cores",
     [](Cluster& c) {
       for (const int rank : {2, 3}) {
         c.facts[static_cast<std::size_t>(rank)].cores = c.facts[static_cast<std::size_t>(rank)].mask = {0};
         c.facts[static_cast<std::size_t>(rank)].numa_nodes = {{0}};
       }
     },
     Severity::warning, "cores", "2 ranks share 1 core", "fewer ranks", "ranks 2,3 (host1)"},
    {"not bound",
     [](Cluster& c) { c.facts[0].mask = c.facts[1].mask = c.facts[2].mask = c.facts[3].mask = c.facts[0].cores; },
     Severity::note, "NUMA", "not bound, on 2 NUMA nodes", "--bind-to numa", "all ranks"},
    {"one core of many",
     [](Cluster& c) {
       c.facts[0].mask = {0};
       c.facts[1].mask = {1, 2, 3};
     },
     Severity::note, "binding", "bound to one core", "PE=2", "rank 0 (host0)"},
    {"OMP_NUM_THREADS", [](Cluster& c) { c.facts[0].variables["OMP_NUM_THREADS"] = "8"; }, Severity::warning,
     "OMP_NUM_THREADS", "9 threads by OMP_NUM_THREADS on 4 cores", "set it to 2", "ranks 0,1 (host0)"},
    {"CPU limit",
     [](Cluster& c) {
       c.facts[2].cpu = c.facts[3].cpu = {1.5, "/job"};
     },
     Severity::warning, "CPU limit", "2 ranks share the CPU time of 1.5 cores (limit of the control group /job)",
     "limits.cpu", "ranks 2,3 (host1)"},
    {"CPU limit of a rank",
     [](Cluster& c) {
       c.facts[1].cpu = {0.5, "/job/1"};
     },
     Severity::warning, "CPU limit", "1 rank has the CPU time of 0.5 cores", "start fewer", "rank 1 (host0)"},
    {"threads under a limit",
     [](Cluster& c) {
       for (const std::size_t rank : {0U, 1U}) {
         c.facts[rank].cpu = {2.5, "/job"};
         c.facts[rank].variables["OMP_NUM_THREADS"] = "2";
       }
     },
     Severity::warning, "OMP_NUM_THREADS", "4 threads by OMP_NUM_THREADS on 2 cores", "set it to 1",
     "ranks 0,1 (host0)"},
    {"huge pages", [](Cluster& c) { c.facts[0].huge_pages = "never"; }, Severity::note, "huge pages", "off", "madvise",
     "ranks 0,1 (host0)"},
    {"shm", [](Cluster& c) { c.facts[2].shm_free = 10 << 20; }, Severity::warning, "/dev/shm", "10MiB are free, for 2",
     "--shm-size", "ranks 2,3 (host1)"},
    {"memory", [](Cluster& c) { c.facts[2].memory_available = 100 << 20; }, Severity::warning, "memory",
     "100MiB of 64GiB are free", "ps aux", "ranks 2,3 (host1)"},
    {"clock", [](Cluster& c) { c.facts[2].clock_offset = c.facts[3].clock_offset = -0.34; }, Severity::warning, "clock",
     "340 ms behind rank 0's", "chronyc", "ranks 2,3 (host1)"},
    {"MTU differs", [](Cluster& c) { c.facts[2].interfaces[0].mtu = c.facts[3].interfaces[0].mtu = 1500; },
     Severity::warning, "MTU", "eth0 has an MTU of 1500 on ranks 2,3 (host1), of 9000 on ranks 0,1 (host0)", "same",
     ""},
    {"small MTU",
     [](Cluster& c) {
       for (Facts& rank : c.facts) {
         rank.interfaces[0] = {.name = "eth0", .mtu = 1500, .megabits = 100000, .physical = false};
       }
     },
     Severity::note, "MTU", "eth0 has an MTU of 1500 at 100Gbit/s", "mtu 9000", "all ranks"},
    {"an error", [](Cluster& c) { c.facts[1].errors = {"/dev/shm is not there"}; }, Severity::warning, "doctor",
     "/dev/shm is not there", "left out", "rank 1 (host0)"},
};

class DoctorPlanted : public ::testing::TestWithParam<Planted> {};

TEST_P(DoctorPlanted, IsToldOnceWithItsPlace) {
  const Planted& planted = GetParam();
  Cluster cluster(2, 2);
  planted.damage(cluster);
  const Findings found = complaints(cluster.examine());
  ASSERT_EQ(found.size(), 1U) << told(found);
  EXPECT_EQ(found[0].level, planted.level) << told(found);
  EXPECT_EQ(found[0].subject, planted.subject);
  EXPECT_THAT(found[0].seen, HasSubstr(planted.seen));
  EXPECT_THAT(found[0].advice, HasSubstr(planted.advice));
  EXPECT_EQ(found[0].ranks.empty() ? "" : where(found[0].ranks, cluster.facts), planted.where);
}

INSTANTIATE_TEST_SUITE_P(All, DoctorPlanted, ::testing::ValuesIn(kPlanted), [](const auto& planted) {
  std::string name = planted.param.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == ' ' || c == ',' || c == '_'; }, 'X');
  return name;
});

TEST(DoctorFindings, ACpuLimitThatIsEnoughIsNone) {
  Cluster cluster(1, 4);
  for (Facts& rank : cluster.facts) {
    rank.cpu = {4, "/job"};
  }
  EXPECT_EQ(told(complaints(cluster.examine())), "");
  for (Facts& rank : cluster.facts) {
    rank.cpu = {1, "/job/" + std::to_string(rank.rank)};
  }
  EXPECT_EQ(told(complaints(cluster.examine())), "") << "each host has one rank";
}

TEST(DoctorFindings, EncryptionIsToldEitherWay) {
  const auto told_of = [](const Cluster& cluster) {
    const Findings all = cluster.examine();
    const auto found =
        std::find_if(all.begin(), all.end(), [](const Finding& one) { return one.subject == "encryption"; });
    return found == all.end() || found->level != Severity::ok ? std::string() : found->seen;
  };
  Cluster cluster(2, 2);
  EXPECT_THAT(told_of(cluster), ::testing::HasSubstr("not encrypted"));
  for (Facts& rank : cluster.facts) {
    rank.key.check = "5d902d6b";
  }
  EXPECT_THAT(told_of(cluster), ::testing::HasSubstr("with the key of check value 5d902d6b"));
}

// Each host is told once, with whether strangers would see what travels. Mutation tried: the key is not looked at.
TEST(DoctorFindings, AddressesAreToldByHost) {
  const auto told_of = [](const Cluster& cluster) {
    std::vector<std::string> seen;
    for (const Finding& one : cluster.examine()) {
      if (one.subject == "listening") {
        seen.push_back(one.seen);
      }
    }
    return seen;
  };
  Cluster cluster(2, 2);
  for (Facts& rank : cluster.facts) {
    rank.addresses = {"10.0.0." + std::to_string(rank.node)};
  }
  EXPECT_THAT(told_of(cluster),
              UnorderedElementsAre(AllOf(HasSubstr("10.0.0.0, "), HasSubstr("others may join, in clear text")),
                                   HasSubstr("10.0.0.2, ")));
  cluster.facts[2].variables["GRADWIRE_METRICS"] = "http:9400";
  for (Facts& rank : cluster.facts) {
    rank.key.check = "5d902d6b";
  }
  EXPECT_THAT(told_of(cluster),
              UnorderedElementsAre(
                  AllOf(HasSubstr("TLS 1.3"), HasSubstr("gradwire run, for the registration of ranks, in clear text")),
                  AllOf(HasSubstr("TLS 1.3"), HasSubstr("HTTP, GRADWIRE_METRICS=http:9400"))));
}

TEST(DoctorFindings, TheWorstComeFirst) {
  Cluster cluster(2, 2);
  cluster.facts[0].huge_pages = "never";
  cluster.facts[3].policy = {};
  cluster.facts[2].clock_offset = 5;
  const Findings found = cluster.examine();
  EXPECT_EQ(found[0].level, Severity::problem);
  EXPECT_EQ(found[1].level, Severity::warning);
  EXPECT_EQ(found[2].level, Severity::note);
  EXPECT_EQ(found[3].level, Severity::ok);
}

TEST(DoctorFindings, HostsOfOneNameAreKeptApart) {
  Cluster cluster(2, 2);
  for (Facts& rank : cluster.facts) {
    rank.host = "node";
  }
  name_hosts(cluster.facts);
  EXPECT_EQ(cluster.facts[1].host, "node");
  EXPECT_EQ(cluster.facts[3].host, "node#2");
  EXPECT_EQ(where({1, 2, 3}, cluster.facts), "ranks 1 (node), 2,3 (node#2)");
}

}  // namespace
}  // namespace gradwire::doctor
