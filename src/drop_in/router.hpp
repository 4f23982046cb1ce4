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

#include "drop_in/auto_call.hpp"
#include "drop_in/configuration.hpp"
#include "drop_in/decision.hpp"
#include "drop_in/ledger.hpp"
#include "drop_in/step_tracker.hpp"
#include "gradwire/statistics.hpp"
#include "plan/call_plan.hpp"

namespace gradwire::drop_in {

class Router {
 public:
  /// Whether every rank has this value here. Collective; blocks. Never asked for in a dry run.
  using AllSay = std::function<bool(std::uint64_t value)>;
  /// Makes each value the largest of all ranks. Collective; blocks. Only for codec = "auto", and never in a dry run.
  using Worst = std::function<void(std::span<double> values)>;

  /// `configuration` and `ledger` must outlive it. `name`: of the communicator, where choices are followed.
  Router(const Configuration& configuration, Ledger& ledger, const Agreement& agreement, AllSay all_say,
         Worst worst = {}, const CommunicatorName& name = {});
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
    AutoCall::Turn turn = {};                  // then
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

  /// Decides about the next call. A call that could be compressed counts in the step whether it is or not.
  [[nodiscard]] Route route(const Call& call, std::string_view op, const Origin& origin);

  /// The seconds that the latest call took, where its turn is timed.
  void measured(double seconds) { auto_call_.measured(seconds); }
  /// What was measured of calls of the class: seconds passed, and compressed by whatever was quickest.
  [[nodiscard]] std::optional<CallTotals::Measured> measured(const ChoiceClass& what) const;
  [[nodiscard]] const Choices& choices() const noexcept { return auto_call_.choices(); }

  /// Counts a call that was compressed. `algorithm`: of an all-reduce, as Communicator::latest_algorithm() says it.
  void count(const Route& route, const Statistics& statistics, const std::string& algorithm = {});
  /// What a call counts that was passed through, or would have been compressed in a dry run.
  [[nodiscard]] CallTotals passed_totals(const Route& route, std::uint64_t bytes) const;
  /// Counts a call that was passed through, or would have been compressed in a dry run.
  void count_passed(const Route& route, std::uint64_t bytes, double seconds);

  [[nodiscard]] const Settings& settings() const noexcept { return settings_; }
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

  [[nodiscard]] Route decide_route(const Call& call, std::string_view op, const Origin& origin);
  [[nodiscard]] const plan::CallPlan& plan_of(const Call& call);
  /// For a call that may be compressed.
  void choose(Route& route, const Call& call, const plan::CallPlan& plan);
  void judge(Route& route, const Call& call, const plan::CallPlan& plan);
  void fill(Slot& slot, const Call& call, std::uint64_t order, std::string_view name);
  [[nodiscard]] Slot& slot_of(const Call& call, const StepTracker::Place& place, std::string_view name);
  void route_placed(Route& route, const Call& call, const Origin& origin);
  void forget_slots(std::vector<Slot>& slots);
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
  std::uint64_t passed_ = 0;                 // calls here that could not be compressed
  std::uint64_t others_ = 0;                 // these and those elsewhere, at the latest that could
  std::vector<Slot> slots_;                  // by order; empty while the step is not known
  std::map<std::uint32_t, Placed> placed_;   // by sequence
  std::uint64_t placed_calls_ = 0;           // numbers of such calls that were given
  std::vector<std::uint64_t> free_numbers_;  // of those that were forgotten
  bool placeless_;                           // nothing depends on a call's place in the step, and it is not looked for
  std::map<std::pair<std::uint64_t, DType>, plan::CallPlan> plans_;  // then: by count
  Worst worst_;
  AutoCall auto_call_;
};

}  // namespace gradwire::drop_in
