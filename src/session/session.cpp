#include "gradwire/session.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "plan/sync.hpp"
#include "session/bucket_runner.hpp"
#include "session/logging.hpp"
#include "session/session_state.hpp"

namespace gradwire {

Session::Session(std::shared_ptr<Transport> transport, Policy policy, SessionOptions options) {
  session::bind_log();
  if (transport == nullptr) {
    throw Error(ErrorCode::invalid_argument, "Session: transport is null");
  }
  state_ = std::make_unique<State>(std::make_unique<session::BucketRunner>(std::move(transport), options),
                                   std::move(policy), options);
}

Session::Session(std::unique_ptr<session::Runner> runner, Policy policy, SessionOptions options) {
  session::bind_log();
  state_ = std::make_unique<State>(std::move(runner), std::move(policy), options);
}

Session::Session(Session&&) noexcept = default;

Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

int Session::rank() const noexcept { return state_->runner->info().rank; }
int Session::world_size() const noexcept { return state_->runner->info().world_size; }

TensorId Session::add(std::string_view name, View gradient, std::uint32_t ndim) {
  return state_->checked([&] { return state_->add(std::string(name), gradient, {}, ndim); });
}

TensorId Session::add(std::string_view name, View gradient, View parameter, std::vector<View> state,
                      std::uint32_t ndim) {
  state.insert(state.begin(), parameter);
  return state_->checked([&] { return state_->add(std::string(name), gradient, std::move(state), ndim); });
}

void Session::meet() {
  state_->checked([&] { state_->meet(); });
}

void Session::broadcast(std::span<const View> values, int root) {
  State& state = *state_;
  state.checked([&] {
    for (const View& value : values) {
      if (element_bytes(value.dtype) == 0 || (value.data == nullptr && value.count > 0)) {
        throw Error(ErrorCode::invalid_argument, "broadcast: a value has null data or an unknown dtype");
      }
      state.runner->check_memory(value, "broadcast: a value");
    }
    if (root < 0 || root >= world_size()) {
      throw Error(ErrorCode::invalid_argument, "broadcast: root " + std::to_string(root) +
                                                   " is not a rank of a world of " + std::to_string(world_size()));
    }
    state.require_communication("broadcast");
    state.require_no_capture("broadcast");
    state.catch_up_with_replays();
    const std::lock_guard lock(state.mutex);
    state.throw_if_failed();
    if (state.in_step()) {
      throw Error(ErrorCode::invalid_argument,
                  "broadcast: a step is under way; call it before the first ready() or after finish()");
    }
  });
  state.on_wire([&] { state.runner->broadcast(values, root); });
}

Ticket Session::ready(TensorId id) {
  return state_->checked([&] { return state_->set_ready(id, nullptr, false); });
}
Ticket Session::ready(TensorId id, View gradient) {
  return state_->checked([&] { return state_->set_ready(id, &gradient, false); });
}
Ticket Session::ready_zero(TensorId id) {
  return state_->checked([&] { return state_->set_ready(id, nullptr, true); });
}

bool Session::done(const Ticket& ticket) {
  const bool ended = state_->checked([&] {
    const std::lock_guard lock(state_->mutex);
    state_->throw_if_failed();
    state_->check_ticket("done", ticket);
    return state_->ended(ticket);
  });
  if (!ended) {
    state_->progress_inside_call();
    const std::lock_guard lock(state_->mutex);
    state_->work.notify_all();  // who asks does other things meanwhile
    if (!state_->ended(ticket)) {
      return false;
    }
  }
  return state_->completed(ticket);
}

void Session::wait(const Ticket& ticket) {
  State& state = *state_;
  state.checked([&] {
    state.require_no_capture("wait");
    const std::lock_guard lock(state.mutex);
    state.throw_if_failed();
    state.check_ticket("wait", ticket);
    if (ticket.step == state.step && state.in_mode(ticket.bucket)) {
      throw Error(ErrorCode::invalid_argument,
                  "wait: the tensor's sync mode brings its result with finish(); call that");
    }
    if (state.ended(ticket)) {
      return;
    }
    // Where ranks look for NaN first, nothing starts before all is ready.
    const std::size_t last = state.checks_first() ? state.missing.size() : std::size_t{ticket.bucket} + 1;
    for (std::size_t bucket = 0; bucket < std::min(last, state.missing.size()); ++bucket) {
      if (state.missing[bucket] > 0) {
        throw Error(
            ErrorCode::invalid_argument,
            "wait: bucket " + std::to_string(bucket) + " has " + std::to_string(state.missing[bucket]) +
                " tensor(s) that are not ready, and must start first" +
                (state.checks_first() ? " (in this step ranks look for NaN and Inf in all gradients first)" : "") +
                "; call ready() for them first");
      }
    }
  });
  state.wait_until("wait", [&] { return state.ended(ticket); });
  state.wait_completed(ticket);
}

StepOutcome Session::finish() {
  State& state = *state_;
  const auto begin = std::chrono::steady_clock::now();
  state.checked([&] {
    if (state.no_sync) {
      throw Error(ErrorCode::invalid_argument,
                  "finish: called under no_sync(); leave that scope for the last backward pass of a step");
    }
    state.require_communication("finish");
  });
  state.check_all_ready();
  state.wait_until("finish", [&] { return state.step_ended(); });
  const bool captured = state.capturing();
  const bool delivered_nonfinite = state.deliver();
  const bool nonfinite = state.end_device_step() || delivered_nonfinite;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::vector<View> results;
  std::uint64_t ended_step = 0;
  StepOutcome outcome;
  bool as_usual = false;
  if (state.adapts()) {
    state.see_step_end(seconds);
  }
  {
    const std::lock_guard lock(state.mutex);
    results = state.comparable_results();
    outcome = state.outcome;
    const bool flushed = state.flush_next;
    outcome.nonfinite = outcome.nonfinite || nonfinite;
    if (!outcome.skipped) {
      state.flush_next = false;
    }
    state.was_captured = state.was_captured || captured;
    ended_step = state.step;
    as_usual = !outcome.skipped && !flushed;
    state.step += captured ? 0 : 1;  // it runs when the graph does
    ++state.counted_steps;
    state.stepped = true;
    state.exposed_seconds += seconds;
    state.misuse.reset();
    std::fill(state.accumulated.begin(), state.accumulated.end(), 0);
    state.reset_step();
  }
  if ((state.adapts() && as_usual) || !state.last_settled) {
    state.on_wire([&] {
      state.adapt(ended_step, as_usual);
      state.settle_last_bucket();
    });
  }
  const std::uint64_t every = state.options.compare_ranks_every;
  if (every > 0 && (ended_step + 1) % every == 0 && !outcome.skipped) {
    state.on_wire([&] { state.runner->compare(results, ended_step); });
  }
  return outcome;
}

void Session::set_no_sync(bool no_sync) { state_->no_sync = no_sync; }

void Session::set_weight(double samples) {
  State& state = *state_;
  state.checked([&] {
    const std::lock_guard lock(state.mutex);
    state.throw_if_failed();
    if (!(samples >= 0) || !std::isfinite(samples)) {
      throw Error(ErrorCode::invalid_argument,
                  "set_weight: " + std::to_string(samples) + " must be finite and not below 0");
    }
    if (state.in_step()) {
      throw Error(ErrorCode::invalid_argument,
                  "set_weight: a step is under way; call it before the step's first ready()");
    }
    if (!state.weighted && state.counted_steps > 0) {
      throw Error(ErrorCode::invalid_argument, "set_weight: first called in step " + std::to_string(state.step) +
                                                   "; call it from the first step on, on every rank");
    }
    state.weighted = true;
    state.weight = samples;
  });
}

void Session::reserve() {
  state_->checked([&] { state_->reserve(); });
}

LinkEstimate Session::link() {
  return state_->checked([&] { return state_->link(); });
}

BatchAdvice Session::batch_advice() const {
  const State& state = *state_;
  if (!state.policy.batch) {
    throw Error(ErrorCode::invalid_argument,
                "batch_advice: the policy has no [batch]; write [batch] with target_exposed = \"10%\", or set "
                "Policy::batch");
  }
  const std::lock_guard lock(state.mutex);
  return state.batch ? state.batch->advice() : session::BatchAdaptation::initial(*state.policy.batch);
}

std::string Session::explain() {
  return state_->checked([&] {
    const std::lock_guard lock(state_->mutex);
    state_->make_plan();
    return state_->plan->explain();
  });
}

std::string Session::fingerprint() {
  return state_->checked([&] {
    const std::lock_guard lock(state_->mutex);
    state_->make_plan();
    return state_->plan->fingerprint();
  });
}

std::uint64_t Session::step() const noexcept {
  try {
    state_->catch_up_with_replays();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the next call that may throw says so
  }
  const std::lock_guard lock(state_->mutex);
  return state_->step;
}

SessionStatistics Session::statistics() const {
  SessionStatistics statistics;
  const std::vector<Statistics> totals = state_->runner->statistics();
  const std::lock_guard lock(state_->mutex);
  statistics.transport = state_->runner->info().transport;
  statistics.rank = state_->runner->info().rank;
  statistics.world_size = state_->runner->info().world_size;
  statistics.steps = state_->counted_steps;
  statistics.exposed_seconds = state_->exposed_seconds;
  if (const session::DeviceSteps* device = state_->runner->device()) {
    statistics.device_memory = device->memory();
  }
  const bool begun = state_->adaptation && state_->agreed;
  statistics.switches = begun ? state_->adaptation->switches() : std::vector<CodecSwitch>();
  const std::vector<Lateness> ages = state_->modes ? state_->modes->ages() : std::vector<Lateness>();
  if (state_->plan) {
    for (std::size_t i = 0; i < state_->plan->groups.size(); ++i) {
      const plan::Group& group = state_->plan->groups[i];
      statistics.groups.push_back({.name = group.name,
                                   .codec = begun && group.policy.automatic() ? state_->adaptation->codec_text(i)
                                                                              : plan::codec_text(group.policy),
                                   .algorithm = std::string(to_string(group.policy.algorithm)),
                                   .compressed = group.policy.codec != CodecSpec::exact(),
                                   .tensors = group.tensors,
                                   .totals = i < totals.size() ? totals[i] : Statistics{},
                                   .sync = plan::to_string(group.policy.sync),
                                   .late = i < ages.size() ? ages[i] : Lateness{}});
    }
  }
  return statistics;
}

void Session::reset_statistics() {
  state_->runner->reset_statistics();
  const std::lock_guard lock(state_->mutex);
  if (state_->modes) {
    state_->modes->reset_ages();
  }
  state_->counted = {};
  state_->counted_steps = 0;
  state_->exposed_seconds = 0;
}

void Session::abort(const std::string& why) noexcept { state_->abort(why); }

}  // namespace gradwire
