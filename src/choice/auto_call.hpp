// Chooses for codec = "auto" how each class of a job's calls is made: passed on to the library or compressed, whichever
// was measured to be faster. There are no clocks, ranks or I/O here: the caller passes durations in and lets the ranks
// compare the numbers that come out, so the same calls on every rank lead to the same choices.
//
// A new class is compared in trials until one way is clearly faster, in eleven trials at most. In a trial the same call
// is made every way, and the job gets the library's sum. A class is compared again as often as that costs little beside
// the time of its calls, and sooner if its calls take a different time than before. The ranks synchronise before each
// way of a trial, so that no rank waits inside it for a late one.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "choice/decision.hpp"
#include "choice/measurements.hpp"

namespace gradwire::choice {

/// Calls on one communicator that share one choice.
struct ChoiceClass {
  Function function = Function::other;
  DType dtype = DType::f32;
  std::uint32_t rule = 0;  // number of the policy's rule, counted from 1; 0: its defaults
  std::uint8_t size = 0;   // bytes are from 2^size to below 2^(size + 1)
  // NOLINTNEXTLINE(modernize-use-nullptr): the check warns about the comparison that clang generates
  friend auto operator<=>(const ChoiceClass&, const ChoiceClass&) = default;
};
/// Returns the `size` of a class with calls of so many bytes; 0 for no bytes.
[[nodiscard]] std::uint8_t size_class(std::uint64_t bytes) noexcept;

/// How a call is made. 0: passed on; i: compressed by the i-th codec that the policy allows.
using Way = std::uint8_t;

/// A class goes this way from its `call`-th call on, counted from 0.
struct WayChange {
  std::uint64_t call = 0;
  Way way = 0;
  friend bool operator==(const WayChange&, const WayChange&) = default;
};
using Choices = std::map<ChoiceClass, std::vector<WayChange>>;

/// The way of a call, and the first later call that may go another one.
struct WayAt {
  Way way = 0;
  std::uint64_t until = std::numeric_limits<std::uint64_t>::max();
};
/// Returns the way of the `call`-th call of a class with these changes and so many `ways`. What names another way, as a
/// file may, passes.
[[nodiscard]] WayAt way_at(const std::vector<WayChange>& changes, std::uint64_t call, std::size_t ways) noexcept;

/// A trial needs a copy of the call's input and room for a result of its own, so calls of more bytes get no trial.
inline constexpr std::uint64_t kMostCopied = std::uint64_t{64} << 20;

struct AutoCallOptions {
  double gain = 0.05;               // share of the time that a change must save
  double cost = 3e-3;               // share of a class's time that comparisons may take, with all ways of their trials
  double hasty_cost = 3e-2;         // the same share while calls take a different time than before
  double look_cost = 1e-3;          // share for checking whether they do
  double expensive_seconds = 0.25;  // a trial that takes longer is not repeated if its result is clear
};

class AutoCall {
 public:
  explicit AutoCall(AutoCallOptions options = {}) : options_(options) {}
  /// Makes the choices in `script` and measures nothing; classes that are not in `script` are passed on.
  explicit AutoCall(Choices script) : options_(), script_(std::move(script)) {}
  /// Makes this object follow `script`, as that constructor does. To be called before the first call.
  void follow(Choices script) { script_ = std::move(script); }
  AutoCall(const AutoCall&) = delete;
  AutoCall& operator=(const AutoCall&) = delete;

  /// Whether this rank has the memory for a trial of the call; asked before each trial.
  using CanCopy = std::function<bool()>;

  /// Begins a call of `bytes`, above 0, that can go `ways` ways. Returns the numbers that the ranks have to exchange
  /// before the call, for answer(); empty if there are none.
  [[nodiscard]] std::span<const double> begin(const ChoiceClass& what, std::uint64_t bytes, std::size_t ways,
                                              const CanCopy& can_copy);
  /// `worst` is the largest value over all ranks for each number; `seconds` is how long that exchange took here.
  void answer(std::span<const double> worst, double seconds);

  /// Whether the numbers that the ranks exchange before the call are for a trial.
  [[nodiscard]] bool begins_trial() const noexcept { return current_ != nullptr && current_->begun; }

