// Tests gradwire/torch.hpp in one process: two ranks are threads, each with its own model.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gradwire/optimizer.hpp"
#include "tests/examples/torch_adapter_ranks.hpp"

// This is outside of namespace gradwire, where `torch` would be gradwire::torch.
namespace torch_adapter_test {
namespace {

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

// finish() itself passes on gradients that no hook did, so without hooks every other test here would pass. A hook shows
// when ready() is called a second time.
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

// A hook that ran before the gradient is added to .grad() would pass on only the first pass.
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
      const at::Tensor keep = net->first->weight.grad();  // keeps its memory from being used again
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
        backward(net, input(0, 0), true);  // this would call ready() twice
      }));
}

// The callback sees each gradient once per step, after all micro-steps, even if the backward pass did not reach it.
// Mutations tried, each fails here: a parameter without a gradient is left out; each micro-step counts.
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

// The adapter encodes by AdamW's scales: models stay equal, and the optimizer learns about each step.
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

// A rank ends in the middle of a step, and a spare takes its place, with the others' parameters, buffers and moments.
// Mutation tried: the state of the optimizer is not shared.
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
      std::this_thread::sleep_for(std::chrono::milliseconds(30));  // gives the spare time to report
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
  EXPECT_TRUE(errors[kEnds]) << "this rank has ended";
  expect_no_errors({errors[0], errors[2], errors[3]});
  EXPECT_EQ(parameters[0].size(), 71U);
  EXPECT_EQ(parameters[0], parameters[2]);
  EXPECT_EQ(parameters[0], parameters[3]) << "the spare has these";
  EXPECT_EQ(changes[0].at(0).lost, std::vector<int>{kEnds});
  EXPECT_EQ(changes[0].back().joined.size(), 1U);
}

}  // namespace
}  // namespace torch_adapter_test
