// What travels beside the steps: when buckets are enqueued, what finish() waits for, how the background ends.
#include <string>
#include <utility>

#include "session/parts/sync_modes/sync_modes_part.hpp"
#include "session/session_state.hpp"

namespace gradwire {

session::SyncModes* Session::State::modes() const {
  auto* part = parts.find<session::SyncModesPart>();
  return part != nullptr ? &part->modes() : nullptr;
}

bool Session::State::enqueue(const plan::Bucket& bucket, const session::StepInfo& info) {
  session::Background* background = parts.background();
  if (background == nullptr) {
    return false;
  }
  background->before_bucket(info.step);
  if (!background->enqueue(bucket, info, step.number(), step.loss_scale())) {
    return false;
  }
  const std::lock_guard lock(progress.state);
  note_arrival(bucket.id);
  return true;
}

void Session::State::note_arrival(std::uint32_t bucket) {
  if (step.under_way(bucket) && parts.background()->arrived(bucket)) {
    step.bucket_ended(bucket, false);
    progress.changed();
  }
}

void Session::State::progress_background() {
  {
    const std::lock_guard lock(progress.state);
    step.faults.stop_if_failed();  // what is under way has been given up then, and would never end
  }
  parts.background()->start(*runner);
  for (const session::Runner::Ended& ended : runner->advance(std::chrono::milliseconds(1))) {
    parts.background()->ended(ended);
  }
}

void Session::State::end_what_travels() {
  while (parts.background()->busy()) {
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
    if (parts.background() == nullptr || step.outcome().skipped) {
      return false;
    }
    scale = step.loss_scale();
  }
  return parts.background()->deliver(scale);
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
  if (parts.background() == nullptr) {
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
  travel_between_steps("sync_parameters", [this](std::uint64_t now) { return modes()->enqueue_all_parameters(now); });
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
  if (session::SyncModes* travelled = modes()) {
    travelled->released_count(step.number());
    (void)travelled->deliver({}, 1);
  }
}

void Session::State::reduce_late_gradients(std::unique_ptr<State>& self, const char* call,
                                           std::optional<double> coming_loss_scale) {
  if (!self->elastic) {
    return;
  }
  const auto are_left = [&](State& state) {  // none where newcomers have come meanwhile: they know of no such call
    if (state.modes() == nullptr || !state.modes()->has_uncounted()) {
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
        state.modes()->release_all();
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
  modes()->release_all(weight);
  end_what_travels();
}

std::vector<View> Session::State::comparable_results() const {
  if (parts.background() != nullptr) {
    return parts.background()->comparable(step.number());
  }
  std::vector<View> results;
  for (const session::TensorMemory& memory : tensors.memory()) {
    results.push_back(memory.gradient);
  }
  return results;
}

}  // namespace gradwire
