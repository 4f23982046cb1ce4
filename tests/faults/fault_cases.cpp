#include "tests/faults/fault_cases.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <optional>
#include <random>
#include <regex>
#include <set>
#include <thread>

#include "tests/support/run_program.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

constexpr std::size_t kStop = 3, kPause = 4, kCut = 5, kRankZero = 6, kNode = 7, kSecond = 8, kKeeper = 9, kSpare = 10,
                      kLastSpare = 11, kJoin = 12, kLastJoin = 13, kFreeze = 14, kFrozenNode = 15;
constexpr int kSteps = 40;
constexpr double kMostBack = 10;  // s; a silent process is missed after 2 s

std::string policy_of(const FaultCase& drawn, bool replicate) {
  const std::string codec = kCodecs[drawn.codec];
  std::string text = "[defaults]\ncodec = \"" + codec + "\"\n";
  if (drawn.mode == 1) {  // parameters themselves are averaged exactly
    text += codec == "exact" ? "sync = { every = 4 }\n" : "sync = { every = 16, offset = 13, outer = {} }\n";
  } else if (drawn.mode == 2) {
    text += "sync = { async = true, staleness = 2 }\n";
  }
  text += "[elastic]\nsuspect = \"2s\"\nmin_ranks = 1\nspares = " + std::to_string(drawn.spares) + "\n";
  return text + (replicate ? "replicate = \"1 step\"\nreplicate_as = \"exact\"\n" : "");
}

class Chance {
 public:
  explicit Chance(int seed) : random_(static_cast<unsigned>(seed)) {}
  int below(int end) { return static_cast<int>(random_() % static_cast<unsigned>(end)); }
  bool one_in(int many) { return below(many) == 0; }

  /// Returns a stage, its occurrence, and a number of operations after it.
  std::string moment(const FaultCase& drawn) {
    const auto text = [](const char* stage, int time, int operations) {
      return ":" + std::string(stage) + ":" + std::to_string(time) + ":" + std::to_string(operations);
    };
    if (drawn.options.find("table") != std::string::npos && one_in(3)) {
      return text("pull", 5 + below(kSteps / 2), below(20));
    }
    if (drawn.spares + drawn.joins > 0 && drawn.mode == 1 && one_in(3)) {
      return text("sync", 1 + below(2), below(30));
    }
    if (drawn.spares + drawn.joins > 0) {  // by then the spare has reported
      return text("finish", 5 + below(kSteps / 2), below(40));
    }
    if (drawn.checkpoints && one_in(3)) {
      const char* const stages[] = {"restore", "checkpoint", "written"};
      const int stage = below(3);
      return text(stages[stage], stage == 0 ? 1 : 1 + below(5), below(stage == 2 ? 1 : 12));
    }
    if (drawn.mode == 1 && one_in(4)) {
      return text("sync", 1 + below(5), below(30));
    }
    switch (below(10)) {
      case 0: return text("start", 1, below(30));
      case 1: return text("share", 1, below(10));
      case 2: return text("ready", 1 + below(kSteps - 12), below(3));
      case 3: return text("between", 1 + below(kSteps - 12), below(2));
      default: return text("finish", 1 + below(kSteps - 12), below(40));
    }
  }

 private:
  std::mt19937 random_;
};

struct Survivor {
  int process = 0;
  int world = 0;
  std::string holds;             // a hash of the parameters, and the step that it went on from
  int joined = 0;                // number of processes that joined during its life
  std::multiset<int> lost = {};  // numbers of processes
};

