// What a session does only over device memory: reserving, steps captured into graphs, results that come later. Over
// host memory these do nothing.
#include <cstdint>
#include <mutex>
#include <string>

#include "session/session_state.hpp"

namespace gradwire {

// A captured step must not need what only the host can do while it runs.
void Session::State::check_capture() const {
  const char* why = nullptr;
  if (!agreed) {
    why = "nothing is reserved; call reserve() on every rank before the capture begins";
  } else if (weighted) {
    why = "weights would be those of the capture for ever; leave out set_weight()";
  } else if (checks_first()) {
    why =
        "ranks would have to agree in each step whether to skip it; use Nonfinite::propagate, and flush() in a step "
        "that is not captured";
  } else if (options.compare_ranks_every > 0) {
    why = "ranks would have to compare results; leave out compare_ranks_every";
  }
  if (why != nullptr) {
    throw Error(ErrorCode::invalid_argument, std::string("this step is being captured into a graph, but ") + why);
  }
}

bool Session::State::capturing() const {
  session::DeviceSteps* device = runner->device();
  return device != nullptr && device->capturing();
}

void Session::State::require_no_capture(const char* call) const {
  if (capturing()) {
    throw Error(ErrorCode::invalid_argument,
                std::string(call) + ": not while the stream is being captured into a graph; nothing runs until then");
  }
}

// Replays have advanced the device's step behind the host's back.
void Session::State::catch_up_with_replays() {
  if (!was_captured) {  // before any lock: the progress thread may hold `wire` for long
    return;
  }
  const std::lock_guard wire_lock(wire);
  {
    const std::lock_guard lock(mutex);
    if (in_step() || failure || capturing()) {
      return;
    }
  }
  const auto reached = runner->device()->replayed_to();  // waits for the device, and done() must not: `mutex` is free
  const std::lock_guard lock(mutex);
  if (reached && !in_step()) {
    step = *reached;
    outcome.step = step;
  }
}

void Session::State::reserve() {
  require_communication("reserve");
  session::StepInfo info;
  bool with_weights = false;
  {
    const std::lock_guard lock(mutex);
    throw_if_failed();
    require_between_steps("reserve");
    make_plan();
    with_weights = weighted;
    info = {static_cast<std::uint32_t>(step), weighted, weight, false};
  }
  require_no_capture("reserve");
  on_wire([&] {
    agree_once(with_weights);
    if (session::DeviceSteps* device = runner->device()) {  // the host's pool grows when it must
      device->reserve(*plan, info);
    }
  });
}

bool Session::State::completed(const Ticket& ticket) {
  if (runner->device() == nullptr || ticket.bucket == Ticket::kNothing) {
    return true;
  }
  require_no_capture("done");
  const std::unique_lock lock(wire, std::try_to_lock);
  if (!lock.owns_lock()) {
    return false;  // whoever has it may be waiting for the device
  }
  bool complete = false;
  or_give_up([&] { complete = runner->device()->complete(ticket.step, ticket.bucket); });
  return complete;
}

void Session::State::wait_completed(const Ticket& ticket) {
  if (runner->device() != nullptr && ticket.bucket != Ticket::kNothing) {
    on_wire([&] { runner->device()->wait_complete(ticket.step, ticket.bucket); });
  }
}

bool Session::State::end_device_step() {
  bool nonfinite = false;
  if (runner->device() != nullptr) {
    bool skipped = false;
    {
      const std::lock_guard lock(mutex);
      skipped = outcome.skipped;
    }
    on_wire([&] { nonfinite = runner->device()->end_step(skipped); });
  }
  return nonfinite;
}

}  // namespace gradwire
