// topk on a device: a thread block holds a tile in shared memory, finds the bits of the smallest selected magnitude by
// a radix search over histograms (counts only, so that atomics may come in any order), and lists the selected elements
// in ascending order by counting. One warp encodes the values, the others the indices.
#ifndef GRADWIRE_KERNELS_DEVICE_SELECT_HPP
#define GRADWIRE_KERNELS_DEVICE_SELECT_HPP

#include "kernels/device/frame_words.hpp"
#include "kernels/device/selected_coders.hpp"
#include "kernels/device/warp_codecs.hpp"
#include "kernels/topk.hpp"

namespace gradwire::kernels {

inline constexpr std::uint32_t kDigitBits = 11;
inline constexpr std::uint32_t kBins = 1U << kDigitBits;
inline constexpr std::uint32_t kBinsOfThread = kBins / simt::kThreads;
inline constexpr std::uint32_t kIndexWords = kTileElements / 32;  // words of the longest code of indices, a bitmap

template <class Value>
struct alignas(16) SelectShared {
  Value x[kTileElements];
  union {  // used one after the other
    std::uint32_t histogram[kBins];
    std::uint16_t index[kTileElements];
  };
  std::uint32_t code[kIndexWords];  // the code of the indices
  std::uint32_t of_warp[simt::kWarps];
  std::uint32_t digit;   // the bin that holds the last selected element
  std::uint32_t above;   // number of elements in higher bins
  std::uint32_t in_bin;  // number of elements in this bin
  std::uint32_t nonfinite;
};

template <class Value>
GRADWIRE_DEVICE void store_strip(SelectShared<Value>& shared, std::uint32_t strip, const Value (&x)[kHeld]) {
  constexpr DType kType = sizeof(Value) == 8 ? DType::f64 : DType::f32;
  store_as<kType>(reinterpret_cast<std::uint8_t*>(shared.x + strip * kStrip), kStrip, x);
}
template <class Value>
GRADWIRE_DEVICE void load_strip(const SelectShared<Value>& shared, std::uint32_t strip, Value (&x)[kHeld]) {
  constexpr DType kType = sizeof(Value) == 8 ? DType::f64 : DType::f32;
  load_as<kType>(reinterpret_cast<const std::uint8_t*>(shared.x + strip * kStrip), kStrip, x);
}

// A warp lists the elements of two consecutive strips, and a lane has four elements of each half of both: bit r of 16
// stands for element 128 (r / 4) + 4 lane + r % 4.
inline constexpr std::uint32_t kStripsOfWarp = kTileElements / kStrip / simt::kWarps;
inline constexpr std::uint32_t kQuadsOfLane = 2 * kStripsOfWarp;
static_assert(kStripsOfWarp == 2);

GRADWIRE_DEVICE std::uint32_t first_of_quad(std::uint32_t quad) {
  return (simt::warp() * kQuadsOfLane + quad) * 128 + 4 * simt::lane();
}

/// Marks this thread's elements below `count`.
GRADWIRE_DEVICE std::uint32_t marks_below(std::uint32_t count) {
  std::uint32_t marks = 0;
  GRADWIRE_UNROLL
  for (std::uint32_t quad = 0; quad < kQuadsOfLane; ++quad) {
    const std::uint32_t first = first_of_quad(quad);
    const std::uint32_t left = first < count ? count - first : 0;
    marks |= (left < 4 ? (1U << left) - 1 : 15U) << (4 * quad);
  }
  return marks;
}

/// Calls body(mark, magnitude bits) for this thread's 16 elements, also those behind the end.
template <class Value, class Body>
GRADWIRE_DEVICE void for_all(const SelectShared<Value>& shared, const Body& body) {
  GRADWIRE_UNROLL
  for (std::uint32_t strip = 0; strip < kStripsOfWarp; ++strip) {
    Value x[kHeld];
    load_strip(shared, simt::warp() * kStripsOfWarp + strip, x);
    GRADWIRE_UNROLL
    for (std::uint32_t r = 0; r < kHeld; ++r) {
      body(1U << (strip * kHeld + r), magnitude_bits(x[r]));
    }
  }
}

/// The same for the marked elements, which are few.
template <class Value, class Body>
GRADWIRE_DEVICE void for_marked(const SelectShared<Value>& shared, std::uint32_t marks, const Body& body) {
  GRADWIRE_ROLLED
  for (; marks != 0; marks &= marks - 1) {
    const std::uint32_t r = simt::lowest_bit(marks);
    body(1U << r, magnitude_bits(shared.x[first_of_quad(r / 4) + r % 4]));
  }
}

/// The sum over the warps before this one.
GRADWIRE_DEVICE std::uint32_t sum_of_warps(const std::uint32_t (&of_warp)[simt::kWarps]) {
  const std::uint32_t lane = simt::lane();
  const std::uint32_t value = lane < simt::warp() ? of_warp[lane] : 0U;
  return static_cast<std::uint32_t>(simt::warp_sum(static_cast<std::int32_t>(value)));
}

/// The sum of the values of the threads before this one; `of_warp` may be reused only behind a barrier.
GRADWIRE_DEVICE std::uint32_t sum_before(std::uint32_t value, std::uint32_t (&of_warp)[simt::kWarps]) {
  const std::uint32_t sum = simt::sum_to(value);
  if (simt::lane() == simt::kLanes - 1) {
    of_warp[simt::warp()] = sum;
  }
  simt::sync();
  return sum - value + sum_of_warps(of_warp);
}

/// Computes, for each quad of this thread, its place in the ascending list of all marked elements: the number of marked
/// elements before the quad. `of_warp` is as above.
GRADWIRE_DEVICE void order_marked(std::uint32_t marks, std::uint32_t (&of_warp)[simt::kWarps],
                                  std::uint32_t (&before)[kQuadsOfLane]) {
  std::uint32_t counts = 0;  // a byte for each quad, which is enough for the at most 128 of a warp
  GRADWIRE_UNROLL
  for (std::uint32_t quad = 0; quad < kQuadsOfLane; ++quad) {
    counts |= simt::set_bits((marks >> (4 * quad)) & 15U) << (8 * quad);
  }
  const std::uint32_t sums = simt::sum_to(counts);
  const std::uint32_t all = simt::shuffle(sums, simt::kLanes - 1);
  std::uint32_t sum = 0;
  GRADWIRE_UNROLL
  for (std::uint32_t quad = 0; quad < kQuadsOfLane; ++quad) {
    before[quad] = sum + (((sums - counts) >> (8 * quad)) & 0xFFU);
    sum += (all >> (8 * quad)) & 0xFFU;
  }
  if (simt::lane() == 0) {
    of_warp[simt::warp()] = sum;
  }
  simt::sync();
  sum = sum_of_warps(of_warp);
  GRADWIRE_UNROLL
  for (std::uint32_t quad = 0; quad < kQuadsOfLane; ++quad) {
    before[quad] += sum;
  }
}

/// Finds the bin, from the highest down, in which the count reaches `wanted`. Called by the whole block.
template <class Value>
GRADWIRE_DEVICE void find_bin(SelectShared<Value>& shared, std::uint32_t wanted) {
  const std::uint32_t top = kBins - 1 - simt::thread() * kBinsOfThread;
  static_assert(kBinsOfThread == 8);
  const simt::Words4 half[2] = {simt::load16(&shared.histogram[top - 7]), simt::load16(&shared.histogram[top - 3])};
  std::uint32_t own = 0;
  GRADWIRE_UNROLL
  for (std::uint32_t i = 0; i < kBinsOfThread; ++i) {
    own += half[i / 4].word[i % 4];
  }
  std::uint32_t above = sum_before(own, shared.of_warp);
  if (above < wanted && wanted <= above + own) {
    std::uint32_t bin = top;
    for (; above + shared.histogram[bin] < wanted; --bin) {
      above += shared.histogram[bin];
    }
    shared.digit = bin;
    shared.above = above;
    shared.in_bin = shared.histogram[bin];
  }
  simt::sync();
}

/// The search for the smallest magnitude that is selected.
struct Search {
  std::uint32_t keep;   // marks of elements that are certainly larger
  std::uint32_t equal;  // marks of elements that agree with it in all known bits
  std::uint32_t left;   // how many of the equal elements of all threads are selected
  std::uint32_t shift;  // number of bits that are not known yet
};

/// One round: finds the next digit of its bits from a histogram of the equal elements. for_each(body) visits at least
/// these. Called by the whole block.
template <class Value, class ForEach>
GRADWIRE_DEVICE void find_digit(SelectShared<Value>& shared, Search& search, const ForEach& for_each) {
  const std::uint32_t digit = search.shift < kDigitBits ? search.shift : kDigitBits;
  search.shift -= digit;
  const auto digit_of = [&](auto bits) { return static_cast<std::uint32_t>(bits >> search.shift) % (1U << digit); };
  static_assert(kBinsOfThread == 8);
  simt::store16(&shared.histogram[4 * simt::thread()], {});
  simt::store16(&shared.histogram[4 * (simt::kThreads + simt::thread())], {});
  simt::sync();
  for_each([&](std::uint32_t mark, auto bits) {
    if ((search.equal & mark) != 0) {
      simt::atomic_add(&shared.histogram[digit_of(bits)], 1);
    }
  });
  simt::sync();
  find_bin(shared, search.left);
  std::uint32_t above = 0;
  std::uint32_t equal = 0;
  for_each([&](std::uint32_t mark, auto bits) {
    above |= digit_of(bits) > shared.digit ? mark : 0U;
    equal |= digit_of(bits) == shared.digit ? mark : 0U;
  });
  search.keep |= above & search.equal;
  search.equal &= equal;
  search.left -= shared.above;
}

/// Marks of the selected elements. Called by the whole block; 1 <= selected < count. `inside`: marks of the elements
/// below `count`.
template <class Value>
GRADWIRE_DEVICE std::uint32_t mark_selected(SelectShared<Value>& shared, std::uint32_t inside, std::uint32_t selected) {
  Search search{0, inside, selected, sizeof(Value) * 8 - 1};
  find_digit(shared, search, [&](const auto& body) { for_all(shared, body); });
  GRADWIRE_ROLLED
  while (shared.in_bin != search.left && search.shift != 0) {
    find_digit(shared, search, [&, equal = search.equal](const auto& body) { for_marked(shared, equal, body); });
  }
  if (shared.in_bin != search.left) {  // of the elements equal to the last selected one, the first are selected
    std::uint32_t before[kQuadsOfLane];
    order_marked(search.equal, shared.of_warp, before);
    GRADWIRE_UNROLL
    for (std::uint32_t r = 0; r < 4 * kQuadsOfLane; ++r) {
      const bool later = ((search.equal >> r) & 1U) != 0 && before[r / 4]++ >= search.left;
      search.equal &= later ? ~(1U << r) : ~0U;
    }
    simt::sync();
  }
  return search.keep | search.equal;
}

/// shared.index <- indices that a tile of `count` keeps. Called by the whole block behind a barrier; ends with one.
template <class Value>
GRADWIRE_DEVICE void select_indices(SelectShared<Value>& shared, std::uint32_t count, std::uint32_t selected) {
  std::uint32_t keep = marks_below(count);
  if (selected < count) {
    keep = count == kTileElements ? mark_selected(shared, 0xFFFFU, selected) : mark_selected(shared, keep, selected);
  }
  std::uint32_t to[kQuadsOfLane];
  order_marked(keep, shared.of_warp, to);
  GRADWIRE_UNROLL
  for (std::uint32_t quad = 0; quad < kQuadsOfLane; ++quad) {
    const std::uint32_t first = first_of_quad(quad);
    for (std::uint32_t left = (keep >> (4 * quad)) & 15U; left != 0; left &= left - 1, ++to[quad]) {
      shared.index[to[quad]] = static_cast<std::uint16_t>(first + simt::lowest_bit(left));
    }
  }
  simt::sync();
}

template <class Value>
struct SelectedInShared {
  const SelectShared<Value>& shared;
  GRADWIRE_DEVICE Value operator[](std::uint32_t j) const { return shared.x[shared.index[j]]; }
};

/// Writes the selected values behind the indices; with `keeps` their x become what was dropped. Called by a whole warp.
/// Returns whether NaN or Inf was selected.
template <class Selected, class Value>
GRADWIRE_DEVICE bool put_selected(SelectShared<Value>& shared, const IndexCode& code, std::uint8_t* payload,
                                  bool keeps) {
  std::uint8_t* out = payload + code.bytes();
  const bool nonfinite = WarpSelected<Selected>::encode(SelectedInShared<Value>{shared}, code.selected, out);
  pad_tile(payload, code.bytes() + Selected::bytes(code.selected), EliasFano::kAlignment);
  simt::sync_warp();  // below, lanes read what other lanes wrote
  for (std::uint32_t j = simt::lane(); keeps && j < code.selected; j += simt::kLanes) {
    Value& x = shared.x[shared.index[j]];
    x = x - WarpSelected<Selected>::decode(out, j);
  }
  return nonfinite;
}

/// Writes the code of the indices to shared.code, which is zero at first; threads from `first` on do it.
template <class Value>
GRADWIRE_DEVICE void code_indices(SelectShared<Value>& shared, const IndexCode& code, std::uint32_t first) {
  for (std::uint32_t j = simt::thread() - first; j < code.selected; j += simt::kThreads - first) {
    const std::uint32_t index = shared.index[j];
    const std::uint32_t place = code.place(index, j);
    simt::atomic_or(&shared.code[place / 32], 1U << (place % 32));
    if (code.low != 0) {
      const std::uint32_t bit = code.run + code.low * j;
      const std::uint64_t low = std::uint64_t{index & ((1U << code.low) - 1)} << (bit % 32);
      simt::atomic_or(&shared.code[bit / 32], static_cast<std::uint32_t>(low));
      if (low >> 32 != 0) {
        simt::atomic_or(&shared.code[bit / 32 + 1], static_cast<std::uint32_t>(low >> 32));
      }
    }
  }
}

/// Stores the bytes of shared.code. Called by the whole block.
template <class Value>
GRADWIRE_DEVICE void store_code(const SelectShared<Value>& shared, const IndexCode& code, std::uint8_t* payload) {
  const std::uint32_t bytes = code.bytes();
  for (std::uint32_t w = simt::thread(); w < bytes / 4; w += simt::kThreads) {
    simt::store4(payload + 4 * w, shared.code[w]);
  }
  const std::uint32_t at = bytes / 4 * 4 + simt::thread();
  if (at < bytes) {
    payload[at] = static_cast<std::uint8_t>(shared.code[bytes / 4] >> (8 * (at % 4)));
  }
}

/// x <- x + residual of a strip.
template <class Value>
GRADWIRE_DEVICE void add_residual(const float* residual, std::uint64_t first, std::uint32_t left, Value (&x)[kHeld]) {
  float old[kHeld];
  load_as<DType::f32>(reinterpret_cast<const std::uint8_t*>(residual + first), left, old);
  GRADWIRE_UNROLL
  for (int r = 0; r < kHeld; ++r) {
    x[r] = x[r] + static_cast<Value>(old[r]);
  }
}

/// Encodes shared.x, which includes the residual, and leaves in it what was dropped. put_values(code) is put_selected()
/// of the values' coder. Called by the whole block behind a barrier; ends with one. Returns whether NaN or Inf was
/// selected.
template <class Value, class PutValues>
GRADWIRE_DEVICE bool encode_selected_tile(SelectShared<Value>& shared, const TilePlace& place, float* residual,
                                          std::uint8_t* payload, const PutValues& put_values) {
  const std::uint32_t selected = selected_count(place.tile.k, place.count);
  const IndexCode code = index_code(place.count, selected);
  if (simt::thread() < kIndexWords) {
    shared.code[simt::thread()] = 0;
  }
  select_indices(shared, place.count, selected);
  if (simt::warp() == 0) {
    const bool bad = put_values(code);
    if (simt::lane() == 0) {
      shared.nonfinite = bad ? 1U : 0U;
    }
  } else {
    code_indices(shared, code, simt::kLanes);
  }
  simt::sync();
  store_code(shared, code, payload);
  const bool nonfinite = shared.nonfinite != 0;
  if (residual != nullptr && !nonfinite) {
    for (std::uint32_t strip = simt::warp(); strip < strips(place.count); strip += simt::kWarps) {
      Value x[kHeld];
      load_strip(shared, strip, x);
      store_as<DType::f32>(reinterpret_cast<std::uint8_t*>(residual + place.first + strip * kStrip),
                           remaining_of(strip, place.count), x);
    }
  }
  simt::sync();
  return nonfinite;
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_SELECT_HPP
