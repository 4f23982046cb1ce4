// A model of three tensors with parameters, momentum and gradients that depend on both, for tests of sync modes. Each
// rank draws its parameters towards a point of its own, so local steps move ranks apart.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/session.hpp"

namespace gradwire::test {

struct TrainedModel {
  struct Tensor {
    std::string name;
    std::vector<float> parameter;
    std::vector<float> momentum;
    std::vector<float> gradient;
    TensorId id{};
  };
  std::vector<Tensor> tensors;
  float rate = 0.05F;

  TrainedModel() {
    for (const auto& [name, count] : {std::pair("a", 5000), std::pair("b", 4100), std::pair("c", 1300)}) {
      Tensor tensor{name, std::vector<float>(static_cast<std::size_t>(count)), {}, {}, {}};
      for (std::size_t i = 0; i < tensor.parameter.size(); ++i) {
        tensor.parameter[i] = static_cast<float>(std::sin(0.37 * static_cast<double>(i) + static_cast<double>(count)));
      }
      tensor.momentum.resize(tensor.parameter.size());
      tensor.gradient.resize(tensor.parameter.size());
      tensors.push_back(std::move(tensor));
    }
  }
  void clear() {
    for (Tensor& tensor : tensors) {
      tensor.parameter.assign(tensor.parameter.size(), 0);
      tensor.momentum.assign(tensor.parameter.size(), 0);
    }
  }
  void add_to(Session& session) {
    for (Tensor& tensor : tensors) {
      const auto whole = [](std::vector<float>& values) { return view(values.data(), values.size()); };
      tensor.id = session.add(tensor.name, whole(tensor.gradient),
                              {.parameter = whole(tensor.parameter), .state = {whole(tensor.momentum)}});
    }
  }

  void compute_gradients(int rank, std::uint64_t step) {
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      for (std::size_t i = 0; i < tensors[t].parameter.size(); ++i) {
        const double target = std::cos(0.11 * static_cast<double>(i) + static_cast<double>(t) + 2.0 * rank +
                                       0.5 * static_cast<double>(step % 7));
        tensors[t].gradient[i] = tensors[t].parameter[i] - static_cast<float>(target);
      }
    }
  }
  void reduce(Session& session) {
    for (std::size_t t = tensors.size(); t-- > 0;) {
      session.ready(tensors[t].id);
    }
    session.finish();
  }
  /// Makes a step of SGD with momentum.
  void optimize() {
    for (Tensor& tensor : tensors) {
      for (std::size_t i = 0; i < tensor.parameter.size(); ++i) {
        tensor.momentum[i] = 0.9F * tensor.momentum[i] + tensor.gradient[i];
        tensor.parameter[i] -= rate * tensor.momentum[i];
      }
    }
  }
  void train(Session& session, std::uint64_t step) {
    compute_gradients(session.rank(), step);
    reduce(session);
    optimize();
  }

  [[nodiscard]] std::vector<float> gradients() const { return join(&Tensor::gradient); }
  [[nodiscard]] std::vector<float> parameters() const { return join(&Tensor::parameter); }
  /// Returns parameters and momentum.
  [[nodiscard]] std::vector<float> values() const {
    std::vector<float> all = parameters();
    const std::vector<float> momentum = join(&Tensor::momentum);
    all.insert(all.end(), momentum.begin(), momentum.end());
    return all;
  }
  [[nodiscard]] bool same_gradients(const TrainedModel& other) const { return gradients() == other.gradients(); }
  /// Returns the largest difference of a parameter or its momentum.
  [[nodiscard]] double distance(const TrainedModel& other) const {
    double most = 0;
    const std::vector<float> mine = values();
    const std::vector<float> theirs = other.values();
    for (std::size_t i = 0; i < mine.size(); ++i) {
      most = std::max(most, std::abs(static_cast<double>(mine[i]) - static_cast<double>(theirs[i])));
    }
    return most;
  }

 private:
  [[nodiscard]] std::vector<float> join(std::vector<float> Tensor::*member) const {
    std::vector<float> all;
    for (const Tensor& tensor : tensors) {
      all.insert(all.end(), (tensor.*member).begin(), (tensor.*member).end());
    }
    return all;
  }
};

/// Returns a policy with this codec and mode for every tensor, and several buckets.
inline Policy policy_of(const std::string& codec, const std::string& sync) {
  return Policy::parse("[defaults]\ncodec = \"" + codec + "\"\nsmall = \"off\"\nsync = " + sync +
                       "\n[bucket]\nbytes = \"20KiB\"\n");
}

/// Returns the mode in which results may come this many steps late.
inline std::string async(unsigned staleness, unsigned from_step = 0) {
  return "{ async = true, staleness = " + std::to_string(staleness) + ", from_step = " + std::to_string(from_step) +
         " }";
}

inline void add(std::vector<double>& sum, const std::vector<float>& values, double factor) {
  sum.resize(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    sum[i] += factor * static_cast<double>(values[i]);
  }
}

inline double relative_error(const std::vector<double>& got, const std::vector<double>& wanted) {
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    error += (got[i] - wanted[i]) * (got[i] - wanted[i]);
    norm += wanted[i] * wanted[i];
  }
  return std::sqrt(error / norm);
}

}  // namespace gradwire::test
