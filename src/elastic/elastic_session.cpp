// The calls of a session over Processes that differ from those of an engine.
#include "elastic/elastic_session.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "base/mutex.hpp"
#include "session/calls/table_calls.hpp"
#include "session/parts/sync_modes/sync_modes_part.hpp"

namespace gradwire::session {

ElasticSession::ElasticSession(std::unique_ptr<Elastic> elastic, EngineSettings base)
    : State(nullptr),
      base_(std::move(base)),
      elastic_(std::move(elastic)),
      residuals_(*elastic_, base_.options.reduction),
      newcomers_(engine_, *elastic_, base_) {
  if (!elastic_->waits()) {
    engine_ = make_engine(elastic_->connect());
    watch_engine();
    return;
  }
  auto places = make_inproc_world(elastic_->processes() + 1);  // only the last place is used, so nothing communicates
  engine_ = make_engine(std::move(places.back()));
}

// If this process exits with status 0, that tells the launcher that its steps count.
ElasticSession::~ElasticSession() {
  std::optional<Error> why = engine_->end();
  const bool has_delivered = !left_ && !elastic_->waits() && engine_->step.number() > 0;
  if (!why && has_delivered && std::uncaught_exceptions() > 0) {
    why = Error(ErrorCode::aborted, "an exception has ended the session between two steps");
  }
  if (!why && has_delivered) {
    try {
      elastic_->confirm();
    } catch (const Error& error) {
      log(LogLevel::error, std::string("whether the last step counts is not known: ") + error.what());
      why = error;
    }
  }
  if (why) {
    elastic_->deny_success(*why);
  }
}

void ElasticSession::leave(const Error& error) {
  if (!left_.exchange(true)) {
    engine_->give_up(error, true);
    engine_->runner->abort(error);
    elastic_->deny_success(error);
    elastic_->end();
  }
  throw Error(error);
}

void ElasticSession::leave_unless_world_ended(const Error& error) {
  if (error.cause() != ErrorCause::world) {
    leave(error);
  }
}

void ElasticSession::abort(const std::string& why) noexcept {
  left_ = true;
  const Error error = make_error(ErrorCode::aborted, why, ErrorCause::world);
  engine_->runner->abort(error);
  try {
    elastic_->end();  // the others go on
    elastic_->deny_success(error);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): no memory; the transport has it
  }
  engine_->abort(why);
}

void ElasticSession::confirm() {
  if (elastic_->waits()) {
    return;
  }
  engine_->checked([&] {
    throw_if_left();
    const MutexLock lock(engine_->progress.state);
    if (engine_->step.buckets.in_step()) {
      throw Error(ErrorCode::invalid_argument,
                  "confirm: a step is under way; call it before the first ready() or after finish()");
    }
  });
  try {
    elastic_->confirm();
  } catch (const Error& error) {
    leave(error);
  }
}

// The other ranks have gone on without this process and will not take it back.
void ElasticSession::throw_if_left() {
  if (left_) {
    const MutexLock lock(engine_->progress.state);
    engine_->step.faults.throw_if_failed();
    throw Error(ErrorCode::aborted, "the session gave up earlier");
  }
}

void ElasticSession::on_world_change(std::function<void(const WorldChange&)> callback) {
  callback_ = std::move(callback);
  if (callback_ && elastic_->has_to_tell()) {  // ranks ended before the first world was made
    report_change(elastic_->take_change());
  }
}

Ticket ElasticSession::ready(TensorId id, const View* gradient, bool zero) {
  return engine_->checked([&] {
    if (elastic_->waits() && !engine_->no_sync && !engine_->failed()) {
      require_rank("ready");
    }
    return engine_->ready(id, gradient, zero);
  });
}

StepOutcome ElasticSession::finish() {
  const std::uint64_t number = engine_->settled_step().number();
  std::optional<Error> failure;
  try {
    const StepEnd::Finishing finishing = engine_->step_end.prepare();
    engine_->device.settle();
    residuals_.prepare_commit(*engine_);
    if (!elastic_->commit()) {
      throw Error(ErrorCode::aborted, "finish: the world changes", ErrorCause::world);
    }
    residuals_.commit(*engine_);
    return engine_->step_end.commit(finishing);
  } catch (const Error& error) {
    leave_unless_world_ended(error);
    failure = error;
  }
  if (engine_->step.number() != number) {
    return engine_->step_end
        .last_outcome();  // the step was delivered; the next one finds on all ranks that the world is over
  }
  const WorldChange change = change_world(*failure);
  StepOutcome outcome;
  outcome.step = number;
  outcome.world_changed = outcome.repeat = true;
  report_change(change);
  return outcome;
}

void ElasticSession::broadcast(std::span<const View> values, int root) {
  if (waits("broadcast")) {
    return;
  }
  const std::optional<Processes::Id> who = elastic_->id_of(root);
  std::optional<int> now;
  const auto find_root = [&] {
    now = who ? elastic_->rank_of(*who) : root;
    if (!now) {
      throw Error(ErrorCode::invalid_argument, "broadcast: rank " + std::to_string(root) +
                                                   ", the root, has ended; broadcast from a rank that is left");
    }
    return true;
  };
  call_in_worlds(find_root, [&] { engine_->broadcast(values, *now); });
}

