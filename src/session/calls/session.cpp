#include "gradwire/session.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/forked.hpp"
#include "base/timeout.hpp"
#include "security/job_key.hpp"
#include "session/calls/link.hpp"
#include "session/calls/session_state.hpp"
#include "session/engine/session_reports.hpp"
#include "session/host/bucket_runner.hpp"
#include "session/logging/logging.hpp"
#include "session/parts/auto_batch/auto_batch.hpp"
#include "session/parts/notes/notes.hpp"
#include "transport/sealed_transport.hpp"

namespace gradwire {

namespace {

std::unique_ptr<session::Engine> make_engine(std::unique_ptr<session::Runner> runner, Policy policy,
                                             const SessionOptions& options, session::PartTable parts) {
  return std::make_unique<session::Engine>(
      std::move(runner),
      session::EngineSettings{.policy = std::move(policy), .options = options, .parts = std::move(parts)});
}

}  // namespace

Session::Session(std::shared_ptr<Transport> transport, Policy policy, SessionOptions options) {
  session::bind_log();
  if (transport == nullptr) {
    throw Error(ErrorCode::invalid_argument, "Session: transport is null");
  }
  options = with_checked_timeout(options, "Session");
  transport = transport::sealed_if_keyed(std::move(transport), policy.security.key, policy.security.lock_memory);
  state_ = std::make_unique<State>(make_engine(std::make_unique<session::BucketRunner>(std::move(transport), options),
                                               std::move(policy), options, session::standard_parts()));
}

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}

// NOLINTBEGIN(performance-unnecessary-value-param): as the public constructors
Session session::make_session(std::unique_ptr<Runner> runner, Policy policy, SessionOptions options) {
  return make_session(std::move(runner), std::move(policy), options, standard_parts());
}

Session session::make_session(std::unique_ptr<Runner> runner, Policy policy, SessionOptions options, PartTable parts) {
  bind_log();
  security::refuse_key("a session over device memory", security::kStageOnHost, policy.security.key);
  return Access::make(std::make_unique<Access::State>(
      make_engine(std::move(runner), std::move(policy), with_checked_timeout(options, "Session"), std::move(parts))));
}
// NOLINTEND(performance-unnecessary-value-param)

Session::Session(Session&&) noexcept = default;

Session& Session::operator=(Session&& other) noexcept {
  leave_in_child(state_);
  state_ = std::move(other.state_);
  return *this;
}
Session::~Session() { leave_in_child(state_); }

int Session::rank() const noexcept { return state_->rank(); }
int Session::world_size() const noexcept { return state_->world_size(); }

TensorId Session::add(std::string_view name, View gradient, const TensorOptions& options) {
  session::Engine& engine = state_->engine();
  return engine.checked([&] {
    if (!options.parameter && !options.state.empty()) {
      throw Error(
          ErrorCode::invalid_argument,
          "add: \"" + std::string(name) + "\" has state and no parameter; name the parameter that it belongs to");
    }
    std::vector<View> beside = options.state;
    if (options.parameter) {
      beside.insert(beside.begin(), *options.parameter);
    }
    return engine.add(std::string(name), gradient, std::move(beside), options.ndim, options.scale);
  });
}

void Session::sync_parameters() { state_->sync_parameters(); }

void Session::broadcast(std::span<const View> values, int root) { state_->broadcast(values, root); }

bool Session::share(std::span<const View> parameters) { return state_->share(parameters); }

void Session::State::check_shared(std::span<const View> parameters) {
  for (const View& parameter : parameters) {
    if (element_bytes(parameter.dtype) == 0 || (parameter.data == nullptr && parameter.count > 0)) {
      throw Error(ErrorCode::invalid_argument, "share: a parameter has null data or an unknown dtype");
    }
    engine_->runner->check_memory(parameter, "share: a parameter");
  }
}

Ticket Session::ready(TensorId id) {
  if (state_->recording) {
    state_->recording->ready(state_->engine(), id, nullptr);
  }
  return state_->ready(id, nullptr, false);
}

Ticket Session::ready(TensorId id, View gradient) {
  if (state_->recording) {
    state_->recording->ready(state_->engine(), id, &gradient);
  }
  return state_->ready(id, &gradient, false);
}

