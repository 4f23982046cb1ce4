#include "codec/preconditioner.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "codec/float_environment.hpp"
#include "gradwire/error.hpp"
#include "kernels/scale.hpp"

namespace gradwire::codec {
namespace {

std::int32_t largest_of(const float* s, std::uint32_t count) {
  std::int32_t largest = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::int32_t exponent = kernels::scale_exponent(std::bit_cast<std::uint32_t>(s[i]));
    largest = exponent > largest ? exponent : largest;
  }
  return largest;
}

void reciprocals_of(const float* s, std::int32_t largest, std::uint32_t count, float* reciprocals) {
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::int32_t exponent = kernels::scale_exponent(std::bit_cast<std::uint32_t>(s[i]));
    reciprocals[i] = kernels::scale_reciprocal(kernels::scale_power(largest, exponent));
  }
}

}  // namespace

void Preconditioner::append(const float* diagonal, std::uint64_t count) {
  if (count > 0) {
    segments_.push_back({diagonal, count_, count});
    count_ += count;
  }
}

template <class Body>
void Preconditioner::for_each_piece(std::uint64_t first, std::uint32_t count, Body body) const {
  if (first > count_ || count > count_ - first) {
    throw Error(ErrorCode::internal, "preconditioner: " + std::to_string(count) + " elements from " +
                                         std::to_string(first) + " on, it has " + std::to_string(count_));
  }
  auto segment = std::ranges::upper_bound(segments_, first, {}, &Segment::first);
  segment -= segment == segments_.begin() ? 0 : 1;
  for (std::uint32_t done = 0; done < count; ++segment) {
    const std::uint64_t offset = first + done - segment->first;
    const auto piece = static_cast<std::uint32_t>(std::min<std::uint64_t>(count - done, segment->count - offset));
    body(segment->diagonal + offset, done, piece);
    done += piece;
  }
}

void Preconditioner::load_reciprocals(std::uint64_t first, std::uint32_t count, float* reciprocals) const {
  std::int32_t largest = 0;
  for_each_piece(first, count, [&](const float* s, std::uint32_t /*done*/, std::uint32_t piece) {
    largest = std::max(largest, largest_of(s, piece));
  });
  for_each_piece(first, count, [&](const float* s, std::uint32_t done, std::uint32_t piece) {
    reciprocals_of(s, largest, piece, reciprocals + done);
  });
}

void TileScale::load() {
  if (!loaded_) {
    preconditioner_->load_reciprocals(first_, count_, reciprocals_);
    loaded_ = true;
  }
}

void TileScale::divide(float* values) {
  if (preconditioner_ == nullptr) {
    return;
  }
  load();
  const FloatEnvironment environment;
  const float* reciprocals = reciprocals_;
  for (std::uint32_t i = 0; i < count_; ++i) {
    values[i] *= reciprocals[i];
  }
}

void TileScale::multiply(float* values) {
  // Exponents change their sign.
  constexpr std::int32_t kOneTwice = 2 * (kernels::kScaleBias << kernels::kScaleMantissaBits);
  if (preconditioner_ == nullptr) {
    return;
  }
  load();
  const FloatEnvironment environment;
  const float* reciprocals = reciprocals_;
  for (std::uint32_t i = 0; i < count_; ++i) {
    values[i] *= std::bit_cast<float>(kOneTwice - std::bit_cast<std::int32_t>(reciprocals[i]));
  }
}

}  // namespace gradwire::codec