void ElasticSession::reserve() {
  call_in_worlds([] { return true; }, [&] { engine_->checked([&] { engine_->reserve(); }); });
}

void ElasticSession::sync_parameters() {
  // A newcomer has made this call with the others in share(), and does not know where in their program they were.
  const SyncModes* modes = sync_modes_of(engine_->parts);
  const bool nothing = elastic_->expects_newcomers() && (modes == nullptr || !modes->have_moved());
  if (elastic_->waits()) {
    return;
  }
  if (nothing) {
    engine_->checked([&] { engine_->require_between_steps("sync_parameters"); });
    return;
  }
  synchronise();
}

void ElasticSession::synchronise() {
  call_in_worlds([&] { return newcomers_.under_way.syncs = true; },
                 [&] { engine_->checked([&] { engine_->sync_parameters(); }); },
                 [&] {
                   engine_->count_what_travelled();
                   newcomers_.under_way.syncs = false;
                 });
}

void ElasticSession::reduce_late_gradients(const char* call, std::optional<double> coming_loss_scale) {
  const auto are_left = [&] {  // none if newcomers have come meanwhile, which know of no such call
    if (sync_modes_of(engine_->parts) == nullptr || !sync_modes_of(engine_->parts)->has_uncounted()) {
      return false;
    }
    engine_->progress.require_communication(call);
    const MutexLock lock(engine_->progress.state);
    engine_->step.require_between(call);
    return true;
  };
  const auto reduce = [&] {
    newcomers_.under_way.coming_loss_scale = coming_loss_scale;
    engine_->checked([&] {
      engine_->travel_between_steps(call, [&](std::uint64_t /*now*/) {
        sync_modes_of(engine_->parts)->release_all();
        return true;
      });
    });
  };
  if (are_left()) {
    call_in_worlds(are_left, reduce, [&] { engine_->count_what_travelled(); });
    newcomers_.under_way.coming_loss_scale.reset();
  }
}

bool ElasticSession::pull(std::uint32_t table, std::span<const std::uint64_t> ids, std::span<float> rows) {
  engine_->checked([&] { require_rank("pull"); });
  check_pull(*engine_, table, ids, rows);
  std::optional<Error> failure;
  try {
    session::pull(*engine_, table, ids, rows);
    return true;
  } catch (const Error& error) {
    leave_unless_world_ended(error);
    failure = error;
  }
  report_change(change_world(*failure));
  return false;
}

bool ElasticSession::share(std::span<const View> parameters) {
  if (newcomers_.are_let_in()) {
    throw Error(ErrorCode::invalid_argument, "share: was called before; call it once, with all that ranks share");
  }
  check_shared(parameters);
  if (elastic_->waits()) {
    return become_rank(parameters);
  }
  broadcast(parameters, 0);
  newcomers_.let_in(parameters);
  return true;
}

bool ElasticSession::become_rank(std::span<const View> parameters) {
  try {
    newcomers_.share(parameters);
    if (!elastic_->wait_for_place(newcomers_.joiner_requirements())) {
      return false;
    }
    enter_world();
    newcomers_.let_in(parameters);
    static_cast<void>(elastic_->take_change());
    if (newcomers_.under_way.syncs) {
      synchronise();
    }
    if (const auto scale = std::exchange(newcomers_.under_way.coming_loss_scale, {})) {
      engine_->set_loss_scale(*scale);
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::too_few && !elastic_->holds() && elastic_->job_is_over()) {
      return false;  // the ranks made their last step while the state was on its way to this process
    }
    leave(error);
  }
  return true;
}

void ElasticSession::require_rank(const char* call) const {
  if (elastic_->waits()) {
    throw Error(ErrorCode::invalid_argument,
                std::string(call) +
                    ": this process is no rank yet; call share() first, and make no steps where it returns false");
  }
}

void ElasticSession::require_nobody_comes(const char* call) const {
  if (elastic_->waits()) {
    throw Error(ErrorCode::invalid_argument,
                std::string(call) +
                    ": this process waits to be a rank, and communicates with nobody; leave the call out where there "
                    "are [elastic] spares, or processes may join");
  }
  if (newcomers_.are_let_in()) {
    throw Error(ErrorCode::invalid_argument,
                std::string(call) +
                    ": with [elastic] spares, or where processes may join, ranks communicate after share() "
                    "in steps, pull(), sync_parameters() and for late results alone, since a newcomer knows of nothing "
                    "else; call it before");
  }
}

bool ElasticSession::waits(const char* call) const {
  if (elastic_->waits()) {
    return true;
  }
  require_nobody_comes(call);
  return false;
}

std::string ElasticSession::explain() {
  std::uint64_t residuals = 0;
  if (engine_->progress.wire.try_lock()) {
    const MutexLock wire(engine_->progress.wire, std::adopt_lock);
    residuals = engine_->runner->held().residual_bytes();
  }
  return session::explain(*engine_, elastic_->explain(residuals));
}

}  // namespace gradwire::session
