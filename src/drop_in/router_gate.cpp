// How a router chooses by a gate, for calls on devices.
#include "drop_in/device_guess.hpp"
#include "drop_in/router.hpp"

namespace gradwire::drop_in {

void Router::choose_by_gate(Route& route, std::uint64_t bytes, const plan::CallPlan& plan) {
  if (gate_plans_.try_emplace(*route.choice, plan).second) {
    gate_->expect(*route.choice, guess_ways(configuration_.planner.policy(), plan, *route.choice, bytes,
                                            route.what.communicator_size));
  }
  const choice::DeviceGate::Turn turn = gate_->next(*route.choice, bytes, plan.ways.size() + 1);
  route.turn = {.way = turn.way, .decided = turn.decided, .barred = turn.barred};
  route.trial = turn.trial;
  if (turn.trial && turn.trial->rival > 0) {
    route.rival = plan.ways[turn.trial->rival - 1U];
  }
  if (turn.way > 0) {
    route.stage = plan.ways[turn.way - 1U];
    return;
  }
  pass(route, turn.barred != Reason::none ? turn.barred
              : turn.trial                ? Reason::measuring
              : turn.decided              ? Reason::no_faster
                                          : Reason::measuring);
}

Router::Route Router::rival_of(const ChoiceClass& what, Way way) const {
  const plan::CallPlan& plan = gate_plans_.at(what);
  Route route;
  route.what.function = what.function;
  route.what.dtype = what.dtype;
  route.algorithm = plan.policy.algorithm;
  route.stage = plan.ways.at(way - 1U);
  return route;
}

// Residuals belong to the call's place. A call that leaves none there first adds those that the latest call has left:
// if it would pass, it is made exactly by us, this once. It is not compared then.
void Router::settle_residuals(Route& route, Slot& slot) {
  if (route.decision.compress && route.stage.error_feedback) {
    route.keeps = route.what.order;
    slot.holds = true;
    return;
  }
  if (!slot.holds) {
    return;
  }
  slot.holds = false;
  route.keeps = route.what.order;
  route.folds = true;
  if (!route.decision.compress) {
    route.decision = {.compress = true, .reason = Reason::none};
    route.stage = policy::exact_stage(slot.plan->ways.front());
    route.algorithm = Algorithm::two_shot;
    route.second_hop.reset();
    route.what.reason = Reason::none;
    route.what.codec = route.stage.codec.to_string();
    route.trial.reset();
  }
}

}  // namespace gradwire::drop_in
