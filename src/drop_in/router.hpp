// Decides what becomes of one communicator's calls: the decision, the place in the step and the policy's codecs; and
// counts them all. Every rank asks about the same calls in the same order, so all ranks answer alike. Moves no data.
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

#include "choice/device_gate.hpp"
#include "codec/small_values.hpp"
#include "drop_in/calls.hpp"
#include "drop_in/configuration.hpp"
#include "drop_in/device_guess.hpp"
#include "drop_in/ledger.hpp"
#include "drop_in/step_tracker.hpp"
#include "gradwire/statistics.hpp"
#include "plan/call_plan.hpp"

namespace gradwire::drop_in {

/// Whether the arguments and the policy alone decide that a call is compressed, so that this is known before earlier
/// calls have been made. Any thread may call it.
[[nodiscard]] bool decides_at_once(const plan::CallPlanner& planner, const Call& call);

class Router {
 public:
  /// Whether every rank has this value here. The call is collective and blocks. It is never made in a dry run.
  using AllSay = std::function<bool(std::uint64_t value)>;
  /// Makes each value the largest of all ranks. The call is collective and blocks. It is made only for codec = "auto"
  /// and `max_error`, and never in a dry run.
  using Worst = std::function<void(std::span<double> values)>;
  /// Whether this rank has the memory to make a call of so many bytes both ways; the memory is kept until the next
  /// route().
  using CanCopy = std::function<bool(std::uint64_t bytes)>;

  /// `configuration` and `ledger` must outlive the router.
  Router(const Configuration& configuration, Ledger& ledger, const AgreedSettings& agreement, AllSay all_say,
         Worst worst = {}, CanCopy can_copy = {});
  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;

  struct Route {
    CallDecision decision;
    CallClass what;       // the class to count it as
    policy::Stage stage;  // the codecs, if it is compressed
    Algorithm algorithm = Algorithm::two_shot;
    std::optional<CodecSpec> second_hop = {};  // as the policy gives it; none: it follows from stage.codec
    Residuals residuals = {};                  // how it keeps them over host memory
    std::optional<std::uint64_t> keeps = {};   // the call's order, if it is compressed and keeps residuals
    std::uint64_t resets = 0;                  // resets() at that time
    std::optional<ChoiceClass> choice = {};    // if codec = "auto" chose
    /// Set if codec = "auto" chose. If `turn.trial`, also for a named codec with a bound: the call is made every way,
    /// and the caller calls trial_made().
    AutoCall::Turn turn = {};
    std::vector<policy::Stage> ways = {};      // in a trial: the codecs, besides the library's own call
    std::optional<ChoiceClass> watched = {};   // the class by which its errors are counted
    std::optional<double> max_error = {};      // the bound of these errors
    bool lossy = false;                        // it is compressed, and one of its codecs drops something
    std::optional<std::uint64_t> sample = {};  // number of a lossy call that is to be compared, among those
    /// Whether the call passes without a choice, as all calls with the same arguments will.
    bool lasting = false;
    bool any_role = false;  // over NCCL: the policy compresses it whether it is known to be a gradient's or not
    /// With a gate: the number of the step that begins with this call.
    std::optional<std::uint64_t> step = {};
    /// With a gate: the call is also made by `rival`, on a copy; by the library's own call, if its way is 0.
    std::optional<choice::DeviceGate::Trial> trial = {};
    policy::Stage rival = {};
    DeviceMethod method = DeviceMethod::messages;  // with a gate: how it is compressed
    DeviceMethod rival_method = DeviceMethod::messages;
    bool folds = false;  // with `keeps`: residuals that are held there are added, and none are kept
  };

  /// What a rank knows about a call's place in the job. All fields but `others` may differ between ranks.
  struct Origin {
    std::string_view name = {};    // of the buffer; empty: none
    const void* buffer = nullptr;  // the buffer that is read
    std::uint64_t others = 0;      // calls on the communicator so far that were not routed
    /// Calls before it in its step, the same on every rank, if the caller knows that number. An order that is no higher
    /// than the previous one begins a step.
    std::optional<std::uint64_t> order = {};
    /// With `order`: the caller that counts it. Each such caller has steps and residuals of its own.
    std::uint32_t sequence = 0;
  };