// `newcomer` is the number of the joining process.
std::vector<Survivor> survivors_in(const std::string& output, int newcomer) {
  std::vector<Survivor> found;
  const std::regex pattern(
      "survivor ([0-9]+) world ([0-9]+) hash ([0-9a-f]+ restored [0-9]+) joined ([0-9]+) lost(.*)");
  const std::regex name("\\[(?:rank ([0-9]+) |process )");
  for (auto at = std::sregex_iterator(output.begin(), output.end(), pattern); at != std::sregex_iterator(); ++at) {
    Survivor one{std::stoi((*at)[1]), std::stoi((*at)[2]), (*at)[3], std::stoi((*at)[4])};
    const std::string lost = (*at)[5];
    for (auto who = std::sregex_iterator(lost.begin(), lost.end(), name); who != std::sregex_iterator(); ++who) {
      one.lost.insert((*who)[1].matched ? std::stoi((*who)[1]) : newcomer);
    }
    found.push_back(one);
  }
  return found;
}

std::optional<double> last_time(const std::string& output, const std::string& word) {
  std::optional<double> last;
  const std::regex pattern("(^|\n)" + word + " ([0-9.]+)");
  for (auto at = std::sregex_iterator(output.begin(), output.end(), pattern); at != std::sregex_iterator(); ++at) {
    last = std::max(last.value_or(0), std::stod((*at)[2]));
  }
  return last;
}

// Returns the launcher's option that lets ranks outlive others; empty if it has none.
const std::string& recovery_option() {
  static const std::string option = [] {
    if (const char* named = std::getenv("GRADWIRE_RECOVERY"); named != nullptr) {
      return std::string(named);
    }
    const std::string version = run_program(std::string(GRADWIRE_MPIEXEC) + " --version").output;
    return std::string(std::regex_search(version, std::regex("Open( MPI|RTE)\\)")) ? "--enable-recovery" : "");
  }();
  return option;
}

std::string quoted(const std::string& text) { return "'" + text + "'"; }

// `environment` applies to all processes.
Outcome run_job(int processes, int steps, const std::string& policy, const std::string& rest,
                const std::string& environment) {
  const std::string as_root =
      ::getuid() == 0 ? "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 "
                        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                      : "";
  return run_program(as_root + environment + "timeout -k 5 90 " + GRADWIRE_MPIEXEC + " " + recovery_option() +
                     " --oversubscribe --mca mpi_yield_when_idle 1 -np " + std::to_string(processes) + " " +
                     GRADWIRE_FAULT_JOB + " " + std::to_string(steps) + " " + quoted(policy) + rest);
}

// Runs a process that joins the job of this file, once the file exists.
Outcome run_newcomer(const std::string& file, const std::string& policy, const std::string& rest) {
  return run_program("for i in $(seq 200); do [ -s " + quoted(file) +
                     " ] && break; sleep 0.05; done; GRADWIRE_JOIN=" + quoted(file) + " timeout -k 5 90 " +
                     GRADWIRE_FAULT_JOB + " " + std::to_string(kSteps) + " " + quoted(policy) + rest);
}

// Returns whether all processes were back before any was missed, or no process that could miss another ran meanwhile.
bool loses_nobody(const FaultCase& drawn) { return drawn.end == kPause || drawn.end == kFreeze; }

void judge(const FaultCase& drawn, FaultVerdict& verdict) {
  std::vector<Survivor> survivors = survivors_in(verdict.output, drawn.ranks);
  std::set<int> there;
  for (const Survivor& one : survivors) {
    there.insert(one.process);
  }
  for (int process = 0; process < drawn.ranks; ++process) {
    const bool may_be_gone = drawn.faults.contains(process) && !loses_nobody(drawn);
    verdict.missing = verdict.missing || (!there.contains(process) && !may_be_gone);
  }
  if (drawn.end == kStop && verdict.struck() && verdict.stages[0].starts_with("finish")) {
    verdict.misnamed = there.contains(drawn.faults.begin()->first);  // the others wait for it there, and miss it
  }
  if (drawn.end == kCut) {  // the cut off process may take the last step for one that counts
    std::erase_if(survivors, [&](const Survivor& one) { return drawn.faults.contains(one.process); });
  }
  std::ranges::sort(survivors, {}, &Survivor::process);  // spares come last
  for (const Survivor& one : survivors) {
    verdict.differ = verdict.differ || one.holds != survivors[0].holds || one.world != survivors[0].world;
    if (one.process >= drawn.ranks) {
      continue;  // a spare knows only events since it came
    }
    verdict.differ = verdict.differ || one.lost != survivors[0].lost;
    verdict.misnamed = verdict.misnamed || one.world + static_cast<int>(one.lost.size()) - one.joined != drawn.ranks;
    verdict.misnamed = verdict.misnamed || (loses_nobody(drawn) && !one.lost.empty());
    for (const int who : one.lost) {
      verdict.misnamed = verdict.misnamed || !drawn.faults.contains(who) || one.lost.count(who) > 1;
    }
    verdict.missing = verdict.missing || ((drawn.end == kSpare || drawn.end == kJoin) && one.world != drawn.ranks);
  }
}

}  // namespace

