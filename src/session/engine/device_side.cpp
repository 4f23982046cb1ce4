#include "session/engine/device_side.hpp"

#include <cstdint>
#include <string>

namespace gradwire::session {

// A captured step must not need work that only the host can do while the step runs.
void DeviceSide::check_capture() const {
  core_.progress.state.assert_held();
  if (core_.settings.undoable) {
    throw Error(ErrorCode::unsupported,
                "this step is being captured into a graph, but a session that goes on without ranks that end agrees in "
                "each step whether it counts; make its steps without a graph");
  }
  const char* why = nullptr;
  if (!core_.step.terms.has_agreed()) {
    why = "nothing is reserved; call reserve() on every rank before the capture begins";
  } else if (core_.step.terms.weighted()) {
    why = "weights would be those of the capture for ever; leave out set_weight()";
  } else if (core_.step.looks_first()) {
    why =
        "ranks would have to agree in each step whether to skip it; use Nonfinite::propagate, and flush() in a step "
        "that is not captured";
  } else if (!core_.parts.result_readers().empty()) {
    why = "ranks would have to compare results; leave out compare_ranks_every";
  }
  if (why != nullptr) {
    throw Error(ErrorCode::invalid_argument, std::string("this step is being captured into a graph, but ") + why);
  }
}

bool DeviceSide::capturing() const {
  DeviceSteps* device = core_.runner->device();
  return device != nullptr && device->capturing();
}

void DeviceSide::require_no_capture(const char* call) const {
  if (capturing()) {
    throw Error(ErrorCode::invalid_argument,
                std::string(call) + ": not while the stream is being captured into a graph; nothing runs until then");
  }
}

void DeviceSide::catch_up_with_replays() {
  if (!was_captured_) {  // before any lock: the progress thread may hold `wire` for long
    return;
  }
  const MutexLock wire_lock(core_.progress.wire);
  {
    const MutexLock lock(core_.progress.state);
    if (core_.step.buckets.in_step() || core_.step.faults.failed() || capturing()) {
      return;
    }
  }
  const auto reached =
      core_.runner->device()->replayed_to();  // waits for the device; `state` is free, so that done() need not wait
  const MutexLock lock(core_.progress.state);
  if (reached && !core_.step.buckets.in_step()) {
    core_.step.jump_to(*reached);
  }
}

bool DeviceSide::completed(const Ticket& ticket) {
  if (core_.runner->device() == nullptr || ticket.bucket == Ticket::kNothing) {
    return true;
  }
  require_no_capture("done");
  if (!core_.progress.wire.try_lock()) {
    return false;  // the thread that holds `wire` may be waiting for the device
  }
  const MutexLock lock(core_.progress.wire, std::adopt_lock);
  bool complete = false;
  core_.or_give_up([&] { complete = core_.runner->device()->complete(ticket.step, ticket.bucket); });
  return complete;
}

void DeviceSide::wait_completed(const Ticket& ticket) {
  if (core_.runner->device() != nullptr && ticket.bucket != Ticket::kNothing) {
    {
      const MutexLock lock(core_.progress.wire);
      if (core_.runner->device()->waits_to_join(ticket.step, ticket.bucket)) {
        throw Error(ErrorCode::invalid_argument,
                    "wait: bucket " + std::to_string(ticket.bucket) +
                        " is made together with buckets that are not ready yet ([device] join in the policy); wait for "
                        "it after finish(), or leave that key out");
      }
    }
    core_.on_wire([&] { core_.runner->device()->wait_complete(ticket.step, ticket.bucket); });
  }
}

bool DeviceSide::end_step() {
  bool nonfinite = false;
  if (core_.runner->device() != nullptr) {
    bool skipped = false;
    {
      const MutexLock lock(core_.progress.state);
      skipped = core_.step.outcome().skipped;
    }
    core_.on_wire([&] { nonfinite = core_.runner->device()->end_step(skipped); });
  }
  return nonfinite;
}

void DeviceSide::set_step() {
  core_.progress.state.assert_held();
  if (DeviceSteps* device = core_.runner->device()) {
    device->set_step(core_.step.number());
  }
}

void DeviceSide::settle() {
  if (DeviceSteps* device = core_.runner->device()) {
    core_.on_wire([&] { device->settle(); });
  }
}

}  // namespace gradwire::session
