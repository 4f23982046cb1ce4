// fault_matrix plays jobs whose processes end in every way, in every sync mode, with several codecs; it also plays
// simulated worlds, and sessions whose ranks are threads. Its exit status is 1 if any job hung, differed or did not
// name the ended process.
//
//   fault_matrix --jobs 500 --simulated 100000 --sessions 2000 --markdown faults.md
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <map>
#include <mutex>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "bench/support/command_line.hpp"
#include "bench/support/report.hpp"
#include "bench/support/samples.hpp"
#include "bench/support/text_table.hpp"
#include "tests/faults/fault_cases.hpp"
#include "tests/membership/kinds_of_faults.hpp"
#include "tests/support/run_program.hpp"

namespace gradwire::test {
namespace {

using bench::fixed;
using bench::TextTable;

struct Options {
  int jobs = 500;
  int first_seed = 1;
  int at_once = 2;
  int simulated = 100'000;
  int sessions = 2000;
  std::string markdown;
};

std::string number(std::size_t count) { return std::to_string(count); }

// The sums over a row of jobs.
struct Tally {
  std::size_t jobs = 0, struck = 0, hung = 0, differ = 0, misnamed = 0, missing = 0, late = 0;
  std::vector<double> back;

  void add(const FaultVerdict& verdict) {
    ++jobs;
    struck += verdict.struck() ? 1 : 0;
    hung += verdict.hung ? 1 : 0;
    differ += verdict.differ ? 1 : 0;
    misnamed += verdict.misnamed ? 1 : 0;
    missing += verdict.missing ? 1 : 0;
    late += verdict.late ? 1 : 0;
    if (!std::isnan(verdict.back)) {
      back.push_back(verdict.back);
    }
  }
  [[nodiscard]] std::vector<std::string> cells(const std::string& name) const {
    const auto ms = [&](double fraction) {
      return fixed(back.empty() ? NAN : 1e3 * bench::quantile(back, fraction), 0);
    };
    return {name,         number(jobs), number(struck), number(hung), number(differ), number(misnamed), number(missing),
            number(late), ms(0.5),      ms(1)};
  }
};

class Jobs {
 public:
  void play(const Options& options) {
    play_all(options.first_seed, options.jobs, options.at_once,
             [&](const FaultCase& drawn, const FaultVerdict& verdict) { add(drawn, verdict, options.jobs); });
    std::fputs("\n", stderr);
  }

  [[nodiscard]] TextTable by_end() const {
    TextTable table({"how processes end", "jobs", "struck", "hung", "differ", "wrong names", "missing", "late",
                     "ms until all are back, median", "worst"});
    for (std::size_t end = 0; end < std::size(kEnds); ++end) {
      const auto found = ends_.find(end);
      table.add((found == ends_.end() ? Tally{} : found->second).cells(kEnds[end]));
    }
    table.add(all_.cells("all"));
    return table;
  }

  [[nodiscard]] TextTable by_mode() const {
    std::vector<std::string> header{"codec"};
    header.insert(header.end(), std::begin(kModes), std::end(kModes));
    TextTable table(header);
    for (std::size_t codec = 0; codec < std::size(kCodecs); ++codec) {
      std::vector<std::string> row{kCodecs[codec]};
      for (std::size_t mode = 0; mode < std::size(kModes); ++mode) {
        const auto found = modes_.find({codec, mode});
        row.push_back(found == modes_.end() ? "0" : number(found->second));
      }
      table.add(row);
    }
    return table;
  }

  [[nodiscard]] TextTable by_stage() const {
    std::vector<std::string> header{"stage", "all"};
    header.insert(header.end(), std::begin(kModes), std::end(kModes));
    TextTable table(header);
    for (const auto& [stage, by_mode] : stages_) {
      std::size_t all = 0;
      std::vector<std::string> row{stage, ""};
      for (std::size_t mode = 0; mode < std::size(kModes); ++mode) {
        const auto found = by_mode.find(mode);
        const std::size_t count = found == by_mode.end() ? 0 : found->second;
        row.push_back(number(count));
        all += count;
      }
      row[1] = number(all);
      table.add(row);
    }
    return table;
  }

  /// Returns the failed seeds and their cases, one per line.
  [[nodiscard]] const std::string& wrong() const { return wrong_; }

