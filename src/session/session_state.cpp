#include "session/session_state.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>
#include <string>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/units.hpp"
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

// What only observes ends no job.
std::optional<double> slow_share_of(int rank) {
  session::name_rank(rank);
  try {
    return environment_slow(observe::kSlowShare);
  } catch (const Error& error) {
    static std::atomic<bool> told = false;  // of a process
    if (!told.exchange(true)) {
      log(LogLevel::warning, std::string(error.what()) + ". Rank " + std::to_string(rank) +
                                 " is compared with the default, " + format_number(100 * observe::kSlowShare) +
                                 "% of a step, and the job goes on. Told once");
    }
    return observe::kSlowShare;
  }
}

Threading threading_over(session::Runner& runner, Threading asked) {
  return runner.device() != nullptr ? Threading::serialized : asked;  // the device works on by itself
}

}  // namespace

Session::State::State(std::unique_ptr<session::Runner> r, Policy p, SessionOptions o, session::PartTable part_table)
    : policy(std::move(p)),
      options(o),
      slow_share(slow_share_of(r->info().rank)),
      runner(std::move(r)),
      step(next_number(), o.nonfinite),
      parts(std::move(part_table)),
      progress(threading_over(*runner, o.threading), step, *this) {
  observe::begin_watching();
  progress.start();
}

