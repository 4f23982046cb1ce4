// How a waiting process becomes a rank: what it tells the ranks before, and what it receives from them.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "elastic/elastic.hpp"
#include "elastic/standing.hpp"
#include "session/engine/engine.hpp"

namespace gradwire::session {

/// Only the thread that makes steps uses this class.
class Newcomers {
 public:
  /// `engine` refers to the engine of the current world, whichever that is.
  Newcomers(const std::unique_ptr<Engine>& engine, Elastic& elastic, const EngineSettings& base)
      : engine_(engine), elastic_(&elastic), base_(base) {}

  /// The call that ranks are in while the world changes. A new rank takes part in it.
  struct CallUnderWay {
    bool syncs = false;                       // sync_parameters()
    std::optional<double> coming_loss_scale;  // set_loss_scale() with this argument, which reduces late gradients
  } under_way;

  /// Sets what a new rank receives: `parameters` of all ranks, and those that the caller added with their gradients.
  void share(std::span<const View> parameters) { shared_.assign(parameters.begin(), parameters.end()); }
  /// Others may become ranks from here on, if this job expects any.
  void let_in(std::span<const View> parameters);
  [[nodiscard]] bool are_let_in() const noexcept { return lets_in_; }
  /// What a waiting process must have in common with the ranks.
  [[nodiscard]] std::string joiner_requirements();
  /// Sends new ranks the state that the others hold, and moves rows of tables. Returns the error if a rank may have
  /// ended meanwhile.
  [[nodiscard]] std::optional<Error> teach();

 private:
  void send_state() REQUIRES(engine_->progress.wire);
  void broadcast_memory(int teacher) REQUIRES(engine_->progress.wire);
  /// The memory that a new rank receives.
  [[nodiscard]] std::vector<View> memory_to_send() const;
  [[nodiscard]] Standing standing() REQUIRES(engine_->progress.wire);
  void resume_from(const Standing& others) REQUIRES(engine_->progress.wire);
  void reduce_late_gradients_of(std::ptrdiff_t ranks) REQUIRES(engine_->progress.wire);

  const std::unique_ptr<Engine>& engine_;
  Elastic* const elastic_;
  const EngineSettings& base_;
  std::vector<View> shared_;
  bool lets_in_ = false;
};

}  // namespace gradwire::session