  /// Returns what is known about a call before its turn comes. Any thread may call it.
  [[nodiscard]] CallDecision decide(const Call& call) const noexcept { return choice::decide(call, settings_); }
  /// Whether the policy could compress a call with this decision, whatever was measured and wherever it stands in its
  /// step. The answer follows from what all ranks know alike.
  [[nodiscard]] bool could_compress(const Call& call, const CallDecision& decided);
  /// Over NCCL: whether the policy compresses such a call whatever its role, wherever it stands in its step.
  [[nodiscard]] bool any_role(const Call& call) { return plan_of(call).any_role; }
  /// Learns the step anew, and gives up the places and residuals of the one before: the caller knows that it changed.
  /// To be called on every rank alike.
  void forget_step();
  /// Decides about the next call, for which decide() returned `decided`. A call that could be compressed counts in the
  /// step whether it is compressed or not.
  [[nodiscard]] Route route(const Call& call, const CallDecision& decided, std::string_view op, const Origin& origin);

  /// Chooses for codec = "auto" by `gate`, which must outlive the router, instead of trials of whole calls. To be
  /// called before the first call.
  void use_gate(choice::DeviceGate& gate) noexcept {
    gate_ = &gate;
    placeless_ = false;  // the gate compares steps
  }

  /// With a gate: from now on there are further ways of all-reduces. To be called on every rank alike, before the first
  /// all-reduce that the gate is asked about.
  void offer(DeviceOffers offers) noexcept { offers_ = std::move(offers); }
  /// With a gate: returns the route of a call of the class by that way, above 0, without the number of elements.
  [[nodiscard]] Route rival_of(const ChoiceClass& what, Way way) const;

  /// Follows an earlier job's choices on the communicator, if the configuration says so. To be called before the first
  /// call that could be compressed, with the same name on all ranks.
  void follow(const CommunicatorName& name);
  /// Takes the seconds of the latest call, if its turn is timed.
  void measured(double seconds) { auto_call_.measured(seconds); }
  /// Returns the measured seconds of calls of the class: passed, and compressed by the quickest codec.
  [[nodiscard]] std::optional<CallTotals::Measured> measured(const ChoiceClass& what) const;
  [[nodiscard]] const Choices& choices() const noexcept {
    return gate_ != nullptr ? gate_->choices() : auto_call_.choices();
  }

  /// To be called after a trial with the same arguments on every rank: seconds by way (0: the library's own call),
  /// those of copies, and the relative error of each way against the library's sum, if it is known (empty: for no way).
  void trial_made(const Route& route, std::span<const double> seconds, double copying,
                  std::span<const std::optional<double>> errors);
  /// From now on every call passes: a trial failed, which ends the ranks' common messages. To be called on every rank.
  void set_aside(std::string_view why) noexcept;

  /// Counts a call that was compressed. `algorithm` is that of an all-reduce, as Communicator::latest_algorithm()
  /// returns it. `error` is the relative error of a sample, the same on every rank.
  void count(const Route& route, const Statistics& statistics, const std::string& algorithm = {},
             std::optional<double> error = {});
  /// Counts what a codec left of this rank's small values in a sample.
  void count_small_values(const Route& route, const codec::SmallValues& found);
  /// Sets whether this rank is the communicator's rank 0, which prints lines; no other rank has any.
  void set_tells(bool tells) noexcept { tells_ = tells; }
  /// Returns the lines to print since the last call.
  [[nodiscard]] std::vector<std::string> take_lines() { return std::exchange(lines_, {}); }
  /// Returns the totals of a call that was passed through, or would have been compressed in a dry run.
  [[nodiscard]] CallTotals passed_totals(const Route& route, std::uint64_t bytes) const;
  /// Counts a call that was passed through, or would have been compressed in a dry run.
  void count_passed(const Route& route, std::uint64_t bytes, double seconds);

  /// Sets the name that rules ask for, the same on every rank. To be called before the first call.
  void set_communicator_name(std::string name) { communicator_name_ = std::move(name); }

  /// From now on calls pass because some rank cannot compress here, or are compressed again; the same on every rank.
  void stand_aside(bool aside) noexcept { aside_ = aside; }
  [[nodiscard]] bool aside() const noexcept { return aside_; }
  [[nodiscard]] bool dry_run() const noexcept { return dry_run_; }
  /// Number of known steps that changed. Residuals kept under an order before that belong to another call now.
  [[nodiscard]] std::uint64_t resets() const noexcept { return resets_; }

