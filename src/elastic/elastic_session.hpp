// A session that goes on without ranks that end, and with ranks that join. It has one ordinary engine for each world
// and is the only place that knows of worlds. A step counts once all ranks of its world hold what it delivers: they
// agree on that between the two halves of finish(). If they do not agree, the step is undone, the engine of the next
// world takes over, and new ranks receive what the others hold.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "elastic/elastic.hpp"
#include "elastic/newcomers.hpp"
#include "elastic/surviving_residuals.hpp"
#include "session/calls/session_state.hpp"

namespace gradwire::session {

class ElasticSession final : public Access::State {
 public:
  /// Every engine gets the policy, the options and the parts of `base`.
  ElasticSession(std::unique_ptr<Elastic> elastic, EngineSettings base);
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
  /// Returns an engine for the current world, which has no tensors yet.
  [[nodiscard]] std::unique_ptr<Engine> make_engine(std::shared_ptr<Transport> transport);
  /// Ends the engine's communication as soon as its world is over.
  void watch_engine();
  /// Waits for the next world and enters it. If there is none, this rank leaves the job with `error`.
  WorldChange change_world(const Error& error);
  /// Enters the current world, and then the next one, until all ranks of a world hold the same parameters and rows.
  void enter_world();
  void report_change(const WorldChange& change) const;
  /// Makes a call that communicates between steps. If the world changes before `call` has ended on all ranks, it is
  /// made again in the next world. `check` runs before each attempt: it may throw for bad arguments, which does not end
  /// the session, and returns false, on all ranks alike, if nothing is left to do. `deliver` runs once after success.
  void call_in_worlds(
      const std::function<bool()>& check, const std::function<void()>& call,
      const std::function<void()>& deliver = [] {});
  /// The part of sync_parameters() in which ranks communicate.
  void synchronise();
  /// Waits for a place in the world. Returns whether this process has become a rank.
  [[nodiscard]] bool become_rank(std::span<const View> parameters);
  /// Tells the other ranks that this one is gone, and throws `error`; every later call throws, too.
  [[noreturn]] void leave(const Error& error);
  /// leave(), unless `error` tells that a peer or the whole world has ended, after which another world may come.
  void leave_unless_world_ended(const Error& error);
  /// Throws if this process has left the job by leave() or abort().
  void throw_if_left();

  const EngineSettings base_;
  std::function<void(const WorldChange&)> callback_;
  std::atomic<bool> left_ = false;    // this process takes no part in the job any more
  std::unique_ptr<Elastic> elastic_;  // destroyed before the engine, which its thread may interrupt
  SurvivingResiduals residuals_;
  Newcomers newcomers_;
};

}  // namespace gradwire::session
