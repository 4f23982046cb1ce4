// What `gradwire run --link` and --compare accept, refuse and print. tests/systems/emulated_link runs a job over one.
#include "cli/emulated_link.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "cli/comparison.hpp"
#include "gradwire/error.hpp"

namespace gradwire::cli {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

template <typename Call>
std::string refused(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(EmulatedLink, IsARateAndALatency) {
  const EmulatedLink plain = parse_emulated_link("1Gbit/s");
  EXPECT_DOUBLE_EQ(plain.bytes_per_second, 125e6);
  EXPECT_EQ(plain.latency.count(), 0);
  const EmulatedLink late = parse_emulated_link("100Mbit/s,5ms");
  EXPECT_DOUBLE_EQ(late.bytes_per_second, 12.5e6);
  EXPECT_EQ(late.latency, milliseconds(5));
  EXPECT_EQ(late.text, "100Mbit/s,5ms");
}

TEST(EmulatedLink, OtherTextsAreRefusedWithAnExample) {
  for (const char* text : {"", "fast", "1Gbit/s,", "1Gbit/s,fast", "1Gbit/s 5ms"}) {
    EXPECT_THAT(refused([&] { static_cast<void>(parse_emulated_link(text)); }),
                AllOf(HasSubstr("--link"), HasSubstr("1Gbit/s,5ms")))
        << text;
  }
}

TEST(EmulatedLink, ValuesThatCannotBeEmulatedAreRefused) {
  const auto refusal = [](const char* text) { return refused([&] { static_cast<void>(parse_emulated_link(text)); }); };
  EXPECT_THAT(refusal("1kbit/s"), HasSubstr("less than 8kbit/s"));
  EXPECT_THAT(refusal("101Gbit/s"), HasSubstr("101Gbit/s is more than 100Gbit/s"));
  EXPECT_THAT(refusal("99999999999999999999GB/s"), HasSubstr("more than 100Gbit/s"));
  EXPECT_THAT(refusal("1Gbit/s,10001ms"), HasSubstr("delays packets by more than 10s"));
  EXPECT_DOUBLE_EQ(parse_emulated_link("100Gbit/s,10s").bytes_per_second, 12.5e9);
}

TEST(EmulatedLink, CommandsWithOtherHostsAreRefused) {
  const std::string job = GRADWIRE_PROBE;
  EXPECT_THAT(refused([&] {
                check_link_command({"mpirun", "-H", "localhost,node7", job}, 0, Library::open_mpi);
              }),
              HasSubstr("the host node7"));
  EXPECT_NO_THROW(check_link_command({"mpirun", "-H", "localhost:4", job}, 0, Library::open_mpi));
  EXPECT_NO_THROW(check_link_command({"mpirun", "-np", "4", job}, 0, Library::open_mpi));
  EXPECT_THAT(refused([&] { check_link_command({"srun", job}, std::nullopt, std::nullopt); }), HasSubstr("mpirun"));
  ::setenv("SLURM_JOB_NUM_NODES", "2", 1);
  EXPECT_THAT(refused([&] { check_link_command({"mpirun", job}, 0, Library::open_mpi); }), HasSubstr("has 2 hosts"));
  ::setenv("SLURM_JOB_NUM_NODES", "1", 1);
  EXPECT_NO_THROW(check_link_command({"mpirun", job}, 0, Library::open_mpi));
  ::unsetenv("SLURM_JOB_NUM_NODES");
}

TEST(EmulatedLink, SettingsThatLeadAroundItAreRefused) {
  const std::string job = GRADWIRE_PROBE;
  const auto refusal = [&](std::vector<std::string> options, Library library) {
    options.insert(options.begin(), "mpirun");
    options.push_back(job);
    return refused([&] { check_link_command(options, 0, library); });
  };
  for (const std::vector<std::string>& options : std::vector<std::vector<std::string>>{
           {"--mca", "pml", "ucx"},
           {"-np", "2", "-mca", "btl", "self,vader"},
           {"--gmca", "btl_tcp_if_include", "eth0"},
           {"-gmca", "btl_tcp_if_exclude", "lo"},
           {"-x", "OMPI_MCA_btl=self,vader"},
           {"-np", "1", job, ":", "-np", "1", "--x", "OMPI_MCA_oob_tcp_if_include=eth0"}}) {
    const std::string setting =
        options.back().find('=') != std::string::npos
            ? options[options.size() - 2] + " " + options.back()
            : options[options.size() - 3] + " " + options[options.size() - 2] + " " + options.back();
    EXPECT_THAT(refusal(options, Library::open_mpi),
                AllOf(HasSubstr("the command has " + setting + ","), HasSubstr("leave that out")));
  }
  EXPECT_THAT(refusal({"-genv", "UCX_TLS", "all"}, Library::mpich), HasSubstr("has -genv UCX_TLS all,"));
  EXPECT_THAT(refusal({"-env", "UCX_NET_DEVICES=eth0"}, Library::mpich), HasSubstr("has -env UCX_NET_DEVICES=eth0,"));
  EXPECT_THAT(refusal({"-env", "MPIR_CVAR_NOLOCAL", "0"}, Library::mpich), HasSubstr("has -env MPIR_CVAR_NOLOCAL 0,"));
}

TEST(EmulatedLink, OtherSettingsAreNotRefused) {
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"mpirun", "--mca", "btl", "tcp,self", "--mca", "pml", "ob1"},
           {"mpirun", "--mca", "mpi_yield_when_idle", "1", "-x", "OMPI_MCA_btl", "-x", "HOME=/mine"}}) {
    EXPECT_NO_THROW(check_link_command(command, 0, Library::open_mpi));
  }
  EXPECT_NO_THROW(
      check_link_command({"mpiexec", "-genv", "UCX_TLS", "tcp,self", "-genv", "HOME", "/mine"}, 0, Library::mpich));
}