std::string FaultCase::to_text() const {
  std::string text = std::string(kEnds[end]) + ", " + std::to_string(ranks) + " ranks, " + kModes[mode] + ", " +
                     kCodecs[codec] + (open ? ", TCP" : "") + options;
  for (const auto& [process, fault] : faults) {
    text += " " + std::to_string(process) + ":" + fault;
  }
  return text;
}

FaultCase draw_case(int seed) {
  constexpr int kMany = static_cast<int>(std::size(kEnds));
  Chance chance(seed);
  FaultCase drawn{
      .seed = seed, .end = static_cast<std::size_t>(seed % kMany), .policy = {}, .options = {}, .faults = {}};
  drawn.mode = static_cast<std::size_t>((seed % kMany + seed / kMany) % 3);
  drawn.codec = static_cast<std::size_t>((seed + seed / (3 * kMany)) % 4);
  drawn.ranks = 3 + chance.below(3);
  const bool whole_node = drawn.end == kNode || drawn.end == kFrozenNode;
  if (whole_node || drawn.end == kSecond || drawn.end == kKeeper) {
    drawn.ranks = 4 + chance.below(2);
  }
  if (drawn.end == kSpare || drawn.end == kLastSpare) {
    drawn.spares = 1;
  }
  if (drawn.end == kJoin || drawn.end == kLastJoin) {
    drawn.joins = 1;
  }
  drawn.open = drawn.joins > 0 || chance.one_in(3);
  drawn.checkpoints = drawn.spares == 0 && !drawn.open && chance.one_in(3);
  const bool nodes = whole_node || (drawn.end != kKeeper && chance.one_in(3));
  drawn.policy = policy_of(drawn, drawn.end == kKeeper || chance.one_in(2));
  drawn.options = std::string(nodes ? " node=2" : "") + (drawn.joins > 0 ? " joins=1" : "") +
                  (chance.one_in(3) ? " table=1" : "") + (drawn.end == kCut ? " timeout=6" : "");
  const char* const kinds[] = {"kill", "abort", "exit", "stop", "pause", "cut"};
  const std::string kind = drawn.end < std::size(kinds) ? kinds[drawn.end]
                           : drawn.end == kFreeze       ? "freeze"
                           : drawn.end == kFrozenNode   ? "stop"
                                                        : "kill";
  const int one = drawn.end == kRankZero ? 0 : chance.below(drawn.ranks) / (whole_node ? 2 : 1);
  const std::string moment = chance.moment(drawn);
  const std::string meanwhile = ":loss:1:" + std::to_string(chance.below(25));
  if (whole_node) {
    const int first = 2 * std::min(one, drawn.ranks / 2 - 1);
    drawn.faults = {{first, kind + moment}, {first + 1, kind + moment}};
    return drawn;
  }
  drawn.faults[one] = kind + moment;
  if (drawn.end == kSecond || drawn.end == kKeeper) {
    const int away = drawn.end == kKeeper ? 1 : 1 + chance.below(drawn.ranks - 1);
    drawn.faults[(one + away) % drawn.ranks] = "kill" + meanwhile;
  } else if (drawn.end == kLastSpare) {
    drawn.faults[drawn.ranks] = "kill" + meanwhile;
  } else if (drawn.end == kLastJoin) {  // before it is admitted, while it receives the state, or in a step
    const char* const stages[] = {"start:1:", "share:1:", "ready:1:", "finish:1:", "finish:2:"};
    drawn.faults[drawn.ranks] = "kill:" + std::string(stages[chance.below(5)]) + std::to_string(chance.below(30));
  }
  return drawn;
}

