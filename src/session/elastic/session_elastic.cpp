// How a session gets from one world to the next: what was under way is undone, the transport, the plan and all that is
// made with them are made anew, and what error feedback holds moves over.
#include <cmath>
#include <mutex>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "base/units.hpp"
#include "session/parts/sync_modes/sync_modes.hpp"
#include "session/session_state.hpp"

namespace gradwire {

using session::Elastic;
using session::may_be_peer_failure;
using session::SavedState;

namespace {

// `residuals`: what is to be said of those that ended.
void log_change(const WorldChange& change, std::uint64_t step, const char* residuals) {
  const auto listed = [](const char* before, const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) {
      text += (text.empty() ? before : ", ") + name;
    }
    return text;
  };
  log(change.rank == 0 ? LogLevel::warning : LogLevel::info,
      std::to_string(change.old_world_size) + " ranks have become " + std::to_string(change.world_size) +
          listed(": without ", change.lost_names) + listed("; new: ", change.joined_names) + "; step " +
          std::to_string(step) + " begins anew, " + format_number(std::round(1e3 * change.seconds)) +
          " ms after that was noticed" + (change.lost.empty() ? "" : residuals));
}

}  // namespace

void Session::State::take_over(State& before) {
  const std::scoped_lock wires(before.progress.wire, progress.wire);
  const std::scoped_lock states(before.progress.state, progress.state);
  for (std::size_t i = 0; i < before.tensors.size(); ++i) {
    step.add_tensor();
    tensors.add(before.tensors.infos()[i], before.tensors.added(i), before.tensors.parameters()[i],
                before.tensors.scale(i));
  }
  tables = std::move(before.tables);
  enter_tables();
  no_sync = before.no_sync.load();
  syncs = before.syncs;
  checkpoints = std::move(before.checkpoints);
  coming_loss_scale = before.coming_loss_scale;
  parts.take_over(before.parts);
  step.go_on_from(before.step);
  set_device_step();
  sent = std::max<std::uint64_t>(step.number(), 1) - 1;
  if (!before.plan) {
    return;
  }
  make_plan();
  SavedState held;
  held.step = step.number();
  before.parts.save(held);
  make_parts_for(held);
  step.modes().load(*plan, held);
  parts.load(held);
  runner->held().load_residuals(residuals_of(before, held), *plan);
  parts.resume(step.number());
  reset_step(std::chrono::steady_clock::now());
}

exchange::ResidualStore Session::State::residuals_of(State& before, const SavedState& held) const {
  const bool plain_mean = options.reduction == Reduction::mean && !before.step.is_to_be_weighted();
  const float ratio =
      static_cast<float>(runner->info().world_size) / static_cast<float>(before.runner->info().world_size);
  exchange::ResidualStore residuals;
  const auto add = [&](const SavedState::Residual& residual, double factor = 1) {
    const bool averaged = plain_mean || held.has_anchor(residual.key.tensor);  // changes have no weights
    const bool owner = residual.key.site == codec::EncodeSite::owner;
    residuals.add(residual.key, residual.range.offset, residual.range.values,
                  static_cast<float>(factor) * (averaged && !owner ? ratio : 1.0F));
  };
  // Each rank keeps what it holds: whoever no longer owns the elements of an owner residual adds it to what it sends.
  for (const SavedState::Residual& residual : before.runner->held().save_residuals(*before.plan)) {
    add(residual);
  }
  // What few bits drop is sent the next time, and would be sent twice; what topk leaves out waits for many of them.
  const auto counts = [&](std::uint32_t tensor, std::uint64_t copied) {
    const plan::Bucket& bucket = before.plan->buckets[before.plan->tensors[tensor].bucket];
    session::SyncModes::Sent last{before.sent, before.flushed};
    if (before.modes() != nullptr) {
      last = before.modes()->sent(bucket.id, step.number(), last);
    }
    return copied >= (bucket.codec.k > 0 ? last.all : last.some);
  };
  const bool had_any = before.runner->held().residual_bytes() > 0;
  for (const Elastic::Kept& kept : elastic->take_kept()) {
    bool any = false, all = true;
    for (const SavedState::Residual& residual : kept.copy.residuals) {
      const std::uint32_t tensor = residual.key.tensor;
      const bool fits = tensor < tensors.size() && residual.range.end() <= tensors.infos()[tensor].count &&
                        residual.range.end() >= residual.range.offset;
      if (fits && residuals.has({tensor, codec::EncodeSite::local}) && counts(tensor, kept.step.value())) {
        add(residual, step.loss_scale() / kept.copy.loss_scale);
        any = true;
      } else {
        all = false;
      }
    }
    if (any) {
      elastic->note_kept(kept);
    }
    if (had_any) {
      log(LogLevel::warning,
          "of " + elastic->name(kept.who) + ", which ended, " +
              (!kept.step ? "there is no copy of residuals: all that it had yet to send is lost"
                          : "residuals as of step " + std::to_string(*kept.step) +
                                (any && all ? " are kept: what it has dropped since is lost"
                                 : any      ? " are kept of some tensors, those of others were sent "
                                              "since: what it has dropped after that is lost"
                                            : " were sent since: what it has dropped after that is lost")));
    }
  }
  if (!residuals.empty()) {
    for (std::uint32_t tensor = 0; tensor < tensors.size(); ++tensor) {
      residuals.mark_moved(tensor);
    }
  }
  return residuals;
}

