// How a router chooses by a gate, for calls on devices.
#include "drop_in/router.hpp"

namespace gradwire::drop_in {

// A policy may name an algorithm: one kernel makes a two_shot, and tiers make hierarchical.
DeviceOffers Router::offers_to(Function function, const plan::CallPlan& plan) const {
  DeviceOffers offers;
  if (function != Function::nccl_all_reduce) {
    return offers;
  }
  const Algorithm algorithm = plan.policy.algorithm;
  const bool open = algorithm == Algorithm::automatic;
  offers.node_kernel = offers_.node_kernel && (open || algorithm == Algorithm::two_shot);
  if (open || algorithm == Algorithm::hierarchical) {
    offers.tiers = offers_.tiers;
    offers.intra = offers_.intra;
  }
  return offers;
}

void Router::choose_by_gate(Route& route, std::uint64_t bytes, const plan::CallPlan& plan) {
  const auto [found, made] = gated_.try_emplace(*route.choice);
  Gated& gated = found->second;
  if (made) {
    const DeviceOffers offers = offers_to(route.what.function, plan);
    gated = {plan, device_ways(plan, route.choice->dtype, offers)};
    gate_->expect(*route.choice, guess_ways(configuration_.planner.policy(), gated.ways, offers, *route.choice, bytes,
                                            route.what.communicator_size));
  }
  const choice::DeviceGate::Turn turn = gate_->next(*route.choice, bytes, gated.ways.size() + 1);
  route.turn = {.way = turn.way, .decided = turn.decided, .barred = turn.barred};
  route.trial = turn.trial;
  if (turn.trial && turn.trial->rival > 0) {
    const DeviceWay& rival = gated.ways[turn.trial->rival - 1U];
    route.rival = rival.stage;
    route.rival_method = rival.method;
  }
  if (turn.way > 0 && gated.ways[turn.way - 1U].offered) {
    const DeviceWay& way = gated.ways[turn.way - 1U];
    route.stage = way.stage;
    route.method = way.method;
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
  route.method = chosen.method;
  return route;
}

// Residuals belong to the call's place. A call that leaves none there first adds those that the latest call has left:
// if it would pass, it is made exactly by us, this once. It is not compared then. Tiers have no room for the residuals
// of other ways.
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
  route.method = route.method == DeviceMethod::tiers ? DeviceMethod::messages : route.method;
  if (!route.decision.compress) {
    route.decision = {.compress = true, .reason = Reason::none};
    route.stage = policy::exact_stage(slot.plan->ways.front());
    route.algorithm = Algorithm::two_shot;
    route.method = DeviceMethod::messages;
    route.second_hop.reset();
    route.what.reason = Reason::none;
    route.what.codec = route.stage.codec.to_string();
    route.trial.reset();
  }
}

}  // namespace gradwire::drop_in
