// The name of a job: the same on all its ranks, by what their launchers give them.
#include "base/job_name.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>

namespace gradwire {
namespace {

using ::testing::MatchesRegex;

/// Sets these variables alone, of all that name a job, and returns the name.
std::string name_with(const std::map<std::string, std::string>& variables) {
  for (const char* name :
       {"GRADWIRE_JOB", "GRADWIRE_JOIN", "GRADWIRE_LET_JOIN", "PMIX_NAMESPACE", "OMPI_MCA_orte_hnp_uri", "PMI_FD",
        "PMI_PORT", "PMI_RANK", "PMI_JOBID", "SLURM_JOB_ID", "SLURM_STEP_ID", "FLUX_JOB_ID", "PALS_APID", "MASTER_ADDR",
        "MASTER_PORT", "TORCHELASTIC_RUN_ID"}) {
    unsetenv(name);
  }
  for (const auto& [name, value] : variables) {
    setenv(name.c_str(), value.c_str(), 1);
  }
  std::string name = job_name();
  for (const auto& [variable, value] : variables) {
    unsetenv(variable.c_str());
  }
  return name;
}

TEST(JobName, IsTheOneThatWasGiven) {
  EXPECT_EQ(name_with({{"GRADWIRE_JOB", "resnet.7"}, {"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "0"}}), "resnet.7");
  EXPECT_EQ(name_with({{"GRADWIRE_JOB", "../a b\"\n"}}), ".._a_b__") << "it stands in names of files and in labels";
  const std::string longest = name_with({{"GRADWIRE_JOB", std::string(500, 'a')}});
  EXPECT_EQ(longest.size(), 64U);
  EXPECT_NE(longest, name_with({{"GRADWIRE_JOB", std::string(501, 'a')}}));
}

TEST(JobName, IsThatOfTheLauncher) {
  EXPECT_EQ(name_with({{"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "3"}}), "12.3");
  EXPECT_EQ(name_with({{"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "3"}, {"PMIX_NAMESPACE", "slurm.pmix.12.3"}}), "12.3");
  EXPECT_EQ(name_with({{"SLURM_JOB_ID", "12"}, {"PMI_JOBID", "7"}}), "12-7") << "a number that is no step of Slurm";
  EXPECT_EQ(name_with({{"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "3"}, {"PMI_JOBID", "7"}}), "12.3");
  EXPECT_EQ(name_with({{"FLUX_JOB_ID", "f23"}}), "f23");
  EXPECT_EQ(name_with({{"PMIX_NAMESPACE", "prterun-vm-77@2"}}), "prterun-vm-77") << "of a spawned world, too";
  EXPECT_NE(name_with({{"PMIX_NAMESPACE", "prte-vm-77@1"}}), name_with({{"PMIX_NAMESPACE", "prte-vm-77@2"}}))
      << "jobs of one lasting prte";
  EXPECT_EQ(name_with({{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}, {"TORCHELASTIC_RUN_ID", "none"}}),
            "torch-node1-29500");
}

// Two of them in one allocation of Slurm, also.
TEST(JobName, OfOpenMpiFollowsItsMpirun) {
  const auto job = [](const std::string& space, const std::string& address, const std::string& slurm = "") {
    return name_with({{"PMIX_NAMESPACE", space}, {"OMPI_MCA_orte_hnp_uri", address}, {"SLURM_JOB_ID", slurm}});
  };
  const std::string first = job("2845573121", "2845573120.0;tcp://10.0.0.1:38211");
  EXPECT_THAT(first, MatchesRegex("mpirun-[0-9a-f]{8}"));
  EXPECT_EQ(job("2845573122", "2845573120.0;tcp://10.0.0.1:38211"), first) << "of a spawned world";
  EXPECT_NE(job("2845573121", "2845573120.0;tcp://10.0.0.1:38999"), first) << "of another mpirun";
  EXPECT_EQ(job("2845573121", "2845573120.0;tcp://10.0.0.1:38211", "12"), "12-" + first);
}

TEST(JobName, OfAnElasticJobIsThatOfTheFileByWhichProcessesJoin) {
  const std::string began = name_with({{"GRADWIRE_LET_JOIN", "/shared/run.join"}, {"PMIX_NAMESPACE", "prterun-vm-7"}});
  EXPECT_THAT(began, MatchesRegex("run-[0-9a-f]{8}"));
  EXPECT_EQ(name_with({{"GRADWIRE_JOIN", "/shared/./run.join"}}), began);
  EXPECT_NE(name_with({{"GRADWIRE_JOIN", "/other/run.join"}}), began);
}

// Two jobs of the same second differ by it. Mutation tried: the name has no number of the process.
TEST(JobName, OfAProcessAloneNamesHostTimeAndProcess) {
  const std::string name = name_with({});
  EXPECT_THAT(name, MatchesRegex(".*-[0-9]{8}-[0-9]{6}-[0-9]+"));
  EXPECT_TRUE(name.ends_with("-" + std::to_string(::getpid()))) << name;
  EXPECT_EQ(name_with({}), name) << "the same at any time";
  EXPECT_EQ(name_of_started_job(""), name);
  EXPECT_EQ(name_with({{"SLURM_JOB_ID", "12"}}), "12-" + name) << "two programs of one allocation are two jobs";
}

}  // namespace
}  // namespace gradwire
