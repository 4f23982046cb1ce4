// Makes gradients of every dtype, and sessions over host or device memory that train on them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/session.hpp"
#include "session/device/device_runner.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/host_device.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/simulated_codecs.hpp"

namespace gradwire::test {

struct TypedGradient {
  std::string name;
  DType dtype = DType::f32;
  std::uint64_t count = 0;
  std::vector<std::byte> bytes = {};
  TensorId id{};

  [[nodiscard]] View view() { return {bytes.data(), count, dtype}; }
};

/// Makes gradients for several cases: some that share a bucket, one alone in its bucket, an empty one, and tile
/// borders.
inline std::vector<TypedGradient> make_typed_gradients() {
  std::vector<TypedGradient> all{{"embed.weight", DType::f32, 30000}, {"layer1.weight", DType::f32, 12289},
                                 {"layer1.bias", DType::f32, 200},    {"empty", DType::f32, 0},
                                 {"halves", DType::f16, 9000},        {"brains", DType::bf16, 4097},
                                 {"doubles", DType::f64, 5000},       {"head.weight", DType::f32, 4096}};
  for (TypedGradient& gradient : all) {
    gradient.bytes.resize(gradient.count * element_bytes(gradient.dtype));
  }
  return all;
}

/// Fills in a different value for each element, rank, step and tensor.
inline void fill(TypedGradient& gradient, std::size_t tensor, int rank, std::uint64_t step, double scale = 1) {
  std::vector<double> values(gradient.count);
  for (std::uint64_t i = 0; i < values.size(); ++i) {
    values[i] = scale * (1 + rank) *
                std::sin(0.1 * static_cast<double>(i) + static_cast<double>(tensor) + 0.3 * static_cast<double>(step));
  }
  run_convert(values.data(), DType::f64, gradient.bytes.data(), gradient.dtype, values.size(), 1, 1);
}
inline void fill(std::vector<TypedGradient>& gradients, int rank, std::uint64_t step, double scale = 1) {
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    fill(gradients[t], t, rank, step, scale);
  }
}

inline void add_all(Session& session, std::vector<TypedGradient>& gradients) {
  for (TypedGradient& gradient : gradients) {
    gradient.id = session.add(gradient.name, gradient.view());
  }
}

/// Fills in the scale of one gradient, equal on all ranks for each step. Scales that are far apart or change quickly
/// would make residuals grow beyond the range of f16, since these gradients do not follow their scales.
inline void fill(std::vector<float>& scale, std::size_t tensor, std::uint64_t step) {
  for (std::size_t i = 0; i < scale.size(); ++i) {
    const double phase =
        1.7 * static_cast<double>(i) + static_cast<double>(3 * tensor) + 0.2 * static_cast<double>(step);
    scale[i] = static_cast<float>(std::exp(std::sin(phase)));
  }
}

/// Returns all gradients, end to end.
inline std::string content(const std::vector<TypedGradient>& gradients) {
  std::string all;
  for (const TypedGradient& gradient : gradients) {
    all.append(reinterpret_cast<const char*>(gradient.bytes.data()), gradient.bytes.size());
  }
  return all;
}

inline std::shared_ptr<HostDevice> make_device(const std::shared_ptr<Transport>& transport, std::size_t bytes,
                                               bool sums_in_nodes) {
  auto device = std::make_shared<HostDevice>(transport, bytes);
  if (sums_in_nodes) {
    device->let_sum_in_nodes();
  }
  return device;
}

/// One rank's session, over host memory or a device.
class Trainer {
 public:
  Trainer(std::shared_ptr<Transport> ranks, bool on_device, const Policy& policy, const SessionOptions& options = {},
          std::size_t device_bytes = ~std::size_t{0}, bool by_scale = false, bool sums_in_nodes = false)
      : transport(std::move(ranks)),
        device(on_device ? make_device(transport, device_bytes, sums_in_nodes) : nullptr),
        session(on_device ? session::make_session(
                                std::make_unique<session::DeviceRunner>(device, nullptr, options, transport->nodes()),
                                policy, options)
                          : Session(transport, policy, options)) {
    if (!by_scale) {
      add_all(session, gradients);
      return;
    }
    for (TypedGradient& gradient : gradients) {
      scales.emplace_back(gradient.count, 1.0F);
      gradient.id = session.add(gradient.name, gradient.view(), {.scale = scales.back()});
    }
  }

