// The residuals that error feedback keeps for a session over host memory, and their changes in a step.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "exchange/residuals/residual_store.hpp"
#include "session/runner/runner.hpp"

namespace gradwire::session {

class HostResiduals final : public HeldByRunner, public StepUndo {
 public:
  [[nodiscard]] exchange::ResidualStore& store() noexcept { return store_; }
  [[nodiscard]] const exchange::ResidualStore& store() const noexcept { return store_; }

  [[nodiscard]] std::vector<SavedResidual> save_residuals(const plan::Plan& /*plan*/) override;
  void hand_over(const plan::Plan& /*plan*/, const std::function<void(const SavedResidual&)>& body) override;
  void load_residuals(exchange::ResidualStore residuals, const plan::Plan& /*plan*/) override {
    store_ = std::move(residuals);
    if (remembers_) {
      store_.remember();
    }
  }
  [[nodiscard]] exchange::ResidualStore empty_store(exchange::ResidualForm form) override {
    return store_.empty_beside(std::move(form));
  }
  void scale_residuals(float factor) override { store_.multiply(factor); }
  [[nodiscard]] std::uint64_t residual_bytes() override { return store_.bytes(); }
  [[nodiscard]] std::vector<memory::Block*> blocks() override { return store_.blocks(); }

  void remember() override {
    remembers_ = true;
    store_.remember();
  }
  void prepare_commit() override { store_.prepare_commit(); }
  void commit() override { store_.commit(); }
  void undo_step() override { store_.undo(); }

 private:
  exchange::ResidualStore store_;
  bool remembers_ = false;
};

}  // namespace gradwire::session