std::string FaultVerdict::wrong() const {
  const std::string text = std::string(hung ? "it hangs; " : "") + (differ ? "those that are left differ; " : "") +
                           (misnamed ? "who is gone is not named, or another is; " : "") +
                           (missing ? "one is missing that should go on; " : "") +
                           (late ? "the others were late; " : "");
  return text.empty() ? "" : text + "\n" + output;
}

bool others_may_live() { return !recovery_option().empty(); }

FaultVerdict play(const FaultCase& drawn) {
  const ScratchFolder folder;
  FaultVerdict verdict;
  std::string rest = drawn.options;
  if (drawn.checkpoints) {
    rest += " checkpoints=" + folder.path().string();
    const Outcome before = run_job(drawn.ranks, kSteps / 4, drawn.policy, rest, "");
    if (before.status != 0) {
      verdict.missing = true;
      verdict.output = before.output;
      return verdict;
    }
  }
  for (const auto& [process, fault] : drawn.faults) {
    rest += " " + std::to_string(process) + ":" + fault;
  }
  const std::string file = (folder.path() / "join").string();
  std::string of_newcomer;
  std::thread newcomer([&] {
    if (drawn.joins > 0) {
      of_newcomer = run_newcomer(file, drawn.policy, rest).output;
    }
  });
  Outcome outcome = run_job(drawn.ranks + drawn.spares, kSteps, drawn.policy, rest,
                            drawn.open ? "GRADWIRE_LET_JOIN=" + quoted(file) + " " : "");
  newcomer.join();
  outcome.output += of_newcomer;
  verdict.output = outcome.output;
  verdict.hung = outcome.status == 124 || outcome.status == 137;
  const std::regex died("dies [0-9.]+ in ([a-z, ]+)");
  for (auto at = std::sregex_iterator(outcome.output.begin(), outcome.output.end(), died); at != std::sregex_iterator();
       ++at) {
    verdict.stages.push_back((*at)[1]);
  }
  const std::optional<double> last_death = last_time(outcome.output, "dies");
  const std::optional<double> last_back = last_time(outcome.output, "back");
  if (last_death && last_back && *last_back > *last_death) {
    verdict.back = *last_back - *last_death;
    verdict.late = verdict.back > kMostBack;
  }
  if (!verdict.hung) {
    judge(drawn, verdict);
  }
  return verdict;
}

void play_all(int first_seed, int count, int at_once,
              const std::function<void(const FaultCase&, const FaultVerdict&)>& tell) {
  std::atomic<int> next = first_seed;
  std::mutex telling;
  std::vector<std::thread> players;
  for (int i = 0; i < at_once; ++i) {
    players.emplace_back([&] {
      for (int seed = next++; seed < first_seed + count; seed = next++) {
        const FaultCase drawn = draw_case(seed);
        const FaultVerdict verdict = play(drawn);
        const std::lock_guard lock(telling);
        tell(drawn, verdict);
      }
    });
  }
  for (std::thread& player : players) {
    player.join();
  }
}

std::string play_calm(int spares) {
  return run_job(3, 5, policy_of({.spares = spares, .policy = {}, .options = {}, .faults = {}}, false), "", "").output;
}

}  // namespace gradwire::test
