// What stands between the public calls of a session and its engine. Here it is nothing: the world of such a session
// never changes. Calls that depend on whether it does are virtual (elastic/elastic_session.hpp).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/forked.hpp"
#include "gradwire/session.hpp"
#include "session/checkpoint/state_file.hpp"
#include "session/engine.hpp"

namespace gradwire {

struct Session::State {
  explicit State(std::unique_ptr<session::Engine> made) : engine_(std::move(made)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  virtual ~State() = default;

  /// That of the world now.
  [[nodiscard]] session::Engine& engine() noexcept { return *engine_; }
  [[nodiscard]] const session::Engine& engine() const noexcept { return *engine_; }

  [[nodiscard]] virtual int rank() const noexcept { return engine_->runner->info().rank; }
  [[nodiscard]] virtual int world_size() const noexcept { return engine_->runner->info().world_size; }
  /// Whether this process waits to be a rank, and `call` has nothing to do. Else Error(invalid_argument) where a
  /// newcomer would not know of the call.
  [[nodiscard]] virtual bool waits(const char* /*call*/) const { return false; }
  /// Error(invalid_argument) on a process that waits to be a rank.
  virtual void require_rank(const char* /*call*/) const {}
  /// Error(invalid_argument) where a newcomer would not know of this call, or this process is one.
  virtual void require_nobody_comes(const char* /*call*/) const {}

  virtual Ticket ready(TensorId id, const View* gradient, bool zero) {
    return engine_->checked([&] { return engine_->ready(id, gradient, zero); });
  }
  virtual StepOutcome finish() { return engine_->finish(); }
  virtual void broadcast(std::span<const View> values, int root) { engine_->broadcast(values, root); }
  [[nodiscard]] virtual bool share(std::span<const View> parameters) {
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
  /// Before a call of all ranks that late gradients stand in the way of: none is left that could be undone.
  /// `coming_loss_scale`: what the call sets.
  virtual void reduce_late_gradients(const char* /*call*/, std::optional<double> /*coming_loss_scale*/ = {}) {}
  [[nodiscard]] virtual bool pull(std::uint32_t table, std::span<const std::uint64_t> ids, std::span<float> rows) {
    engine_->check_pull(table, ids, rows);
    engine_->checked([&] { engine_->pull(table, ids, rows); });
    return true;
  }
  [[nodiscard]] virtual std::string explain() { return engine_->explain(); }
  virtual void on_world_change(std::function<void(const WorldChange&)> callback);
  virtual void abort(const std::string& why) noexcept { engine_->abort(why); }

  const Home home;

  /// Of save(), checkpoint() and restore(), between steps.
  struct Files {
    std::optional<session::KnownFiles> known;
    std::filesystem::path directory;  // of checkpoints; it holds none of a later step
    std::string restored;             // the name there of the one that this session goes on from
    std::future<void> writing;        // the last one; ends before the session does
  } files;

 protected:
  std::unique_ptr<session::Engine> engine_;
};

/// Makes sessions of what the public constructors do not take.
struct session::Access {
  using State = Session::State;
  [[nodiscard]] static Session make(std::unique_ptr<State> state) { return Session(std::move(state)); }
};

}  // namespace gradwire
