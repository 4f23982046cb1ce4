// What travels beside the steps: when buckets are enqueued, what finish() waits for, how the background ends.
#include <string>
#include <utility>

#include "session/engine.hpp"
#include "session/parts/sync_modes/sync_modes_part.hpp"

namespace gradwire {

session::SyncModes* session::Engine::modes() const {
  auto* part = parts.find<session::SyncModesPart>();
  return part != nullptr ? &part->modes() : nullptr;
}

bool session::Engine::enqueue(const plan::Bucket& bucket, const session::StepInfo& info) {
  session::Background* background = parts.background();
  if (background == nullptr) {
    return false;
  }
  background->before_bucket(info.step);
  if (!background->enqueue(bucket, info, settled_step().number(), settled_step().loss_scale())) {
    return false;
  }
  const MutexLock lock(progress.state);
  note_arrival(bucket.id);
  return true;
}

void session::Engine::note_arrival(std::uint32_t bucket) {
  if (step.under_way(bucket) && parts.background()->arrived(bucket)) {
    step.bucket_ended(bucket, false);
    progress.changed();
  }
}

void session::Engine::progress_background() {
  {
    const MutexLock lock(progress.state);
    step.faults.stop_if_failed();  // what is under way has been given up then, and would never end
  }
  parts.background()->start(*runner);
  for (const session::Runner::Ended& ended : runner->advance(std::chrono::milliseconds(1))) {
    parts.background()->ended(ended);
  }
}

void session::Engine::end_what_travels() {
  while (parts.background()->busy()) {
    progress_background();
  }
}

void session::Engine::drain(const char* call) {
  {
    const MutexLock lock(progress.state);
    throw_if_failed();
    step.require_between(call);
    if (!in_background()) {
      return;
    }
  }
  progress.require_communication(call);
  or_give_up([this] {
    progress.wire.assert_held();
    end_what_travels();
  });
}

void session::Engine::end_background() noexcept {
  try {
    const auto busy = [this] {
      const MutexLock lock(progress.state);
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
    const MutexLock lock(progress.wire);
    while (busy()) {
      communicate(std::chrono::milliseconds(1), false);
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): communicate() has told the other ranks
  }
}

// In finish(): nobody else changes the step then.
bool session::Engine::deliver() {
  double scale = 1;
  {
    const MutexLock lock(progress.state);
    if (parts.background() == nullptr || step.outcome().skipped) {
      return false;
    }
    scale = step.loss_scale();
  }
  return parts.background()->deliver(scale);
}

void session::Engine::travel_between_steps(const char* call, const std::function<bool(std::uint64_t)>& enqueue) {
  progress.require_communication(call);
  std::uint64_t now = 0;
  bool with_weights = false;
  {
    const MutexLock lock(progress.state);
    step.faults.throw_if_failed();
    step.require_between(call);
    make_plan();
    now = step.number();
    with_weights = step.is_to_be_weighted();
  }
  if (modes() == nullptr) {
    return;
  }
  on_wire([&] {
    progress.wire.assert_held();
    agree_on_plan(with_weights);
    if (enqueue(now) || settings.undoable) {  // late gradients too, since they count behind it
      end_what_travels();
    }
  });
}

void session::Engine::sync_parameters() {
  travel_between_steps("sync_parameters", [this](std::uint64_t now) { return modes()->enqueue_all_parameters(now); });
}

void session::Engine::count_what_travelled() {
  const MutexLock lock(progress.wire);
  if (settings.undoable) {
    runner->undo()->commit();
  }
  if (session::SyncModes* travelled = modes()) {
    travelled->released_count(settled_step().number());
    (void)travelled->deliver({}, 1);
  }
}

std::vector<View> session::Engine::comparable_results() const {
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