  void wait_for_device() const {
    if (device) {
      device->synchronize();
    }
  }
  /// Enqueues a backward pass on the caller's stream, which nobody waits for, and sets new scales.
  void backward(std::uint64_t number, double scale = 1) {
    const auto pass = [this, number, scale] {
      fill(gradients, session.rank(), number, scale);
      for (std::size_t t = 0; t < scales.size(); ++t) {
        fill(scales[t], t, number);
      }
    };
    device ? device->call("a backward pass", accesses(true), pass) : pass();
  }
  /// Enqueues an optimiser on the caller's stream; it has `seen` the gradients once the device has run.
  void optimise() {
    const auto pass = [this] { seen = content(gradients); };
    device ? device->call("an optimiser", accesses(false), pass) : pass();
  }
  void ready_all() {
    for (const TypedGradient& gradient : gradients) {
      session.ready(gradient.id);
    }
  }
  /// Replays a captured step between a backward pass and an optimiser, and waits for the device.
  void replay(std::uint64_t number, const HostDevice::Work& graph) {
    backward(number);
    device->replay(graph);
    optimise();
    device->synchronize();
  }
  /// Enqueues a step on a device that nobody waits for; each gradient is ready as soon as its kernel is enqueued.
  void enqueue_step(std::uint64_t number) {
    for (std::size_t t = gradients.size(); t-- > 0;) {
      TypedGradient& gradient = gradients[t];
      device->call("a layer's backward pass", {{gradient.bytes.data(), gradient.bytes.size(), true}},
                   [&gradient, t, number, rank = session.rank()] { fill(gradient, t, rank, number); });
      session.ready(gradient.id);
    }
    session.finish();
    optimise();
  }
  [[nodiscard]] std::vector<Access> accesses(bool writes) const {
    std::vector<Access> all;
    for (const TypedGradient& gradient : gradients) {
      all.push_back({gradient.bytes.data(), gradient.bytes.size(), writes});
    }
    for (const std::vector<float>& scale : scales) {
      all.push_back({scale.data(), scale.size() * sizeof(float), writes});
    }
    return all;
  }
  /// Makes one step, with gradients ready in the order of add() or in reverse; the tensor `zero` has no gradient.
  StepOutcome step(std::uint64_t number, std::size_t zero = ~std::size_t{0}, double scale = 1) {
    backward(number, scale);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const std::size_t t = number % 2 == 0 ? i : gradients.size() - 1 - i;
      t == zero ? session.ready_zero(gradients[t].id) : session.ready(gradients[t].id);
    }
    StepOutcome outcome = session.finish();
    optimise();
    wait_for_device();
    EXPECT_TRUE(seen == content(gradients));
    return outcome;
  }
  [[nodiscard]] std::string saved() {
    std::ostringstream stream;
    session.save(stream);
    return stream.str();
  }

  std::vector<TypedGradient> gradients = make_typed_gradients();
  std::vector<std::vector<float>> scales;  // scales of the tensors that were added with one
  std::string seen;
  std::shared_ptr<Transport> transport;
  std::shared_ptr<HostDevice> device;
  Session session;
};

/// Runs `body` on each rank and returns the results.
inline std::vector<std::string> on_ranks(int world,
                                         const std::function<std::string(std::shared_ptr<Transport>)>& body) {
  std::vector<std::string> results(static_cast<std::size_t>(world));
  run_ranks(world, [&](const std::shared_ptr<Transport>& transport) {
    results[static_cast<std::size_t>(transport->rank())] = body(transport);
  });
  return results;
}

// Returns a policy with which every rank makes the same choices, whatever it measures.
inline Policy uniform(const std::string& codec, const std::string& algorithm = "two_shot") {
  return Policy::parse("deterministic = true\n[defaults]\ncodec = \"" + codec + "\"\nsmall = \"off\"\nalgorithm = \"" +
                       algorithm + "\"\n");
}

}  // namespace gradwire::test