 private:
  void add(const FaultCase& drawn, const FaultVerdict& verdict, int jobs) {
    all_.add(verdict);
    ends_[drawn.end].add(verdict);
    modes_[{drawn.codec, drawn.mode}] += verdict.struck() ? 1 : 0;
    for (const std::string& stage : verdict.stages) {
      const bool by_message = stage.starts_with("finish") || stage.starts_with("change");
      ++stages_[by_message ? stage : stage.substr(0, stage.find(','))][drawn.mode];
    }
    const std::string wrong = verdict.wrong();
    if (!wrong.empty()) {
      const std::string what = "seed " + std::to_string(drawn.seed) + ": " + drawn.to_text() + ": ";
      std::fprintf(stderr, "\n%s%s\n", what.c_str(), wrong.c_str());
      wrong_ += "- " + what + wrong.substr(0, wrong.find("; \n")) + "\n";
    }
    std::fprintf(stderr, "\r%zu of %d jobs, %zu struck, %zu wrong ", all_.jobs, jobs, all_.struck,
                 all_.hung + all_.differ + all_.misnamed + all_.missing + all_.late);
  }

  Tally all_;
  std::map<std::size_t, Tally> ends_;
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> modes_;  // faults that struck, by codec and mode
  std::map<std::string, std::map<std::size_t, std::size_t>> stages_;  // processes, by mode
  std::string wrong_;
};

// Runs that need no processes: rows of a table, and the failures, one per line.
struct Threads {
  TextTable table{{"in one process", "seeds", "wrong", "s"}};
  std::string wrong;

  void simulate(const Options& options) {
    const auto kinds = std::ssize(membership::kKindsOfFaults);
    for (const membership::KindOfFaults& kind : membership::kKindsOfFaults) {
      const int many = (options.simulated + static_cast<int>(kinds) - 1) / static_cast<int>(kinds);
      const auto begin = std::chrono::steady_clock::now();
      std::atomic<int> next = 1;
      std::atomic<int> failures = 0;
      std::mutex telling;
      std::vector<std::thread> players;
      for (int i = 0; i < options.at_once; ++i) {
        players.emplace_back([&] {
          for (int seed = next++; seed <= many; seed = next++) {
            membership::Simulation simulation(static_cast<unsigned>(seed), kind.faults(seed));
            if (const std::string what = simulation.run(); !what.empty()) {
              const std::lock_guard lock(telling);
              ++failures;
              wrong += std::string("- simulated, ") + kind.name + ", seed " + std::to_string(seed) + ": " + what + "\n";
            }
          }
        });
      }
      for (std::thread& player : players) {
        player.join();
      }
      add(std::string("simulated agreement: ") + kind.name, many, failures, begin);
    }
  }

  // Runs a test of sessions over threads that takes GRADWIRE_SEEDS.
  void run_sessions(const std::string& name, const std::string& filter, int seeds) {
    const auto begin = std::chrono::steady_clock::now();
    const Outcome outcome = run_program("GRADWIRE_SEEDS=" + std::to_string(seeds) + " GRADWIRE_SEEDS_AT_ONCE=16 " +
                                        GRADWIRE_SESSION_TEST + " --gtest_filter=" + filter + " 2>/dev/null");
    std::set<std::string> failed;
    if (outcome.status != 0) {
      const std::regex seed("seed [0-9]+");
      for (auto at = std::sregex_iterator(outcome.output.begin(), outcome.output.end(), seed);
           at != std::sregex_iterator(); ++at) {
        failed.insert((*at)[0]);
      }
      failed.insert(failed.empty() ? "it ended with status " + std::to_string(outcome.status) : *failed.begin());
      std::fprintf(stderr, "%s\n", outcome.output.c_str());
      wrong += "- " + name + ": " + *failed.begin() + "\n";
    }
    add("sessions: " + name, seeds, static_cast<int>(failed.size()), begin);
  }

