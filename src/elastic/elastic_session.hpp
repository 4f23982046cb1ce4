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
  /// Every engine gets the policy, the options and the parts of `base`.
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
  // Changing the world (elastic_session_worlds.cpp).
  /// Connects to the current world and returns an engine for it, which has no tensors yet.
  [[nodiscard]] std::unique_ptr<Engine> make_engine();
  [[nodiscard]] EngineSettings engine_settings() const;
  /// Ends the engine's communication as soon as its world is over.
  void watch_engine();
  /// Waits for the next world and enters it. If there is none, this rank leaves the job with `error`.
  WorldChange change_world(const Error& error);
  /// Enters the current world, and then the next one, until all ranks of a world hold the same parameters and rows.
  void enter_world();
  /// The residuals of the survivors, plus the copies kept for ranks that ended. `before` is the engine of the last
  /// world, `engine` the one that takes over from it, and `held` what sync modes hand over.
  [[nodiscard]] exchange::ResidualStore residuals_of(Engine& before, Engine& engine, const SavedState& held);
  void tell_of(const WorldChange& change) const;
  /// Makes this step's changes of residuals final, and sends copies of them to another rank where the policy says so.
  void commit_residuals();
  /// Makes a call that communicates between steps. If the world changes before `call` has ended on all ranks, it is
  /// made again in the next world. `check` runs before each attempt: it may throw for bad arguments, which does not end
  /// the session, and returns false, on all ranks alike, if nothing is left to do. `deliver` runs once after success.
  void call_in_worlds(
      const std::function<bool()>& check, const std::function<void()>& call,
      const std::function<void()>& deliver = [] {});
  /// The part of sync_parameters() in which ranks communicate.
  void synchronise();
  /// Tells the other ranks that this one is gone, and throws `error`; every later call throws, too.
  [[noreturn]] void leave(const Error& error);
  /// Says goodbye when the session is destroyed. `why` is set if that happens in the middle of a step.
  void end_among_others(const std::optional<Error>& why) const noexcept;
  /// Throws if this process has left the job by leave() or abort().
  void throw_if_left();

  // Admitting new ranks (elastic_session_joins.cpp).
  void let_in_others(std::span<const View> parameters);
  [[nodiscard]] bool become_rank(std::span<const View> parameters);
  [[nodiscard]] std::string joiner_requirements();
  /// Sends new ranks what the others hold, and moves rows of tables. Returns the error if a rank may have ended
  /// meanwhile.
  [[nodiscard]] std::optional<Error> teach_newcomers();
  void teach() REQUIRES(engine_->progress.wire);
  void broadcast_what_is_taught(int teacher) REQUIRES(engine_->progress.wire);
  /// The memory that a new rank receives: what the caller shared, and the parameters that it added.
  [[nodiscard]] std::vector<View> taught() const;
  [[nodiscard]] Standing standing() REQUIRES(engine_->progress.wire);
  void go_on_from(const Standing& others) REQUIRES(engine_->progress.wire);
  void reduce_late_gradients_of(std::ptrdiff_t ranks) REQUIRES(engine_->progress.wire);

  const EngineSettings base_;
  std::function<void(const WorldChange&)> callback_;
  std::atomic<bool> left_ = false;  // this process takes no part in the job any more
  std::uint64_t sent_ = 0;          // the last step that was not skipped, and so sent residuals
  std::uint64_t flushed_ = 0;       // the last step of this world that sent all residuals
  bool syncs_ = false;              // ranks are in sync_parameters(); a new rank then takes part in it
  // The argument of set_loss_scale() while ranks reduce late gradients inside that call.
  std::optional<double> coming_loss_scale_;
  std::unique_ptr<Elastic> elastic_;  // destroyed before the engine, which its thread may interrupt
};

}  // namespace gradwire::session
