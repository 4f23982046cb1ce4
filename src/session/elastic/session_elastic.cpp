// How a session gets from one world to the next: what was under way is undone, the transport, the plan and all that is
// made with them are made anew, and what error feedback holds moves over.
#include <string>
#include <utility>

#include "base/log.hpp"
#include "base/units.hpp"
#include "session/host/bucket_runner.hpp"
#include "session/session_state.hpp"

namespace gradwire {

using session::Elastic;

namespace {

// Whether the error may come of another rank's end.
bool may_be_of_others(ErrorCode code) {
  return code == ErrorCode::aborted || code == ErrorCode::transport || code == ErrorCode::timeout;
}

void log_change(const WorldChange& change, std::uint64_t step, bool repeat) {
  std::string lost;
  for (const std::string& name : change.lost_names) {
    lost += (lost.empty() ? "" : ", ") + name;
  }
  log(change.rank == 0 ? LogLevel::warning : LogLevel::info,
      std::to_string(change.old_world_size) + " ranks have become " + std::to_string(change.world_size) +
          (lost.empty() ? "" : ": without " + lost) + "; step " + std::to_string(step) +
          (repeat ? " is made again, " : " goes on, ") + format_number(change.seconds) + " s after that was noticed");
}

}  // namespace

void Session::State::take_over(State& before) {
  const std::lock_guard before_lock(before.progress.state);
  const std::lock_guard lock(progress.state);
  for (std::size_t i = 0; i < before.tensors.size(); ++i) {
    step.add_tensor();
    tensors.add(before.tensors.infos()[i], before.tensors.added(i), before.tensors.parameters()[i]);
  }
  no_sync = before.no_sync.load();
  told_nonfinite = before.told_nonfinite;
  step.go_on_from(before.step);
  if (!before.plan) {
    return;
  }
  make_plan();
  // Each rank keeps what it holds: whoever no longer owns the elements of an owner residual adds it to what it sends.
  const bool plain_mean = options.reduction == Reduction::mean && !before.step.weighted();
  const float share =
      plain_mean ? static_cast<float>(runner->info().world_size) / static_cast<float>(before.runner->info().world_size)
                 : 1.0F;
  plan::ResidualStore residuals;
  for (const session::SavedState::Residual& held : before.runner->held().save_residuals(*before.plan)) {
    const bool owner = held.key.site == codec::EncodeSite::owner;
    residuals.add(held.key, held.range.offset, held.range.values, owner ? 1.0F : share);
  }
  for (const Elastic::Kept& kept : elastic->take_kept()) {
    for (const session::SavedState::Residual& held : kept.residuals) {
      const bool fits = held.key.tensor < tensors.size() &&
                        held.range.end() <= tensors.infos()[held.key.tensor].count &&
                        held.range.end() >= held.range.offset;
      const plan::ResidualKey local{held.key.tensor, codec::EncodeSite::local};
      if (fits && residuals.has(local)) {  // else they were sent since, by all ranks
        residuals.add(held.key, held.range.offset, held.range.values,
                      held.key.site == codec::EncodeSite::owner ? 1.0F : share);
      }
    }
    log(LogLevel::warning, "of rank " + std::to_string(kept.rank) + " of the world before, residuals as of step " +
                               std::to_string(kept.step) + " are kept: what it has dropped since is lost");
  }
  if (!residuals.empty()) {
    for (std::uint32_t tensor = 0; tensor < tensors.size(); ++tensor) {
      residuals.mark_moved(tensor);
    }
  }
  runner->held().load_residuals(std::move(residuals), *plan);
  if (auto_codec) {
    auto_codec->resume(step.number());
  }
  reset_step(std::chrono::steady_clock::now());
}

std::unique_ptr<Session::State> Session::State::in_world(std::unique_ptr<Elastic> elastic, const Policy& policy,
                                                         const SessionOptions& options) {
  auto state =
      std::make_unique<State>(std::make_unique<session::BucketRunner>(elastic->connect(), options), policy, options);
  state->elastic = std::move(elastic);
  state->runner->undo()->remember();
  state->elastic->watch([runner = state->runner.get()] {
    runner->abort(ErrorCode::aborted, "the world changes: a rank has ended, or is silent");
  });
  return state;
}

void Session::State::leave(const Error& error) {
  const Error copy = error;
  elastic.reset();
  throw Error(copy);
}

WorldChange Session::State::change_world(std::unique_ptr<State>& self, const std::optional<Error>& error, bool undo) {
  try {
    if (!self->elastic->await_change(error.has_value())) {
      throw Error(error.value());
    }
    {
      const std::lock_guard lock(self->progress.wire);
      session::StepUndo& held = *self->runner->undo();
      undo ? held.undo_step() : held.commit();
    }
    std::unique_ptr<State> fresh = in_world(std::move(self->elastic), self->policy, self->options);
    fresh->take_over(*self);
    self = std::move(fresh);
  } catch (const Error& failure) {
    self->leave(failure);
  }
  return self->elastic->change();
}

void Session::State::tell_of(const WorldChange& change, std::uint64_t now, bool repeat) {
  log_change(change, now, repeat);
  if (elastic->callback) {
    const auto callback = elastic->callback;  // it may set another
    callback(change);
  }
}

StepOutcome Session::State::finish_elastically(std::unique_ptr<State>& self) {
  const std::uint64_t number = self->step.number();
  std::optional<Error> failure;
  try {
    return self->finish();  // where the world is over since, the next step finds that: this may be the job's last
  } catch (const Error& error) {
    if (!may_be_of_others(error.code())) {
      self->leave(error);
    }
    failure = error;
  }
  const bool repeat = self->step.number() == number;
  StepOutcome outcome;
  if (repeat) {
    outcome.step = number;
  } else {
    outcome = self->last_outcome.value();
  }
  outcome.world_changed = true;
  outcome.repeat = repeat;
  const WorldChange change = change_world(self, failure, repeat);
  self->tell_of(change, self->step.number(), repeat);
  return outcome;
}

void Session::State::call_elastically(std::unique_ptr<State>& self, const std::function<void(State&)>& call) {
  for (;;) {
    std::optional<Error> failure;
    try {
      call(*self);
      if (self->elastic->commit()) {
        return;
      }
    } catch (const Error& error) {
      if (!may_be_of_others(error.code())) {
        throw;  // the session goes on, or the next finish() leaves
      }
      failure = error;
    }
    const WorldChange change = change_world(self, failure, true);
    self->tell_of(change, self->step.number(), false);
  }
}

}  // namespace gradwire
