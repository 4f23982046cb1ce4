// An engine is the session of one world. It consists of the state that its pieces share (core.hpp), of one class for
// each of its tasks (communication, the end of a step, a device), and of the public calls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "session/engine/coming_steps.hpp"
#include "session/engine/communication.hpp"
#include "session/engine/core.hpp"
#include "session/engine/device_side.hpp"
#include "session/engine/step_end.hpp"
#include "session/state/state_file.hpp"

namespace gradwire::session {

struct Engine final : Core {
  Engine(std::unique_ptr<Runner> r, EngineSettings given);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  /// Calls end() unless the caller did.
  ~Engine();

  DeviceSide device{*this};
  ComingSteps coming{*this};
  Communication communication{*this, coming};
  StepEnd step_end{*this, coming, device};

  // The public interface calls these.
  TensorId add(const std::string& name, const View& gradient, std::vector<View> beside, std::uint32_t ndim,
               std::span<const float> scale = {});
  Ticket ready(TensorId id, const View* gradient, bool zero);
  [[nodiscard]] bool done(const Ticket& ticket);
  void wait(const Ticket& ticket);
  StepOutcome finish() { return step_end.commit(step_end.prepare()); }
  void broadcast(std::span<const View> values, int root);
  /// The caller must call count_what_travelled() afterwards, once all ranks are known to have finished this.
  void sync_parameters();
  void count_what_travelled();
  void abort(const std::string& why) noexcept;
  void set_loss_scale(double scale);
  void reserve();
  /// Stops the progress thread. If a step is unfinished or a call has failed, it tells the other ranks, and returns
  /// what it told them. It waits for gradients that are reduced in the background. Where steps can be undone, these
  /// count as an unfinished step instead, because other ranks may go on without them.
  std::optional<Error> end() noexcept;

  /// Returns the state that save() writes.
  [[nodiscard]] SavedState saved_state() REQUIRES(progress.wire);
  /// Continues from `saved`, which is one state if the world has the same size, else the states of all ranks. `source`
  /// is for messages.
  void restore(const std::vector<SavedState>& saved, const std::string& source) REQUIRES(progress.wire);
  /// Returns where residuals are to be read to before restore(): those that the policy keeps in a file are never in
  /// memory all at once. The files are the coming steps' own.
  [[nodiscard]] ResidualSpills residual_spills() REQUIRES(progress.wire);

  /// Continues between steps from `state`, with these terms and residuals. There is a plan already.
  void go_on_from(const SavedState& state, const SavedTerms& terms, exchange::ResidualStore residuals)
      REQUIRES(progress.wire, progress.state);

  // The wrapper that makes one engine for each world calls these, too.
  /// Abandons the step, and any other communication, with the error `why`, and restores the residuals of the last
  /// commit. Afterwards only the take_over() of another engine may follow.
  void undo(const Error& why);
  /// Continues from `before`, the engine of the same session in the previous world, after its undo(): with its tensors
  /// and parts, at the step that was not committed. `residuals` returns the residuals to start with; it gets the state
  /// that the sync modes hand over. Takes the locks of both engines.
  void take_over(Engine& before, const std::function<exchange::ResidualStore(const SavedState& held)>& residuals);
  /// Lets `enqueue` hand work to the background between two steps, and waits for that work. `enqueue` gets the number
  /// of the coming step and returns whether there is something to wait for.
  void travel_between_steps(const char* call, const std::function<bool(std::uint64_t)>& enqueue);

 private:
  void refuse_rows(const TensorInfo& tensor) const;
  void stop_if_gradients_are_gone();

  bool is_over_ = false;  // end() was called
};

}  // namespace gradwire::session
