#include "drop_in/router.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <utility>

#include "base/elapsed.hpp"
#include "drop_in/sent_bytes.hpp"
#include "observe/record.hpp"

namespace gradwire::drop_in {
namespace {

Reason reason_of(plan::Pass pass) {
  switch (pass) {
    case plan::Pass::no: return Reason::none;
    case plan::Pass::below_floor: return Reason::below_floor;
    case plan::Pass::exact: return Reason::policy_exact;
    case plan::Pass::f64_not_asked:
    case plan::Pass::codec_refused: return Reason::dtype;
  }
  return Reason::policy_exact;
}

bool keeps_residuals(const plan::CallPlan& plan) {
  const std::vector<policy::Stage>& stages = plan.policy.is_auto() ? plan.ways : plan.stages;
  return std::any_of(stages.begin(), stages.end(), [](const policy::Stage& stage) { return stage.error_feedback; });
}

bool needs_step(const plan::CallPlan& plan) {
  return keeps_residuals(plan) || (!plan.policy.is_auto() && plan.stages.size() > 1);
}

// FNV-1a: the same on every rank, whatever its standard library.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

// Returns the bytes of the job's own call, whatever replaces it: an MPI_Reduce is made as an all-reduce, and one_shot
// sends to all.
std::uint64_t bytes_dense_of(const CallClass& what) {
  return passed_totals(what.function, 1, what.count * element_bytes(*what.dtype), what.communicator_size).bytes_dense;
}

constexpr std::size_t kMostPlans = 4096;  // plans that are kept
}  // namespace

Router::Router(const Configuration& configuration, Ledger& ledger, const AgreedSettings& agreement, AllSay all_say,
               Worst worst, CanCopy can_copy)
    : configuration_(configuration),
      ledger_(ledger),
      dry_run_(agreement.dry_run),
      all_say_(std::move(all_say)),
      placeless_(configuration.planner.only_automatic() && !agreement.dry_run),
      worst_(std::move(worst)),
      can_copy_(std::move(can_copy)),
      auto_call_({.gain = configuration.planner.policy().auto_options.gain}) {
  if (configuration.script) {
    auto_call_.follow({});  // until follow() names the communicator
  }
  settings_.floor_bytes = configuration.planner.floor();
  settings_.requests = agreement.requests;
  settings_.disabled = agreement.disabled;
  settings_.ranks_differ = agreement.ranks_differ;
  settings_.one_process = agreement.one_process;
  settings_.observing = agreement.mode == Mode::observing && !agreement.dry_run;
  for (const Policy::Rule& rule : configuration.planner.policy().rules) {
    settings_.f64 |= rule.match.dtype == DType::f64;
    by_name_ |= rule.match.glob.has_value();
    by_order_ |= rule.match.order.has_value();
  }
  tracker_ = StepTracker(by_order_);
}

void Router::follow(const CommunicatorName& name) {
  if (configuration_.script) {
    const auto found = configuration_.script->find(name);
    auto_call_.follow(found == configuration_.script->end() ? Choices() : found->second);
  }
}

bool Router::could_compress(const Call& call, const CallDecision& decided) {
  return decided.compress && (by_name_ || by_order_ || plan_of(call).compress());
}

bool decides_at_once(const plan::CallPlanner& planner, const Call& call) {
  for (const Policy::Rule& rule : planner.policy().rules) {
    if (rule.match.glob || rule.match.order) {
      return false;
    }
  }
  const plan::CallPlan plan = planner.resolve(
      {.count = call.count, .dtype = *call.dtype, .communicator_size = static_cast<std::uint32_t>(call.world_size)});
  return plan.compress() && !plan.policy.max_error && !plan.policy.is_auto() && !needs_step(plan);
}

Router::Route Router::route(const Call& call, const CallDecision& decided, std::string_view op, const Origin& origin) {
  Route route = decide_route(call, decided, op, origin);
  if (observe::on() && !route.decision.compress) {
    observe::record({.begin = observe::ticks(),
                     .bytes = call.dtype ? call.count * element_bytes(*call.dtype) : 0,
                     .kind = observe::EventKind::passed,
                     .lane = static_cast<std::uint16_t>(route.what.reason)});
  }
  return route;
}

Router::Route Router::decide_route(const Call& call, const CallDecision& decided, std::string_view op,
                                   const Origin& origin) {
  Route route;
  route.what = {.function = call.function,
                .dtype = call.dtype,
                .op = std::string(op),
                .count = call.count,
                .communicator_size = call.world_size};
  route.decision = decided;
  if (decided.compress && (aside_ || trial_failed_)) {
    pass(route, Reason::aside);
  }
  if (!route.decision.compress) {
    ++passed_;
    route.what.reason = route.decision.reason;
    route.lasting = lasts(route.decision.reason);
    return route;
  }
  if (placeless_) {
    follow_policy(route, call, plan_of(call));
    route.lasting = !route.choice && lasts(route.what.reason);
    return route;
  }
  const bool named = !origin.name.empty();
  const std::uint64_t others = passed_ + origin.others;
  const auto place =
      tracker_.next({call.function, *call.dtype, call.count},
                    {.identity = named ? hash_of(origin.name) : reinterpret_cast<std::uintptr_t>(origin.buffer),
                     .named = named,
                     .fence = others != other_calls_});
  other_calls_ = others;
  if (tracker_.broke()) {
    forget_slots();
  }
  std::uint64_t step = 0;
  Slot first;  // while the step is not known
  Slot* slot = &first;
  bool learning = false;
  if (place) {
    slot = &slot_of(call, *place, origin.name);
    step = place->step;
    route.what.order = place->order;
    route.what.name = slot->name;
    if (gate_ != nullptr && place->order == 0) {
      route.step = gate_->begin_step();
    }
  } else {
    if (gate_ != nullptr) {
      gate_->forget_steps();
    }
    first.plan = resolve(call);
    by_step_ = by_step_ || needs_step(*first.plan);
    learning = by_name_ || by_order_ || needs_step(*first.plan);
    if (tracker_.due()) {
      find_step();
    }
  }
  route.stage = policy::stage_at(slot->plan->stages, step);
  follow_policy(route, call, *slot->plan, learning);
  route.resets = resets_;
  if (gate_ != nullptr && route.choice) {
    settle_residuals(route, *slot);
  } else if (route.decision.compress && !slot->plan->policy.is_auto()) {
    route.keeps = slot->keeps ? route.what.order : std::nullopt;
  }
  return route;
}

const plan::CallPlan& Router::plan_of(const Call& call) {
  if (plans_.size() >= kMostPlans) {
    plans_.clear();
  }
  const auto [found, made] = plans_.try_emplace({call.count, *call.dtype});
  if (made) {
    found->second = resolve(call);
  }
  return found->second;
}

plan::CallPlan Router::resolve(const Call& call, std::uint64_t order, std::string_view name) const {
  return configuration_.planner.resolve({.count = call.count,
                                         .dtype = *call.dtype,
                                         .order = order,
                                         .communicator_size = static_cast<std::uint32_t>(call.world_size),
                                         .name = name,
                                         .communicator_name = communicator_name_});
}

void Router::follow_policy(Route& route, const Call& call, const plan::CallPlan& plan, bool learning) {
  route.algorithm = plan.policy.algorithm;
  route.any_role = plan.any_role;
  route.residuals = plan.policy.residuals;
  const Reason reason = learning ? Reason::learning : reason_of(plan.pass);
  route.decision = {.compress = reason == Reason::none, .reason = reason};
  if (route.decision.compress && plan.policy.is_auto()) {
    choose(route, call, plan);
  }
  if (route.stage.until_step == policy::kForever) {
    route.second_hop = plan.policy.second_hop;  // it belongs to the codec beside it, not to warm-up stages
  }
  if (route.decision.compress && !dry_run_) {
    watch(route, call, plan);
  }
  route.what.reason = route.decision.reason;
  if (route.decision.compress) {
    route.what.codec = route.stage.codec.to_string();
  }
}

void Router::pass(Route& route, Reason reason) { route.decision = {.compress = false, .reason = reason}; }

void Router::choose(Route& route, const Call& call, const plan::CallPlan& plan) {
  if (dry_run_) {  // as if compression were faster
    route.stage = plan.ways.front();
    return;
  }
  const std::uint64_t bytes = call.count * element_bytes(*call.dtype);
  route.choice = class_of(call, plan);
  if (gate_ != nullptr) {
    return choose_by_gate(route, bytes, plan);
  }
  const auto question =
      auto_call_.begin(*route.choice, bytes, plan.ways.size() + 1, [&] { return can_copy_ && can_copy_(bytes); });
  if (!question.empty()) {
    std::vector<double> worst(question.begin(), question.end());
    const auto begin = std::chrono::steady_clock::now();
    if (!auto_call_.begins_trial()) {
      worst_(worst);
    } else if (!exchange_before_trial(worst)) {
      route.choice.reset();
      return pass(route, Reason::aside);
    }
    auto_call_.answer(worst, seconds_since(begin));
  }
  route.turn = auto_call_.turn();
  if (route.turn.way > 0) {
    route.stage = plan.ways[route.turn.way - 1U];
    return;
  }
  if (route.turn.trial) {
    route.ways = plan.ways;
    route.stage = plan.ways.front();
    route.max_error = plan.policy.max_error;
    route.turn.passed_first |= route.max_error && route.ways.size() > 1;  // each result is compared with its sum
  }
  pass(route, configuration_.script               ? Reason::recorded
              : route.turn.barred != Reason::none ? route.turn.barred
              : route.turn.decided                ? Reason::no_faster
                                                  : Reason::measuring);
}

std::optional<CallTotals::Measured> Router::measured(const ChoiceClass& what) const {
  const auto seconds = compared(what);
  if (!seconds) {
    return std::nullopt;
  }
  return CallTotals::Measured{.passed = seconds->front(),
                              .compressed = *std::min_element(seconds->begin() + 1, seconds->end())};
}

Router::Slot& Router::slot_of(const Call& call, const StepTracker::Place& place, std::string_view name) {
  slots_.resize(tracker_.period());
  Slot& slot = slots_[place.order];
  if (!slot.plan) {
    fill(slot, call, place.order, name);
  }
  return slot;
}

void Router::fill(Slot& slot, const Call& call, std::uint64_t order, std::string_view name) {
  // Rules choose codecs by name, so ranks must agree on it; a job may name buffers on some ranks only.
  slot.name = !by_name_ || all_say(hash_of(name)) ? name : std::string_view();
  slot.plan = resolve(call, order, by_name_ ? std::string_view(slot.name) : std::string_view());
  slot.keeps = slot.plan->compress() && keeps_residuals(*slot.plan) && !dry_run_;
}

void Router::forget_step() {
  tracker_.forget();
  forget_slots();
  if (gate_ != nullptr) {
    gate_->forget_steps();
  }
}

void Router::forget_slots() {
  slots_.clear();
  ++resets_;
  ledger_.count_reset();
}

// If only the report depends on the step, the shortest period will do. Times of steps need whole ones: with equal
// buckets, the shortest period would be one bucket.
void Router::find_step() {
  if (!by_name_ && !by_order_ && !by_step_ && gate_ == nullptr) {
    tracker_.adopt(tracker_.shortest());
    return;
  }
  const std::size_t proposal = tracker_.proposal();
  tracker_.adopt(all_say(proposal) ? proposal : 0);
}

void Router::count(const Route& route, const Statistics& statistics, const std::string& algorithm,
                   std::optional<double> error) {
  CallTotals totals{.calls = 1,
                    .compressed_calls = 1,
                    .bytes_in = statistics.bytes_in,
                    .bytes_dense = bytes_dense_of(route.what),
                    .bytes_sent = statistics.bytes_sent,
                    .seconds = statistics.total_seconds,
                    .algorithm = algorithm,
                    .lossy_calls = route.lossy ? 1U : 0U,
                    .largest_error = error};
  look_at_error(route, error);
  if (route.choice && route.turn.decided) {
    totals.measured = measured(*route.choice);
  }
  ledger_.add(route.what, totals);
  observe::record({.begin = observe::ticks(), .bytes = statistics.bytes_in, .kind = observe::EventKind::replaced});
  if (statistics.nonfinite_frames > 0) {
    ledger_.count_nonfinite();
  }
}

CallTotals Router::passed_totals(const Route& route, std::uint64_t bytes) const {
  CallTotals totals = drop_in::passed_totals(route.what.function, 1, bytes, route.what.communicator_size);
  if (route.decision.compress) {  // a dry run counts what it would send
    totals.compressed_calls = 1;
    totals.bytes_sent = sent_bytes(route, configuration_.planner.policy());
  }
  return totals;
}

void Router::count_passed(const Route& route, std::uint64_t bytes, double seconds) {
  CallTotals totals = passed_totals(route, bytes);
  totals.seconds = seconds;
  ledger_.add(route.what, totals);
}

}  // namespace gradwire::drop_in
