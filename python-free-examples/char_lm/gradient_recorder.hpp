// Writes gradients of a training to a file (--save-gradients).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "gradient_dump.hpp"
#include "model.hpp"
#include "training.hpp"

namespace char_lm {

/// Captures this rank's gradients, before they are reduced, at three points of training.
class GradientRecorder {
 public:
  GradientRecorder(const TrainingOptions& options, int rank) : steps_(options.steps) {
    if (rank == 0 && !options.save_gradients.empty()) {
      writer_ = std::make_unique<gradient_dump::Writer>(options.save_gradients);
    }
  }

  /// Returns whether this rank records in this step. The other ranks need not know it.
  [[nodiscard]] bool wants(int done) const { return writer_ && point_ < kPoints && done >= step_of(point_); }

  void record(const Transformer& model) {
    for (const auto& item : model->named_parameters()) {
      const torch::Tensor gradient = item.value().grad().contiguous();
      writer_->add(item.key(), point_, {gradient.data_ptr<float>(), static_cast<std::size_t>(gradient.numel())});
    }
    writer_->flush();
    ++point_;
  }

 private:
  // The points are after a tenth of the steps, in the middle and at the end.
  [[nodiscard]] int step_of(std::uint32_t point) const {
    if (point == 0) {
      return steps_ / 10;
    }
    return point == 1 ? steps_ / 2 : steps_ - 1;
  }

  static constexpr std::uint32_t kPoints = 3;  // early, middle and late in training
  int steps_;
  std::uint32_t point_ = 0;
  std::unique_ptr<gradient_dump::Writer> writer_;
};

}  // namespace char_lm
