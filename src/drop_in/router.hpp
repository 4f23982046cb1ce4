// What becomes of one communicator's calls: the decision, the place in the step, the policy's codecs, and the count of
// it all. Every rank asks for the same calls in the same order, so that all answer alike. Moves no data.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/small_values.hpp"
#include "drop_in/calls.hpp"
#include "drop_in/configuration.hpp"
#include "drop_in/ledger.hpp"
#include "drop_in/step_tracker.hpp"
#include "gradwire/statistics.hpp"
#include "plan/call_plan.hpp"

namespace gradwire::drop_in {

/// Whether it follows from the arguments and the policy alone that a call is compressed, so that it can be said before
/// the calls in front of it have been made. Any thread.
[[nodiscard]] bool decides_at_once(const plan::CallPlanner& planner, const Call& call);

class Router {
 public:
  /// Whether every rank has this value here. Collective; blocks. Never asked for in a dry run.
  using AllSay = std::function<bool(std::uint64_t value)>;
  /// Makes each value the largest of all ranks. Collective; blocks. Only for codec = "auto" and `max_error`, and never
  /// in a dry run.
  using Worst = std::function<void(std::span<double> values)>;
  /// Whether this rank has the memory to make a call of so many bytes both ways; it is kept until the next route().
  using CanCopy = std::function<bool(std::uint64_t bytes)>;

  /// `configuration` and `ledger` must outlive it.
  Router(const Configuration& configuration, Ledger& ledger, const Agreement& agreement, AllSay all_say,
         Worst worst = {}, CanCopy can_copy = {});
  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;

  struct Route {
    Decision decision;
    CallClass what;       // to count it as
    policy::Stage stage;  // where it is compressed: the codecs
    Algorithm algorithm = Algorithm::two_shot;
    std::optional<CodecSpec> second_hop = {};  // as the policy gives it; none: what follows from stage.codec
    std::optional<std::uint64_t> keeps = {};   // where it is compressed and keeps residuals: the call's order
    std::uint64_t resets = 0;                  // resets() then
    std::optional<ChoiceClass> choice = {};    // where codec = "auto" chose
    /// Then; and where `turn.trial`, also of a named codec with a bound: the call is made every way, and trial_made()
    /// is to be told.
    AutoCall::Turn turn = {};
    std::vector<policy::Stage> ways = {};      // of a trial: the codecs, beside the library's own call
    std::optional<ChoiceClass> watched = {};   // the class by which its errors are counted
    std::optional<double> max_error = {};      // the bound
    bool lossy = false;                        // it is compressed, and some codec of it drops something
    std::optional<std::uint64_t> sample = {};  // a lossy call that is to be compared: which of those it is
    /// Passed, and calls with the same arguments will be; without a choice.
    bool lasting = false;
  };

  /// What a rank knows of a call's place in the job; may differ between ranks but for `others`.
  struct Origin {
    std::string_view name = {};    // of the buffer; empty: none
    const void* buffer = nullptr;  // the one that is read
    std::uint64_t others = 0;      // calls on the communicator so far that did not come to route()
    /// Where the caller knows it, the same on every rank: calls before it in its step.
    /// One that is no higher than the one before begins a step.
    std::optional<std::uint64_t> order = {};
    /// With `order`: who counts it. Each such caller has steps and residuals of its own.
    std::uint32_t sequence = 0;
  };

  /// What is known of a call before its turn comes. Any thread.
  [[nodiscard]] Decision decide(const Call& call) const noexcept { return choice::decide(call, settings_); }
  /// Whether the policy could compress a call of which decide() says that, whatever was measured and wherever in its
  /// step it stands. By what all ranks know alike.
  [[nodiscard]] bool could_compress(const Call& call, const Decision& decided);
  /// Decides about the next call, of which decide() said that. A call that could be compressed counts in the step
  /// whether it is or not.
  [[nodiscard]] Route route(const Call& call, const Decision& decided, std::string_view op, const Origin& origin);
  /// The same where nobody had to ask before its turn.
  [[nodiscard]] Route route(const Call& call, std::string_view op, const Origin& origin) {
    return route(call, decide(call), op, origin);
  }

  /// Before the first call that could be compressed, with the same name on all ranks: what an earlier job chose on the
  /// communicator, where the configuration says to follow that.
  void follow(const CommunicatorName& name);
  /// The seconds that the latest call took, where its turn is timed.
  void measured(double seconds) { auto_call_.measured(seconds); }
  /// What was measured of calls of the class: seconds passed, and compressed by whatever was quickest.
  [[nodiscard]] std::optional<CallTotals::Measured> measured(const ChoiceClass& what) const;
  [[nodiscard]] const Choices& choices() const noexcept { return auto_call_.choices(); }

  /// After a trial, the same on every rank: seconds by way (0: the library's own call), those of copies, and the
  /// relative error of each way beside the library's sum, where that is known (empty: of none).
  void trial_made(const Route& route, std::span<const double> seconds, double copying,
                  std::span<const std::optional<double>> errors);
  /// From now on every call passes: a trial failed, which ends the ranks' common messages. Each rank must know of it.
  void set_aside(std::string_view why) noexcept;

