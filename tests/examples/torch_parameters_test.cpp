// Tests which parameters and buffers gradwire/torch.hpp accepts, and which it refuses by name.
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/examples/torch_adapter_ranks.hpp"

// This is outside of namespace gradwire, where `torch` would be gradwire::torch.
namespace torch_adapter_test {
namespace {

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

/// A model whose embedding and head are one layer, registered under two names.
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

// `change` changes the model after two steps; finish() must then name the parameter. There is one rank, since another
// one that gives up could end the steps before.
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

// Mutation tried: finish() checks nothing; then such parameters stay each rank's own, and nobody is told.
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

/// A model whose weight is a member of a user's class.
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

// A change that affects no sum is no error.
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
        EXPECT_EQ(base.sum().item<float>(), 12.0F + 12.0F * own) << "elements between the strides stay";
        EXPECT_EQ(net->named_buffers()["expanded"].sum().item<float>(), 64.0F);
        net->forward(torch::ones({1, 2})).sum().backward();
        sync.finish();
      }));
}

}  // namespace
}  // namespace torch_adapter_test