RunOptions with_codec() {
  RunOptions options;
  options.codec = "int8";
  return options;
}

TEST(Comparison, RefusesWhatItCouldNotCompare) {
  const auto refusal = [](const RunOptions& options) { return refused([&] { check_comparison(options); }); };
  EXPECT_NO_THROW(check_comparison(with_codec()));
  EXPECT_THAT(refusal({}), HasSubstr("--codec auto"));
  RunOptions options = with_codec();
  options.dry_run = true;
  EXPECT_THAT(refusal(options), HasSubstr("dry run"));
  options = with_codec();
  options.restarts = 1;
  EXPECT_THAT(refusal(options), HasSubstr("--restarts"));
  options = with_codec();
  options.join = "file";
  EXPECT_THAT(refusal(options), HasSubstr("--join"));
}

TEST(Comparison, RunsTwiceAndPrintsRatios) {
  std::vector<bool> runs;
  const auto run = [&](bool without) {
    runs.push_back(without);
    return without ? MeasuredRun{.time = milliseconds(4000), .loopback_bytes = 400 << 20}
                   : MeasuredRun{.time = milliseconds(1000),
                                 .loopback_bytes = 100 << 20,
                                 .dense_bytes = 1000 << 20,
                                 .sent_bytes = 125 << 20};
  };
  std::ostringstream over_link;
  EXPECT_EQ(compare(run, "1Gbit/s", over_link), 0);
  EXPECT_EQ(runs, (std::vector{true, false}));
  EXPECT_THAT(over_link.str(), AllOf(HasSubstr("runs the job twice"), HasSubstr("written twice"), HasSubstr("400MiB"),
                                     HasSubstr("100MiB"), HasSubstr("emulated link: 1Gbit/s"),
                                     ::testing::ContainsRegex("ratio +4 +4\n")));
  std::ostringstream counted;
  EXPECT_EQ(compare(run, std::nullopt, counted), 0);
  EXPECT_THAT(counted.str(),
              AllOf(HasSubstr("1000MiB"), HasSubstr("125MiB"), ::testing::ContainsRegex("ratio +4 +8\n")));
  EXPECT_THAT(counted.str(), ::testing::Not(HasSubstr("emulated")));
}

// Mutation tried: the rows and the ratio stay as in a job without a session.
TEST(Comparison, AJobWithASessionIsNotTakenForItsOwnBaseline) {
  const auto run = [](bool without) {
    return without ? MeasuredRun{.time = milliseconds(1460), .loopback_bytes = 10 << 20}
                   : MeasuredRun{.time = milliseconds(1590),
                                 .loopback_bytes = 10 << 20,
                                 .compressed_calls = 0,
                                 .has_session = true};
  };
  std::ostringstream out;
  EXPECT_EQ(compare(run, "1Gbit/s", out), 0);
  EXPECT_THAT(out.str(), AllOf(HasSubstr("\nwithout the drop-in "), HasSubstr("\nwith the drop-in "),
                               HasSubstr("the job's own session compressed in both runs"), HasSubstr("exact.toml"),
                               ::testing::Not(HasSubstr("\nratio"))));
}

TEST(Comparison, WithoutACompressedCallThereIsNoRatio) {
  const auto run = [](bool without) {
    return MeasuredRun{.time = milliseconds(without ? 1320 : 1000), .loopback_bytes = 10 << 20, .compressed_calls = 0};
  };
  std::ostringstream out;
  EXPECT_EQ(compare(run, "1Gbit/s", out), 0);
  EXPECT_THAT(out.str(), AllOf(HasSubstr("\nwithout gradwire "), HasSubstr("the drop-in compressed no call"),
                               HasSubstr("noise"), ::testing::Not(HasSubstr("\nratio"))));
}

TEST(Comparison, AFailedRunEndsIt) {
  int runs = 0;
  std::ostringstream out;
  const auto fails = [&](bool) { return MeasuredRun{.status = 3 + runs++}; };
  EXPECT_EQ(compare(fails, "1Gbit/s", out), 3);
  EXPECT_EQ(runs, 1);
  EXPECT_THAT(out.str(), HasSubstr("status 3 without gradwire"));
  const auto fails_with = [&](bool without) { return MeasuredRun{.status = without ? 0 : 7}; };
  EXPECT_EQ(compare(fails_with, "1Gbit/s", out), 7);
}

}  // namespace
}  // namespace gradwire::cli