  /// Counts a call that was compressed. `algorithm`: of an all-reduce, as Communicator::latest_algorithm() says it.
  /// `error`: the relative error of a sample, the same on every rank.
  void count(const Route& route, const Statistics& statistics, const std::string& algorithm = {},
             std::optional<double> error = {});
  /// What a codec left of this rank's small values, in a sample.
  void count_small_values(const Route& route, const codec::SmallValues& found);
  /// Whether this rank is the communicator's rank 0, which tells; no other has lines to take.
  void set_tells(bool tells) noexcept { tells_ = tells; }
  /// Lines to tell since the last time.
  [[nodiscard]] std::vector<std::string> take_lines() { return std::exchange(lines_, {}); }
  /// What a call counts that was passed through, or would have been compressed in a dry run.
  [[nodiscard]] CallTotals passed_totals(const Route& route, std::uint64_t bytes) const;
  /// Counts a call that was passed through, or would have been compressed in a dry run.
  void count_passed(const Route& route, std::uint64_t bytes, double seconds);

  [[nodiscard]] const Settings& settings() const noexcept { return settings_; }
  /// From now on calls pass, since some rank cannot compress here, or are compressed again; the same on every rank.
  /// `for_good`: that will not change.
  void stand_aside(bool aside, bool for_good) noexcept {
    aside_ = aside;
    aside_for_good_ = for_good;
  }
  [[nodiscard]] bool aside() const noexcept { return aside_; }
  [[nodiscard]] bool aside_for_good() const noexcept { return aside_for_good_; }
  [[nodiscard]] bool dry_run() const noexcept { return dry_run_; }
  /// Steps that were known and changed. What was kept under an order before is another call's now.
  [[nodiscard]] std::uint64_t resets() const noexcept { return resets_; }

 private:
  // One call of the step.
  struct Slot {
    std::optional<plan::CallPlan> plan;
    std::string name;
    bool keeps = false;  // residuals
    Signature call = {};
    std::uint64_t number = 0;  // of a placed call: unique on the communicator
  };
  // Calls whose caller knows their order.
  struct Placed {
    std::vector<Slot> slots;  // by order
    std::uint64_t step = 0;
    std::optional<std::uint64_t> latest_order;
  };

  [[nodiscard]] Route decide_route(const Call& call, const Decision& decided, std::string_view op,
                                   const Origin& origin);
  [[nodiscard]] const plan::CallPlan& plan_of(const Call& call);
  // The next two are for calls that the arguments and the agreement let compress. `learning`: the policy needs the
  // call's place in the step, which is not known yet.
  void follow_policy(Route& route, const Call& call, const plan::CallPlan& plan, bool learning = false);
  void choose(Route& route, const Call& call, const plan::CallPlan& plan);
  // Of a call that is compressed: whether its class may be, is to be tried first, or is to be sampled.
  void watch(Route& route, const Call& call, const plan::CallPlan& plan);
  void pass(Route& route, Reason reason);
  [[nodiscard]] bool all_can_copy(std::uint64_t bytes);
  // Before a trial. False: that failed, and every call passes from now on. No rank has compressed the call then, nor
  // will one, so the job need not know.
  [[nodiscard]] bool exchange_before_trial(std::span<double> values);
  void fill(Slot& slot, const Call& call, std::uint64_t order, std::string_view name);
  [[nodiscard]] Slot& slot_of(const Call& call, const StepTracker::Place& place, std::string_view name);
  void route_placed(Route& route, const Call& call, const Origin& origin);
  void forget_slots(std::vector<Slot>& slots);
  [[nodiscard]] static ChoiceClass class_of(const Call& call, const plan::CallPlan& plan);
  void look_at_error(const Route& route, std::optional<double> error);
  void exceed(const Route& route, double error);
  void tell(std::string line);
  void find_step();
  [[nodiscard]] bool all_say(std::uint64_t value) { return dry_run_ || all_say_(value); }

  const Configuration& configuration_;
  Ledger& ledger_;
  Settings settings_;
  bool dry_run_;
  bool by_name_ = false;   // the policy has rules that ask for names
  bool by_order_ = false;  // or for the order of calls
  bool by_step_ = false;   // or has codecs that need the step
  AllSay all_say_;
  StepTracker tracker_;
  std::uint64_t resets_ = 0;
  // Calls of one class with one codec.
  struct Watched {
    std::uint64_t calls = 0;    // that were compressed
    std::uint64_t next = 0;     // the call that is sampled next
    std::uint64_t samples = 0;  // so far
    bool lossy = true;
    bool tried = false;    // made both ways once, within the bound
    bool untried = false;  // cannot be
    bool exceeded = false;
  };
  [[nodiscard]] Watched& watched_of(const Route& route);

  std::uint64_t passed_ = 0;                 // calls here that could not be compressed
  std::uint64_t others_ = 0;                 // these and those elsewhere, at the latest that could
  std::vector<Slot> slots_;                  // by order; empty while the step is not known
  std::map<std::uint32_t, Placed> placed_;   // by sequence
  std::uint64_t placed_calls_ = 0;           // numbers of such calls that were given
  std::vector<std::uint64_t> free_numbers_;  // of those that were forgotten
  bool placeless_;                           // nothing depends on a call's place in the step, and it is not looked for
  std::map<std::pair<std::uint64_t, DType>, plan::CallPlan> plans_;  // then: by count
  Worst worst_;
  CanCopy can_copy_;
  AutoCall auto_call_;
  std::map<std::pair<ChoiceClass, std::string>, Watched> watched_;  // with the codec
  Watched other_classes_;                                           // beyond kMostWatched, all together
  bool aside_ = false;
  bool aside_for_good_ = false;
  bool trial_failed_ = false;  // so every call passes
  bool tells_ = false;
  std::vector<std::string> lines_;
};

}  // namespace gradwire::drop_in
