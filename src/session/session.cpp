#include "gradwire/session.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/forked.hpp"
#include "base/timeout.hpp"
#include "policy/sync.hpp"
#include "session/host/bucket_runner.hpp"
#include "session/logging.hpp"
#include "session/parts/auto_batch/auto_batch.hpp"
#include "session/parts/sync_modes/sync_modes.hpp"
#include "session/session_state.hpp"

namespace gradwire {

Session::Session(std::shared_ptr<Transport> transport, Policy policy, SessionOptions options) {
  session::bind_log();
  if (transport == nullptr) {
    throw Error(ErrorCode::invalid_argument, "Session: transport is null");
  }
  options = with_checked_timeout(options, "Session");
  state_ = std::make_unique<State>(std::make_unique<session::BucketRunner>(std::move(transport), options),
                                   std::move(policy), options, session::standard_parts());
}

// Like the other constructor. NOLINTNEXTLINE(performance-unnecessary-value-param)
Session::Session(std::shared_ptr<Processes> processes, Policy policy, SessionOptions options)
    : Session(State::over_processes(
          std::move(processes),
          [options = with_checked_timeout(options, "Session")](std::shared_ptr<Transport> transport,
                                                               std::uint32_t epoch) {
            return std::make_unique<session::BucketRunner>(std::move(transport), options, epoch);
          },
          policy, options)) {}

std::unique_ptr<Session::State> Session::State::over_processes(std::shared_ptr<Processes> processes,
                                                               session::MakeRunner make, const Policy& policy,
                                                               const SessionOptions& given) {
  session::bind_log();
  const SessionOptions options = with_checked_timeout(given, "Session");
  if (processes == nullptr) {
    throw Error(ErrorCode::invalid_argument, "Session: processes is null");
  }
  if (!processes->claim()) {
    throw Error(ErrorCode::invalid_argument,
                "Session: these processes serve, or served, another session; make new ones, "
                "on every rank");
  }
  const Policy::Elastic settings = policy.elastic.value_or(Policy::Elastic{});
  auto elastic = std::make_unique<session::Elastic>(std::move(processes), std::move(make), settings, options.timeout);
  return elastic->waits() ? make_waiting_state(std::move(elastic), policy, options)
                          : in_world(std::move(elastic), policy, options, session::standard_parts());
}

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}

struct session::Access {
  static Session make(std::unique_ptr<Runner> runner, Policy policy, const SessionOptions& options, PartTable parts) {
    bind_log();
    return Session(std::make_unique<Session::State>(std::move(runner), std::move(policy),
                                                    with_checked_timeout(options, "Session"), std::move(parts)));
  }
  static Session make(std::shared_ptr<Processes> processes, MakeRunner make, const Policy& policy,
                      const SessionOptions& options) {
    return Session(Session::State::over_processes(std::move(processes), std::move(make), policy, options));
  }
};

// NOLINTBEGIN(performance-unnecessary-value-param): as the public constructors
Session session::make_session(std::unique_ptr<Runner> runner, Policy policy, SessionOptions options) {
  return make_session(std::move(runner), std::move(policy), options, standard_parts());
}

Session session::make_session(std::unique_ptr<Runner> runner, Policy policy, SessionOptions options, PartTable parts) {
  return Access::make(std::move(runner), std::move(policy), options, std::move(parts));
}

Session session::make_session(std::shared_ptr<Processes> processes, MakeRunner make, Policy policy,
                              SessionOptions options) {
  return Access::make(std::move(processes), std::move(make), policy, options);
}
// NOLINTEND(performance-unnecessary-value-param)

Session::Session(Session&&) noexcept = default;

Session& Session::operator=(Session&& other) noexcept {
  leave_in_child(state_);
  state_ = std::move(other.state_);
  return *this;
}
Session::~Session() { leave_in_child(state_); }

int Session::rank() const noexcept {
  return state_->elastic && state_->elastic->waits() ? -1 : state_->runner->info().rank;
}
int Session::world_size() const noexcept {
  return state_->elastic && state_->elastic->waits() ? state_->elastic->full_size() : state_->runner->info().world_size;
}

TensorId Session::add(std::string_view name, View gradient, std::uint32_t ndim) {
  return state_->checked([&] { return state_->add(std::string(name), gradient, {}, ndim); });
}

TensorId Session::add(std::string_view name, View gradient, const TensorOptions& options) {
  return state_->checked([&] { return state_->add(std::string(name), gradient, {}, options.ndim, options.scale); });
}

TensorId Session::add(std::string_view name, View gradient, View parameter, std::vector<View> state,
                      std::uint32_t ndim) {
  state.insert(state.begin(), parameter);
  return state_->checked([&] { return state_->add(std::string(name), gradient, std::move(state), ndim); });
}

void Session::sync_parameters() {
  if (!state_->elastic) {
    state_->checked([&] { state_->sync_parameters(); });
    state_->count_what_travelled();
    return;
  }
  // A newcomer has made it with the others in share(), and does not know at which place of its program they were.
  const bool nothing =
      state_->elastic->expects_others() && (state_->modes() == nullptr || !state_->modes()->have_moved());
  if (state_->elastic->waits()) {
    return;
  }
  if (nothing) {
    state_->checked([&] { state_->require_between_steps("sync_parameters"); });
    return;
  }
  State::sync_elastically(state_);
}

