// A small character-level transformer: embedding, pre-norm blocks of causal attention and MLP, linear head.
// Parameters are registered in the order in which the forward pass uses them.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>

namespace char_lm {

struct ModelOptions {
  std::int64_t vocabulary = 0;
  std::int64_t context = 64;  // characters that one prediction may use
  std::int64_t width = 256;
  std::int64_t heads = 4;
  std::int64_t layers = 2;
};

class TransformerImpl : public torch::nn::Module {
 public:
  explicit TransformerImpl(const ModelOptions& options);

  /// Returns the mean cross entropy (nats per character) of predicting `targets` from `inputs`, both [batch, context]
  /// int64.
  torch::Tensor loss(const torch::Tensor& inputs, const torch::Tensor& targets);

 private:
  torch::nn::Embedding embed_{nullptr};
  torch::Tensor position_;
  torch::nn::ModuleList blocks_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear head_{nullptr};
};
TORCH_MODULE(Transformer);

}  // namespace char_lm
