#include "metrics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace ctr_hybrid {

double log_loss(std::span<const float> logits, std::span<const float> clicks) {
  double sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double x = clicks[i] > 0 ? -static_cast<double>(logits[i]) : static_cast<double>(logits[i]);
    sum += std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
  }
  return sum / static_cast<double>(logits.size());
}

double area_under_curve(std::span<const float> logits, std::span<const float> clicks) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] < logits[b]; });
  double ranks = 0;  // of clicks, from 1; equal logits all have their mean rank
  double positives = 0;
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    double here = 0;
    for (; end < order.size() && logits[order[end]] == logits[order[begin]]; ++end) {
      here += clicks[order[end]] > 0 ? 1 : 0;
    }
    ranks += here * (static_cast<double>(begin + 1) + static_cast<double>(end)) / 2;
    positives += here;
    begin = end;
  }
  const double negatives = static_cast<double>(order.size()) - positives;
  return (ranks - positives * (positives + 1) / 2) / (positives * negatives);
}

}  // namespace ctr_hybrid
