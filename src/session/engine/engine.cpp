#include "session/engine/engine.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <new>
#include <string>

#include "base/log.hpp"
#include "observe/record.hpp"
#include "observe/watching.hpp"
#include "policy/sync.hpp"
#include "session/engine/host_memory.hpp"
#include "session/logging/logging.hpp"
#include "session/step/tickets.hpp"

namespace gradwire::session {
namespace {

using Clock = std::chrono::steady_clock;
using When = PartMaker::When;

}  // namespace

Engine::Engine(std::unique_ptr<Runner> r, EngineSettings given) : Core(std::move(r), std::move(given)) {
  name_rank(runner->info().rank);
  configure_host_memory(settings.policy, runner->info(), settings.undoable);
  if (settings.undoable) {
    runner->undo()->remember();
  }
  parts.make(part_inputs(), When::with_session);
  observe::begin_watching();
  progress.start(communication);
}

Engine::~Engine() { end(); }

std::optional<Error> Engine::end() noexcept {
  if (std::exchange(is_over_, true)) {
    return std::nullopt;
  }
  stop_if_gradients_are_gone();
  std::optional<Error> why;
  {
    const MutexLock lock(progress.state);
    why = step.faults.why_gone(step.under_way() || step.buckets.in_step());
    if (!why && settings.undoable && communication.in_background()) {
      why = make_error(ErrorCode::aborted, "session destroyed with late gradients that no step has delivered");
    }
  }
  if (!why) {
    communication.end_background();
  }
  progress.stop([&] {
    if (why) {
      runner->abort(*why);
    }
  });
  parts.for_each([](Part& part) { part.session_ends(); });
  return why;
}

// Works only in builds with AddressSanitizer. The message names the mistake where it was made; otherwise the report
// would blame the next code that touches the freed memory.
void Engine::stop_if_gradients_are_gone() {
  const MutexLock lock(progress.state);
  for (std::uint32_t i = 0; !step.faults.any() && i < tensors.size(); ++i) {
    if (step.buckets.is_ready(i) && tensors.is_freed(i)) {
      log(LogLevel::error, "session destroyed in the middle of a step after the gradient \"" + tensors.name(i) +
                               "\", which it may still read and write; declare gradients before the session");
      std::abort();
    }
  }
}

// add() refuses such a tensor at once instead of leaving it to the plan, because rows belong in a table.
void Engine::refuse_rows(const TensorInfo& tensor) const {
  const bool any = std::any_of(settings.policy.rules.begin(), settings.policy.rules.end(),
                               [](const Policy::Rule& rule) { return rule.policy.sync.mode == Sync::Mode::rows; });
  if (any && policy::policy_of(settings.policy, tensor).sync.mode == Sync::Mode::rows) {
    throw Error(ErrorCode::unsupported,
                "add: the policy asks for rows of \"" + tensor.name + "\": " + std::string(policy::kRowsNeedATable));
  }
}

TensorId Engine::add(const std::string& name, const View& gradient, std::vector<View> beside, std::uint32_t ndim,
                     std::span<const float> scale) {
  const MutexLock lock(progress.state);
  throw_if_failed();
  if (plan) {
    throw Error(ErrorCode::invalid_argument, "add: \"" + name +
                                                 "\" comes after the plan was made; add every tensor before the "
                                                 "first ready(), explain() or fingerprint()");
  }
  TensorInfo info = tensors.check(name, gradient, beside, ndim);
  refuse_rows(info);
  tensors.check_scale(info, gradient, scale);
  step.add_tensor();
  return tensors.add(std::move(info), gradient, std::move(beside), scale);
}

Ticket Engine::ready(TensorId id, const View* gradient, bool zero) {
  const auto index = static_cast<std::uint32_t>(id);
  if (no_sync) {
    const MutexLock lock(progress.state);
    tensors.check(id);
    step.buckets.accumulate(index);
    return {};
  }
  device.catch_up_with_replays();
  Ticket ticket;
  bool deferred_to_finish = false;
  {
    const MutexLock lock(progress.state);
    if (is_void()) {
      return {};
    }
    throw_if_failed();
    tensors.check(id);
    make_plan();
    if (device.capturing()) {
      device.check_capture();
    }
    step.terms.require_weights();
    if (step.buckets.is_ready(index)) {
      throw Error(ErrorCode::invalid_argument, "ready: \"" + tensors.name(index) + "\" was ready already in step " +
                                                   std::to_string(step.number()) +
                                                   "; call finish() first, or accumulate under no_sync()");
    }
    tensors.give(index, gradient, zero);
    const auto now = coming.small() ? Clock::time_point() : Clock::now();  // a small step begins with finish()
    if (!step.buckets.in_step()) {
      observe::record({.begin = observe::ticks(),
                       .source = runner->info().source,
                       .step = static_cast<std::uint32_t>(step.number()),
                       .kind = observe::EventKind::step_begin});
    }
    ticket = step.ready(index, now);
    if (!coming.small()) {
      watch.bucket_ready(ticket.bucket, now);
    }
    deferred_to_finish = coming.small();
    progress.wake_after_ready();
  }
  if (!deferred_to_finish) {
    try {
      progress.inside_call();
    } catch (const Error& error) {
      if (!leaves_to_finish(error)) {
        throw;
      }
    }
  }
  return ticket;
}

bool Engine::done(const Ticket& ticket) {
  const bool ended = checked([&] {
    const MutexLock lock(progress.state);
    if (is_void()) {
      return true;
    }
    throw_if_failed();
    check_ticket(step, "done", ticket);
    return has_ended(step, ticket);
  });
  try {
    if (!ended) {
      progress.inside_call();
      const MutexLock lock(progress.state);
      progress.wake();  // the caller does other things meanwhile, so the progress thread must communicate
      if (!has_ended(step, ticket)) {
        return false;
      }
    }
    return device.completed(ticket);
  } catch (const Error& error) {
    if (!leaves_to_finish(error)) {
      throw;
    }
    return true;
  }
}

void Engine::wait(const Ticket& ticket) {
  checked([&] {
    device.require_no_capture("wait");
    const MutexLock lock(progress.state);
    throw_if_failed();
    check_ticket(step, "wait", ticket);
    if (!is_void()) {  // after the step failed, ready() no longer marks tensors as ready
      check_wait(step, ticket);
    }
  });
  try {
    progress.wait_until("wait", [&] {
      progress.state.assert_held();
      return has_ended(step, ticket);
    });
    device.wait_completed(ticket);
  } catch (const Error& error) {
    if (!leaves_to_finish(error)) {
      throw;
    }
  }
}

void Engine::set_loss_scale(double scale) {
  if (!(scale > 0) || !std::isfinite(scale)) {
    throw Error(ErrorCode::invalid_argument,
                "set_loss_scale: " + std::to_string(scale) + " must be finite and above 0");
  }
  device.catch_up_with_replays();
  const MutexLock wire_lock(progress.wire);
  communication.drain("set_loss_scale");  // reductions under way leave residuals in units of the old scale
  const MutexLock lock(progress.state);
  parts.for_each([](const Part& part) { part.check_loss_scale(); });
  if (scale != step.terms.loss_scale()) {
    runner->held().scale_residuals(static_cast<float>(scale / step.terms.loss_scale()));
  }
  step.terms.set_loss_scale(scale);
}

void Engine::broadcast(std::span<const View> values, int root) {
  checked([&] {
    for (const View& value : values) {
      if (element_bytes(value.dtype) == 0 || (value.data == nullptr && value.count > 0)) {
        throw Error(ErrorCode::invalid_argument, "broadcast: a value has null data or an unknown dtype");
      }
      runner->check_memory(value, "broadcast: a value");
    }
    if (root < 0 || root >= runner->info().world_size) {
      throw Error(ErrorCode::invalid_argument, "broadcast: root " + std::to_string(root) +
                                                   " is not a rank of a world of " +
                                                   std::to_string(runner->info().world_size));
    }
    progress.require_communication("broadcast");
    device.require_no_capture("broadcast");
    device.catch_up_with_replays();
    const MutexLock lock(progress.state);
    step.faults.throw_if_failed();
    if (step.buckets.in_step()) {
      throw Error(ErrorCode::invalid_argument,
                  "broadcast: a step is under way; call it before the first ready() or after finish()");
    }
  });
  on_wire([&] { runner->broadcast(values, root, packs_broadcasts()); });
}

void Engine::reserve() {
  progress.require_communication("reserve");
  StepInfo info;
  bool weighted = false;
  {
    const MutexLock lock(progress.state);
    step.faults.throw_if_failed();
    step.require_between("reserve");
    make_plan();
    info = step.info();
    info.flush = false;
    weighted = step.terms.is_to_be_weighted();
  }
  device.require_no_capture("reserve");
  on_wire([&] {
    communication.agree_on_plan(weighted);
    if (DeviceSteps* steps = runner->device()) {  // the host's pool grows on demand
      parts.tune(info);
      steps->room().reserve(*plan, info);
    }
  });
}

void Engine::travel_between_steps(const char* call, const std::function<bool(std::uint64_t)>& enqueue) {
  progress.require_communication(call);
  std::uint64_t now = 0;
  bool with_weights = false;
  {
    const MutexLock lock(progress.state);
    step.faults.throw_if_failed();
    step.require_between(call);
    make_plan();
    now = step.number();
    with_weights = step.terms.is_to_be_weighted();
  }
  if (parts.background() == nullptr) {
    return;
  }
  on_wire([&] {
    communication.agree_on_plan(with_weights);
    if (enqueue(now)) {
      communication.end_what_travels();
    }
  });
}

void Engine::sync_parameters() {
  travel_between_steps("sync_parameters", [this](std::uint64_t now) {
    const bool travels = parts.background()->enqueue_parameters(now);
    return travels || settings.undoable;  // late gradients end, too, because the commit covers them
  });
}

void Engine::count_what_travelled() {
  const MutexLock lock(progress.wire);
  if (StepUndo* undo = runner->undo()) {
    undo->commit();
  }
  if (Background* background = parts.background()) {
    background->deliver_between_steps(settled_step().number());
  }
}

void Engine::abort(const std::string& why) noexcept {
  const Error error = make_error(ErrorCode::aborted, why, ErrorCause::world);
  runner->abort(error);
  const MutexLock lock(progress.state);
  step.faults.end(error);
  progress.changed();
}

void Engine::undo(const Error& why) {
  const MutexLock lock(progress.wire);
  give_up(why);  // this also ends late gradients that are still being reduced
  runner->undo()->undo_step();
}

}  // namespace gradwire::session
