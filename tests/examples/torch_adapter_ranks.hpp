// Runs ranks as threads, each with a model of its own and an adapter of gradwire/torch.hpp.
#pragma once

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "gradwire/gradwire.hpp"
#include "gradwire/torch.hpp"
#include "tests/support/ranks.hpp"

// This is outside of namespace gradwire, where `torch` would be gradwire::torch.
namespace torch_adapter_test {

using gradwire::DType;
using gradwire::Error;
using gradwire::ErrorCode;
using gradwire::Policy;
using gradwire::Session;
using gradwire::Transport;
using gradwire::test::run_ranks_catching;
using gradwire::torch::Adapter;

constexpr int kWorld = 2;

/// A network with two layers in a row, a third that only some passes use, and a buffer.
class NetImpl : public torch::nn::Module {
 public:
  explicit NetImpl(double start) {
    first = register_module("first", torch::nn::Linear(6, 5));
    second = register_module("second", torch::nn::Linear(5, 3));
    extra = register_module("extra", torch::nn::Linear(5, 3));
    mean = register_buffer("mean", torch::full({4}, start));
    torch::NoGradGuard no_grad;
    double value = start;
    for (auto& parameter : parameters()) {
      parameter.fill_(value += 0.1);
    }
  }
  at::Tensor loss(const at::Tensor& x, bool with_extra) {
    const at::Tensor hidden = torch::tanh(first(x));
    at::Tensor y = second(hidden).square().mean();
    return with_extra ? y + extra(hidden).square().mean() : y;
  }

  torch::nn::Linear first{nullptr}, second{nullptr}, extra{nullptr};
  at::Tensor mean;
};
TORCH_MODULE(Net);

inline at::Tensor input(int rank, int step) {
  return torch::arange(12, at::kFloat).view({2, 6}) * 0.01 * (1 + rank + 3 * step);
}

using Gradients = std::vector<at::Tensor>;

inline Gradients gradients_of(const Net& net) {
  Gradients copies;
  for (const auto& parameter : net->parameters()) {
    copies.push_back(parameter.grad().defined() ? parameter.grad().clone() : torch::zeros_like(parameter));
  }
  return copies;
}

struct Pass {
  int step;
  bool with_extra;
};

/// Runs a backward pass under a lock: ranks are threads here, and a serial OpenBLAS must not run in several threads at
/// once, since two in step got wrong products.
inline void backward(Net& net, const at::Tensor& x, bool with_extra) {
  static std::mutex blas;
  const std::lock_guard lock(blas);
  net->loss(x, with_extra).backward();
}

/// Returns the gradients of one rank after these passes, without any communication.
inline Gradients expected_of(int rank, const std::vector<Pass>& passes) {
  Net net(0.0);
  for (const Pass& pass : passes) {
    backward(net, input(rank, pass.step), pass.with_extra);
  }
  return gradients_of(net);
}

inline void expect_mean(const Gradients& result, const Gradients& of_rank_0, const Gradients& of_rank_1) {
  ASSERT_EQ(result.size(), of_rank_0.size());
  for (std::size_t i = 0; i < result.size(); ++i) {
    EXPECT_TRUE(torch::allclose(result[i], (of_rank_0[i] + of_rank_1[i]) / 2, 1e-5, 1e-7)) << "parameter " << i;
  }
}

using Body = std::function<void(int rank, Net& net, Session& session, Adapter& sync)>;

/// Runs `body` on each rank. Models start with different values, and rank 0's win.
inline std::vector<std::exception_ptr> run_adapters(const Body& body) {
  return run_ranks_catching(gradwire::make_inproc_world(kWorld), [&](const std::shared_ptr<Transport>& transport) {
    Net net(transport->rank() * 7.0);
    Session session(transport, Policy::uniform("exact"));
    Adapter sync(session, net);
    body(transport->rank(), net, session, sync);
  });
}

inline void expect_no_errors(const std::vector<std::exception_ptr>& errors) {
  for (const auto& error : errors) {
    if (error) {
      try {
        std::rethrow_exception(error);
      } catch (const std::exception& e) {
        ADD_FAILURE() << e.what();
      }
    }
  }
}

}  // namespace torch_adapter_test
