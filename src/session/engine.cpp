#include "session/engine.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>
#include <string>

#include "base/log.hpp"
#include "observe/record.hpp"
#include "observe/watching.hpp"
#include "policy/sync.hpp"
#include "session/logging.hpp"

namespace gradwire {
namespace {

using Clock = std::chrono::steady_clock;

std::uint32_t next_number() {
  static std::atomic<std::uint32_t> last = 0;
  return ++last;
}

Threading threading_over(session::Runner& runner, Threading asked) {
  return runner.device() != nullptr ? Threading::serialized : asked;  // the device works on by itself
}

}  // namespace

session::Engine::Engine(std::unique_ptr<session::Runner> r, session::EngineSettings given)
    : settings(std::move(given)),
      runner(std::move(r)),
      step(next_number(), settings.options.nonfinite),
      parts(settings.parts),
      progress(threading_over(*runner, settings.options.threading), step, *this) {
  session::name_rank(runner->info().rank);
  if (settings.undoable) {
    runner->undo()->remember();
  }
  parts.make(part_inputs(), session::PartMaker::When::with_session);
  observe::begin_watching();
  progress.start();
}

session::Engine::~Engine() { end(); }

std::optional<Error> session::Engine::end() noexcept {
  if (std::exchange(is_over, true)) {
    return std::nullopt;
  }
  stop_if_gradients_are_gone();
  std::optional<Error> why;
  {
    const MutexLock lock(progress.state);
    why = step.faults.why_gone(step.under_way() || step.in_step());
    if (!why && settings.undoable && in_background()) {  // others may go on, and would be waited for in vain
      why = Error(ErrorCode::aborted, "session destroyed with late gradients that no step has delivered");
    }
  }
  if (!why) {
    end_background();
  }
  progress.stop([&] {
    if (why) {
      runner->abort(why->code(), why->what());
    }
  });
  parts.session_ends();
  return why;
}

// In builds that can tell. Whoever is told so has the place in hand; else the next one to touch the memory is blamed.
void session::Engine::stop_if_gradients_are_gone() {
  const MutexLock lock(progress.state);
  for (std::uint32_t i = 0; !step.faults.any() && i < tensors.size(); ++i) {
    if (step.is_ready(i) && tensors.is_freed(i)) {
      log(LogLevel::error, "session destroyed in the middle of a step after the gradient \"" + tensors.name(i) +
                               "\", which it may still read and write; declare gradients before the session");
      std::abort();
    }
  }
}

void session::Engine::make_plan() {
  if (plan) {
    return;
  }
  plan = plan::make_plan(policy, tensors.infos(),
                         {.world_size = runner->info().world_size,
                          .reduction = options.reduction,
                          .checksum = runner->info().checksum,
                          .nodes = runner->info().nodes,
                          .knows_tiers = runner->device() == nullptr});
  plan->tables = tables.describe();
  const bool speaks = runner->info().rank == 0;  // plans are the same everywhere, or the first step says so
  for (const std::string& warning : plan->warnings) {
    log(speaks ? LogLevel::warning : LogLevel::debug, warning);
  }
  for (const std::string& note : plan->notes) {
    log(speaks ? LogLevel::info : LogLevel::debug, note);
  }
  if (speaks && session::logs(LogLevel::debug)) {  // long where tensors are many
    log(LogLevel::debug, plan->explain());
  }
  try {
    parts.make(part_inputs(), session::PartMaker::When::with_plan);
    if (step.loss_scale_set()) {
      parts.check_loss_scale();
    }
  } catch (...) {
    parts.unmake();
    plan.reset();  // so that the next call makes all of it anew, or refuses it too
    throw;
  }
  step.set_plan(*plan);
  reset_step(Clock::now());
}

session::PartInputs session::Engine::part_inputs(const session::SavedState* held) {
  return {.plan = plan,
          .policy = policy,
          .options = options,
          .tensors = tensors,
          .schedule = step.modes(),
          .watch = watch,
          .runner = *runner,
          .held = held,
          .undoable = settings.undoable,
          .look = [this] { return look(); }};
}

void session::Engine::make_parts_for(const session::SavedState& held) {
  if (!held.results.empty() && modes() == nullptr) {  // they were saved under a policy with other sync modes
    parts.make(part_inputs(&held), session::PartMaker::When::with_plan);
  }
}

void session::Engine::reset_step(session::StepWatch::Time now) {
  tensors.begin_step();
  watch.begin(plan->buckets.size(), now);
}

// Before the plan is made of all tensors, since this one should not have come here.
void session::Engine::refuse_rows(const TensorInfo& tensor) const {
  const bool any = std::any_of(policy.rules.begin(), policy.rules.end(),
                               [](const Policy::Rule& rule) { return rule.policy.sync.mode == Sync::Mode::rows; });
  if (any && policy::policy_of(policy, tensor).sync.mode == Sync::Mode::rows) {
    throw Error(ErrorCode::unsupported,
                "add: the policy asks for rows of \"" + tensor.name + "\": " + std::string(policy::kRowsNeedATable));
  }
}

TensorId session::Engine::add(const std::string& name, const View& gradient, std::vector<View> beside,
                              std::uint32_t ndim, std::span<const float> scale) {
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

Ticket session::Engine::ready(TensorId id, const View* gradient, bool zero) {
  const auto index = static_cast<std::uint32_t>(id);
  if (no_sync) {
    const MutexLock lock(progress.state);
    tensors.check(id);
    step.accumulate(index);
    return {};
  }
  catch_up_with_replays();
  Ticket ticket;
  bool left_to_finish = false;
  {
    const MutexLock lock(progress.state);
    if (is_void()) {
      return {};
    }
    throw_if_failed();
    tensors.check(id);
    make_plan();
    if (capturing()) {
      check_capture();
    }
    step.require_weights();
    if (step.is_ready(index)) {
      throw Error(ErrorCode::invalid_argument, "ready: \"" + tensors.name(index) + "\" was ready already in step " +
                                                   std::to_string(step.number()) +
                                                   "; call finish() first, or accumulate under no_sync()");
    }
    tensors.give(index, gradient, zero);
    const auto now = small ? Clock::time_point() : Clock::now();  // a small step begins with finish()
    if (!step.in_step()) {
      observe::record({.begin = observe::ticks(),
                       .source = runner->info().source,
                       .step = static_cast<std::uint32_t>(step.number()),
                       .kind = observe::EventKind::step_begin});
    }
    ticket = step.ready(index, now);
    if (!small) {
      watch.bucket_ready(ticket.bucket, now);
    }
    left_to_finish = small;
    progress.wake_after_ready();
  }
  if (!left_to_finish) {
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

bool session::Engine::done(const Ticket& ticket) {
  const bool ended = checked([&] {
    const MutexLock lock(progress.state);
    if (is_void()) {
      return true;
    }
    step.faults.throw_if_failed();
    step.check("done", ticket);
    return step.ended(ticket);
  });
  if (!ended) {
    progress.inside_call();
    const MutexLock lock(progress.state);
    progress.wake();  // who asks does other things meanwhile
    if (!step.ended(ticket)) {
      return false;
    }
  }
  try {
    return completed(ticket);
  } catch (const Error& error) {
    if (!leaves_to_finish(error)) {
      throw;
    }
    return true;
  }
}

void session::Engine::wait(const Ticket& ticket) {
  checked([&] {
    require_no_capture("wait");
    const MutexLock lock(progress.state);
    throw_if_failed();
    step.check("wait", ticket);
    if (!is_void()) {  // else ready() has left out tensors since
      step.check_wait(ticket);
    }
  });
  try {
    progress.wait_until("wait", [&] {
      progress.state.assert_held();
      return step.ended(ticket);
    });
    wait_completed(ticket);
  } catch (const Error& error) {
    if (!leaves_to_finish(error)) {
      throw;
    }
  }
}

void session::Engine::set_loss_scale(double scale) {
  if (!(scale > 0) || !std::isfinite(scale)) {
    throw Error(ErrorCode::invalid_argument,
                "set_loss_scale: " + std::to_string(scale) + " must be finite and above 0");
  }
  catch_up_with_replays();
  const MutexLock wire_lock(progress.wire);
  drain("set_loss_scale");  // what is under way leaves residuals of the old scale
  const MutexLock lock(progress.state);
  parts.check_loss_scale();
  if (scale != step.loss_scale()) {
    runner->held().scale_residuals(static_cast<float>(scale / step.loss_scale()));
  }
  step.set_loss_scale(scale);
}

void session::Engine::broadcast(std::span<const View> values, int root) {
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
    require_no_capture("broadcast");
    catch_up_with_replays();
    const MutexLock lock(progress.state);
    step.faults.throw_if_failed();
    if (step.in_step()) {
      throw Error(ErrorCode::invalid_argument,
                  "broadcast: a step is under way; call it before the first ready() or after finish()");
    }
  });
  on_wire([&] { runner->broadcast(values, root); });
}

void session::Engine::abort(const std::string& why) noexcept {
  runner->abort(ErrorCode::aborted, why);
  const MutexLock lock(progress.state);
  try {
    step.faults.fail(Error(ErrorCode::aborted, why));
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the transport has it
  }
  progress.changed();
}

std::string session::Engine::explain(const std::string& beside) {
  const MutexLock lock(progress.state);
  make_plan();
  return plan->explain() + tables.explain() + beside + parts.explain();
}

void session::Engine::require_between_steps(const char* call) {
  const MutexLock lock(progress.state);
  throw_if_failed();
  step.require_between(call);
}

void session::Engine::undo(const Error& why) {
  const MutexLock lock(progress.wire);
  give_up(why);  // late gradients may be on their way
  runner->undo()->undo_step();
}

void session::Engine::take_over(Engine& before,
                                const std::function<exchange::ResidualStore(const session::SavedState&)>& residuals) {
  const MutexLock wire_before(before.progress.wire);
  const MutexLock wire(progress.wire);
  const MutexLock state_before(before.progress.state);
  const MutexLock state(progress.state);
  for (std::size_t i = 0; i < before.tensors.size(); ++i) {
    step.add_tensor();
    tensors.add(before.tensors.infos()[i], before.tensors.added(i), before.tensors.parameters()[i],
                before.tensors.scale(i));
  }
  tables = std::move(before.tables);
  enter_tables();
  no_sync = before.no_sync.load();
  step.go_on_from(before.step);
  set_device_step();
  if (before.plan) {
    make_plan();
  }
  parts.take_over(before.parts);
  if (!before.plan) {
    return;
  }
  session::SavedState held;
  held.step = step.number();
  before.parts.save(held);
  make_parts_for(held);
  step.modes().load(*plan, held);
  parts.load(held);
  runner->held().load_residuals(residuals(held), *plan);
  parts.resume(step.number());
  reset_step(Clock::now());
}

}  // namespace gradwire
