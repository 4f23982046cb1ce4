// Chooses for codec = "auto" how each class of calls on a communicator of devices is made: by the library, or by one of
// the compressed ways that the policy allows. The times of a device's calls come late and differ between ranks, and no
// call may wait for them. So a rank takes its own medians as they come, all ranks exchange them now and then (the
// largest value counts), and a choice depends on nothing but the numbers of calls and the exchanged medians: the same
// calls on every rank go the same ways. There are no clocks, devices, threads or messages here.
//
// One class at a time compares the way in use with one rival. In a trial a call is made both ways, the rival on a copy.
// Eight trials make a block; a class has so many calls before a block that trials are at most 3% of them. A rival that
// takes less than 0.97 of the time is adopted. Then whole steps are compared, where they are known, since compression
// takes processors from the job: a way whose steps are longer than before twice in a row is dropped. The library's own
// call is the way in use at first, and later a rival: if it is faster twice in a row, it is taken again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "choice/auto_call.hpp"
#include "choice/decision.hpp"
#include "choice/measurements.hpp"

namespace gradwire::choice {

class DeviceGate {
 public:
  static constexpr std::uint32_t kNoSample = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::size_t kWords = 5;  // words that ranks exchange
  static constexpr std::uint64_t kBlock = 8;
  static constexpr double kTrialShare = 0.03;
  static constexpr double kAdoptBelow = 0.97;
  static constexpr double kDropAbove = 1.0;
  static constexpr double kHopeless = 2.0;          // a model is off by less
  static constexpr std::size_t kMostClasses = 256;  // calls of further classes go to the library
  static constexpr std::size_t kMostSizes = 64;     // of a class: calls of further sizes get no trial

  DeviceGate() = default;
  DeviceGate(const DeviceGate&) = delete;
  DeviceGate& operator=(const DeviceGate&) = delete;

  struct Trial {
    Way rival = 0;             // the call is also made this way, on a copy
    bool rival_first = false;  // before the call for the job
    std::uint64_t number = 0;  // for timed()
  };
  struct Turn {
    Way way = 0;           // the job's result
    bool decided = false;  // the class has been compared
    Reason barred = Reason::none;
    std::optional<Trial> trial = {};
  };
  /// Returns how the next call is made: of `bytes`, above 0, in its larger buffer, with `ways` ways. The answer is the
  /// same on all ranks if they make the same calls and heard() the same words before the same calls.
  [[nodiscard]] Turn next(const ChoiceClass& what, std::uint64_t bytes, std::size_t ways);

  // The next functions take this rank's measurements, at any time later and in any order. Unknown ones are left out.
  /// Takes the times of a trial on this rank.
  void timed(std::uint64_t trial, double in_use_seconds, double rival_seconds);
  /// Begins a step with the next call and returns its number, for step_took(). Every rank calls it alike.
  std::uint64_t begin_step();
  void step_took(std::uint64_t step, double seconds);
  /// Forgets steps until begin_step(), whose number then does not follow upon the latest one. Every rank calls it
  /// alike.
  void forget_steps() noexcept {
    next_step_ += steps_known_ ? 1 : 0;
    steps_known_ = false;
  }

  /// The calls that are to be made both ways, by a copy of their larger buffer.
  struct Asked {
    ChoiceClass what;
    Way rival = 0;
    const std::set<std::uint64_t>& sizes;  // bytes of the larger buffer; not empty
  };
  /// Returns whether this rank has the device memory for these calls, which it keeps until needs_memory() is false.
  using HasMemory = std::function<bool(const Asked& asked)>;
  /// Writes kWords words, of which all ranks exchange the largest. Every rank calls it at the same call.
  void say(std::span<std::uint32_t> words, const HasMemory& has_memory);
  /// Takes the largest words of all ranks. Every rank calls it at the same call, with what was said last.
  void heard(std::span<const std::uint32_t> words);
  [[nodiscard]] bool needs_memory() const noexcept {
    return comparison_ && (comparison_->phase == Phase::asking || comparison_->phase == Phase::trials);
  }
  /// Tells the time of calls of a class by each way, over that of the library's, as a model expects it: the same on
  /// every rank, one number for each way, before the first of these calls. Ways that are expected to be faster are
  /// compared first, and hopeless ones never. Without it the order is that of the ways.
  void expect(const ChoiceClass& what, const std::vector<double>& ratios);
  /// Makes the choices of an earlier job and compares nothing; classes that are not in `script` go to the library.
  /// Every rank calls it alike, before the first call.
  void follow(Choices script) { script_ = std::move(script); }
  [[nodiscard]] bool follows() const noexcept { return script_.has_value(); }
  /// Passes calls of the class from now on. Every rank calls it alike.
  void bar(const ChoiceClass& what, Reason why);

