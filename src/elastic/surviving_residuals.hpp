// What is kept of residuals where the world changes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "elastic/elastic.hpp"
#include "exchange/residuals/residual_store.hpp"
#include "session/engine/engine.hpp"

namespace gradwire::session {

/// Only the thread that makes steps uses it.
class SurvivingResiduals {
 public:
  SurvivingResiduals(Elastic& elastic, Reduction reduction) : elastic_(elastic), reduction_(reduction) {}

  /// Does the part of commit() that may fail, before the step counts.
  void prepare_commit(Engine& engine);
  /// Makes this step's changes of residuals final, and sends copies of them to another rank where the policy says so.
  void commit(Engine& engine);
  /// Returns the residuals of the survivors, plus the copies kept for ranks that ended. `before` is the engine of the
  /// last world, which gives its residuals away, `engine` the one that takes over from it, and `held` the values that
  /// sync modes hand over.
  [[nodiscard]] exchange::ResidualStore of(Engine& before, Engine& engine, const SavedState& held);
  /// A world begins, whose first step is `step`.
  void enter(std::uint64_t step) {
    sent_ = std::max<std::uint64_t>(step, 1) - 1;
    flushed_ = 0;
  }

 private:
  Elastic& elastic_;
  const Reduction reduction_;
  std::uint64_t sent_ = 0;     // the last step that was not skipped, and so sent residuals
  std::uint64_t flushed_ = 0;  // the last step of this world that sent all residuals
};

}  // namespace gradwire::session