void Session::broadcast(std::span<const View> values, int root) {
  if (!state_->elastic) {
    state_->broadcast(values, root);
    return;
  }
  if (waits_to_be_rank("broadcast")) {
    return;
  }
  const std::optional<Processes::Id> who = state_->elastic->id_of(root);
  std::optional<int> now;
  const auto find_root = [&](State& state) {
    now = who ? state.elastic->rank_of(*who) : root;
    if (!now) {
      throw Error(ErrorCode::invalid_argument, "broadcast: rank " + std::to_string(root) +
                                                   ", the root, has ended; broadcast from a rank that is left");
    }
    return true;
  };
  State::call_elastically(state_, find_root, [&](State& state) { state.broadcast(values, *now); });
}

Ticket Session::ready(TensorId id) {
  return state_->checked([&] { return state_->ready(id, nullptr, false); });
}
Ticket Session::ready(TensorId id, View gradient) {
  return state_->checked([&] { return state_->ready(id, &gradient, false); });
}
Ticket Session::ready_zero(TensorId id) {
  return state_->checked([&] { return state_->ready(id, nullptr, true); });
}

bool Session::done(const Ticket& ticket) { return state_->done(ticket); }
void Session::wait(const Ticket& ticket) { state_->wait(ticket); }
StepOutcome Session::finish() { return state_->elastic ? State::finish_elastically(state_) : state_->finish(); }

void Session::on_world_change(std::function<void(const WorldChange&)> callback) {
  if (!state_->elastic) {
    throw Error(ErrorCode::invalid_argument,
                "on_world_change: the world of this session never changes; make it over gradwire::Processes");
  }
  state_->elastic->callback = std::move(callback);
  if (state_->elastic->callback && state_->elastic->has_to_tell()) {  // ranks ended before the first world was made
    state_->tell_of(state_->elastic->take_change());
  }
}

void Session::set_no_sync(bool no_sync) { state_->no_sync = no_sync; }

void Session::set_weight(double samples) {
  state_->checked([&] {
    const std::lock_guard lock(state_->progress.state);
    state_->throw_if_failed();
    state_->step.set_weight(samples);
  });
}

void Session::set_loss_scale(double scale) {
  if (scale > 0 && std::isfinite(scale) && scale != state_->step.loss_scale()) {
    State::reduce_late_gradients(state_, "set_loss_scale", scale);
  }
  state_->checked([&] { state_->set_loss_scale(scale); });
}

void Session::flush() {
  state_->checked([&] {
    const std::lock_guard lock(state_->progress.state);
    state_->throw_if_failed();
    state_->step.flush_next();
  });
}

std::uint64_t Session::residual_bytes() {
  const std::lock_guard lock(state_->progress.wire);
  return state_->runner->held().residual_bytes();
}

void Session::confirm() {
  if (state_->elastic && !state_->elastic->waits()) {
    state_->confirm();
  }
}

void Session::reserve() {
  if (waits_to_be_rank("reserve")) {
    return;
  }
  const auto reserve = [](State& state) { state.checked([&] { state.reserve(); }); };
  state_->elastic ? State::call_elastically(
                        state_, [](State&) { return true; }, reserve)
                  : reserve(*state_);
}

LinkEstimate Session::link() {
  return state_->checked([&] {
    state_->require_nobody_comes("link");
    return state_->link();
  });
}

BatchAdvice Session::batch_advice() const {
  const State& state = *state_;
  if (!state.policy.batch) {
    throw Error(ErrorCode::invalid_argument,
                "batch_advice: the policy has no [batch]; write [batch] with target_exposed = \"10%\", or set "
                "Policy::batch");
  }
  const std::lock_guard lock(state.progress.state);
  const auto* advisor = state.parts.find<session::AutoBatch>();
  return advisor != nullptr ? advisor->advice() : session::AutoBatch::initial(*state.policy.batch);
}

std::string Session::explain() {
  return state_->checked([&] {
    std::uint64_t residuals = 0;
    if (const std::unique_lock wire(state_->progress.wire, std::try_to_lock); wire.owns_lock() && state_->elastic) {
      residuals = state_->runner->held().residual_bytes();
    }
    const std::lock_guard lock(state_->progress.state);
    state_->make_plan();
    return state_->plan->explain() + state_->tables.explain() +
           (state_->elastic ? state_->elastic->explain(residuals) : "") + state_->parts.explain();
  });
}

std::string Session::fingerprint() {
  return state_->checked([&] {
    const std::lock_guard lock(state_->progress.state);
    state_->make_plan();
    return state_->plan->fingerprint();
  });
}

std::uint64_t Session::step() const noexcept {
  try {
    state_->catch_up_with_replays();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the next call that may throw says so
  }
  const std::lock_guard lock(state_->progress.state);
  return state_->step.number();
}

SessionStatistics Session::statistics() const { return state_->statistics(); }

void Session::reset_statistics() {
  state_->runner->reset_statistics();
  const std::lock_guard lock(state_->progress.state);
  state_->parts.reset_statistics();
  state_->watch.reset_counts();
  state_->comparison.reset_counts();
}

void Session::abort(const std::string& why) noexcept { state_->abort(why); }

}  // namespace gradwire
