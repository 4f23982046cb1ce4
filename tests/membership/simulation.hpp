// Simulates processes that share a world, in simulated time: links with delays, deaths, pauses, resets and broken
// links, drawn from a seed. Each process runs steps: it sends its part to all, holds a step once all parts arrived, and
// delivers when its Membership says so. Now and then it has a step confirmed. The simulation must end with one world
// and, for each step, one result.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include "membership/membership.hpp"
#include "tests/membership/simulated_faults.hpp"
#include "tests/membership/simulated_judge.hpp"
#include "tests/membership/simulated_links.hpp"
#include "tests/membership/simulated_process.hpp"

namespace gradwire::membership {

class Simulation {
 public:
  Simulation(unsigned seed, Faults faults);

  /// Returns what is wrong; empty if nothing is.
  [[nodiscard]] std::string run();

  [[nodiscard]] std::size_t changes() const { return changes_; }
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  [[nodiscard]] std::size_t taken_in() const { return taken_in_; }
  [[nodiscard]] int longest_stop() const { return longest_stop_; }
  [[nodiscard]] std::size_t confirmed() const { return confirmed_; }
  [[nodiscard]] std::size_t left_out() const { return left_out_; }
  [[nodiscard]] std::size_t gave_up() const { return gave_up_; }

 private:
  static constexpr int kFaultsAreOver = 40'000;  // ms; includes the time to recover from the last fault
  static constexpr int kStepsEnd = 50'000;
  static constexpr int kQuiet = 60'000;

  using Process = SimulatedProcess;
  int draw(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  void add(Id who, const World& world);

  // The others hear of the joiner one by one.
  void join();
  [[nodiscard]] ProcessEnd end_of(Id who) const;

  // Handles arrivals that are no messages of the agreement.
  void hear(Id who, Process& process, const Packet& packet);
  std::vector<Id> running() const;

  // Returns whether a fault keeps some live processes from others for a while.
  [[nodiscard]] static bool disturbs(Fault::Kind kind);
  void strike(const Fault& fault);
  std::vector<Id> some_of(std::vector<Id> ids, std::size_t count);

  // One signal stops the processes, another one lets them go on.
  void freeze(const std::vector<Id>& ids, int length);
  void reset(Id a, Id b, int length, bool one_way) { links_.reset(a, b, now_, length, one_way, faults_.forgets); }

  // Returns whether `who` may end: a job that loses all its processes proves nothing.
  [[nodiscard]] bool may_go(Id who) const;
  void stop(Id who);

  // Its last messages are lost on some links. A witness tells the others of its end, one by one.
  void kill(Id who, bool witnessed);
  void lose_last_words(Id who);

  // The process ends by itself, and says so; its witness does, too.
  void leave(Id who, Process& process, Process::Fate fate);
  void advance();

  // Returns whether a process has work now. Mostly it has none, and skipping it saves three quarters of the running
  // time.
  [[nodiscard]] bool has_to_do(Id who, Process& process) const;
  [[nodiscard]] bool ticks(Id who) const { return now_ % 50 == static_cast<int>(who) % 50; }

  void live(Id who, Process& process);
  void end_if_over(Id who, Process& process);

  // Does what a session does if its step does not end.
  void miss(Process& process) const;
  void work(Id who, Process& process);
  void hold(Process& process);

  // Sends as a session's member does: nobody hears of a later world before the witness does.
  void say(Id who, Process& process);
  void take(Id who, Process& process);
  static void note_decision(Process& process, const MembershipMessage& message);
  void change(Id who, Process& process, const Decision& decision);
  void note_who_is_cut_off(const World& next);

  // Confirms the last step, as at the end of a job or before a checkpoint.
  void confirm_last(Process& process);
  void deliver(Id who, Process& process, std::uint64_t step);

  std::mt19937 random_;
  Faults faults_;
  int now_ = 0;
  Id next_id_ = 1000;
  std::map<Id, Process> processes_;
  SimulatedLinks links_;
  std::optional<FaultPlan> plan_;  // set once all processes have drawn their beginnings
  std::map<Id, bool> side_;
  std::set<Id> joins_;
  std::set<Id> spares_;  // waiting processes
  std::size_t changes_ = 0;
  std::size_t taken_in_ = 0;
  std::uint64_t steps_ = 0;
  int longest_stop_ = 0;
  std::size_t confirmed_ = 0;
  std::size_t left_out_ = 0;
  std::size_t gave_up_ = 0;
  std::uint64_t last_step_;
  int disturbed_until_ = 0;
  std::ostringstream wrong_;
  SimulatedTruth truth_{wrong_, !faults_.ends_say_no_epoch};
};

}  // namespace gradwire::membership
