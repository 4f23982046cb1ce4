// Which calls of a communicator in device memory are compressed: the router decides by the policy, and here by the
// call's role and by the memory for its residuals.
#include <algorithm>

#include "base/units.hpp"
#include "drop_in/device_reducer.hpp"
#include "gradwire/error.hpp"

namespace gradwire::drop_in {
namespace {

using exchange::CurrentDevice;

constexpr std::size_t kMostKinds = 4096;

Signature signature_of(const Call& call) {
  return {.function = call.function, .dtype = call.dtype.value_or(DType::f32), .count = call.count};
}

void pass(Router::Route& route, Reason reason) {
  route.decision = {.compress = false, .reason = reason};
  route.what.reason = reason;
  route.what.codec.clear();
  route.keeps.reset();
}

// The kernel inside a node has no factors.
void leave_out_scaled(Router::Route& route, const DeviceReduce& reduce) {
  const bool by_kernel = route.method == DeviceMethod::node_kernel;
  if (!reduce.scaled || (!by_kernel && !(route.trial && route.rival_method == DeviceMethod::node_kernel))) {
    return;
  }
  route.trial.reset();
  if (by_kernel && route.decision.compress) {
    pass(route, Reason::scaled);
  }
}

void leave_residuals_out(Router::Route& route) {
  static const CodecSpec int8 = CodecSpec::parse("int8");
  route.keeps.reset();
  route.stage.codec = route.stage.second_hop = int8;
  route.stage.error_feedback = false;
  route.second_hop.reset();
  route.what.codec = int8.to_string();
}

}  // namespace

// The gate of codec = "auto" counts the calls that the router compresses or passes for it, so a call without a role
// must not reach it. Under a named codec the router sees all calls, so that rules count their order as if there were no
// roles.
Router::Route DeviceReducer::route(const Call& call, const CallDecision& decided, std::string_view op,
                                   const DeviceReduce& reduce) {
  check_node_kernel();
  CallDecision allowed = decided;
  const std::uint64_t breaks = roles_.breaks();
  if (decided.compress) {
    begin_call();
    const Reason reason = trials_ ? reason_of_role(call, router_->any_role(call), true, reduce) : Reason::none;
    if (reason != Reason::none) {
      allowed = {.compress = false, .reason = reason};
    } else if (trials_ && !offers_open_ && call.function == Function::nccl_all_reduce &&
               router_->could_compress(call, decided)) {
      open_offers(reduce);
    }
  }
  Router::Route route = router_->route(call, allowed, op, {.buffer = reduce.send, .others = other_calls_});
  if (route.step) {
    const CurrentDevice current(device_);
    trials_->begin_step(*route.step, reduce.stream);
  }
  if (!decided.compress) {
    ++uncounted_;
    return route;
  }
  const Reason reason = trials_ ? Reason::none : reason_of_role(call, route.any_role, route.decision.compress, reduce);
  if (roles_.breaks() != breaks) {
    kinds_.clear();
    if (trials_) {  // the router has not seen the calls that broke the step
      router_->forget_step();
    }
  }
  if (route.decision.compress && reason != Reason::none && !dry_run()) {
    if (route.keeps) {  // a call that lost its role carries other values than those of which these are left
      drop_residuals(*route.keeps);
    }
    pass(route, reason);
  }
  leave_out_scaled(route, reduce);
  if (route.decision.compress && !dry_run()) {
    take_memory(call, route, reduce);
  }
  const Kind kind{signature_of(call), std::string(op)};
  if (kinds_.size() >= kMostKinds) {
    kinds_.clear();
  }
  if (route.decision.compress && !route.keeps && !route.trial) {
    kinds_.insert_or_assign(kind, route);
  } else {
    kinds_.erase(kind);
  }
  return route;
}

// Nobody can be asked for memory now, so the ranks must have agreed that they have it.
Router::Route DeviceReducer::route_captured(const Call& call, std::string_view op, const DeviceReduce& reduce) const {
  check_node_kernel();
  const auto found = kinds_.find({signature_of(call), std::string(op)});
  if (!trials_ && found != kinds_.end() &&
      (found->second.any_role || call.function != Function::nccl_all_reduce ||
       roles_.role_of(signature_of(call)) == DeviceRoles::Role::gradient) &&
      frames_.known({kind_of(found->second, reduce, {})}).value_or(false)) {
    return found->second;
  }
  Router::Route route;
  route.what = {.function = call.function,
                .dtype = call.dtype,
                .op = std::string(op),
                .count = call.count,
                .communicator_size = call.world_size};
  pass(route, Reason::captured);
  return route;
}

void DeviceReducer::begin_call() {
  const CurrentDevice current(device_);
  const std::uint64_t waits = exchange_.waits();
  if (exchange_.begin_call()) {
    roles_.agreed(exchange_.agreed(DeviceExchange::kRoles).first<DeviceRoles::kWords>());
    if (trials_) {
      trials_->hear();
    }
  }
  if (exchange_.waits() != waits) {
    ledger_.count_wait();
  }
}

// Without a gate that compares only votes are exchanged: where there are none, a later call exchanges them.
void DeviceReducer::end_call(void* stream) {
  const bool votes = exchange_.due() && needs_roles_ && roles_.asks();
  const bool compares = trials_ && !trials_->gate().follows();
  if (!compares && !votes) {
    return;
  }
  const CurrentDevice current(device_);
  if (votes) {
    roles_.vote(exchange_.mine(DeviceExchange::kRoles).first<DeviceRoles::kWords>());
  }
  if (compares) {
    trials_->end_call();
  }
  exchange_.end_call(stream);
}

// Roles are learnt from all all-reduces that the arguments allow to compress, whatever the policy says, so that a rule
// does not change what a step is.
Reason DeviceReducer::reason_of_role(const Call& call, bool any_role, bool compressible, const DeviceReduce& reduce) {
  if (call.function != Function::nccl_all_reduce) {
    ++uncounted_;
    const bool half = element_bytes(*call.dtype) < sizeof(float);
    return half && !any_role ? Reason::half_scatter : Reason::none;
  }
  const DeviceRoles::Role role = roles_.next(signature_of(call), reduce.send, uncounted_ + other_calls_, reduce.apart);
  needs_roles_ = needs_roles_ || (compressible && !any_role);
  if (any_role || role == DeviceRoles::Role::gradient) {
    return Reason::none;
  }
  return role == DeviceRoles::Role::open ? Reason::role_open : Reason::no_gradient;
}

// The messages come first: without them no residuals are needed.
void DeviceReducer::take_memory(const Call& call, Router::Route& route, const DeviceReduce& reduce) {
  bool has = all_have_frames(route, reduce);
  if (has && route.keeps && !has_room(call, route, reduce)) {
    leave_residuals_out(route);
    has = all_have_frames(route, reduce);
  }
  if (has) {
    return;
  }
  tell_of_memory(route);
  if (trials_ && route.choice) {
    trials_->gate().bar(*route.choice, Reason::no_memory);
    route.trial.reset();
  }
  pass(route, Reason::no_memory);
}

void DeviceReducer::forget_old_residuals() {
  if (router_->resets() == resets_) {
    return;
  }
  resets_ = router_->resets();
  const CurrentDevice current(device_);
  release(residuals_);
  residuals_.clear();
  rooms_.clear();
  room_taken_ = 0;
}

// The limit is compared with what the largest shard takes, so that all ranks answer alike. Whether the device really
// has the memory only each rank knows, so all are asked, once for each place.
bool DeviceReducer::has_room(const Call& call, const Router::Route& route, const DeviceReduce& reduce) {
  if (!route.stage.error_feedback) {
    return true;  // an exact stage of a warm-up takes none
  }
  forget_old_residuals();
  rooms_.resize(std::max<std::size_t>(rooms_.size(), *route.keeps + 1));
  std::optional<std::uint64_t>& room = rooms_[*route.keeps];
  if (room) {
    return *room > 0;
  }
  const CurrentDevice current(device_);
  room = 0;
  const bool scatters = call.function == Function::nccl_reduce_scatter;
  const std::uint64_t shard = scatters ? 0 : call.count / static_cast<std::uint64_t>(world_) + codec::kTileElements;
  const std::uint64_t bytes = (call.count + shard) * sizeof(float);
  const std::uint64_t limit = configuration_.planner.policy().memory.device_residuals;
  if (bytes <= limit - std::min(limit, room_taken_)) {
    bool taken = true;
    try {
      open_residuals(*route.keeps, resolve({route, reduce}, {.feedback = true}).resolved.call.residuals);
      residuals_[*route.keeps].held = false;  // they are zero
    } catch (const Error& error) {
      if (error.code() != ErrorCode::out_of_memory) {
        throw;
      }
      taken = false;
    }
    if (all_have(taken)) {
      room = bytes;
      room_taken_ += bytes;
    } else if (*route.keeps < residuals_.size()) {
      release({&residuals_[*route.keeps], 1});
      residuals_[*route.keeps] = {};
    }
  }
  if (*room == 0 && rank_ == 0 && !std::exchange(told_of_room_, true)) {
    lines_.push_back(
        "the residuals of some calls on a communicator of " + std::to_string(world_) +
        " ranks do not fit on the device (limit " + format_bytes(limit) +
        ": device_residuals in [memory] of the policy): these calls travel as int8 without error feedback");
  }
  return *room > 0;
}

}  // namespace gradwire::drop_in