 private:
  // One call of the step.
  struct Slot {
    std::optional<plan::CallPlan> plan;
    std::string name;
    bool keeps = false;  // keeps residuals
    bool holds = false;  // with a gate: its latest call has left residuals
    Signature call = {};
    std::uint64_t number = 0;  // of a placed call: unique on the communicator
  };
  // Calls whose caller knows their order.
  struct Placed {
    std::vector<Slot> slots;  // by order
    std::uint64_t step = 0;
    std::optional<std::uint64_t> latest_order;
  };

  [[nodiscard]] Route decide_route(const Call& call, const CallDecision& decided, std::string_view op,
                                   const Origin& origin);
  [[nodiscard]] const plan::CallPlan& plan_of(const Call& call);
  [[nodiscard]] plan::CallPlan resolve(const Call& call, std::uint64_t order = 0, std::string_view name = {}) const;
  // The next two functions are for calls that the arguments and the agreement allow to compress. `learning`: the policy
  // needs the call's place in the step, which is not known yet.
  void follow_policy(Route& route, const Call& call, const plan::CallPlan& plan, bool learning = false);
  void choose(Route& route, const Call& call, const plan::CallPlan& plan);
  void choose_by_gate(Route& route, std::uint64_t bytes, const plan::CallPlan& plan);
  [[nodiscard]] DeviceOffers offers_to(Function function, const plan::CallPlan& plan) const;
  static void settle_residuals(Route& route, Slot& slot);
  [[nodiscard]] std::optional<choice::WaySeconds> compared(const ChoiceClass& what) const {
    return gate_ != nullptr ? gate_->compared(what) : auto_call_.compared(what);
  }
  // Decides whether the class of a compressed call may be compressed, is to be tried first, or is to be sampled.
  void watch(Route& route, const Call& call, const plan::CallPlan& plan);
  void pass(Route& route, Reason reason);
  [[nodiscard]] bool all_can_copy(std::uint64_t bytes);
  // Exchanges `values` before a trial. Returns false if that failed, and every call passes from now on. No rank has
  // compressed the call then, nor will one, so the job need not know.
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
  bool by_order_ = false;  // the policy has rules that ask for the order of calls
  bool by_step_ = false;   // the policy has codecs that need the step
  std::string communicator_name_;
  AllSay all_say_;
  StepTracker tracker_;
  std::uint64_t resets_ = 0;
  // Calls of one class with one codec.
  struct Watched {
    std::uint64_t calls = 0;    // calls that were compressed
    std::uint64_t next = 0;     // the call that is sampled next
    std::uint64_t samples = 0;  // samples so far
    bool lossy = true;
    bool tried = false;    // a call was made both ways once, within the bound
    bool untried = false;  // calls cannot be made both ways
    bool exceeded = false;
  };
  [[nodiscard]] Watched& watched_of(const Route& route);

  std::uint64_t passed_ = 0;                 // calls here that could not be compressed
  std::uint64_t other_calls_ = 0;            // those and calls elsewhere, at the latest call that could be compressed
  std::vector<Slot> slots_;                  // by order; empty while the step is not known
  std::map<std::uint32_t, Placed> placed_;   // by sequence
  std::uint64_t placed_calls_ = 0;           // numbers given to such calls
  std::vector<std::uint64_t> free_numbers_;  // numbers of calls that were forgotten
  bool placeless_;                           // nothing depends on a call's place in the step, so it is not looked for
  std::map<std::pair<std::uint64_t, DType>, plan::CallPlan> plans_;  // by count, if placeless_
  Worst worst_;
  CanCopy can_copy_;
  AutoCall auto_call_;
  choice::DeviceGate* gate_ = nullptr;
  // The plan of a call of each class that the gate was asked about, and its ways from 1 on.
  struct Gated {
    plan::CallPlan plan;
    std::vector<DeviceWay> ways;
  };
  std::map<ChoiceClass, Gated> gated_;
  DeviceOffers offers_;
  std::map<std::pair<ChoiceClass, std::string>, Watched> watched_;  // by class and codec
  Watched other_classes_;                                           // all classes beyond kMostWatched together
  bool aside_ = false;
  bool trial_failed_ = false;  // every call passes since then
  bool tells_ = false;
  std::vector<std::string> lines_;
};

}  // namespace gradwire::drop_in
