// Tests command lines of launchers: they are recognised, and get an environment for every rank.
#include "cli/launch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <random>

#include "cli/elf.hpp"
#include "gradwire/error.hpp"

namespace gradwire::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

using Command = std::vector<std::string>;
const Environment kRanks{{"GRADWIRE_REPORT", "/r.json"}, {"LD_PRELOAD", "/p.so"}};

TEST(Launch, FindsTheLauncher) {
  EXPECT_EQ(find_launcher({"mpirun", "-np", "4", "./job"}), 0U);
  EXPECT_EQ(find_launcher({"timeout", "60", "/opt/mpi/bin/mpiexec", "./job"}), 2U);
  EXPECT_EQ(find_launcher({"mpirun.mpich", "./job"}), 0U);
  EXPECT_EQ(find_launcher({"mpiexec.hydra", "./job"}), 0U);
  EXPECT_EQ(find_launcher({"orterun", "./job"}), 0U);
  EXPECT_EQ(find_launcher({"./job", "mpirunner"}), std::nullopt);
  EXPECT_EQ(find_launcher({"./job", "data/mpirun.conf"}), std::nullopt);
  EXPECT_EQ(find_launcher({}), std::nullopt);
}

// A script's arguments are its own, and so are an MPI program's.
TEST(Launch, WordsBehindAScriptAreNoLauncher) {
  const std::string script = testing::TempDir() + "launch_test_script";
  std::ofstream(script) << "#!/bin/sh\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  for (const Command& command : std::vector<Command>{{script, "mpirun"},
                                                     {"timeout", "60", script, "--launcher", "/usr/bin/mpirun"},
                                                     {"sh", "-c", "exec /usr/bin/mpirun"},
                                                     {"env", "A=1", "python3", "train.py", "mpiexec"},
                                                     {GRADWIRE_MPICH_PROBE, "mpirun"}}) {
    EXPECT_EQ(find_launcher(command), std::nullopt) << command.front() << ' ' << command.back();
  }
  EXPECT_EQ(find_launcher({"env", "A=/bin/sh", "mpirun", script}), 2U);
  std::filesystem::remove(script);
}

TEST(Launch, SeesARunInsideARun) {
  EXPECT_TRUE(repeats_itself({"gradwire", "run", "--", "mpirun", "./job"}));
  EXPECT_TRUE(repeats_itself({"timeout", "60", "/opt/bin/gradwire", "run", "mpirun", "./job"}));
  EXPECT_TRUE(repeats_itself({"mpirun", "-np", "2", "gradwire", "run", "./job"}));
  EXPECT_FALSE(repeats_itself({"mpirun", "-np", "2", "gradwire", "info", "--link"}));
  EXPECT_FALSE(repeats_itself({"sh", "say", "gradwire", "run"}));
  EXPECT_FALSE(repeats_itself({}));
}

TEST(Launch, TellsLibrariesApart) {
  EXPECT_EQ(identify("mpirun (Open MPI) 4.1.4\n\nReport bugs to"), Library::open_mpi);
  EXPECT_EQ(identify("mpirun (OpenRTE) 4.1.4\n"), Library::open_mpi);
  EXPECT_EQ(identify("HYDRA build details:\n    Version: 4.0.2\n"), Library::mpich);
  EXPECT_EQ(identify("Intel(R) MPI Library for Linux* OS, Version 2021.9\n"), Library::mpich);
  EXPECT_EQ(identify("slurm 22.05"), std::nullopt);
  EXPECT_EQ(identify(""), std::nullopt);
}

TEST(Launch, OpenMpiGetsAList) {
  const Command command{"mpirun", "-np", "2", "./job", "--flag"};
  const Launch launch = make_launch(command, 0, Library::open_mpi, kRanks, "");
  EXPECT_EQ(launch.command, command);
  EXPECT_THAT(launch.environment,
              ElementsAre(Pair("OMPI_MCA_mca_base_env_list", "GRADWIRE_REPORT=/r.json;LD_PRELOAD=/p.so")));
  const Launch more = make_launch(command, 0, Library::open_mpi, kRanks, "USERS=1");
  EXPECT_THAT(more.environment,
              ElementsAre(Pair("OMPI_MCA_mca_base_env_list", "USERS=1;GRADWIRE_REPORT=/r.json;LD_PRELOAD=/p.so")));
}

