// gradwire/torch.hpp in process: two ranks are threads, each with its own model.
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gradwire/gradwire.hpp"
#include "gradwire/optimizer.hpp"
#include "gradwire/torch.hpp"
#include "tests/support/ranks.hpp"

// Outside namespace gradwire, where `torch` would be gradwire::torch.
namespace torch_adapter_test {
namespace {

using gradwire::DType;
using gradwire::Error;
using gradwire::ErrorCode;
using gradwire::Policy;
using gradwire::Session;
using gradwire::Transport;
using gradwire::test::run_ranks_catching;
using gradwire::torch::Adapter;

constexpr int kWorld = 2;

/// Two layers in a row, a third that only some passes use, and a buffer.
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

at::Tensor input(int rank, int step) {
  return torch::arange(12, at::kFloat).view({2, 6}) * 0.01 * (1 + rank + 3 * step);
}

using Gradients = std::vector<at::Tensor>;

Gradients gradients_of(const Net& net) {
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

/// What one rank's gradients are after these passes, without any communication.
/// Ranks are threads here, and a serial OpenBLAS is not for several threads at once: two in step got wrong products.
void backward(Net& net, const at::Tensor& x, bool with_extra) {
  static std::mutex blas;
  const std::lock_guard lock(blas);
  net->loss(x, with_extra).backward();
}

Gradients expected_of(int rank, const std::vector<Pass>& passes) {
  Net net(0.0);
  for (const Pass& pass : passes) {
    backward(net, input(rank, pass.step), pass.with_extra);
  }
  return gradients_of(net);
}

void expect_mean(const Gradients& result, const Gradients& of_rank_0, const Gradients& of_rank_1) {
  ASSERT_EQ(result.size(), of_rank_0.size());
  for (std::size_t i = 0; i < result.size(); ++i) {
    EXPECT_TRUE(torch::allclose(result[i], (of_rank_0[i] + of_rank_1[i]) / 2, 1e-5, 1e-7)) << "parameter " << i;
  }
}

using Body = std::function<void(int rank, Net& net, Session& session, Adapter& sync)>;

/// Models start with different values; rank 0's win.
std::vector<std::exception_ptr> run_adapters(const Body& body) {
  return run_ranks_catching(gradwire::make_inproc_world(kWorld), [&](const std::shared_ptr<Transport>& transport) {
    Net net(transport->rank() * 7.0);
    Session session(transport, Policy::uniform("exact"));
    Adapter sync(session, net);
    body(transport->rank(), net, session, sync);
  });
}

void expect_no_errors(const std::vector<std::exception_ptr>& errors) {
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

TEST(TorchAdapter, RankZerosValuesReachEveryRank) {
  expect_no_errors(run_adapters([](int, Net& net, Session&, Adapter&) {
    EXPECT_FLOAT_EQ(net->mean[0].item<float>(), 0.0F);
    EXPECT_FLOAT_EQ(net->first->weight[0][0].item<float>(), 0.1F);
  }));
}

TEST(TorchAdapter, GradientsBecomeTheMean) {
  const std::vector<Pass> passes{{0, true}};
  expect_no_errors(run_adapters([&](int rank, Net& net, Session&, Adapter& sync) {
    backward(net, input(rank, 0), true);
    sync.finish();
    expect_mean(gradients_of(net), expected_of(0, passes), expected_of(1, passes));
  }));
}

// finish() itself hands over what no hook did, so without hooks every other test here would pass: a hook shows by
// ready() being called a second time.
TEST(TorchAdapter, BackwardItselfHandsTheGradientsOver) {
  std::mutex mutex;
  std::array<std::string, kWorld> messages;
  run_adapters([&](int rank, Net& net, Session& session, Adapter&) {
    backward(net, input(rank, 0), true);
    try {
      session.ready(gradwire::TensorId{0});
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      messages[static_cast<std::size_t>(rank)] = error.what();
      throw;
    }
  });
  EXPECT_NE((messages[0] + messages[1]).find("first.weight"), std::string::npos) << messages[0] << "; " << messages[1];
}

// A hook that ran before the gradient is added to .grad() would hand over the first pass alone.
TEST(TorchAdapter, AccumulatesUnderNoSync) {
  const std::vector<Pass> passes{{0, true}, {1, false}};
  expect_no_errors(run_adapters([&](int rank, Net& net, Session&, Adapter& sync) {
    {
      const auto no_sync = sync.no_sync();
      backward(net, input(rank, 0), true);
    }
    backward(net, input(rank, 1), false);  // `extra` has its gradient from the first pass
    sync.finish();
    expect_mean(gradients_of(net), expected_of(0, passes), expected_of(1, passes));
  }));
}

TEST(TorchAdapter, UnusedParametersCountAsZeros) {
  expect_no_errors(run_adapters([&](int rank, Net& net, Session&, Adapter& sync) {
    for (int step = 0; step < 3; ++step) {
      net->zero_grad(/*set_to_none=*/step == 1);
      backward(net, input(rank, step), rank == 1);
      sync.finish();
      expect_mean(gradients_of(net), expected_of(0, {{step, false}}), expected_of(1, {{step, true}}));
    }
  }));
}

TEST(TorchAdapter, GradientsMayBeReallocated) {
  expect_no_errors(run_adapters([&](int rank, Net& net, Session&, Adapter& sync) {
    for (int step = 0; step < 3; ++step) {
      const void* before = net->first->weight.grad().data_ptr();
      const at::Tensor keep = net->first->weight.grad();  // its memory must not be used again
      net->zero_grad(/*set_to_none=*/true);
      backward(net, input(rank, step), true);
      EXPECT_NE(net->first->weight.grad().data_ptr(), before);
      sync.finish();
      expect_mean(gradients_of(net), expected_of(0, {{step, true}}), expected_of(1, {{step, true}}));
    }
  }));
}

TEST(TorchAdapter, TwoBackwardPassesInOneStepAreAnErrorThatNamesTheTensor) {
  std::mutex mutex;
  std::string messages;
  run_adapters([&](int rank, Net& net, Session&, Adapter&) {
    backward(net, input(rank, 0), true);
    try {
      backward(net, input(rank, 1), true);
      ADD_FAILURE() << "rank " << rank << " was let through";
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      messages += error.what();
      throw;
    }
  });
  EXPECT_TRUE(messages.find(".weight\"") != std::string::npos || messages.find(".bias\"") != std::string::npos)
      << messages;
}

TEST(TorchAdapter, HooksGoWithTheAdapter) {
  expect_no_errors(
      run_ranks_catching(gradwire::make_inproc_world(kWorld), [](const std::shared_ptr<Transport>& transport) {
        Net net(0.0);
        Session session(transport, Policy::uniform("exact"));
        { const Adapter sync(session, net); }
        backward(net, input(0, 0), true);
        backward(net, input(0, 0), true);  // would be ready() twice
      }));
}

TEST(TorchAdapter, SparseGradientsAreRefusedByName) {
  const auto errors =
      run_ranks_catching(gradwire::make_inproc_world(1), [](const std::shared_ptr<Transport>& transport) {
        torch::nn::Embedding table(torch::nn::EmbeddingOptions(10, 4).sparse(true));
        Session session(transport, Policy::uniform("exact"));
        const Adapter sync(session, table);
        table->zero_grad(/*set_to_none=*/true);
        table->forward(torch::zeros({2}, at::kLong)).sum().backward();
      });
  ASSERT_TRUE(errors[0]);
  try {
    std::rethrow_exception(errors[0]);
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("weight"), std::string::npos) << error.what();
  }
}

TEST(TorchAdapter, KnowsTheElementTypesAndRefusesOthersByName) {
  EXPECT_EQ(gradwire::torch::view(torch::zeros({2}, at::kDouble), "d").dtype, DType::f64);
  EXPECT_EQ(gradwire::torch::view(torch::zeros({2}, at::kHalf), "h").dtype, DType::f16);
  EXPECT_EQ(gradwire::torch::view(torch::zeros({2}, at::kBFloat16), "b").dtype, DType::bf16);
  EXPECT_EQ(gradwire::torch::view(torch::zeros({2, 3}).t(), "t").count, 6U);
  for (const at::Tensor& bad : {torch::zeros({2}, at::kInt), torch::zeros({4, 4}).slice(1, 0, 2)}) {
    try {
      static_cast<void>(gradwire::torch::view(bad, "layer.x"));
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_NE(std::string(error.what()).find("layer.x"), std::string::npos);
    }
  }
}

// Each gradient once a step, also one that the backward pass did not reach, and after all micro-steps. Tried by hand,
// each red here: a parameter without gradient is left out; each micro-step counts.
TEST(TorchAdapter, GradientsMayBeChangedBeforeTheyAreHandedOver) {
  expect_no_errors(run_adapters([&](int rank, Net& net, Session&, Adapter& sync) {
    sync.before_ready([](const std::string& name, std::span<float> gradient) {
      for (float& x : gradient) {
        x = 2 * x + (name == "first.weight" ? 1.0F : 3.0F);
      }
    });
    for (int step = 0; step < 3; ++step) {
      net->zero_grad(/*set_to_none=*/step == 1);
      {
        const auto no_sync = sync.no_sync();
        backward(net, input(rank, 7 + step), false);
      }
      backward(net, input(rank, step), rank == 1);
      sync.finish();
      Gradients wanted[] = {expected_of(0, {{7 + step, false}, {step, false}}),
                            expected_of(1, {{7 + step, false}, {step, true}})};
      const auto named = net->named_parameters();
      for (Gradients& of_rank : wanted) {
        for (std::size_t i = 0; i < of_rank.size(); ++i) {
          of_rank[i] = 2 * of_rank[i] + (named[i].key() == "first.weight" ? 1.0 : 3.0);
        }
      }
      expect_mean(gradients_of(net), wanted[0], wanted[1]);
    }
  }));
}

/// Embedding and head are one layer, which is registered under two names.
class TiedImpl : public torch::nn::Module {
 public:
  TiedImpl() {
    embed = register_module("embed", torch::nn::Linear(torch::nn::LinearOptions(6, 6).bias(false)));
    head = register_module("head", embed.ptr());
    torch::NoGradGuard no_grad;
    embed->weight.fill_(0.25);
  }
  at::Tensor loss(const at::Tensor& x) { return head(torch::tanh(embed(x))).square().mean(); }
  torch::nn::Linear embed{nullptr}, head{nullptr};
};
TORCH_MODULE(Tied);

// Mutation tried: each name is added; then add() refuses the second, and names both.
TEST(TorchAdapter, TiedWeightsAreReducedOnce) {
  for (const bool set_to_none : {false, true}) {
    expect_no_errors(
        run_ranks_catching(gradwire::make_inproc_world(kWorld), [&](const std::shared_ptr<Transport>& transport) {
          static std::mutex blas;
          const auto gradient_of = [](int rank) {
            const std::lock_guard lock(blas);
            Tied net;
            net->loss(input(rank, 0)).backward();
            return net->embed->weight.grad();
          };
          Tied net;
          Session session(transport, Policy::uniform("exact"));
          Adapter sync(session, net);
          EXPECT_EQ(sync.values().size(), 1U);
          for (int step = 0; step < 3; ++step) {
            net->zero_grad(set_to_none);
            {
              const std::lock_guard lock(blas);
              net->loss(input(transport->rank(), 0)).backward();
            }
            sync.finish();
            expect_mean({net->embed->weight.grad()}, {gradient_of(0)}, {gradient_of(1)});
          }
        }));
  }
}

TEST(TorchAdapter, ParametersOnOneMemoryAreRefusedByBothNames) {
  const auto errors =
      run_ranks_catching(gradwire::make_inproc_world(1), [](const std::shared_ptr<Transport>& transport) {
        Net net(0.0);
        net->extra->weight.set_data(net->second->weight);
        Session session(transport, Policy::uniform("exact"));
        const Adapter sync(session, net);
      });
  ASSERT_TRUE(errors[0]);
  try {
    std::rethrow_exception(errors[0]);
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("\"second.weight\""), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("\"extra.weight\""), std::string::npos) << error.what();
  }
}

// `change`: of the model, after two steps. finish() then names the parameter. One rank: another that gives up could
// end the steps before.
void expect_finish_refuses(const std::string& name, const std::function<void(Net& net)>& before,
                           const std::function<void(Net& net)>& change) {
  run_ranks_catching(gradwire::make_inproc_world(1), [&](const std::shared_ptr<Transport>& transport) {
    Net net(0.0);
    before(net);
    Session session(transport, Policy::uniform("exact"));
    Adapter sync(session, net);
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      backward(net, input(transport->rank(), step), step == 0);
      EXPECT_NO_THROW(sync.finish());
    }
    change(net);
    net->zero_grad();
    backward(net, input(transport->rank(), 2), true);
    try {
      sync.finish();
      ADD_FAILURE() << name << " was not missed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  });
}

at::Tensor twice(const at::Tensor& parameter) { return (parameter.detach() * 2).requires_grad_(); }

// Mutation tried: finish() looks at nothing; then such parameters stay each rank's own, and no one is told.
TEST(TorchAdapter, AParameterThatChangedAfterwardsIsAnErrorByName) {
  const auto nothing = [](Net&) {};
  expect_finish_refuses(
      "second.weight", [](Net& net) { net->second->weight.set_requires_grad(false); },
      [](Net& net) { net->second->weight.set_requires_grad(true); });
  expect_finish_refuses("second.weight", nothing,
                        [](Net& net) { net->second->weight = twice(net->second->weight); });  // the list keeps the old
  expect_finish_refuses("extra.", nothing,
                        [](Net& net) { net->extra = net->replace_module("extra", torch::nn::Linear(5, 3)); });
  expect_finish_refuses("more.", nothing, [](Net& net) { net->register_module("more", torch::nn::Linear(5, 3)); });
  expect_finish_refuses("first.bias", nothing, [](Net& net) { net->first->bias.set_data(net->first->bias.clone()); });
}

/// Its weight is a member of a class of the user's.
class OwnImpl : public torch::nn::Module {
 public:
  OwnImpl() { weight = register_parameter("weight", torch::full({6, 3}, 0.5)); }
  at::Tensor weight;
};
TORCH_MODULE(Own);

TEST(TorchAdapter, AMemberOfTheUsersOwnThatWasReplacedIsAnErrorByName) {
  run_ranks_catching(gradwire::make_inproc_world(1), [](const std::shared_ptr<Transport>& transport) {
    Own net;
    Session session(transport, Policy::uniform("exact"));
    Adapter sync(session, net);
    EXPECT_NO_THROW(sync.finish()) << "a parameter that is not used counts as zeros";
    input(0, 0).matmul(net->weight).sum().backward();
    EXPECT_NO_THROW(sync.finish());
    net->weight = twice(net->weight);
    input(0, 0).matmul(net->weight).sum().backward();
    try {
      sync.finish();
      ADD_FAILURE() << "it was not missed";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("parameter weight was replaced"), std::string::npos) << error.what();
    }
  });
}

// What changes no sum is no error.
TEST(TorchAdapter, FrozenParametersMayBeReplaced) {
  expect_no_errors(run_adapters([](int rank, Net& net, Session&, Adapter& sync) {
    net->extra->weight.set_requires_grad(false);
    net->extra->bias = net->extra->bias.detach().clone();
    net->register_parameter("table", torch::zeros({3}), /*requires_grad=*/false);
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      backward(net, input(rank, step), true);
      sync.finish();
    }
  }));
}

// Mutation tried: a buffer that is not dense is left out.
TEST(TorchAdapter, BuffersThatAreNotDenseAreCopiedOrSkipped) {
  expect_no_errors(
      run_ranks_catching(gradwire::make_inproc_world(kWorld), [](const std::shared_ptr<Transport>& transport) {
        const auto own = 1.0F + static_cast<float>(transport->rank());
        torch::nn::Linear net(2, 2);
        const at::Tensor base = torch::full({4, 6}, own);
        net->register_buffer("gaps", base.slice(1, 0, 6, 2));
        net->register_buffer("expanded", torch::full({1}, own).expand({8, 8}));
        net->register_buffer("overlapping", torch::full({9}, own).unfold(0, 3, 1));
        net->register_buffer("sparse", torch::full({2, 2}, own).to_sparse());
        net->register_buffer("mask", torch::full({2}, transport->rank(), at::kLong));
        net->register_buffer("empty", torch::empty({0, 5}));
        Session session(transport, Policy::uniform("exact"));
        Adapter sync(session, net);
        EXPECT_EQ(sync.skipped_buffers(), (std::vector<std::string>{"overlapping", "sparse"}));
        EXPECT_EQ(net->named_buffers()["gaps"].sum().item<float>(), 12.0F) << "rank 0's";
        EXPECT_EQ(base.sum().item<float>(), 12.0F + 12.0F * own) << "what lies between stays";
        EXPECT_EQ(net->named_buffers()["expanded"].sum().item<float>(), 64.0F);
        net->forward(torch::ones({1, 2})).sum().backward();
        sync.finish();
      }));
}

// With AdamW's scales: models stay alike, and the optimizer learns of each step.
TEST(TorchAdapter, EncodesByScales) {
  std::array<Gradients, kWorld> trained;
  expect_no_errors(
      run_ranks_catching(gradwire::make_inproc_world(kWorld), [&](const std::shared_ptr<Transport>& ranks) {
        Net net(0.5);
        gradwire::AdamW optimizer({.learning_rate = 0.01});
        const auto span = [](const at::Tensor& tensor) {
          return std::span(tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel()));
        };
        for (const auto& item : net->named_parameters()) {
          optimizer.add(item.key(), span(item.value()));
        }
        Session session(ranks, Policy::uniform("int4"));
        Adapter sync(session, net, [&](const std::string& name) { return optimizer.scale(name); });
        EXPECT_NE(session.explain().find("by scale"), std::string::npos);
        for (int step = 0; step < 3; ++step) {
          backward(net, input(ranks->rank(), step), true);
          const gradwire::StepOutcome outcome = sync.finish();
          EXPECT_EQ(outcome.step, static_cast<std::uint64_t>(step));
          for (std::size_t i = 0; i < net->parameters().size(); ++i) {
            optimizer.set_gradient(i, span(net->parameters()[i].grad()));
          }
          EXPECT_TRUE(optimizer.step(outcome));
        }
        for (const auto& parameter : net->parameters()) {
          trained[static_cast<std::size_t>(ranks->rank())].push_back(parameter.detach().clone());
        }
      }));
  for (std::size_t i = 0; i < trained[0].size(); ++i) {
    EXPECT_TRUE(torch::equal(trained[0][i], trained[1][i])) << "parameter " << i;
  }
}

// A rank ends in the middle of a step, and a spare takes its place: with the others' parameters, buffers and moments.
// Tried by hand, red: the state of the optimizer is not shared.
TEST(TorchAdapter, AJobGoesOnWithASpare) {
  constexpr int kSteps = 12, kProcesses = 4, kEnds = 1, kEndsIn = 5;
  std::array<std::vector<float>, kProcesses> parameters;
  std::array<std::vector<gradwire::WorldChange>, kProcesses> changes;  // the spare may come a step later than the death
  const auto train = [&](int self, const std::shared_ptr<gradwire::Processes>& processes) {
    Net net(self * 7.0);
    gradwire::AdamW optimizer;
    for (const auto& item : net->named_parameters()) {
      item.value().mutable_grad() = torch::zeros_like(item.value());
      const auto size = static_cast<std::size_t>(item.value().numel());
      optimizer.add(item.key(), {item.value().data_ptr<float>(), size}, {item.value().grad().data_ptr<float>(), size});
    }
    Policy policy = Policy::uniform("int4");
    policy.elastic = Policy::Elastic{.spares = 1};
    Session session(processes, policy);
    Adapter sync(session, net);
    session.on_world_change([&](const gradwire::WorldChange& change) { changes.at(self).push_back(change); });
    std::vector<gradwire::View> shared = sync.values();
    std::ranges::copy(optimizer.state(), std::back_inserter(shared));
    if (!session.share(shared)) {
      return;
    }
    while (session.step() < kSteps) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));  // the spare is heard meanwhile
      for (auto& parameter : net->parameters()) {
        parameter.mutable_grad().zero_();
      }
      backward(net, input(self, static_cast<int>(session.step())), true);
      if (self == kEnds && session.step() == kEndsIn) {
        throw std::runtime_error("this rank ends");
      }
      optimizer.step(sync.finish());
    }
    for (const auto& parameter : net->parameters()) {
      const float* const values = parameter.data_ptr<float>();
      parameters.at(self).insert(parameters.at(self).end(), values, values + parameter.numel());
    }
  };
  const auto processes = gradwire::make_inproc_processes(kProcesses);
  std::array<std::exception_ptr, kProcesses> errors;
  std::vector<std::thread> threads;
  for (int self = 0; self < kProcesses; ++self) {
    threads.emplace_back([&, self] {
      try {
        train(self, processes.at(self));
      } catch (...) {
        errors.at(self) = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_TRUE(errors[kEnds]) << "it has ended";
  expect_no_errors({errors[0], errors[2], errors[3]});
  EXPECT_EQ(parameters[0].size(), 71U);
  EXPECT_EQ(parameters[0], parameters[2]);
  EXPECT_EQ(parameters[0], parameters[3]) << "those of the spare";
  EXPECT_EQ(changes[0].at(0).lost, std::vector<int>{kEnds});
  EXPECT_EQ(changes[0].back().joined.size(), 1U);
}

}  // namespace
}  // namespace torch_adapter_test
