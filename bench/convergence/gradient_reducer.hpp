// Averages gradients over ranks: through a session, or below the policy layer.
#pragma once

#include <cstdint>
#include <memory>

#include "bench/convergence/training.hpp"
#include "gradwire/statistics.hpp"
#include "gradwire/transport.hpp"

namespace gradwire::convergence {

class GradientReducer {
 public:
  GradientReducer() = default;
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;
  virtual ~GradientReducer() = default;

  /// Replaces the model's gradients by their mean over ranks.
  virtual void reduce() = 0;
  [[nodiscard]] virtual Statistics statistics() const = 0;
  [[nodiscard]] virtual std::uint64_t residual_bytes() = 0;
};

/// `model` must outlive the reducer.
[[nodiscard]] std::unique_ptr<GradientReducer> make_reducer(const Reducing& reducing,
                                                            std::shared_ptr<Transport> transport, Mlp& model);

}  // namespace gradwire::convergence
