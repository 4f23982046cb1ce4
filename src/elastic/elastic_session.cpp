// The calls of a session over Processes that differ from those of an engine.
#include "elastic/elastic_session.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "base/mutex.hpp"
#include "session/parts/sync_modes/sync_modes.hpp"

namespace gradwire::session {

ElasticSession::ElasticSession(std::unique_ptr<Elastic> elastic, EngineSettings base)
    : State(nullptr), base_(std::move(base)), elastic_(std::move(elastic)) {
  if (!elastic_->waits()) {
    engine_ = make_engine();
    watch_engine();
    return;
  }
  auto places = make_inproc_world(elastic_->processes() + 1);  // its own place alone is taken: nothing communicates
  auto own = std::move(places.back());
  engine_ = std::make_unique<Engine>(elastic_->runner_over(std::move(own)), engine_settings());
}

ElasticSession::~ElasticSession() { end_among_others(engine_->end()); }

// If this process exits with status 0, that tells the launcher that its steps count.
void ElasticSession::end_among_others(const std::optional<Error>& why) const noexcept {
  if (why) {
    return elastic_->deny_success(*why);
  }
  if (left_ || elastic_->waits() || engine_->settled_step().number() == 0) {
    return;
  }
  if (std::uncaught_exceptions() > 0) {
    return elastic_->deny_success(Error(ErrorCode::aborted, "an exception has ended the session between two steps"));
  }
  try {
    elastic_->confirm();
  } catch (const Error& error) {
    log(LogLevel::error, std::string("whether the last step counts is not known: ") + error.what());
    elastic_->deny_success(error);
  }
}

void ElasticSession::leave(const Error& error) {
  left_ = true;
  engine_->give_up(error, true);
  engine_->runner->abort(error.code(), error.what());
  elastic_->deny_success(error);
  elastic_->end();
  throw Error(error);
}

void ElasticSession::abort(const std::string& why) noexcept {
  left_ = true;
  engine_->runner->abort(ErrorCode::aborted, why);
  try {
    elastic_->end();  // the others go on
    elastic_->deny_success(Error(ErrorCode::aborted, why));
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the transport has it
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
    if (engine_->step.in_step()) {
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
    tell_of(elastic_->take_change());
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

void ElasticSession::commit_residuals() {
  Engine& engine = *engine_;
  const MutexLock lock(engine.progress.wire);
  const StepOutcome& outcome = engine.settled_step().outcome();
  if (outcome.skipped && engine.modes() != nullptr && engine.modes()->has_uncounted()) {
    return;  // late gradients may be on their way, and nothing else has changed
  }
  engine.runner->undo()->commit();
  const std::uint64_t number = engine.settled_step().number();
  if (!outcome.skipped) {
    sent_ = number;
    flushed_ = engine.settled_step().info().flush ? sent_ : flushed_;
  }
  if (elastic_->replicates_after(number)) {
    try {
      elastic_->replicate(number,
                          {engine.settled_step().loss_scale(), engine.runner->held().save_residuals(*engine.plan)});
    } catch (const std::exception& error) {  // the step counts all the same
      log(LogLevel::warning, std::string("residuals were not copied to another rank: ") + error.what());
    }
  }
}

StepOutcome ElasticSession::finish() {
  const std::uint64_t number = engine_->settled_step().number();
  std::optional<Error> failure;
  try {
    const Engine::Finishing finishing = engine_->prepare();
    engine_->settle();
    if (!elastic_->commit()) {
      throw Error(ErrorCode::aborted, "finish: the world changes");
    }
    commit_residuals();
    return engine_->commit(finishing);
  } catch (const Error& error) {
    if (!may_be_peer_failure(error.code())) {
      leave(error);
    }
    failure = error;
  }
  if (engine_->settled_step().number() != number) {
    return engine_->last_outcome;  // it was delivered; the next step finds that the world is over, on all ranks
  }
  const WorldChange change = change_world(*failure);
  StepOutcome outcome;
  outcome.step = number;
  outcome.world_changed = outcome.repeat = true;
  tell_of(change);
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
  // A newcomer has made it with the others in share(), and does not know at which place of its program they were.
  const SyncModes* modes = engine_->modes();
  const bool nothing = elastic_->expects_others() && (modes == nullptr || !modes->have_moved());
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
  call_in_worlds([&] { return syncs_ = true; }, [&] { engine_->checked([&] { engine_->sync_parameters(); }); },
                 [&] {
                   engine_->count_what_travelled();
                   syncs_ = false;
                 });
}

void ElasticSession::reduce_late_gradients(const char* call, std::optional<double> coming_loss_scale) {
  const auto are_left = [&] {  // none where newcomers have come meanwhile: they know of no such call
    if (engine_->modes() == nullptr || !engine_->modes()->has_uncounted()) {
      return false;
    }
    engine_->progress.require_communication(call);
    const MutexLock lock(engine_->progress.state);
    engine_->step.require_between(call);
    return true;
  };
  const auto reduce = [&] {
    coming_loss_scale_ = coming_loss_scale;
    engine_->checked([&] {
      engine_->travel_between_steps(call, [&](std::uint64_t /*now*/) {
        engine_->modes()->release_all();
        return true;
      });
    });
  };
  if (are_left()) {
    call_in_worlds(are_left, reduce, [&] { engine_->count_what_travelled(); });
    coming_loss_scale_.reset();
  }
}

bool ElasticSession::pull(std::uint32_t table, std::span<const std::uint64_t> ids, std::span<float> rows) {
  engine_->checked([&] { require_rank("pull"); });
  engine_->check_pull(table, ids, rows);
  std::optional<Error> failure;
  try {
    engine_->pull(table, ids, rows);
    return true;
  } catch (const Error& error) {
    if (!may_be_peer_failure(error.code())) {
      leave(error);
    }
    failure = error;
  }
  tell_of(change_world(*failure));
  return false;
}

std::string ElasticSession::explain() {
  std::uint64_t residuals = 0;
  if (engine_->progress.wire.try_lock()) {
    const MutexLock wire(engine_->progress.wire, std::adopt_lock);
    residuals = engine_->runner->held().residual_bytes();
  }
  return engine_->explain(elastic_->explain(residuals));
}

}  // namespace gradwire::session
