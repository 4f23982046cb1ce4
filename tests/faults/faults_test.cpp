// MPI processes end in every way at moments of chance. GRADWIRE_FAULTS=500: so many jobs, from GRADWIRE_SEED on. No job
// hangs, the ranks that are left hold the same bits, and each names who is gone.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <numeric>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/support/run_program.hpp"

namespace gradwire::test {
namespace {

int environment_int(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

struct Case {
  int ranks = 3;
  std::string codec;
  std::map<int, std::string> faults = {};  // by rank: "kill:120"

  [[nodiscard]] std::string to_text() const {
    std::string text = codec;
    for (const auto& [rank, fault] : faults) {
      text += " " + std::to_string(rank) + ":" + fault;
    }
    return text;
  }
};

Case draw(std::mt19937& random) {
  static const char* const kCodecs[] = {"exact", "int8", "int4", "topk(1%)+int8", "every 4"};
  static const char* const kKinds[] = {"kill", "kill", "abort", "exit", "stop"};
  Case drawn{.ranks = 3 + static_cast<int>(random() % 3), .codec = kCodecs[random() % std::size(kCodecs)]};
  const int faults = drawn.ranks >= 4 && random() % 3 == 0 ? 2 : 1;
  while (static_cast<int>(drawn.faults.size()) < faults) {
    const std::string kind = faults == 1 ? kKinds[random() % std::size(kKinds)] : "kill";
    drawn.faults[static_cast<int>(random() % static_cast<unsigned>(drawn.ranks))] =
        kind + ":" + std::to_string(1 + random() % 1200);
  }
  return drawn;
}

std::vector<double> times_in(const std::string& output, const std::string& word) {
  std::vector<double> times;
  const std::regex pattern(word + " ([0-9.]+)");
  for (auto at = std::sregex_iterator(output.begin(), output.end(), pattern); at != std::sregex_iterator(); ++at) {
    times.push_back(std::stod((*at)[1]));
  }
  return times;
}

struct Survivor {
  int rank;
  int world;
  std::string hash;
  std::string lost;
};

std::vector<Survivor> survivors_in(const std::string& output) {
  std::vector<Survivor> found;
  const std::regex pattern("survivor ([0-9]+) world ([0-9]+) hash ([0-9a-f]+) lost(.*)");
  for (auto at = std::sregex_iterator(output.begin(), output.end(), pattern); at != std::sregex_iterator(); ++at) {
    std::string lost = (*at)[4];  // in the order in which they were missed, or at once
    std::vector<std::string> names;
    const std::regex name("\\[([^\\]]*)\\]");
    for (auto one = std::sregex_iterator(lost.begin(), lost.end(), name); one != std::sregex_iterator(); ++one) {
      names.push_back((*one)[0]);
    }
    std::sort(names.begin(), names.end());
    lost = std::accumulate(names.begin(), names.end(), std::string());
    found.push_back({std::stoi((*at)[1]), std::stoi((*at)[2]), (*at)[3], lost});
  }
  return found;
}

// The option of the launcher by which ranks outlive others, Open MPI's unless GRADWIRE_RECOVERY has another; empty: it
// has none.
std::string lets_others_live() {
  if (const char* option = std::getenv("GRADWIRE_RECOVERY"); option != nullptr) {
    return " " + std::string(option);
  }
  const std::string version = run_program(std::string(GRADWIRE_MPIEXEC) + " --version").output;
  return std::regex_search(version, std::regex("Open( MPI|RTE)\\)")) ? " --enable-recovery" : "";
}

// Until "-np".
std::string command(const std::string& lets) {
  const std::string as_root =
      ::getuid() == 0 ? "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 "
                        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                      : "";
  return as_root + "timeout -k 5 90 " + GRADWIRE_MPIEXEC + lets + " --oversubscribe --mca mpi_yield_when_idle 1 -np ";
}

TEST(Faults, TheOthersGoOn) {
  const int jobs = environment_int("GRADWIRE_FAULTS", 20);
  const int first = environment_int("GRADWIRE_SEED", 1);
  const std::string lets = lets_others_live();
  if (lets.empty()) {
    GTEST_SKIP() << "this launcher ends the job when a rank ends";
  }
  const std::string mpirun = command(lets);
  std::vector<double> back;
  std::map<std::string, int> struck;
  for (int seed = first; seed < first + jobs; ++seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    const Case drawn = draw(random);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + std::to_string(drawn.ranks) + " ranks, " + drawn.to_text());
    const Outcome outcome = run_program(mpirun + std::to_string(drawn.ranks) + " " + GRADWIRE_FAULT_JOB + " 40 '" +
                                        drawn.codec + "'" + drawn.to_text().substr(drawn.codec.size()));
    ASSERT_NE(outcome.status, 124) << "it hangs:\n" << outcome.output;
    const std::vector<double> died = times_in(outcome.output, "dies");
    const std::vector<Survivor> survivors = survivors_in(outcome.output);
    ASSERT_FALSE(survivors.empty()) << outcome.output;
    EXPECT_GE(survivors.size() + died.size(), static_cast<std::size_t>(drawn.ranks)) << outcome.output;
    for (const Survivor& one : survivors) {
      EXPECT_EQ(one.hash, survivors[0].hash) << outcome.output;
      EXPECT_EQ(one.world, survivors[0].world) << outcome.output;
      EXPECT_EQ(one.lost, survivors[0].lost) << outcome.output;
      const auto named = std::count(one.lost.begin(), one.lost.end(), '[');
      EXPECT_EQ(one.world + named, drawn.ranks) << "it names who is gone\n" << outcome.output;
    }
    if (survivors.size() < static_cast<std::size_t>(drawn.ranks)) {
      for (const auto& [rank, fault] : drawn.faults) {
        ++struck[fault.substr(0, fault.find(':'))];
      }
    }
    const std::vector<double> came = times_in(outcome.output, "back");
    const bool stopped = drawn.faults.begin()->second.starts_with("stop");
    if (died.size() == 1 && !came.empty() && !stopped) {
      back.push_back(*std::max_element(came.begin(), came.end()) - died[0]);
    }
  }
  for (const auto& [kind, count] : struck) {
    std::cout << kind << " " << count << ", ";
  }
  std::sort(back.begin(), back.end());
  if (!back.empty()) {
    std::cout << "back in training after one has ended, of " << back.size() << ": median " << back[back.size() / 2]
              << " s, worst " << back.back() << " s\n";
  }
  EXPECT_FALSE(struck.empty()) << "nobody ended";
}

// Three ranks and a spare; one of the four dies at a moment of chance.
TEST(Faults, ASpareTakesThePlace) {
  const std::string lets = lets_others_live();
  if (lets.empty()) {
    GTEST_SKIP() << "this launcher ends the job when a rank ends";
  }
  int whole = 0;
  for (const int victim : {0, 1, 2, 3}) {
    std::mt19937 random(static_cast<unsigned>(victim) + 1);
    const std::string fault = std::to_string(victim) + ":kill:" + std::to_string(100 + random() % 200);
    SCOPED_TRACE(fault);
    const Outcome outcome = run_program("FAULT_SPARES=1 " + command(lets) + "4 " + GRADWIRE_FAULT_JOB + " 80 " +
                                        (victim % 2 == 0 ? "int4 " : "'every 4' ") + fault);
    ASSERT_NE(outcome.status, 124) << "it hangs:\n" << outcome.output;
    const std::vector<Survivor> survivors = survivors_in(outcome.output);
    ASSERT_EQ(survivors.size(), 3U) << outcome.output;
    for (const Survivor& one : survivors) {
      EXPECT_EQ(one.hash, survivors[0].hash) << outcome.output;
      EXPECT_EQ(one.world, survivors[0].world) << outcome.output;
    }
    whole += survivors[0].world == 3 ? 1 : 0;
  }
  EXPECT_EQ(whole, 4) << "each time the world is whole again";
  const Outcome outcome = run_program("FAULT_SPARES=1 " + command(lets) + "3 " + GRADWIRE_FAULT_JOB + " 5 int4");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("unused 2"), std::string::npos) << outcome.output;
}

}  // namespace
}  // namespace gradwire::test
