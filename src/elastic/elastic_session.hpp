// A session that goes on without ranks that end, and with those that come: one ordinary engine for each world, and the
// only place that knows of worlds. A step counts once all ranks of its world hold what it delivers: between the two
// halves of finish() they agree on that. Where they do not, the step is undone, the next world gets an engine that
// takes over, and ranks that came get what the others hold.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "elastic/elastic.hpp"
#include "elastic/standing.hpp"
#include "session/session_state.hpp"

namespace gradwire::session {

class ElasticSession final : public Access::State {
 public:
  /// `base`: its policy, options and parts, those of the engine of each world.
  ElasticSession(std::unique_ptr<Elastic> elastic, EngineSettings base);
  ElasticSession(const ElasticSession&) = delete;
  ElasticSession& operator=(const ElasticSession&) = delete;
  ~ElasticSession() override;

  [[nodiscard]] int rank() const noexcept override { return elastic_->waits() ? -1 : State::rank(); }
  [[nodiscard]] int world_size() const noexcept override {
    return elastic_->waits() ? elastic_->full_size() : State::world_size();
  }
  [[nodiscard]] bool waits(const char* call) const override;
  void require_rank(const char* call) const override;
  void require_nobody_comes(const char* call) const override;

  Ticket ready(TensorId id, const View* gradient, bool zero) override;
  StepOutcome finish() override;
  void broadcast(std::span<const View> values, int root) override;
  [[nodiscard]] bool share(std::span<const View> parameters) override;
  void confirm() override;
  void sync_parameters() override;
  void reserve() override;
  void reduce_late_gradients(const char* call, std::optional<double> coming_loss_scale) override;
  [[nodiscard]] bool pull(std::uint32_t table, std::span<const std::uint64_t> ids, std::span<float> rows) override;
  [[nodiscard]] std::string explain() override;
  void on_world_change(std::function<void(const WorldChange&)> callback) override;
  void abort(const std::string& why) noexcept override;

 private:
  // From one world to the next (elastic_session.cpp).
  /// That of the world that counts now. It has no tensors yet.
  [[nodiscard]] std::unique_ptr<Engine> make_engine();
  [[nodiscard]] EngineSettings engine_settings() const;
  /// Waits for the next world and goes on in it; or this rank leaves, with the error.
  WorldChange change_world(const Error& error);
  /// Goes on in the world that counts now, or the next one, until all ranks of one hold the same.
  void enter_world();
  /// What ranks that are left hold of residuals, and of those that are not what others keep. `held`: what sync modes
  /// do. `engine` takes over.
  [[nodiscard]] exchange::ResidualStore residuals_of(Engine& before, Engine& engine, const SavedState& held);
  void tell_of(const WorldChange& change) const;
  /// What the engine's runner changed in this step counts.
  void commit_residuals();
  /// `call` communicates between steps; it is made again in the next world where it did not end on all ranks. `check`
  /// throws what is no reason to leave; false, on all ranks: nothing is left to be done. `deliver` runs once the call
  /// has ended on all ranks.
  void call_in_worlds(
      const std::function<bool()>& check, const std::function<void()>& call,
      const std::function<void()>& deliver = [] {});
  void synchronise();
  /// The others need not wait for this rank.
  [[noreturn]] void leave(const Error& error);
  /// `why` the session ends in the middle of a step.
  void end_among_others(const std::optional<Error>& why) const noexcept;
  /// This process takes no part in the job any more: by leave() or abort().
  void throw_if_left();

  // Ranks that come (elastic_session_joins.cpp).
  void let_in_others(std::span<const View> parameters);
  [[nodiscard]] bool become_rank(std::span<const View> parameters);
  [[nodiscard]] std::string joiner_requirements();
  /// Ranks that came get what the others hold, and rows of tables move. What may be of another rank's end is returned.
  [[nodiscard]] std::optional<Error> teach_newcomers();
  void teach();
  void broadcast_what_is_taught(int teacher);
  /// What it is, beside what sync modes hold: what the caller shares, and parameters that it added.
  [[nodiscard]] std::vector<View> taught() const;
  [[nodiscard]] Standing standing();
  void go_on_from(const Standing& others);
  void reduce_late_gradients_of(std::ptrdiff_t ranks);

  const EngineSettings base_;
  std::function<void(const WorldChange&)> callback_;
  std::atomic<bool> left_ = false;           // no world comes after this one
  std::optional<StepOutcome> last_outcome_;  // of finish()
  std::uint64_t sent_ = 0;                   // the last step that sent residuals: it was not skipped
  std::uint64_t flushed_ = 0;                // the last step that sent all residuals, in this world
  bool syncs_ = false;                       // ranks are in sync_parameters(), or this one makes it with them
  std::optional<double> coming_loss_scale_;  // ranks are in set_loss_scale() with it, and reduce late gradients
  std::unique_ptr<Elastic> elastic_;         // ends before the engine, which it interrupts
};

}  // namespace gradwire::session