  struct Turn {
    Way way = 0;                   // way of the job's result; 0 in a trial
    bool timed = false;            // the caller tells measured() the time
    bool decided = false;          // the way was chosen, and is not part of a comparison
    bool trial = false;            // the call is made every way, and the caller calls concluded()
    bool passed_first = true;      // in a trial the library's own call is made first; else last
    Reason barred = Reason::none;  // why the class is passed on even if another way is faster
    /// Number of further calls of the class that go the same way and need no begin(); the caller counts it down.
    std::uint64_t* left = nullptr;
  };
  [[nodiscard]] Turn turn();
  /// Takes the seconds of the call that turn() was for.
  void measured(double seconds);
  /// Takes the times of a trial on the slowest rank: `seconds` by way, infinite for a way that must not be chosen, and
  /// `copying` for copies of buffers. The arguments are the same on every rank.
  void concluded(std::span<const double> seconds, double copying);
  /// Passes the class on from now on, on this rank only; the caller must tell every rank.
  void bar(const ChoiceClass& what, Reason why);

  /// Returns the seconds of a call of the class by way, as last compared. No value if the class itself was not compared
  /// yet.
  [[nodiscard]] std::optional<WaySeconds> compared(const ChoiceClass& what) const;
  /// All choices so far.
  [[nodiscard]] const Choices& choices() const noexcept { return choices_; }

  static constexpr std::size_t kMostClasses = 256;

 private:
  struct Comparison {
    std::vector<std::vector<double>> costs;  // by way and trial: seconds per byte
    std::size_t trials = 0;                  // number of trials that count
    double trial_seconds = 0;                // of the latest trial
    bool warm = false;                       // a first trial has run, which does not count
  };
  struct Class {
    std::size_t ways = 2;
    Way way = 0;
    std::uint64_t bytes = 1;  // of the latest call
    std::uint64_t calls = 0;
    std::uint64_t left = 0;   // further calls that pass without begin()
    std::uint64_t apart = 0;  // calls that stay compressed until the next trial
    std::optional<Comparison> comparison;
    WaySeconds costs;                 // seconds per byte by way, from the latest comparison
    bool guessed = false;             // `costs` are those of a neighbour
    double copying = 0;               // seconds per byte for copies in a trial
    std::vector<bool> excluded = {};  // by way: must not be chosen
    Reason barred = Reason::none;
    bool begun = false;        // begin() has asked the ranks for a trial of this call
    std::size_t trials = 4;    // trials that a comparison takes, by the latest one
    double spent = 0;          // seconds of its calls since the last comparison
    unsigned decisions = 0;    // comparisons that have ended
    unsigned confirmed = 0;    // comparisons in a row with the same outcome
    std::vector<double> seen;  // seconds per byte on this rank, of calls since the last look
    std::uint64_t turns = 0;   // turns since the last look
    double looked_at = 0;      // `spent` at the last look
    double usual = 0;          // seconds per byte at the first look since the last comparison
    int stirred = 0;           // looks in a row that found a different time
    [[nodiscard]] double seconds(std::size_t of) const { return costs[of] * static_cast<double>(bytes); }
  };

  [[nodiscard]] Class* find(const ChoiceClass& what, std::uint64_t bytes, std::size_t ways);
  [[nodiscard]] const Class* neighbour(const ChoiceClass& what, std::size_t ways) const;
  static void inherit(Class& made, std::uint8_t size, const Class& from, std::uint8_t from_size);
  [[nodiscard]] bool looks(const Class& one) const;
  void look(Class& one, double quickest);
  void count_trial(Class& one, std::span<const double> seconds);
  static void bar(Class& one, Reason why);
  [[nodiscard]] std::optional<Way> verdict(const Class& one) const;
  [[nodiscard]] Way chosen(const Class& one, const std::vector<double>& costs, Way quickest) const;
  void decide(Class& one, Way way);
  [[nodiscard]] bool due(const Class& one) const;
  [[nodiscard]] Turn replayed(Class& one);
  void note(Class& one, Way way);

  AutoCallOptions options_;
  std::optional<Choices> script_;
  std::map<ChoiceClass, Class> classes_;
  Choices choices_;
  ChoiceClass class_of_call_;  // class of the call that has begun
  Class* current_ = nullptr;   // null: the call is passed on, because there is no room for its class
  std::vector<double> question_;
  double own_exchange_seconds_ = 0;  // seconds that the ranks' latest exchange took here
  double exchange_ = 0;              // the same on the rank that came last, and so did not wait
};

}  // namespace gradwire::choice
