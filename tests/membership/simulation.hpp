// Processes that are in a world together, in simulated time: links with delays, deaths, pauses, resets and broken
// links, drawn from a seed. Each runs steps: it sends its part to all, holds a step once all parts came, and delivers
// as its Membership says. Now and then it has a step confirmed. What comes out must be one world and, for each step,
// one result.
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

  /// Empty, or what is wrong.
  [[nodiscard]] std::string run();

  [[nodiscard]] std::size_t changes() const { return changes_; }
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  [[nodiscard]] std::size_t taken_in() const { return taken_in_; }
  [[nodiscard]] int longest_stop() const { return longest_stop_; }
  [[nodiscard]] std::size_t confirmed() const { return confirmed_; }
  [[nodiscard]] std::size_t left_out() const { return left_out_; }
  [[nodiscard]] std::size_t gave_up() const { return gave_up_; }

 private:
  static constexpr int kFaultsAreOver = 40'000;  // and what they cost
  static constexpr int kStepsEnd = 50'000;
  static constexpr int kQuiet = 60'000;

  using Process = SimulatedProcess;
  int draw(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  void add(Id who, const World& world);

  // The others hear of it one by one.
  void join();
  [[nodiscard]] ProcessEnd end_of(Id who) const;

  // What comes that is no message of the agreement.
  void hear(Id who, Process& process, const Packet& packet);
  std::vector<Id> running() const;

  // Keeps some that live from others for a while.
  [[nodiscard]] static bool disturbs(Fault::Kind kind);
  void strike(const Fault& fault);
  std::vector<Id> some_of(std::vector<Id> ids, std::size_t count);

  // One signal stops them, another one lets them go on.
  void freeze(const std::vector<Id>& ids, int length);
  void reset(Id a, Id b, int length, bool one_way) { links_.reset(a, b, now_, length, one_way, faults_.forgets); }

  // A job of which nobody is left proves nothing.
  [[nodiscard]] bool may_go(Id who) const;
  void stop(Id who);

  // What it sent last is lost on some links. A witness tells the others of it, one by one.
  void kill(Id who, bool witnessed);
  void lose_last_words(Id who);

  // It ends by itself, and says so; its witness does, too.
  void leave(Id who, Process& process, Process::Fate fate);
  void advance();

  // Most of the time nothing is: three quarters of a simulation's own time.
  [[nodiscard]] bool has_to_do(Id who, Process& process) const;
  [[nodiscard]] bool ticks(Id who) const { return now_ % 50 == static_cast<int>(who) % 50; }

  void live(Id who, Process& process);
  void end_if_over(Id who, Process& process);

  // What a session does whose step does not end.
  void miss(Process& process);
  void work(Id who, Process& process);
  void hold(Process& process);

  // As a session's member does: of a later world nobody hears before the witness does.
  void say(Id who, Process& process);
  void take(Id who, Process& process);
  static void note_decision(Process& process, const MembershipMessage& message);
  void change(Id who, Process& process, const Decision& decision);
  void note_who_is_cut_off(const World& next);

  // At the end of a job, before a checkpoint: anywhere.
  void confirm_last(Process& process);
  void deliver(Id who, Process& process, std::uint64_t step);

  std::mt19937 random_;
  Faults faults_;
  int now_ = 0;
  Id next_id_ = 1000;
  std::map<Id, Process> processes_;
  SimulatedLinks links_;
  std::optional<FaultPlan> plan_;  // once all processes have drawn their beginnings
  std::map<Id, bool> side_;
  std::set<Id> joins_;
  std::set<Id> spares_;  // those that wait
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