void Session::State::adopt(std::unique_ptr<Elastic>&& made) {
  elastic = std::move(made);
  is_elastic = true;
  runner->undo()->remember();
}

std::unique_ptr<Session::State> Session::State::in_world(std::unique_ptr<Elastic>&& elastic, const Policy& policy,
                                                         const SessionOptions& options,
                                                         const session::PartTable& part_table) {
  std::shared_ptr<Transport> transport = elastic->connect();
  auto state = std::make_unique<State>(elastic->runner_over(std::move(transport)), policy, options, part_table);
  state->adopt(std::move(elastic));
  state->elastic->watch([runner = state->runner.get()] {
    runner->abort(ErrorCode::aborted, "the world changes: a rank has ended, or is silent");
  });
  return state;
}

// Not to be mistaken for a plain session from here on: every call throws.
void Session::State::leave(const Error& error) {
  left = true;
  give_up(error, true);
  runner->abort(error.code(), error.what());
  if (elastic) {
    elastic->deny_success(error);
    elastic->end();
  }
  throw Error(error);
}

void Session::State::confirm() {
  checked([&] {
    throw_if_left();
    const std::lock_guard lock(progress.state);
    if (step.in_step()) {
      throw Error(ErrorCode::invalid_argument,
                  "confirm: a step is under way; call it before the first ready() or after finish()");
    }
  });
  try {
    elastic->confirm();
  } catch (const Error& error) {
    leave(error);
  }
}

// The others have gone on without it: none of them makes another world with it.
void Session::State::throw_if_left() {
  if (left) {
    const std::lock_guard lock(progress.state);
    step.faults.throw_if_failed();
    throw Error(ErrorCode::aborted, "the session gave up earlier");
  }
}

WorldChange Session::State::change_world(std::unique_ptr<State>& self, const std::optional<Error>& error) {
  self->throw_if_left();
  try {
    if (!self->elastic->await_change(true)) {
      self->throw_if_left();  // by another thread, meanwhile
      throw Error(error.value());
    }
    enter_world(self);
  } catch (const Error& failure) {
    self->leave(failure);
  }
  return self->elastic->take_change();
}

void Session::State::enter_world(std::unique_ptr<State>& self) {
  for (;;) {
    {
      const std::lock_guard lock(self->progress.wire);
      self->give_up(Error(ErrorCode::aborted, "the world changes"));  // late gradients may be on their way
      self->runner->undo()->undo_step();
    }
    std::unique_ptr<State> fresh = in_world(std::move(self->elastic), self->policy, self->options, self->parts.table());
    fresh->take_over(*self);
    self = std::move(fresh);
    const std::optional<Error> failure = self->teach_newcomers();
    if (!failure) {
      return;
    }
    if (!self->elastic->await_change(true)) {
      throw Error(*failure);
    }
  }
}

void Session::State::tell_of(const WorldChange& change) const {
  const bool none_kept = !elastic->replicates() && runner->held().residual_bytes() > 0;
  log_change(change, step.number(),
             none_kept ? "; what the lost had yet to send is lost: see [elastic] replicate" : "");
  if (elastic->callback) {
    const auto callback = elastic->callback;  // it may set another
    callback(change);
  }
}

StepOutcome Session::State::finish_elastically(std::unique_ptr<State>& self) {
  const std::uint64_t number = self->step.number();  // NOLINT(clang-analyzer-deadcode.DeadStores): read after a throw
  std::optional<Error> failure;
  try {
    return self->finish();
  } catch (const Error& error) {
    if (!may_be_peer_failure(error.code())) {
      self->leave(error);
    }
    failure = error;
  }
  if (self->step.number() != number) {
    return self->last_outcome.value();  // it was delivered; the next step finds that the world is over, on all ranks
  }
  const WorldChange change = change_world(self, failure);
  StepOutcome outcome;
  outcome.step = number;
  outcome.world_changed = outcome.repeat = true;
  self->tell_of(change);
  return outcome;
}

void Session::State::call_elastically(std::unique_ptr<State>& self, const std::function<bool(State&)>& check,
                                      const std::function<void(State&)>& call,
                                      const std::function<void(State&)>& deliver) {
  if (self->tables.in_use()) {  // this call is made again where a rank ends, and does not say so
    throw Error(
        ErrorCode::invalid_argument,
        "between pull() or push() and finish() of a step ranks communicate in that step alone; call broadcast(), "
        "sync_parameters(), reserve(), save(), checkpoint() and set_loss_scale() before pull() and push(), or "
        "after finish()");
  }
  while (check(*self)) {
    std::optional<Error> failure;
    try {
      call(*self);
      self->settle();
      if (self->elastic->commit()) {
        deliver(*self);
        return;
      }
      failure = Error(ErrorCode::aborted, "the world changes");
    } catch (const Error& error) {
      if (!may_be_peer_failure(error.code())) {
        self->leave(error);
      }
      failure = error;
    }
    const WorldChange change = change_world(self, failure);  // replaces the state
    self->tell_of(change);
  }
}

}  // namespace gradwire