  /// Returns the seconds of a call by way on the slowest rank at the latest comparisons, infinite for a way that was
  /// not compared; no value if the class has not been compared.
  [[nodiscard]] std::optional<WaySeconds> compared(const ChoiceClass& what) const;
  /// Returns the way of each call so far.
  [[nodiscard]] const Choices& choices() const noexcept { return choices_; }
  [[nodiscard]] std::uint64_t trials() const noexcept { return next_trial_; }

 private:
  struct Rival {
    std::uint64_t next_at = 0;      // call of the class from which on it may be compared
    unsigned losses = 0;            // in a row
    std::uint64_t comparisons = 0;  // so far
    double expected = 1;            // ratio of its time, by a model
  };
  struct Class {
    Way way = 0;
    Way before = 0;  // the way before the latest change
    std::uint64_t calls = 0;
    std::uint64_t trials = 0;
    std::set<std::uint64_t> sizes;  // bytes of its calls
    unsigned strikes = 0;           // comparisons in a row in which the library was faster than the way in use
    std::vector<Rival> rivals;      // by way
    WaySeconds seconds;             // by way
    Reason barred = Reason::none;   // no way but the library's
    bool untried = false;           // some rank had no memory for trials
    bool compared = false;
  };
  enum class Phase : std::uint8_t {
    asking,     // whether all ranks have memory for the trials
    trials,     // calls are made both ways
    measuring,  // the ranks' medians are awaited
    watching,   // the steps after a change are compared with those before
  };
  struct Comparison {
    ChoiceClass what;
    Way rival = 0;
    Phase phase = Phase::asking;
    std::set<std::uint64_t> sizes = {};  // in bytes: such calls are made both ways
    std::uint64_t first_trial = 0;       // its number
    std::uint64_t made = 0;              // trials
    unsigned rounds = 0;                 // exchanges in this phase
    std::uint64_t begun_at = 0;          // the number of steps when it began to watch
    unsigned longer = 0;                 // exchanges in a row in which steps were longer than before
    unsigned no_longer = 0;              // and in which they were not
    std::vector<double> in_use_seconds = {};
    std::vector<double> rival_seconds = {};
  };
  struct Step {
    std::uint64_t number = 0;
    std::uint64_t generation = 0;  // number of changes before it
  };

  [[nodiscard]] Class* find(const ChoiceClass& what, std::size_t ways);
  void look_up(const ChoiceClass& what, Class& one) const;
  [[nodiscard]] std::optional<Trial> trial_of(const ChoiceClass& what, Class& one, std::uint64_t bytes);
  void begin_comparison();
  void enter(Phase phase) noexcept;
  void judge(Class& one, std::uint32_t in_use, std::uint32_t rival);
  void judge_steps(Class& one, std::uint32_t before, std::uint32_t now);
  void change(Class& one, Way way);
  static void put_off(Class& one, Way rival, double ratio);

  std::map<ChoiceClass, Class> classes_;
  Choices choices_;
  std::optional<Choices> script_;
  std::optional<Comparison> comparison_;
  std::optional<Phase> said_;  // the phase in which say() wrote its words; no value: there was no comparison
  std::uint64_t next_trial_ = 0;
  bool steps_known_ = false;
  std::deque<Step> steps_;  // the latest ones, oldest first
  std::uint64_t next_step_ = 0;
  std::uint64_t generation_ = 0;
  std::vector<double> now_;     // seconds of the latest steps since the last change
  std::vector<double> before_;  // the same, before that change
};

}  // namespace gradwire::choice
