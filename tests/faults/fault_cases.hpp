// Jobs whose MPI processes end in every way: the case drawn for a seed, and the checks of the remaining processes.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace gradwire::test {

/// The ways in which processes end, which seeds use in turn.
inline constexpr const char* kEnds[] = {
    "kill -9",
    "abort",
    "exit without MPI_Finalize",
    "SIGSTOP for 3 s: left out",
    "SIGSTOP for 0.5 s: nobody is left out",
    "cut off from the others",
    "kill -9 of rank 0",
    "all ranks of a node at once",
    "a second one while the world changes",
    "one, and the keeper of its copy while the world changes",
    "one, whose place a spare takes",
    "one, and the spare that is to take its place",
    "one, while another process joins",
    "one, and another process that joins",
    "all ranks frozen at once for 3 s: nobody is left out",
    "all ranks of a node frozen for 3 s",
};
inline constexpr const char* kModes[] = {"step", "every", "async"};
inline constexpr const char* kCodecs[] = {"exact", "int8", "int4", "topk(1%)+int8"};

struct FaultCase {
  int seed = 0;
  std::size_t end = 0, mode = 0, codec = 0;  // indexes into the lists above
  int ranks = 3;
  int spares = 0;
  int joins = 0;
  bool open = false;  // others may join, so all messages go over TCP
  std::string policy;
  bool checkpoints = false;
  std::string options;                // of fault_job
  std::map<int, std::string> faults;  // by process: "kill:finish:7:12"

  [[nodiscard]] std::string to_text() const;
};

/// Returns the same case for the same seed; every end meets every mode and codec within 192 seeds.
[[nodiscard]] FaultCase draw_case(int seed);

/// The outcome of a case.
struct FaultVerdict {
  bool hung = false;
  bool differ = false;                                     // parameters, worlds, or the named processes differ
  bool misnamed = false;                                   // an error does not name the ended rank, or names another
  bool missing = false;                                    // a process without a fault is gone
  bool late = false;                                       // other processes were not back in training in time
  std::vector<std::string> stages;                         // the stage in which each process met its fault
  double back = std::numeric_limits<double>::quiet_NaN();  // s from the last fault until all had made another step
  std::string output;

  [[nodiscard]] bool struck() const { return !stages.empty(); }
  /// Returns the problem, with the output; empty if there is none.
  [[nodiscard]] std::string wrong() const;
};

/// Returns whether the launcher lets other ranks live if a rank ends. GRADWIRE_RECOVERY names its option if it differs
/// from Open MPI's.
[[nodiscard]] bool others_may_live();

[[nodiscard]] FaultVerdict play(const FaultCase& drawn);

/// Plays `count` cases from this seed on, several at once, and calls `tell` for each in turn.
void play_all(int first_seed, int count, int at_once,
              const std::function<void(const FaultCase&, const FaultVerdict&)>& tell);

/// Runs fault_job without faults, with three ranks of which the last `spares` wait.
[[nodiscard]] std::string play_calm(int spares);

}  // namespace gradwire::test
