#include "model.hpp"

#include <torch/nn/functional/loss.h>
#include <torch/nn/init.h>

#include <cmath>
#include <limits>

namespace char_lm {
namespace nn = torch::nn;
namespace {

class BlockImpl : public nn::Module {
 public:
  BlockImpl(const ModelOptions& options) : heads_(options.heads) {
    const std::int64_t width = options.width;
    attention_norm_ = register_module("attention_norm", nn::LayerNorm(nn::LayerNormOptions({width})));
    qkv_ = register_module("qkv", nn::Linear(width, 3 * width));
    attention_out_ = register_module("attention_out", nn::Linear(width, width));
    mlp_norm_ = register_module("mlp_norm", nn::LayerNorm(nn::LayerNormOptions({width})));
    mlp_in_ = register_module("mlp_in", nn::Linear(width, 4 * width));
    mlp_out_ = register_module("mlp_out", nn::Linear(4 * width, width));
    const float infinity = std::numeric_limits<float>::infinity();
    // The mask is not a registered buffer, since it is the same on every rank by construction.
    mask_ = torch::full({options.context, options.context}, -infinity).triu(1);
    // Each block's contribution to the residual stream starts small; it is smaller if there are more blocks.
    const double scale = 0.02 / std::sqrt(2.0 * static_cast<double>(options.layers));
    nn::init::normal_(attention_out_->weight, 0.0, scale);
    nn::init::normal_(mlp_out_->weight, 0.0, scale);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = x + attention(attention_norm_(x));
    return y + mlp_out_(torch::gelu(mlp_in_(mlp_norm_(y))));
  }

 private:
  torch::Tensor attention(const torch::Tensor& x) {
    const std::int64_t batch = x.size(0), context = x.size(1), width = x.size(2);
    const auto parts = qkv_(x).view({batch, context, 3, heads_, width / heads_}).permute({2, 0, 3, 1, 4}).unbind(0);
    const double scale = 1.0 / std::sqrt(static_cast<double>(width / heads_));
    const torch::Tensor scores = torch::matmul(parts[0] * scale, parts[1].transpose(-2, -1)) + mask_;
    const torch::Tensor mixed = torch::matmul(torch::softmax(scores, -1), parts[2]);
    return attention_out_(mixed.transpose(1, 2).reshape({batch, context, width}));
  }

  std::int64_t heads_;
  nn::LayerNorm attention_norm_{nullptr}, mlp_norm_{nullptr};
  nn::Linear qkv_{nullptr}, attention_out_{nullptr}, mlp_in_{nullptr}, mlp_out_{nullptr};
  torch::Tensor mask_;
};
TORCH_MODULE(Block);

}  // namespace

TransformerImpl::TransformerImpl(const ModelOptions& options) {
  embed_ = register_module("embed", nn::Embedding(options.vocabulary, options.width));
  position_ = register_parameter("position", torch::empty({options.context, options.width}));
  blocks_ = register_module("blocks", nn::ModuleList());
  for (std::int64_t layer = 0; layer < options.layers; ++layer) {
    blocks_->push_back(Block(options));
  }
  norm_ = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({options.width})));
  head_ = register_module("head", nn::Linear(options.width, options.vocabulary));
  nn::init::normal_(embed_->weight, 0.0, 0.02);
  nn::init::normal_(position_, 0.0, 0.02);
  nn::init::normal_(head_->weight, 0.0, 0.02);
  nn::init::zeros_(head_->bias);
}

torch::Tensor TransformerImpl::loss(const torch::Tensor& inputs, const torch::Tensor& targets) {
  torch::Tensor x = embed_(inputs) + position_;
  for (const auto& block : *blocks_) {
    x = block->as<BlockImpl>()->forward(x);
  }
  const torch::Tensor logits = head_(norm_(x));
  return nn::functional::cross_entropy(logits.flatten(0, 1), targets.flatten());
}

}  // namespace char_lm
