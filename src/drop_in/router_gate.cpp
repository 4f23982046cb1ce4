// How a router chooses by a gate, for calls on devices.
#include "drop_in/router.hpp"

namespace gradwire::drop_in {

bool Router::offers_node_kernel(Function function, const plan::CallPlan& plan) const {
  const Algorithm algorithm = plan.policy.algorithm;
  return node_kernel_ && function == Function::nccl_all_reduce &&
         (algorithm == Algorithm::two_shot || algorithm == Algorithm::automatic);
}

void Router::choose_by_gate(Route& route, std::uint64_t bytes, const plan::CallPlan& plan) {
  const auto [found, made] = gated_.try_emplace(*route.choice);
  Gated& gated = found->second;
  if (made) {
    gated = {plan, device_ways(plan, route.choice->dtype, offers_node_kernel(route.what.function, plan))};
    gate_->expect(*route.choice, guess_ways(configuration_.planner.policy(), gated.ways, *route.choice, bytes,
                                            route.what.communicator_size));
  }
  const choice::DeviceGate::Turn turn = gate_->next(*route.choice, bytes, gated.ways.size() + 1);
  route.turn = {.way = turn.way, .decided = turn.decided, .barred = turn.barred};
  route.trial = turn.trial;
  if (turn.trial && turn.trial->rival > 0) {
    const DeviceWay& rival = gated.ways[turn.trial->rival - 1U];
    route.rival = rival.stage;
    route.rival_node_kernel = rival.node_kernel;
  }
  if (turn.way > 0) {
    const DeviceWay& way = gated.ways[turn.way - 1U];
    route.stage = way.stage;
    route.node_kernel = way.node_kernel;
    return;
  }
  pass(route, turn.barred != Reason::none ? turn.barred
              : turn.trial                ? Reason::measuring
              : turn.decided              ? Reason::no_faster
                                          : Reason::measuring);
}

Router::Route Router::rival_of(const ChoiceClass& what, Way way) const {
  const Gated& gated = gated_.at(what);
  const DeviceWay& chosen = gated.ways.at(way - 1U);
  Route route;
  route.what.function = what.function;
  route.what.dtype = what.dtype;
  route.algorithm = gated.plan.policy.algorithm;
  route.stage = chosen.stage;
  route.node_kernel = chosen.node_kernel;
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
    route.node_kernel = false;
    route.second_hop.reset();
    route.what.reason = Reason::none;
    route.what.codec = route.stage.codec.to_string();
    route.trial.reset();
  }
}

}  // namespace gradwire::drop_in