Ticket Session::ready_zero(TensorId id) { return state_->ready(id, nullptr, true); }

bool Session::done(const Ticket& ticket) { return state_->engine().done(ticket); }
void Session::wait(const Ticket& ticket) { state_->engine().wait(ticket); }

StepOutcome Session::finish() {
  StepOutcome outcome = state_->finish();
  if (state_->recording && state_->recording->step_over(!outcome.repeat)) {
    state_->recording.reset();
  }
  return outcome;
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): an override keeps it
void Session::State::on_world_change(std::function<void(const WorldChange&)> /*callback*/) {
  throw Error(ErrorCode::invalid_argument,
              "on_world_change: the world of this session never changes; make it over gradwire::Processes");
}

void Session::on_world_change(std::function<void(const WorldChange&)> callback) {
  state_->on_world_change(std::move(callback));
}

void Session::set_no_sync(bool no_sync) { state_->engine().no_sync = no_sync; }

void Session::set_weight(double samples) {
  session::Engine& engine = state_->engine();
  engine.checked([&] {
    const MutexLock lock(engine.progress.state);
    engine.throw_if_failed();
    engine.step.set_weight(samples);
  });
}

void Session::set_loss_scale(double scale) {
  if (scale > 0 && std::isfinite(scale) && scale != state_->engine().settled_step().terms.loss_scale()) {
    state_->reduce_late_gradients("set_loss_scale", scale);
  }
  session::Engine& engine = state_->engine();
  engine.checked([&] { engine.set_loss_scale(scale); });
}

void Session::flush() {
  session::Engine& engine = state_->engine();
  engine.checked([&] {
    const MutexLock lock(engine.progress.state);
    engine.throw_if_failed();
    engine.step.flush_next();
  });
}

std::uint64_t Session::residual_bytes() {
  const MutexLock lock(state_->engine().progress.wire);
  return state_->engine().runner->held().residual_bytes();
}

void Session::confirm() { state_->confirm(); }

void Session::reserve() {
  if (!state_->waits("reserve")) {
    state_->reserve();
  }
}

LinkEstimate Session::link() {
  session::Engine& engine = state_->engine();
  return engine.checked([&] {
    state_->require_nobody_comes("link");
    return session::link_of(engine);
  });
}

BatchAdvice Session::batch_advice() const {
  const session::Engine& engine = state_->engine();
  if (!engine.settings.policy.batch) {
    throw Error(ErrorCode::invalid_argument,
                "batch_advice: the policy has no [batch]; write [batch] with target_exposed = \"10%\", or set "
                "Policy::batch");
  }
  const MutexLock lock(engine.progress.state);
  const auto* advisor = engine.parts.find<session::AutoBatch>();
  return advisor != nullptr ? advisor->advice() : session::AutoBatch::initial(*engine.settings.policy.batch);
}

std::string Session::explain() {
  return state_->engine().checked([&] { return state_->explain(); });
}

std::string Session::fingerprint() {
  session::Engine& engine = state_->engine();
  return engine.checked([&] {
    const MutexLock lock(engine.progress.state);
    engine.make_plan();
    return engine.plan->fingerprint();
  });
}

std::uint64_t Session::step() const noexcept {
  session::Engine& engine = state_->engine();
  try {
    engine.device.catch_up_with_replays();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the next call that may throw reports the error
  }
  const MutexLock lock(engine.progress.state);
  return engine.step.number();
}

SessionStatistics Session::statistics() const { return session::statistics_of(state_->engine()); }

void Session::reset_statistics() {
  session::Engine& engine = state_->engine();
  engine.runner->reset_statistics();
  const MutexLock lock(engine.progress.state);
  engine.parts.for_each([](session::Part& part) { part.reset_statistics(); });
  engine.watch.reset_counts();
  engine.comparison.reset_counts();
}

void Session::note(std::string_view name, double value) {
  const session::Engine& engine = state_->engine();
  auto* const notes = [&] {
    const MutexLock lock(engine.progress.state);  // another thread may ask for the plan, which adds parts to the list
    return engine.parts.find<session::Notes>();
  }();
  if (notes != nullptr) {
    notes->note(name, value);
  }
}

void Session::abort(const std::string& why) noexcept { state_->abort(why); }

}  // namespace gradwire
