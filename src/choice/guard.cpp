#include "choice/guard.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/units.hpp"

namespace gradwire::choice {

double steady_residual(double nmse) {
  const double root = std::sqrt(std::max(0.0, nmse));
  return root < 1 ? root / (1 - root) : std::numeric_limits<double>::infinity();
}

Guard::Guard(GuardOptions options, std::vector<std::vector<double>> bits)
    : options_(options), bits_(std::move(bits)), ceilings_(bits_.size()) {}

void Guard::begin(std::uint64_t step) { begun_ = step; }

std::string Guard::observe(std::uint64_t step, std::size_t bucket, std::size_t level, const QualitySample& sample) {
  if (level == 0) {
    return {};
  }
  const double limit = std::max(options_.least, options_.slack * steady_residual(sample.nmse));
  std::string why;
  if (!(sample.nmse < options_.worst_nmse)) {  // also for NaN
    why = "encoding drops " + format_number(sample.nmse, 3) + " of the gradient's square";
  } else if (!(sample.residual_ratio <= limit)) {
    why = "the residual is " + format_number(sample.residual_ratio, 3) + " times the gradient, where " +
          format_number(limit, 3) + " is the most that its codec explains";
  }
  if (!why.empty() && most(step, bucket) >= level) {
    Ceiling& ceiling = ceilings_[bucket];
    ceiling.hold = ceiling.hold == 0 ? options_.hold : 2 * ceiling.hold;
    ceiling.most = level - 1;
    ceiling.until = step + ceiling.hold;
  }
  return why;
}

std::size_t Guard::most(std::uint64_t step, std::size_t bucket) const {
  const std::vector<double>& bits = bits_[bucket];
  std::size_t most = bits.size() - 1;
  if (step < begun_ + options_.warmup) {
    while (most > 0 && bits[most] < options_.warmup_bits) {
      --most;
    }
  }
  const Ceiling& ceiling = ceilings_[bucket];
  return step < ceiling.until ? std::min(most, ceiling.most) : most;
}

}  // namespace gradwire::choice
