#include "drop_in/call_sample.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "codec/tensor_list.hpp"

namespace gradwire::drop_in {
namespace {

constexpr std::uint64_t kTurn = 7919;  // a prime, so that blocks of later samples lie elsewhere

// Runs body(values, count) over tiles of working values, f64 for f64.
template <typename Value>
class Reader {
 public:
  Reader(const void* elements, std::uint64_t count, DType dtype)
      : list_(dtype, std::is_same_v<Value, double> ? codec::Working::f64 : codec::Working::f32),
        scratch_(codec::kTileElements) {
    list_.append(elements, nullptr, count);
  }
  const Value* at(std::uint64_t first, std::uint32_t count) {
    return static_cast<const Value*>(list_.load(first, count, scratch_.data()));
  }

 private:
  codec::TensorList list_;
  std::vector<Value> scratch_;
};

template <typename Value>
Difference compare_values(const void* result, const void* exact, std::uint64_t count, DType dtype) {
  Difference sums;
  Reader<Value> ours(result, count, dtype);
  Reader<Value> theirs(exact, count, dtype);
  for (std::uint64_t first = 0; first < count; first += codec::kTileElements) {
    const auto n = static_cast<std::uint32_t>(std::min(codec::kTileElements, count - first));
    const Value* a = ours.at(first, n);
    const Value* b = theirs.at(first, n);
    for (std::uint32_t i = 0; i < n; ++i) {
      const double wanted = b[i];
      const double off = a[i] - wanted;
      sums.difference += off * off;
      sums.norm += wanted * wanted;
    }
  }
  return sums;
}

}  // namespace

std::optional<double> Difference::relative() const noexcept {
  if (!std::isfinite(norm)) {
    return std::nullopt;
  }
  if (difference == 0) {
    return 0;
  }
  const double error = std::sqrt(difference / norm);
  return error < kMostError ? error : kMostError;  // also for NaN
}

Difference difference_of(const void* result, const void* exact, std::uint64_t count, DType dtype) {
  return dtype == DType::f64 ? compare_values<double>(result, exact, count, dtype)
                             : compare_values<float>(result, exact, count, dtype);
}

CallSample::CallSample(ConstView input, std::uint64_t most, std::uint64_t turn) : dtype_(input.dtype) {
  const std::uint64_t blocks = (input.count + kBlock - 1) / kBlock;
  const std::uint64_t wanted =
      std::clamp<std::uint64_t>((most + kBlock - 1) / kBlock, 1, std::max<std::uint64_t>(blocks, 1));
  const std::size_t each = element_bytes(dtype_);
  for (std::uint64_t i = 0; i < wanted && blocks > 0; ++i) {
    const std::uint64_t block = (i * blocks / wanted + turn * kTurn) % blocks;
    const std::uint64_t first = block * kBlock;
    pieces_.push_back({first, std::min(kBlock, input.count - first)});
    count_ += pieces_.back().count;
  }
  // Pieces are in order, so that only the last block may be shorter.
  std::sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) { return a.first < b.first; });
  bytes_.resize(count_ * each);
  std::byte* to = bytes_.data();
  for (const Piece& piece : pieces_) {
    std::memcpy(to, static_cast<const std::byte*>(input.data) + piece.first * each, piece.count * each);
    to += piece.count * each;
  }
}

Difference CallSample::compare(const void* exact, ConstView result, std::uint64_t first) const {
  const std::size_t each = element_bytes(dtype_);
  Difference sums;
  std::uint64_t at = 0;  // in the kept elements
  for (const Piece& piece : pieces_) {
    const std::uint64_t from = std::max(piece.first, first);
    const std::uint64_t to = std::min(piece.first + piece.count, first + result.count);
    if (from < to) {
      sums.add(difference_of(static_cast<const std::byte*>(result.data) + (from - first) * each,
                             static_cast<const std::byte*>(exact) + (at + from - piece.first) * each, to - from,
                             dtype_));
    }
    at += piece.count;
  }
  return sums;
}

codec::SmallValues CallSample::small_values(const codec::Codec& codec) const {
  if (codec.working() == codec::Working::f64) {
    return {};
  }
  std::vector<float> values(count_);
  codec::TensorList list(dtype_, codec::Working::f32);
  list.append(bytes_.data(), nullptr, count_);
  for (std::uint64_t first = 0; first < count_; first += codec::kTileElements) {
    const auto n = static_cast<std::uint32_t>(std::min(codec::kTileElements, count_ - first));
    const auto* loaded = static_cast<const float*>(list.load(first, n, values.data() + first));
    if (loaded != values.data() + first) {
      std::copy_n(loaded, n, values.data() + first);
    }
  }
  return codec::find_small_values(codec, values);
}

}  // namespace gradwire::drop_in
