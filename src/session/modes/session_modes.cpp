// A session's part of sync modes: when buckets are enqueued, what finish() waits for, how the background ends.
#include <string>
#include <utility>

#include "policy/sync.hpp"
#include "session/agreements.hpp"
#include "session/session_state.hpp"

namespace gradwire {

void Session::State::make_modes() {
  if (!runner->info().background) {
    throw Error(ErrorCode::unsupported,
                "policy " + policy.source +
                    ": over device memory there is no sync but \"step\" yet; write sync = \"step\" or remove it");
  }
  auto made = std::make_unique<session::SyncModes>(*plan, step.modes(), tensors.parameters(), elastic != nullptr);
  if (step.loss_scale_set() && made->has_outer()) {
    throw no_scale_under_outer();
  }
  modes = std::move(made);
}

Error Session::State::no_scale_under_outer() {
  return {
      ErrorCode::unsupported,
      "set_loss_scale: residuals of parameter changes have no loss scale; unscale gradients before the optimizer, or "
      "leave outer out of sync"};
}

// Each rank goes on from its own copy of what the ranks are said to have agreed on.
void Session::State::agree_on_outer(std::uint64_t now) {
  if (!modes || !modes->has_outer() || (agreed_on_outer && !modes->begins_outer(now))) {
    return;
  }
  const auto hashes = runner->peers().all_gather(std::to_string(modes->outer_hash()), "the agreement on parameters");
  for (std::size_t rank = 1; rank < hashes.size(); ++rank) {
    if (hashes[rank] != hashes[0]) {
      throw Error(ErrorCode::mismatch, "parameters of tensors under sync with outer differ between ranks 0 and " +
                                           std::to_string(rank) +
                                           " before the first local step; broadcast() them, or load the same state");
    }
  }
  modes->drop_anchors(now);
  agreed_on_outer = true;
}

bool Session::State::enqueue(const plan::Bucket& bucket, session::StepInfo& info) {
  if (!modes || !modes->enqueue(bucket, tensors.memory(), info, step.number(), step.loss_scale())) {
    return false;
  }
  const std::lock_guard lock(progress.state);
  note_arrival(bucket.id);
  return true;
}

void Session::State::note_arrival(std::uint32_t bucket) {
  if (step.under_way(bucket) && modes->arrived(bucket)) {
    step.bucket_ended(bucket, false);
    progress.changed();
  }
}

void Session::State::progress_background() {
  {
    const std::lock_guard lock(progress.state);
    step.faults.stop_if_failed();  // what is under way has been given up then, and would never end
  }
  modes->start(*runner);
  for (const session::Runner::Ended& ended : runner->advance(std::chrono::milliseconds(1))) {
    modes->ended(ended);
  }
}

void Session::State::end_what_travels() {
  while (modes->busy()) {
    progress_background();
  }
}

void Session::State::drain(const char* call) {
  {
    const std::lock_guard lock(progress.state);
    throw_if_failed();
    step.require_between(call);
    if (!in_background()) {
      return;
    }
  }
  progress.require_communication(call);
  or_give_up([this] { end_what_travels(); });
}

void Session::State::end_background() noexcept {
  try {
    const auto busy = [this] {
      const std::lock_guard lock(progress.state);
      return in_background();
    };
    if (progress.background() || !busy()) {
      return;  // the progress thread sees to it
    }
    if (!progress.may_communicate()) {
      runner->abort(ErrorCode::aborted,
                    "session destroyed with reductions in the background, on a thread that may not communicate");
      return;
    }
    const std::lock_guard lock(progress.wire);
    while (busy()) {
      communicate(std::chrono::milliseconds(1), false);
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): communicate() has told the other ranks
  }
}

// In finish(): nobody else changes the step then.
bool Session::State::deliver() {
  double scale = 1;
  {
    const std::lock_guard lock(progress.state);
    if (!modes || step.outcome().skipped) {
      return false;
    }
    scale = step.loss_scale();
  }
  return modes->deliver(tensors.memory(), scale);
}

void Session::State::travel_between_steps(const char* call, const std::function<bool(std::uint64_t)>& enqueue) {
  progress.require_communication(call);
  std::uint64_t now = 0;
  bool with_weights = false;
  {
    const std::lock_guard lock(progress.state);
    step.faults.throw_if_failed();
    step.require_between(call);
    make_plan();
    now = step.number();
    with_weights = step.is_to_be_weighted();
  }
  if (!modes) {
    return;
  }
  on_wire([&] {
    agree_on_plan(with_weights);
    if (enqueue(now) || elastic) {  // late gradients too, since they count behind it
      end_what_travels();
    }
  });
}

void Session::State::sync_parameters() {
  travel_between_steps("sync_parameters", [this](std::uint64_t now) { return modes->enqueue_all_parameters(now); });
}

void Session::State::sync_elastically(std::unique_ptr<State>& self) {
  call_elastically(
      self, [](State& state) { return state.syncs = true; },
      [](State& state) { state.checked([&] { state.sync_parameters(); }); },
      [](State& state) {
        state.count_what_travelled();
        state.syncs = false;
      });
}

void Session::State::count_what_travelled() {
  const std::lock_guard lock(progress.wire);
  if (elastic) {
    runner->undo()->commit();
  }
  if (modes) {
    modes->released_count(step.number());
    (void)modes->deliver({}, 1);
  }
}

void Session::State::reduce_late_gradients(std::unique_ptr<State>& self, const char* call,
                                           std::optional<double> coming_loss_scale) {
  if (!self->elastic) {
    return;
  }
  const auto are_left = [&](State& state) {  // none where newcomers have come meanwhile: they know of no such call
    if (!state.modes || !state.modes->has_uncounted()) {
      return false;
    }
    state.progress.require_communication(call);
    const std::lock_guard lock(state.progress.state);
    state.step.require_between(call);
    return true;
  };
  const auto reduce = [call, coming_loss_scale](State& state) {
    state.coming_loss_scale = coming_loss_scale;
    state.checked([&] {
      state.travel_between_steps(call, [&](std::uint64_t /*now*/) {
        state.modes->release_all();
        return true;
      });
    });
  };
  if (are_left(*self)) {
    call_elastically(self, are_left, reduce, [](State& state) { state.count_what_travelled(); });
    self->coming_loss_scale.reset();
  }
}

// In a world with newcomers, before these hold what the others do: nothing is left of which they have no gradient. A
// late mean is that of the `ranks` that have one. Their weights sum to the size of the world, by which residuals count.
// The caller holds `wire`.
void Session::State::reduce_late_gradients_of(std::ptrdiff_t ranks) {
  bool with_weights = false;
  {
    const std::lock_guard lock(progress.state);
    with_weights = step.is_to_be_weighted();
  }
  agree_on_plan(with_weights);
  std::optional<double> weight;
  if (options.reduction == Reduction::mean) {
    weight = elastic->holds() ? static_cast<double>(runner->info().world_size) / static_cast<double>(ranks) : 0.0;
  }
  modes->release_all(weight);
  end_what_travels();
}

std::vector<View> Session::State::comparable_results() const {
  std::vector<View> results;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const plan::Bucket& bucket = plan->buckets[plan->tensors[i].bucket];
    if (bucket.sync.mode != Sync::Mode::every || !step.modes().active(bucket.id, step.number())) {
      results.push_back(tensors.memory()[i].gradient);
    } else if (modes->synced(bucket.id)) {
      results.push_back(tensors.parameters()[i][0]);
    }
  }
  return results;
}

}  // namespace gradwire
