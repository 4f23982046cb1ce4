// codec = "auto" for calls of a job: which way each class of calls goes, passed on or compressed, whichever was
// measured to be faster. No clocks, no ranks, no I/O: durations come in, and what the ranks must compare goes out, so
// that the same calls on every rank choose alike.
//
// A class is compared when it is new: in trials, until one way is clearly faster, eleven trials at most. In a trial the
// same call is made every way, and the job gets the library's sum. A class is compared again as often as that costs
// little beside the time that its calls take, and sooner where they take another time than they did. Before each way of
// a trial the ranks synchronise, so that none waits in it for one that comes late.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "choice/decision.hpp"
#include "choice/measurements.hpp"

namespace gradwire::choice {

/// Calls that are chosen for alike, on one communicator.
struct ChoiceClass {
  Function function = Function::other;
  DType dtype = DType::f32;
  std::uint32_t rule = 0;  // of the policy, counted from 1; 0: its defaults
  std::uint8_t size = 0;   // bytes are from 2^size to below 2^(size + 1)
  // NOLINTNEXTLINE(modernize-use-nullptr): of what clang makes of it
  friend auto operator<=>(const ChoiceClass&, const ChoiceClass&) = default;
};
/// The `size` of so many bytes; 0 for none.
[[nodiscard]] std::uint8_t size_class(std::uint64_t bytes) noexcept;

/// 0: passed on; i: compressed by the i-th codec that the policy allows.
using Way = std::uint8_t;

/// From its `call`-th call on, counted from 0, a class goes this way.
struct WayChange {
  std::uint64_t call = 0;
  Way way = 0;
  friend bool operator==(const WayChange&, const WayChange&) = default;
};
using Choices = std::map<ChoiceClass, std::vector<WayChange>>;

/// A trial needs a copy of the call's input and room for a result of its own. Calls of more bytes get no trial.
inline constexpr std::uint64_t kMostCopied = std::uint64_t{64} << 20;

struct AutoCallOptions {
  double gain = 0.05;               // of the time, which a change must save
  double cost = 3e-3;               // share of a class's time for comparisons; all ways of a trial count
  double hasty_cost = 3e-2;         // the same where calls take another time than they did
  double look_cost = 1e-3;          // share for looking whether they do
  double expensive_seconds = 0.25;  // a trial that takes longer is not repeated where it is clear
};

class AutoCall {
 public:
  explicit AutoCall(AutoCallOptions options = {}) : options_(options) {}
  /// Chooses as was chosen before and measures nothing; what is not in `script` is passed on.
  explicit AutoCall(Choices script) : options_(), script_(std::move(script)) {}
  /// As made of that, before the first call.
  void follow(Choices script) { script_ = std::move(script); }
  AutoCall(const AutoCall&) = delete;
  AutoCall& operator=(const AutoCall&) = delete;

  /// Whether this rank has the memory for a trial of the call; asked before each trial.
  using CanCopy = std::function<bool()>;

  /// Begins a call of `bytes`, above 0, that can go `ways` ways. Returns what the ranks are to bring together before
  /// it, for answer(); empty: nothing.
  [[nodiscard]] std::span<const double> begin(const ChoiceClass& what, std::uint64_t bytes, std::size_t ways,
                                              const CanCopy& can_copy);
  /// `worst`: of each number the largest over all ranks; `seconds`: how long that took here.
  void answer(std::span<const double> worst, double seconds);

  /// Whether what the ranks bring together before the call is for a trial.
  [[nodiscard]] bool begins_trial() const noexcept { return current_ != nullptr && current_->begun; }

  struct Turn {
    Way way = 0;                   // of the job's result; 0 in a trial
    bool timed = false;            // measured() is to be told
    bool decided = false;          // not for the sake of a comparison
    bool trial = false;            // the call is made every way, and concluded() is to be told
    bool passed_first = true;      // in a trial; else the library's own call is the last one
    Reason barred = Reason::none;  // why the class passes whatever would be faster
    /// So many more calls of the class go the same way and need not begin here; the caller counts down.
    std::uint64_t* left = nullptr;
  };
  [[nodiscard]] Turn turn();
  /// The seconds of the call that turn() was for.
  void measured(double seconds);
  /// What a trial took on the slowest rank: seconds by way, infinite for a way that must not be chosen, and those for
  /// copies of buffers. The same on every rank.
  void concluded(std::span<const double> seconds, double copying);
  /// From now on the class passes, on this rank; every rank must be told so.
  void bar(const ChoiceClass& what, Reason why);

  /// Seconds of a call of the class, by way, as last compared. None: not compared yet itself.
  [[nodiscard]] std::optional<WaySeconds> compared(const ChoiceClass& what) const;
  /// All that was chosen so far.
  [[nodiscard]] const Choices& choices() const noexcept { return choices_; }

  static constexpr std::size_t kMostClasses = 256;

 private:
  struct Comparison {
    std::vector<std::vector<double>> costs;  // by way: seconds a byte, one a trial
    std::size_t trials = 0;                  // that count
    double trial_seconds = 0;                // of the latest
    bool warm = false;                       // a trial has run before, to no account
  };
  struct Class {
    std::size_t ways = 2;
    Way way = 0;
    std::uint64_t bytes = 1;  // of the latest call
    std::uint64_t calls = 0;
    std::uint64_t left = 0;   // calls that pass and need not be asked for
    std::uint64_t apart = 0;  // calls that are compressed until the next trial
    std::optional<Comparison> comparison;
    WaySeconds costs;                 // of a byte, as compared
    bool guessed = false;             // they are a neighbour's
    double copying = 0;               // seconds a byte for copies in a trial
    std::vector<bool> excluded = {};  // by way: must not be chosen
    Reason barred = Reason::none;
    bool begun = false;        // a trial was asked for, and not answered yet
    std::size_t trials = 4;    // that a comparison takes, as the latest did
    double spent = 0;          // seconds of its calls since the last comparison
    unsigned decisions = 0;    // comparisons that have ended
    unsigned confirmed = 0;    // comparisons in a row with the same outcome
    std::vector<double> seen;  // here, of calls since the last look
    std::uint64_t turns = 0;   // since then
    double looked_at = 0;      // `spent` then
    double usual = 0;          // seconds a byte, as first looked at since the last comparison
    int stirred = 0;           // looks in a row that found another time
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
  ChoiceClass what_;          // of the call that has begun
  Class* current_ = nullptr;  // null: passed on, there is no place for its class
  std::vector<double> question_;
  double exchange_here_ = 0;  // seconds that the ranks' latest exchange took here
  double exchange_ = 0;       // and where they came last, so without a wait
};

}  // namespace gradwire::choice
