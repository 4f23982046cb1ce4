#include "session/session_state.hpp"

#include "base/sanitizers.hpp"

#if GRADWIRE_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>

#include "base/current_error.hpp"
#include "base/elapsed.hpp"
#include "base/log.hpp"
#include "session/logging.hpp"

namespace gradwire {
namespace {

std::uint32_t next_number() {
  static std::atomic<std::uint32_t> last = 0;
  return ++last;
}

// Whether AddressSanitizer knows that the memory was freed; false in other builds.
bool is_freed([[maybe_unused]] const View& view) {
#if GRADWIRE_ADDRESS_SANITIZER
  return view.data != nullptr &&
         __asan_region_is_poisoned(view.data, view.count * element_bytes(view.dtype)) != nullptr;
#else
  return false;
#endif
}

}  // namespace

Session::State::State(std::unique_ptr<session::Runner> r, Policy p, SessionOptions o)
    : policy(std::move(p)), options(o), runner(std::move(r)), owner(std::this_thread::get_id()), number(next_number()) {
  if (runner->device() != nullptr) {
    options.threading = Threading::serialized;  // the device works on by itself
  }
  if (background()) {
    thread = std::thread([this] { run(); });
  }
}

Session::State::~State() {
  std::optional<Error> reason;
  stop_if_gradients_are_gone();
  {
    const std::lock_guard lock(mutex);
    if (!failure && misuse) {
      reason = misuse;
    } else if (!failure && (under_way() || in_step())) {
      reason = Error(ErrorCode::aborted, "session destroyed in the middle of a step");
    }
  }
  if (!reason) {
    end_background();
  }
  {
    const std::lock_guard lock(mutex);
    stopping = true;
    work.notify_all();
  }
  if (reason) {
    runner->abort(reason->code(), reason->what());
  }
  if (thread.joinable()) {
    thread.join();
  }
}

void Session::State::throw_if_failed() {
  if (failure) {
    if (!std::exchange(reported, true)) {
      throw Error(*failure);
    }
    throw Error(ErrorCode::aborted, std::string("the session gave up earlier: ") + failure->what());
  }
}

void Session::State::make_plan() {
  if (plan) {
    return;
  }
  plan = plan::make_plan(policy, tensors,
                         {.world_size = runner->info().world_size,
                          .reduction = options.reduction,
                          .checksum = runner->info().checksum,
                          .nodes = runner->info().nodes,
                          .knows_tiers = runner->device() == nullptr});
  const bool speaks = runner->info().rank == 0;  // plans are the same everywhere, or the first step says so
  for (const std::string& warning : plan->warnings) {
    log(speaks ? LogLevel::warning : LogLevel::debug, warning);
  }
  for (const std::string& note : plan->notes) {
    log(speaks ? LogLevel::info : LogLevel::debug, note);
  }
  if (session::logs(LogLevel::debug)) {  // long where tensors are many
    log(LogLevel::debug, plan->explain());
  }
  if (plan->automatic() && runner->probes() != nullptr) {
    adaptation = std::make_unique<session::Adaptation>(*runner, *plan, policy);
  } else if (plan->automatic()) {
    log(speaks ? LogLevel::warning : LogLevel::debug,
        "codec \"auto\" does not choose over device memory yet: the first codec of allow is used always");
  }
  if (plan->batch && runner->probes() != nullptr) {
    batch = std::make_unique<session::BatchAdaptation>(*runner, policy, options.reduction);
  } else if (plan->batch) {
    log(speaks ? LogLevel::warning : LogLevel::debug, "[batch] gives no advice over device memory yet");
  }
  if (plan->has_modes()) {
    make_modes();
  }
  reset_step();
}

void Session::State::reset_step() {
  memory.resize(registered.size());
  for (std::size_t i = 0; i < registered.size(); ++i) {
    memory[i] = {registered[i], false};
  }
  is_ready.assign(registered.size(), false);
  missing.clear();
  incomplete = 0;
  for (const plan::Bucket& bucket : plan->buckets) {
    missing.push_back(static_cast<std::uint32_t>(bucket.parts.size()));
    incomplete += bucket.parts.empty() ? 0 : 1;
  }
  has_ended.assign(plan->buckets.size(), false);
  next_bucket = 0;
  ended_buckets = 0;
  checked_finite = false;
  outcome = {};
  outcome.step = step;
  seen = {};
  seen.ready_seconds.assign(plan->buckets.size(), 0);
  step_begun = std::chrono::steady_clock::now();
}

// In builds that can tell. Whoever is told so has the place in hand; else the next one to touch the memory is blamed.
void Session::State::stop_if_gradients_are_gone() {
  const std::lock_guard lock(mutex);
  for (std::size_t i = 0; !failure && !misuse && i < is_ready.size(); ++i) {
    if (is_ready[i] && is_freed(memory[i].gradient)) {
      log(LogLevel::error, "session destroyed in the middle of a step after the gradient \"" + tensors[i].name +
                               "\", which it may still read and write; declare gradients before the session");
      std::abort();
    }
  }
}

bool Session::State::to_check() const {
  return plan && !failure && checks_first() && !checked_finite && !plan->buckets.empty() && all_ready();
}

bool Session::State::startable() const {
  return plan && (!checks_first() || checked_finite) && !failure && next_bucket < plan->buckets.size() &&
         missing[next_bucket] == 0;
}

bool Session::State::in_step() const {
  return plan && std::find(is_ready.begin(), is_ready.end(), true) != is_ready.end();
}

bool Session::State::ended(const Ticket& ticket) const {
  if (ticket.step == step && in_mode(ticket.bucket)) {
    return false;  // arrives with finish()
  }
  return ticket.bucket == Ticket::kNothing || ticket.step < step ||
         (ticket.step == step && ticket.bucket < has_ended.size() && has_ended[ticket.bucket]);
}

// Nothing would ever bring such a ticket's result.
void Session::State::check_ticket(const char* call, const Ticket& ticket) const {
  if (ticket.bucket == Ticket::kNothing) {
    return;
  }
  const std::string given = std::string(call) + ": the ticket is of bucket " + std::to_string(ticket.bucket) +
                            " in step " + std::to_string(ticket.step);
  const std::string fix = "; give a ticket that ready() of this session returned";
  if (ticket.session != 0 && ticket.session != number) {
    throw Error(ErrorCode::invalid_argument, given + " of another session" + fix);
  }
  if (!plan || ticket.bucket >= plan->buckets.size()) {
    throw Error(ErrorCode::invalid_argument,
                given + ", this session has " + std::to_string(plan ? plan->buckets.size() : 0) + " buckets" + fix);
  }
  if (ticket.step > step) {
    throw Error(ErrorCode::invalid_argument, given + ", this session is in step " + std::to_string(step) + fix);
  }
}

void Session::State::agree_once(bool with_weights) {
  if (!agreed) {
    runner->agree(*plan, with_weights, step);
    if (adaptation) {
      adaptation->begin(step);
    }
    const std::lock_guard lock(mutex);
    agreed = true;
  }
}

void Session::State::check_finite() {
  bool with_weights = false;
  double scale = 1;
  {
    const std::lock_guard lock(mutex);
    if (!to_check()) {
      return;
    }
    with_weights = weighted;
    scale = loss_scale;
  }
  agree_once(with_weights);
  std::vector<int> ranks = runner->nonfinite_ranks(memory, scale, step);
  const std::lock_guard lock(mutex);
  checked_finite = true;
  if (!ranks.empty()) {
    outcome.skipped = outcome.nonfinite = true;
    outcome.nonfinite_ranks = std::move(ranks);
    next_bucket = ended_buckets = plan->buckets.size();
    has_ended.assign(has_ended.size(), true);
    if (modes) {
      modes->put_off(step);
    }
  }
  changed.notify_all();
}

void Session::State::check_id(TensorId id) const {
  if (static_cast<std::size_t>(id) >= tensors.size()) {
    throw Error(ErrorCode::invalid_argument, "ready: tensor id " + std::to_string(static_cast<std::size_t>(id)) +
                                                 " is not one of the " + std::to_string(tensors.size()) +
                                                 " that add() returned");
  }
}

Ticket Session::State::set_ready(TensorId id, const View* gradient, bool zero) {
  if (no_sync) {
    const std::lock_guard lock(mutex);
    check_id(id);
    ++accumulated[static_cast<std::size_t>(id)];
    return {};
  }
  catch_up_with_replays();
  Ticket ticket;
  {
    const std::lock_guard lock(mutex);
    throw_if_failed();
    const auto index = static_cast<std::size_t>(id);
    check_id(id);
    make_plan();
    if (capturing()) {
      check_capture();
    }
    if (must_be_weighted && !weighted) {
      throw Error(ErrorCode::invalid_argument,
                  "ready: the loaded state is of weighted steps; call set_weight() first, as before it was saved");
    }
    if (is_ready[index]) {
      throw Error(ErrorCode::invalid_argument, "ready: \"" + tensors[index].name + "\" was ready already in step " +
                                                   std::to_string(step) +
                                                   "; call finish() first, or accumulate under no_sync()");
    }
    if (is_freed(gradient != nullptr ? *gradient : registered[index])) {
      throw Error(ErrorCode::invalid_argument, "ready: the memory of \"" + tensors[index].name +
                                                   "\" has been freed; declare gradients before the session");
    }
    if (gradient != nullptr) {
      check_gradient(index, *gradient);
      runner->check_memory(*gradient, "ready: \"" + tensors[index].name + "\"");
      memory[index].gradient = *gradient;
    }
    memory[index].zero = zero;
    is_ready[index] = true;
    ticket = {step, static_cast<std::uint32_t>(plan->tensors[index].bucket), number};
    if (--missing[ticket.bucket] == 0) {
      --incomplete;
      last_ready = std::chrono::steady_clock::now();
      seen.ready_seconds[ticket.bucket] = std::chrono::duration<double>(last_ready - step_begun).count();
    }
    const bool only_the_last = next_bucket + 1 == plan->buckets.size() && !to_check();
    if (background() && !driven && (startable() || to_check()) && !(looks && only_the_last && last_awaits_caller())) {
      work.notify_all();
    }
  }
  progress_inside_call();
  return ticket;
}

void Session::State::check_all_ready() {
  std::string names;
  std::size_t count = 0;
  {
    const std::lock_guard lock(mutex);
    throw_if_failed();
    make_plan();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (!is_ready[i] && ++count <= 5) {
        names += (names.empty() ? "\"" : ", \"") + tensors[i].name + "\"";
      }
    }
  }
  if (count == 0) {
    return;
  }
  const Error error(ErrorCode::invalid_argument, "finish: " + std::to_string(count) + " tensor(s) not ready on rank " +
                                                     std::to_string(runner->info().rank) + " in step " +
                                                     std::to_string(step) + ": " + names + (count > 5 ? ", ..." : "") +
                                                     "; call ready(), or ready_zero() where there is no gradient");
  if (background()) {
    runner->abort(error.code(), error.what());  // the progress thread may hold `wire` for long
  }
  on_wire([&] { throw Error(error); });
}

