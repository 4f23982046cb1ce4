// What a session does only over device memory: reserving, steps captured into graphs, results that come later. Over
// host memory these do nothing.
#include <cstdint>
#include <string>

#include "base/mutex.hpp"
#include "session/agreements.hpp"
#include "session/engine.hpp"

namespace gradwire {

// A captured step must not need what only the host can do while it runs.
void session::Engine::check_capture() const {
  if (settings.undoable) {
    throw Error(ErrorCode::unsupported,
                "this step is being captured into a graph, but a session that goes on without ranks that end agrees in "
                "each step whether it counts; make its steps without a graph");
  }
  const char* why = nullptr;
  if (!step.has_agreed()) {
    why = "nothing is reserved; call reserve() on every rank before the capture begins";
  } else if (step.weighted()) {
    why = "weights would be those of the capture for ever; leave out set_weight()";
  } else if (step.looks_first()) {
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

bool session::Engine::capturing() const {
  session::DeviceSteps* device = runner->device();
  return device != nullptr && device->capturing();
}

void session::Engine::require_no_capture(const char* call) const {
  if (capturing()) {
    throw Error(ErrorCode::invalid_argument,
                std::string(call) + ": not while the stream is being captured into a graph; nothing runs until then");
  }
}

// Replays have advanced the device's step behind the host's back.
void session::Engine::catch_up_with_replays() {
  if (!was_captured) {  // before any lock: the progress thread may hold `wire` for long
    return;
  }
  const MutexLock wire_lock(progress.wire);
  {
    const MutexLock lock(progress.state);
    if (step.in_step() || step.faults.failed() || capturing()) {
      return;
    }
  }
  const auto reached = runner->device()->replayed_to();  // waits for the device, and done() must not: `state` is free
  const MutexLock lock(progress.state);
  if (reached && !step.in_step()) {
    step.jump_to(*reached);
  }
}

void session::Engine::reserve() {
  progress.require_communication("reserve");
  session::StepInfo info;
  bool weighted = false;
  {
    const MutexLock lock(progress.state);
    step.faults.throw_if_failed();
    step.require_between("reserve");
    make_plan();
    info = step.info();
    info.flush = false;
    weighted = step.is_to_be_weighted();
  }
  require_no_capture("reserve");
  on_wire([&] {
    progress.wire.assert_held();
    agree_on_plan(weighted);
    session::DeviceSteps* device = runner->device();
    if (device != nullptr && !settings.undoable) {  // else nothing is captured; the host's pool grows when it must
      device->reserve(*plan, info);
    }
  });
}

bool session::Engine::completed(const Ticket& ticket) {
  if (runner->device() == nullptr || ticket.bucket == Ticket::kNothing) {
    return true;
  }
  require_no_capture("done");
  if (!progress.wire.try_lock()) {
    return false;  // whoever has it may be waiting for the device
  }
  const MutexLock lock(progress.wire, std::adopt_lock);
  bool complete = false;
  or_give_up([&] { complete = runner->device()->complete(ticket.step, ticket.bucket); });
  return complete;
}

void session::Engine::wait_completed(const Ticket& ticket) {
  if (runner->device() != nullptr && ticket.bucket != Ticket::kNothing) {
    on_wire([&] { runner->device()->wait_complete(ticket.step, ticket.bucket); });
  }
}

bool session::Engine::end_device_step() {
  bool nonfinite = false;
  if (runner->device() != nullptr) {
    bool skipped = false;
    {
      const MutexLock lock(progress.state);
      skipped = step.outcome().skipped;
    }
    on_wire([&] { nonfinite = runner->device()->end_step(skipped); });
  }
  return nonfinite;
}

void session::Engine::set_device_step() {
  if (session::DeviceSteps* device = runner->device()) {
    device->set_step(step.number());
  }
}

void session::Engine::settle() {
  if (session::DeviceSteps* device = runner->device()) {
    on_wire([&] { device->settle(); });
  }
}

}  // namespace gradwire