TEST(Launch, OpenMpiTakesTheListOfTheCommandLine) {
  const Launch launch =
      make_launch({"mpirun", "--mca", "mca_base_env_list", "A=1", "./job"}, 0, Library::open_mpi, kRanks, "IGNORED=1");
  EXPECT_THAT(launch.command, ElementsAre("mpirun", "--mca", "mca_base_env_list",
                                          "A=1;GRADWIRE_REPORT=/r.json;LD_PRELOAD=/p.so", "./job"));
  EXPECT_THAT(launch.environment, IsEmpty());
}

// Open MPI refuses -x beside the list, and takes -x for one of the programs that ":" separates.
TEST(Launch, OpenMpiGetsExportsBesideThoseOfTheCommand) {
  const Launch launch = make_launch({"timeout", "9", "mpirun", "-x", "A", "./job", ":", "-np", "1", "./other"}, 2,
                                    Library::open_mpi, kRanks, "");
  EXPECT_THAT(launch.command, ElementsAre("timeout", "9", "mpirun", "-x", "GRADWIRE_REPORT=/r.json", "-x",
                                          "LD_PRELOAD=/p.so", "-x", "A", "./job", ":", "-x", "GRADWIRE_REPORT=/r.json",
                                          "-x", "LD_PRELOAD=/p.so", "-np", "1", "./other"));
  EXPECT_THAT(launch.environment, IsEmpty());
  const Launch odd = make_launch({"mpirun", "./job"}, 0, Library::open_mpi, {{"GRADWIRE_REPORT", "/a;b"}}, "");
  EXPECT_THAT(odd.command, ElementsAre("mpirun", "-x", "GRADWIRE_REPORT=/a;b", "./job"));
}

// prterun's own personality does not read Open MPI's list.
TEST(Launch, PrterunGetsExports) {
  const Launch launch = make_launch({"prterun", "-n", "2", "./job"}, 0, Library::open_mpi, kRanks, "");
  EXPECT_THAT(launch.command,
              ElementsAre("prterun", "-x", "GRADWIRE_REPORT=/r.json", "-x", "LD_PRELOAD=/p.so", "-n", "2", "./job"));
  EXPECT_THAT(launch.environment, IsEmpty());
}

// A list in a file applies only if the environment has none, and ours would go there.
TEST(Launch, OpenMpiKeepsTheListOfAFile) {
  const Command command{"mpirun", "./job"};
  const auto list = [&](const McaFiles& files, const std::string& inherited = "") {
    const Launch launch = make_launch(command, 0, Library::open_mpi, kRanks, inherited, files);
    return launch.environment.empty() ? "" : launch.environment[0].second;
  };
  EXPECT_EQ(list({.list = "FOO=1;BAR"}), "FOO=1;BAR;GRADWIRE_REPORT=/r.json;LD_PRELOAD=/p.so");
  EXPECT_EQ(list({.list = "FOO=1"}, "BAZ=2"), "BAZ=2;GRADWIRE_REPORT=/r.json;LD_PRELOAD=/p.so") << "it is unchanged";
  EXPECT_EQ(list({.list = "FOO=1+BAR", .delimiter = '+'}), "FOO=1+BAR+GRADWIRE_REPORT=/r.json+LD_PRELOAD=/p.so");
  EXPECT_THROW(list({.list = "LD_PRELOAD=/x.so"}), Error);
  EXPECT_THROW(list({.list = "A+LD_PRELOAD=/x.so", .delimiter = '+'}), Error);
  EXPECT_THROW(list({.exports = {"LD_PRELOAD"}}), Error);
  const Launch launch = make_launch(command, 0, Library::open_mpi, kRanks, "", {.exports = {"FOO=1"}});
  EXPECT_THAT(launch.environment, IsEmpty()) << "Open MPI refuses a list beside -x of a file";
  EXPECT_THAT(launch.command,
              ElementsAre("mpirun", "-x", "GRADWIRE_REPORT=/r.json", "-x", "LD_PRELOAD=/p.so", "./job"));
}

class McaFilesTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_ / "home/.openmpi"); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  McaFiles read(const Command& command, const std::map<std::string, std::string>& more = {}) const {
    return read_mca_files(command, 0, [&](const char* name) -> std::string {
      const auto found = more.find(name);
      return found != more.end()                       ? found->second
             : std::string_view(name) == "HOME"        ? (folder_ / "home").string()
             : std::string_view(name) == "OPAL_PREFIX" ? (folder_ / "prefix").string()
                                                       : "";
    });
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("gradwire_mca_" + std::to_string(::getpid()));
};