void Session::State::require_between_steps(const char* call) const {
  if (in_step()) {
    throw Error(ErrorCode::invalid_argument, std::string(call) + ": step " + std::to_string(step) +
                                                 " is under way; call it before its first ready() or after finish()");
  }
}

void Session::State::set_loss_scale(double scale) {
  if (!(scale > 0) || !std::isfinite(scale)) {
    throw Error(ErrorCode::invalid_argument,
                "set_loss_scale: " + std::to_string(scale) + " must be finite and above 0");
  }
  catch_up_with_replays();
  const std::lock_guard wire_lock(wire);
  drain("set_loss_scale");  // what is under way leaves residuals of the old scale
  const std::lock_guard lock(mutex);
  if (modes && modes->has_outer()) {
    throw no_scale_under_outer();
  }
  if (scale != loss_scale) {
    runner->held().scale_residuals(static_cast<float>(scale / loss_scale));
  }
  loss_scale = scale;
  loss_scale_set = true;
}

void Session::State::abort(const std::string& why) noexcept {
  runner->abort(ErrorCode::aborted, why);
  const std::lock_guard state_lock(mutex);
  if (!failure) {
    try {
      failure = Error(ErrorCode::aborted, why);
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the transport has it
    }
  }
  changed.notify_all();
}

}  // namespace gradwire
