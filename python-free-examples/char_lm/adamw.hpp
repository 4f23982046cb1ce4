// AdamW (Loshchilov and Hutter, 2019) whose second moment can be frozen. Top-k and codecs below four bits deliver a
// gradient in rare, large portions; their squares inflate the second moment and with it shrink every later step.
// Freezing it after some steps with dense gradients avoids that (as 1-bit Adam does: Tang et al., 2021).
#pragma once

#include <torch/types.h>

#include <vector>

namespace char_lm {

struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.98;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;
};

class AdamW {
 public:
  /// Dense f32 parameters on the CPU; their .grad() must be there at each step.
  AdamW(std::vector<torch::Tensor> parameters, const AdamWOptions& options);

  void set_learning_rate(double rate) { options_.learning_rate = rate; }
  /// From now on the second moment stays what it is.
  void freeze_second_moment() { frozen_ = true; }
  void step();
  void zero_grad();

 private:
  AdamWOptions options_;
  std::vector<torch::Tensor> parameters_;
  std::vector<std::vector<float>> first_;
  std::vector<std::vector<float>> second_;
  double beta1_power_ = 1;
  double beta2_power_ = 1;
  bool frozen_ = false;
};

}  // namespace char_lm