Session::State::~State() {
  stop_if_gradients_are_gone();
  std::optional<Error> why;
  {
    const std::lock_guard lock(progress.state);
    why = step.faults.why_gone(step.under_way() || step.in_step());
    if (!why && elastic && in_background()) {  // others may go on, and would be waited for in vain
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
  if (elastic) {
    end_among_others(why);
  }
  publish(true);
}

// A process that ends with status 0 says that its steps count.
void Session::State::end_among_others(const std::optional<Error>& why) const noexcept {
  if (why) {
    return elastic->deny_success(*why);
  }
  if (left || elastic->waits() || step.number() == 0) {
    return;
  }
  if (std::uncaught_exceptions() > 0) {
    return elastic->deny_success(Error(ErrorCode::aborted, "an exception has ended the session between two steps"));
  }
  try {
    elastic->confirm();
  } catch (const Error& error) {
    log(LogLevel::error, std::string("whether the last step counts is not known: ") + error.what());
    elastic->deny_success(error);
  }
}

// In builds that can tell. Whoever is told so has the place in hand; else the next one to touch the memory is blamed.
void Session::State::stop_if_gradients_are_gone() {
  const std::lock_guard lock(progress.state);
  for (std::uint32_t i = 0; !step.faults.any() && i < tensors.size(); ++i) {
    if (step.is_ready(i) && tensors.is_freed(i)) {
      log(LogLevel::error, "session destroyed in the middle of a step after the gradient \"" + tensors.name(i) +
                               "\", which it may still read and write; declare gradients before the session");
      std::abort();
    }
  }
}

void Session::State::make_plan() {
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
  if (elastic) {
    std::uint64_t elements = 0;
    for (const TensorInfo& tensor : tensors.infos()) {
      elements += tensor.count;
    }
    elastic->take_copies_of(elements);
  }
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
  session::Probes* probes = runner->probes();
  if (plan->is_auto() && probes != nullptr) {
    auto_codec = std::make_unique<session::AutoCodec>(*runner, *probes, *plan, policy);
  } else if (plan->is_auto()) {
    log(speaks ? LogLevel::warning : LogLevel::debug,
        "codec \"auto\" does not choose over device memory yet: the first codec of allow is used always");
  }
  if (plan->batch && probes != nullptr) {
    auto_batch = std::make_unique<session::AutoBatch>(*runner, policy, options.reduction);
  } else if (plan->batch) {
    log(speaks ? LogLevel::warning : LogLevel::debug, "[batch] gives no advice over device memory yet");
  }
  try {
    if (plan->has_modes()) {
      make_modes();
    }
    parts.make({.plan = *plan, .tensors = tensors, .runner = *runner});
  } catch (...) {
    modes.reset();
    auto_batch.reset();
    auto_codec.reset();
    plan.reset();  // so that the next call makes all of it anew, or refuses it too
    throw;
  }
  parts.add_to(comparison);
  if (auto_codec) {
    comparison.add(*auto_codec);
  }
  if (auto_batch) {
    comparison.add(*auto_batch);
  }
  step.set_plan(*plan);
  reset_step(Clock::now());
}

void Session::State::reset_step(session::StepWatch::Time now) {
  tensors.begin_step();
  watch.begin(plan->buckets.size(), now);
}

// Before the plan is made of all tensors, since this one should not have come here.
void Session::State::refuse_rows(const TensorInfo& tensor) const {
  const bool any = std::any_of(policy.rules.begin(), policy.rules.end(),
                               [](const Policy::Rule& rule) { return rule.policy.sync.mode == Sync::Mode::rows; });
  if (any && policy::policy_of(policy, tensor).sync.mode == Sync::Mode::rows) {
    throw Error(ErrorCode::unsupported,
                "add: the policy asks for rows of \"" + tensor.name + "\": " + std::string(policy::kRowsNeedATable));
  }
}

TensorId Session::State::add(const std::string& name, const View& gradient, std::vector<View> beside,
                             std::uint32_t ndim, std::span<const float> scale) {
  const std::lock_guard lock(progress.state);
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

Ticket Session::State::ready(TensorId id, const View* gradient, bool zero) {
  const auto index = static_cast<std::uint32_t>(id);
  if (no_sync) {
    const std::lock_guard lock(progress.state);
    tensors.check(id);
    step.accumulate(index);
    return {};
  }
  catch_up_with_replays();
  Ticket ticket;
  bool left_to_finish = false;
  {
    const std::lock_guard lock(progress.state);
    if (elastic && step.faults.failed()) {
      return {};  // finish() says what becomes of this step
    }
    throw_if_failed();
    if (elastic && elastic->waits()) {
      throw Error(ErrorCode::invalid_argument,
                  "ready: this process is no rank yet; call share() first, and make no steps where it returns false");
    }
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
      if (!elastic || !session::may_be_peer_failure(error.code())) {
        throw;
      }
    }
  }
  return ticket;
}

bool Session::State::done(const Ticket& ticket) {
  const bool ended = checked([&] {
    const std::lock_guard lock(progress.state);
    if (elastic && step.faults.failed()) {
      return true;  // the result is void, as finish() says
    }
    step.faults.throw_if_failed();
    step.check("done", ticket);
    return step.ended(ticket);
  });
  if (!ended) {
    progress.inside_call();
    const std::lock_guard lock(progress.state);
    progress.wake();  // who asks does other things meanwhile
    if (!step.ended(ticket)) {
      return false;
    }
  }
  try {
    return completed(ticket);
  } catch (const Error& error) {
    if (!elastic || !session::may_be_peer_failure(error.code())) {
      throw;
    }
    return true;  // as above
  }
}

void Session::State::wait(const Ticket& ticket) {
  checked([&] {
    require_no_capture("wait");
    const std::lock_guard lock(progress.state);
    throw_if_failed();
    step.check("wait", ticket);
    step.check_wait(ticket);
  });
  try {
    progress.wait_until("wait", [&] { return step.ended(ticket); });
    wait_completed(ticket);
  } catch (const Error& error) {
    if (!elastic || !session::may_be_peer_failure(error.code())) {
      throw;
    }
    return;  // the result is void, as finish() says
  }
}

void Session::State::set_loss_scale(double scale) {
  if (!(scale > 0) || !std::isfinite(scale)) {
    throw Error(ErrorCode::invalid_argument,
                "set_loss_scale: " + std::to_string(scale) + " must be finite and above 0");
  }
  catch_up_with_replays();
  const std::lock_guard wire_lock(progress.wire);
  drain("set_loss_scale");  // what is under way leaves residuals of the old scale
  const std::lock_guard lock(progress.state);
  if (modes && modes->has_outer()) {
    throw no_scale_under_outer();
  }
  if (scale != step.loss_scale()) {
    runner->held().scale_residuals(static_cast<float>(scale / step.loss_scale()));
  }
  step.set_loss_scale(scale);
}

void Session::State::broadcast(std::span<const View> values, int root) {
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
    const std::lock_guard lock(progress.state);
    step.faults.throw_if_failed();
    if (step.in_step()) {
      throw Error(ErrorCode::invalid_argument,
                  "broadcast: a step is under way; call it before the first ready() or after finish()");
    }
  });
  on_wire([&] { runner->broadcast(values, root); });
}

void Session::State::abort(const std::string& why) noexcept {
  left = true;
  runner->abort(ErrorCode::aborted, why);
  const std::lock_guard lock(progress.state);
  try {
    if (elastic) {
      elastic->end();  // the others go on
      elastic->deny_success(Error(ErrorCode::aborted, why));
    }
    step.faults.fail(Error(ErrorCode::aborted, why));
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the transport has it
  }
  progress.changed();
}

}  // namespace gradwire