TEST_F(McaFilesTest, ReadsTheFilesThatMpirunReads) {
  const Command plain{"mpirun", "./job"};
  EXPECT_FALSE(read(plain).list);
  std::filesystem::create_directories(folder_ / "prefix/etc");
  write("prefix/etc/openmpi-mca-params.conf", "mca_base_env_list = SYSTEM=1\n");
  EXPECT_EQ(read(plain).list, "SYSTEM=1");
  write("home/.openmpi/mca-params.conf", "# mca_base_env_list = NOT=1\nbtl = self\n  mca_base_env_list=FOO=1;BAR=2 \n");
  EXPECT_EQ(read(plain).list, "FOO=1;BAR=2") << "the user's file counts before the system's";
  EXPECT_EQ(read(plain).delimiter, ';');
  const std::string named = write("named", "mca_base_env_list_delimiter = +\nmca_base_env_list = A+B=3\n");
  for (const McaFiles& files : {read({"mpirun", "--mca", "mca_base_param_files", named, "./job"}),
                                read(plain, {{"OMPI_MCA_mca_base_param_files", named}})}) {
    EXPECT_EQ(files.list, "A+B=3");
    EXPECT_EQ(files.delimiter, '+');
  }
  EXPECT_EQ(read(plain, {{"OMPI_MCA_mca_base_env_list_delimiter", ","}}).delimiter, ',');
}

TEST_F(McaFilesTest, ReadsTheFilesOfTune) {
  write("home/.openmpi/mca-params.conf", "mca_base_env_list = HOME_LIST=1\n");
  const std::string exports = write("exports", "-x FOO=1 -x 'BAR=2 3'\n# -x NOT\n--x BAZ\n");
  const std::string words = write("words", "-mca btl self --mca mca_base_env_list \"FOO=1;BAR=2\"\n");
  const std::string lines = write("lines", "mca_base_env_list = FOO=9\n");
  EXPECT_THAT(read({"mpirun", "--tune", exports, "./job"}).exports, ElementsAre("FOO=1", "BAR=2 3", "BAZ"));
  EXPECT_EQ(read({"mpirun", "-tune", words, "./job"}).list, "FOO=1;BAR=2") << "this file counts before that of HOME";
  EXPECT_EQ(read({"mpirun", "--tune", lines, "./job"}).list, "FOO=9");
  EXPECT_EQ(read({"mpirun", "./job"}, {{"OMPI_MCA_mca_base_envar_file_prefix", lines}}).list, "FOO=9");
  const McaFiles both = read({"mpirun", "--tune", exports + "," + lines, "./job"});
  EXPECT_EQ(both.list, "FOO=9");
  EXPECT_EQ(both.exports.size(), 3U);
  EXPECT_EQ(read({"mpirun", "--tune", "/no/such/file", "./job"}).list, "HOME_LIST=1");
}

TEST(Launch, ScriptsAndSrunInherit) {
  const Launch script = inherit({"./job.sh", "--export=NONE"}, kRanks, "");
  EXPECT_THAT(script.command, ElementsAre("./job.sh", "--export=NONE")) << "an argument of the script";
  EXPECT_EQ(script.environment, kRanks);

  const auto exported = [](const Command& command) { return inherit(command, kRanks, "").command[2]; };
  EXPECT_EQ(exported({"srun", "-N2", "--export=NONE", GRADWIRE_PROBE}), "--export=GRADWIRE_REPORT,LD_PRELOAD");
  EXPECT_EQ(exported({"srun", "-N2", "--export=A,B=1", GRADWIRE_PROBE}), "--export=A,B=1,GRADWIRE_REPORT,LD_PRELOAD");
  EXPECT_EQ(exported({"srun", "-N2", "--export=ALL,B=1", GRADWIRE_PROBE}), "--export=ALL,B=1");
  EXPECT_EQ(exported({"srun", "--export", "NIL", GRADWIRE_PROBE}), "GRADWIRE_REPORT,LD_PRELOAD");
  EXPECT_EQ(inherit({"srun", "-J", "test", "--export=NONE", GRADWIRE_PROBE}, kRanks, "").command[3],
            "--export=GRADWIRE_REPORT,LD_PRELOAD")
      << "test is a program";
  EXPECT_EQ(exported({"srun", GRADWIRE_PROBE, "--export=NONE"}), "--export=NONE") << "an argument of the job";
  EXPECT_THROW(exported({"srun", "-N2", "--export=LD_PRELOAD=/x", GRADWIRE_PROBE}), Error);

  EXPECT_THAT(inherit({"./job.sh"}, kRanks, "NONE").environment,
              ElementsAre(kRanks[0], kRanks[1], Pair("SLURM_EXPORT_ENV", "GRADWIRE_REPORT,LD_PRELOAD")));
  EXPECT_TRUE(only_submits({"/usr/bin/sbatch", "job.sh"}));
  EXPECT_FALSE(only_submits({"salloc", "sbatch"}));
}

