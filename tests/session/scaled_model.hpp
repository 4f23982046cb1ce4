// Defines a few gradients with scales (TensorOptions::scale) for session tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "model.hpp"
#include "sums.hpp"

namespace gradwire::test {

using Scales = std::vector<std::vector<float>>;

inline constexpr const char* kCodecs[] = {"bf16", "fp16", "fp8",           "int8",         "int4",
                                          "int2", "sign", "topk(2%)+int8", "topk(2%)+bf16"};

inline Policy policy_of(const std::string& codec, const std::string& algorithm) {
  Policy policy = Policy::parse("[defaults]\ncodec = \"" + codec + "\"\nalgorithm = \"" + algorithm +
                                "\"\nsmall = \"off\"\n[bucket]\nbytes = \"32KiB\"\n");
  if (algorithm == "hierarchical") {
    policy.tiers.ranks_per_node = 2;
  }
  return policy;
}

inline constexpr const char* kAlgorithms[] = {"two_shot", "one_shot", "hierarchical"};
inline int world_of(const std::string& algorithm) { return algorithm == "hierarchical" ? 4 : 2; }

inline Scales scales_like(const std::vector<Gradient>& gradients, float value = 1) {
  Scales scales;
  for (const Gradient& gradient : gradients) {
    scales.emplace_back(gradient.values.size(), value);
  }
  return scales;
}

// Makes gradients around the borders of tiles, an empty one, and enough for several buckets.
inline std::vector<Gradient> few_gradients() {
  std::vector<Gradient> gradients;
  const std::vector<std::pair<const char*, std::size_t>> shapes{
      {"w", 20000}, {"b", 300}, {"empty", 0}, {"v", 4097}, {"one", 1}};
  for (const auto& [name, count] : shapes) {
    gradients.push_back({name, std::vector<float>(count), {}});
  }
  return gradients;
}

// Returns a magnitude; magnitudes span four orders.
inline double magnitude(std::size_t tensor, std::size_t i) {
  return std::exp(4.6 * std::sin(1.3 * static_cast<double>(i) + static_cast<double>(tensor)));
}

// Sets scales that differ from step to step and are equal on all ranks.
inline void vary(Scales& scales, std::uint64_t step) {
  for (std::size_t t = 0; t < scales.size(); ++t) {
    for (std::size_t i = 0; i < scales[t].size(); ++i) {
      const double change = std::exp(0.5 * std::sin(0.7 * static_cast<double>(i) + static_cast<double>(5 * step)));
      scales[t][i] = static_cast<float>(magnitude(t, i) * change);
    }
  }
}

// Fills in gradients of these magnitudes.
inline void fill_in_magnitude(std::vector<Gradient>& gradients, int rank, std::uint64_t step) {
  fill(gradients, rank, step);
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    for (std::size_t i = 0; i < gradients[t].values.size(); ++i) {
      gradients[t].values[i] *= static_cast<float>(magnitude(t, i));
    }
  }
}

inline void add_scaled(Session& session, std::vector<Gradient>& gradients, const Scales& scales) {
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    gradients[t].id = session.add(gradients[t].name, view(gradients[t].values.data(), gradients[t].values.size()),
                                  {.scale = scales[t]});
  }
}

inline StepOutcome reduce(Session& session, const std::vector<Gradient>& gradients) {
  for (const Gradient& gradient : gradients) {
    session.ready(gradient.id);
  }
  return session.finish();
}

inline std::vector<float> all_of(const std::vector<Gradient>& gradients) {
  std::vector<float> all;
  for (const Gradient& gradient : gradients) {
    all.insert(all.end(), gradient.values.begin(), gradient.values.end());
  }
  return all;
}

inline bool same_bytes(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace gradwire::test