 private:
  void add(const std::string& name, int seeds, int failed, std::chrono::steady_clock::time_point begin) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::fprintf(stderr, "%s: %d seeds, %d wrong, %.0f s\n", name.c_str(), seeds, failed, took.count());
    table.add({name, std::to_string(seeds), std::to_string(failed), fixed(took.count(), 0)});
  }
};

std::string document(const Jobs& jobs, const Threads& threads, const Options& options) {
  std::string wrong;
  std::istringstream lines(jobs.wrong() + threads.wrong);
  for (std::string text; std::getline(lines, text);) {
    wrong += text.substr(0, bench::kDocumentColumns) + "\n";
  }
  return bench::to_document(
             std::to_string(options.jobs) +
                 " jobs of 3 to 5 MPI processes, and a spare or one that joins in two rows each (seeds from " +
                 std::to_string(options.first_seed) + " on, " + std::to_string(options.at_once) +
                 " at a time), whose processes end in every way, before a message that is drawn at random. A "
                 "third go over TCP of our own, and a third have a table. Struck: a process met its fault. Hung: not "
                 "over after 90 s. Differ: "
                 "those that are left hold other parameters, or went on from "
                 "another step. Wrong names: somebody does not name who is gone, or names another. Missing: a process "
                 "ended that had no fault, or no newcomer took its place. Late: not all were back in training, which "
                 "is to have made another step, 10 s after the last fault. A silent process is missed after 2 s.",
             jobs.by_end()) +
         "\n" +
         bench::to_document(
             "Jobs that were struck, by codec and sync mode (`every`: 4 steps, or outer momentum where the codec drops "
             "something; `async`: results two steps late). A third of the jobs go on from checkpoints and write them, "
             "a third have simulated nodes of two ranks, and half or more copy residuals after every step.",
             jobs.by_mode()) +
         "\n" +
         bench::to_document(
             "Processes that met their fault, by where they were. In `finish` before a message of the step they were "
             "encoding; at a message of the second hop they had reduced, or decoded. `change`: another one had ended, "
             "and the next world was not there; `told`: it was. `written`: while a thread writes a checkpoint.",
             jobs.by_stage()) +
         "\n" +
         bench::to_document(
             "In one process: the agreement on worlds and steps in simulated time; sessions whose ranks are threads, "
             "which die, are silent or cut off. The sums of residuals, of each element over all ranks, stay within "
             "1e-6 where a rank dies in the middle of a step and residuals are copied after every one.",
             threads.table) +
         "\nA network that comes apart is played by losing what members tell each other, both ways: messages of steps "
         "still go.\nThe test `mpi_partition` takes a link between hosts down, which are network namespaces.\n" +
         (wrong.empty() ? "" : "\nWrong:\n\n" + wrong);
}

int run(int argc, char** argv) {
  Options options;
  bench::CommandLine line("How jobs fare whose processes end in every way.");
  line.option("--jobs", options.jobs, "Jobs of MPI processes").range(0, 1'000'000);
  line.option("--first-seed", options.first_seed, "Of the first job").range(0, 1'000'000);
  line.option("--at-once", options.at_once, "Jobs, or simulated worlds, at a time").range(1, 64);
  line.option("--simulated", options.simulated, "Simulated worlds").range(0, 10'000'000);
  line.option("--sessions", options.sessions, "Seeds of sessions whose ranks are threads").range(0, 1'000'000);
  line.option("--markdown", options.markdown, "Write the tables to this file");
  line.parse(argc, argv);
  Jobs jobs;
  if (others_may_live()) {
    jobs.play(options);
  } else {
    std::fputs("this launcher ends the job when a rank ends: no jobs of processes\n", stderr);
    options.jobs = 0;
  }
  Threads threads;
  threads.simulate(options);
  if (options.sessions > 0) {
    threads.run_sessions("ranks die", "Elastic.*ManyDeathsHold*", options.sessions);
    threads.run_sessions("cut off, silent, dead", "*CutsAndSilences*", options.sessions / 10);
    threads.run_sessions("sums of residuals", "*SumsOfResiduals*", options.sessions / 4);
  }
  const std::string text = document(jobs, threads, options);
  std::fputs(text.c_str(), stdout);
  if (!options.markdown.empty()) {
    bench::write_text(options.markdown, text);
  }
  return jobs.wrong().empty() && threads.wrong.empty() ? 0 : 1;
}

}  // namespace
}  // namespace gradwire::test

int main(int argc, char** argv) {
  return gradwire::bench::program("fault_matrix", [&] { return gradwire::test::run(argc, argv); });
}
