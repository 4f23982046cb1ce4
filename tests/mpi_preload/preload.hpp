// Runs the job of plain_job.hpp under the preload, for each MPI that is installed.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/run_program.hpp"

namespace gradwire::test {

using nlohmann::json;

// One MPI library: how its jobs are started, and the files that were built for it.
struct Library {
  std::string name;
  std::string launch;  // the part before the number of ranks
  std::string job;
  std::string drop_in;
  std::string sum;        // a small program
  std::string own_calls;  // a library that counts the drop-in's own calls of MPI
};

inline void PrintTo(const Library& library, std::ostream* stream) { *stream << library.name; }

inline std::vector<Library> libraries() {
  std::vector<Library> all;
#ifdef GRADWIRE_OPEN_MPI_JOB
  all.push_back({"OpenMpi",
                 "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout -k 5 120 '" GRADWIRE_MPIEXEC
                 "' --oversubscribe --mca mpi_yield_when_idle 1 -np",
                 GRADWIRE_OPEN_MPI_JOB, GRADWIRE_OPEN_MPI_DROP_IN, GRADWIRE_OPEN_MPI_SUM, GRADWIRE_OPEN_MPI_OWN_CALLS});
#endif
#ifdef GRADWIRE_MPICH_JOB
  all.push_back({"Mpich", "timeout -k 5 120 '" GRADWIRE_MPICH_EXEC "' -n", GRADWIRE_MPICH_JOB, GRADWIRE_MPICH_DROP_IN,
                 GRADWIRE_MPICH_SUM, GRADWIRE_MPICH_OWN_CALLS});
#endif
  return all;
}

class Preload : public ::testing::TestWithParam<Library> {
 protected:
  void SetUp() override {
    static std::map<std::string, bool> works;
    if (!works.contains(GetParam().name)) {
      works[GetParam().name] = contains(plain(2, "two_ranks"), "two_ranks ok");
    }
    if (!works[GetParam().name]) {  // for example MPICH of Ubuntu 24.04
      GTEST_SKIP() << "its launcher starts ranks that each are alone";
    }
    work_ = std::filesystem::temp_directory_path() /
            ("gradwire_preload_" + std::to_string(::getpid()) + "_" + GetParam().name);
    std::filesystem::create_directories(work_);
  }
  void TearDown() override { std::filesystem::remove_all(work_); }

  // Compresses whatever it can, while `measuring()` chooses and `observing()` changes nothing.
  [[nodiscard]] std::string preload() const { return observing() + " GRADWIRE_CODEC=int8"; }
  [[nodiscard]] std::string measuring() const { return observing() + " GRADWIRE_CODEC=auto"; }
  [[nodiscard]] std::string observing() const {
    return "LD_PRELOAD='" + GetParam().drop_in + "' GRADWIRE_REPORT='" + report_file() + "'";
  }
  [[nodiscard]] std::string report_file() const { return (work_ / "report.json").string(); }
  [[nodiscard]] json report() const {
    std::ifstream file(report_file());
    EXPECT_TRUE(file) << "no report";
    return json::parse(file, nullptr, false);
  }
  // Returns a setting for a policy with this text in a file.
  [[nodiscard]] std::string policy(const std::string& name, const std::string& text) const {
    const std::string file = (work_ / (name + ".toml")).string();
    std::ofstream(file) << "version = 1\n" << text;
    return "GRADWIRE_CODEC= GRADWIRE_POLICY='" + file + "'";
  }

  [[nodiscard]] Outcome plain(int ranks, const std::string& arguments) const {
    return run_program(GetParam().launch + " " + std::to_string(ranks) + " '" + GetParam().job + "' " + arguments);
  }
  [[nodiscard]] Outcome with(int ranks, const std::string& environment, const std::string& arguments) const {
    std::filesystem::remove(report_file());
    return run_program(GetParam().launch + " " + std::to_string(ranks) + " env " + environment + " '" + GetParam().job +
                       "' " + arguments);
  }
  // Open MPI 5.0's mpirun of Debian 13 crashes if it starts several programs, whatever these are.
  [[nodiscard]] bool starts_several_programs() const {
    const std::string launch = GetParam().launch;
    return run_program(launch + " 1 true :" + launch.substr(launch.rfind(' ')) + " 1 true").status == 0;
  }
#define SKIP_WITHOUT_SEVERAL_PROGRAMS()                                              \
  if (!starts_several_programs()) {                                                  \
    GTEST_SKIP() << "this mpirun cannot start several programs (-np 1 a : -np 1 b)"; \
  }
  // Rank i gets environments[i].
  [[nodiscard]] Outcome with_each(const std::vector<std::string>& environments, const std::string& arguments) const {
    std::filesystem::remove(report_file());
    std::string command = GetParam().launch;
    const std::string number = command.substr(command.rfind(' '));  // "-np"
    for (std::size_t rank = 0; rank < environments.size(); ++rank) {
      command += (rank == 0 ? " 1 env " : " :" + number + " 1 env ") + environments[rank] + " '" + GetParam().job +
                 "' " + arguments;
    }
    return run_program(command);
  }

  static void expect_ok(const Outcome& outcome, const std::string& name) {
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_NE(outcome.output.find(name + " ok"), std::string::npos) << outcome.output;
  }
  static bool contains(const Outcome& outcome, const std::string& text) {
    return outcome.output.find(text) != std::string::npos;
  }

  std::filesystem::path work_;
};

inline std::uint64_t compressed_calls(const json& report) { return report.at("totals").at("compressed_calls"); }

// Returns the reasons of the classes that were passed through.
inline std::vector<std::string> reasons(const json& report) {
  std::vector<std::string> all;
  for (const json& row : report.at("classes")) {
    if (!row.at("reason").is_null()) {
      all.push_back(row.at("reason"));
    }
  }
  return all;
}

inline bool has_reason(const json& report, const std::string& reason) {
  const std::vector<std::string> all = reasons(report);
  return std::find(all.begin(), all.end(), reason) != all.end();
}

// Returns the lines in which a job prints error classes.
inline std::string errors_told(const Outcome& outcome) {
  std::string errors;
  std::istringstream lines(outcome.output);
  for (std::string line; std::getline(lines, line);) {
    errors += line.starts_with("error of") ? line + "\n" : "";
  }
  return errors;
}

}  // namespace gradwire::test
