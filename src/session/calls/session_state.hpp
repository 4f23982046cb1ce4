// Session::State stands between the public calls of a session and its engine. This base class only forwards, since the
// world of a plain session never changes. ElasticSession overrides the calls for which a change of world matters.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/forked.hpp"
#include "gradwire/session.hpp"
#include "session/calls/gradient_recording.hpp"
#include "session/engine/engine.hpp"
#include "session/engine/session_reports.hpp"
#include "session/state/saved_state.hpp"

namespace gradwire {

struct Session::State {
  explicit State(std::unique_ptr<session::Engine> made) : engine_(std::move(made)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  /// Releases the transport before it waits for a checkpoint that is being written.
  virtual ~State();

  /// The engine of the current world.
  [[nodiscard]] session::Engine& engine() noexcept { return *engine_; }
  [[nodiscard]] const session::Engine& engine() const noexcept { return *engine_; }

  [[nodiscard]] virtual int rank() const noexcept { return engine_->runner->info().rank; }
  [[nodiscard]] virtual int world_size() const noexcept { return engine_->runner->info().world_size; }
  /// Whether this process still waits to become a rank, so that `call` has nothing to do. Throws
  /// Error(invalid_argument) if ranks may join that would not know of this call.
  [[nodiscard]] virtual bool waits(const char* /*call*/) const { return false; }
  /// Throws Error(invalid_argument) on a process that waits to become a rank.
  virtual void require_rank(const char* /*call*/) const {}
  /// Throws Error(invalid_argument) if ranks may join that would not know of this call, or if this process is one.
  virtual void require_nobody_comes(const char* /*call*/) const {}

  virtual Ticket ready(TensorId id, const View* gradient, bool zero) {
    return engine_->checked([&] { return engine_->ready(id, gradient, zero); });
  }
  virtual StepOutcome finish() { return engine_->finish(); }
  virtual void broadcast(std::span<const View> values, int root) { engine_->broadcast(values, root); }
  [[nodiscard]] virtual bool share(std::span<const View> parameters) {
    check_shared(parameters);
    broadcast(parameters, 0);
    return true;
  }
  virtual void confirm() {}
  virtual void sync_parameters() {
    engine_->checked([&] { engine_->sync_parameters(); });
    engine_->count_what_travelled();
  }
  virtual void reserve() {
    engine_->checked([&] { engine_->reserve(); });
  }
  /// Reduces late gradients whose step could still be undone, because `call` cannot run while there are any.
  /// `coming_loss_scale` is the loss scale that `call` is about to set.
  virtual void reduce_late_gradients(const char* /*call*/, std::optional<double> /*coming_loss_scale*/ = {}) {}
  [[nodiscard]] virtual bool pull(std::uint32_t table, std::span<const std::uint64_t> ids, std::span<float> rows);
  [[nodiscard]] virtual std::string explain() { return session::explain(*engine_); }
  virtual void on_world_change(std::function<void(const WorldChange&)> callback);
  virtual void abort(const std::string& why) noexcept { engine_->abort(why); }

  const Home home;
  std::unique_ptr<session::GradientRecording> recording;  // none: nothing is recorded; changes between steps

 protected:
  /// Throws Error(invalid_argument) for a parameter without data, or in the wrong memory.
  void check_shared(std::span<const View> parameters);

  std::shared_future<void> writing_;  // set by the destructor: the checkpoint whose writing outlives the engine
  std::unique_ptr<session::Engine> engine_;
};

namespace session {
class Checkpoints;

/// Returns the part that knows the session's files. Throws Error(unsupported) for a session without that part.
[[nodiscard]] Checkpoints& files_of(const Engine& engine);
}  // namespace session

/// Gives the rest of the library access to the private constructor of Session.
struct session::Access {
  using State = Session::State;
  [[nodiscard]] static Session make(std::unique_ptr<State> state) { return Session(std::move(state)); }
  /// Does what Session::load(directory) does, with states that the caller has read already: this rank's own one, if the
  /// world had the same size, or those of all its ranks, in their order. The session must have no tables. `source`
  /// names the states in messages.
  static void load(Session& session, const std::vector<session::SavedState>& states, const std::string& source);
};

namespace session {

/// Frees rows that were read from files and that no load() took, as after an error.
class UnusedRows {
 public:
  explicit UnusedRows(Access::State& state) : state_(state) {}
  ~UnusedRows() { state_.engine().parts.forget_rows(); }
  UnusedRows(const UnusedRows&) = delete;
  UnusedRows& operator=(const UnusedRows&) = delete;

 private:
  Access::State& state_;
};

}  // namespace session
}  // namespace gradwire