TEST(Launch, MpichGetsGenv) {
  const Launch launch = make_launch({"mpiexec", "-n", "2", "./job"}, 0, Library::mpich, kRanks, "");
  EXPECT_THAT(launch.command, ElementsAre("mpiexec", "-genv", "GRADWIRE_REPORT", "/r.json", "-genv", "LD_PRELOAD",
                                          "/p.so", "-n", "2", "./job"));
  EXPECT_THAT(launch.environment, IsEmpty());
}

TEST(Launch, RefusesACommandThatSetsTheSame) {
  const auto refused = [](const Command& command, Library library, const std::string& list = "") {
    try {
      (void)make_launch(command, 0, library, kRanks, list);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refused({"mpirun", "-x", "LD_PRELOAD=/x.so", "./job"}, Library::open_mpi), HasSubstr("sets LD_PRELOAD"));
  EXPECT_THAT(refused({"mpirun", "-x", "LD_PRELOAD", "./job"}, Library::open_mpi), HasSubstr("sets LD_PRELOAD"));
  EXPECT_THAT(refused({"mpirun", "--mca", "mca_base_env_list", "A;GRADWIRE_REPORT=x", "./job"}, Library::open_mpi),
              HasSubstr("sets GRADWIRE_REPORT"));
  EXPECT_THAT(refused({"mpirun", "./job"}, Library::open_mpi, "LD_PRELOAD=/x.so"), HasSubstr("sets LD_PRELOAD"));
  EXPECT_THAT(refused({"mpiexec", "-genv", "LD_PRELOAD", "/x.so", "./job"}, Library::mpich),
              HasSubstr("sets LD_PRELOAD"));
  EXPECT_THAT(refused({"mpiexec", "-n", "1", "-env", "LD_PRELOAD", "/x.so", "./job"}, Library::mpich),
              HasSubstr("sets LD_PRELOAD"));
  EXPECT_EQ(refused({"mpirun", "-x", "LD_PRELOADED=1", "./job"}, Library::open_mpi), "accepted");
}

TEST(Launch, FindsTheJobAndHowItIsLinked) {
  const std::string job = GRADWIRE_PROBE;
  EXPECT_EQ(find_job({"mpirun", "--mca", "plm_rsh_agent", "/bin/sh", "-np", "2", job, "/bin/sh"}, 1), job);
  EXPECT_EQ(find_job({"mpiexec", "-launcher", "sh", "-launcher-exec", "/bin/sh", "-n", "2", job}, 1), job);
  EXPECT_EQ(find_job({"mpirun", "-np", "2", "./no-such-job"}, 1), std::nullopt);
  EXPECT_FALSE(statically_linked(job));
  EXPECT_TRUE(statically_linked(GRADWIRE_STATIC_PROBE));
  EXPECT_FALSE(statically_linked(GRADWIRE_SOURCE_DIR "/tests/cli/agent")) << "a script";
  EXPECT_FALSE(statically_linked("/no/such/file"));
  EXPECT_EQ(linked_with(job), std::nullopt);
  EXPECT_EQ(linked_with(GRADWIRE_MPICH_PROBE), Library::mpich);
  EXPECT_EQ(linked_with("/no/such/file"), std::nullopt);
}

// Programs are cut off, or some of their bytes are changed, from a seed.
TEST(Launch, DamagedProgramsAreRead) {
  const auto file = std::filesystem::temp_directory_path() / ("gradwire_elf_" + std::to_string(::getpid()));
  std::ifstream stream(GRADWIRE_MPICH_PROBE, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(stream), {}};
  std::mt19937 random(14);
  for (int i = 0; i < 300; ++i) {
    std::string bytes = whole.substr(0, i % 3 == 0 ? random() % 2048 : whole.size());
    for (int change = 0; change < 8 && !bytes.empty(); ++change) {
      bytes[random() % std::min<std::size_t>(bytes.size(), 2048)] = static_cast<char>(random());
    }
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
    static_cast<void>(statically_linked(file));
    static_cast<void>(linked_with(file));
  }
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace gradwire::cli
