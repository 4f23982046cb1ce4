// topk on a device: a thread block holds a tile in shared memory, finds the bits of the smallest magnitude that is
// selected by a radix search over histograms (counts only, so that atomics may come in any order), and lists what is
// selected in ascending order by counting. One warp codes the values, the others the indices.
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
inline constexpr std::uint32_t kRivals = 64;  // so many are ranked one by one, which takes less than a histogram
inline constexpr std::uint32_t kIndexWords = kTileElements / 32;  // of the longest code of indices, a bitmap

template <class Value>
struct alignas(16) SelectShared {
  using Bits = decltype(magnitude_bits(Value{}));
  Value x[kTileElements];
  union {  // in turn
    std::uint32_t histogram[kBins];
    Bits rival[kRivals];
    std::uint16_t index[kTileElements];
  };
  std::uint32_t code[kIndexWords];  // of the indices
  std::uint32_t of_warp[simt::kWarps];
  std::uint32_t digit;   // the bin that holds the last selected one
  std::uint32_t above;   // elements in higher bins
  std::uint32_t in_bin;  // and in this one
  std::uint32_t rivals;
  std::uint32_t nonfinite;
};

/// What is selected: magnitudes whose bits >> shift are above `prefix`, and the first `ties` of those equal to it.
template <class Bits>
struct Threshold {
  Bits prefix;
  std::uint32_t shift;
  std::uint32_t ties;
  std::uint32_t equal;  // how many there are
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

// A warp lists what is in two strips one behind the other, a lane four elements of each half of both: bit r of 16 is
// element 128 (r / 4) + 4 lane + r % 4.
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

/// body(r, magnitude bits) for this thread's 16 elements, also those behind the end.
template <class Value, class Body>
GRADWIRE_DEVICE void for_magnitudes(const SelectShared<Value>& shared, const Body& body) {
  GRADWIRE_UNROLL
  for (std::uint32_t strip = 0; strip < kStripsOfWarp; ++strip) {
    Value x[kHeld];
    load_strip(shared, simt::warp() * kStripsOfWarp + strip, x);
    GRADWIRE_UNROLL
    for (std::uint32_t r = 0; r < kHeld; ++r) {
      body(strip * kHeld + r, magnitude_bits(x[r]));
    }
  }
}

/// The sum over the lanes up to this one.
GRADWIRE_DEVICE std::uint32_t sum_to(std::uint32_t value) {
  GRADWIRE_UNROLL
  for (std::uint32_t distance = 1; distance < simt::kLanes; distance *= 2) {
    const std::uint32_t other = simt::shuffle_up(value, distance);
    value += simt::lane() >= distance ? other : 0U;
  }
  return value;
}

/// The value of each thread summed over the threads before it; `of_warp` is free afterwards only behind a barrier.
GRADWIRE_DEVICE std::uint32_t sum_before(std::uint32_t value, std::uint32_t (&of_warp)[simt::kWarps]) {
  const std::uint32_t sum = sum_to(value);
  if (simt::lane() == simt::kLanes - 1) {
    of_warp[simt::warp()] = sum;
  }
  simt::sync();
  std::uint32_t before = sum - value;
  for (std::uint32_t w = 0; w < simt::warp(); ++w) {
    before += of_warp[w];
  }
  return before;
}

/// What stands before the first of this thread's elements in each quad when all that threads marked are listed in
/// ascending order. `of_warp` as above.
GRADWIRE_DEVICE void order_marked(std::uint32_t marks, std::uint32_t (&of_warp)[simt::kWarps],
                                  std::uint32_t (&before)[kQuadsOfLane]) {
  std::uint32_t counts = 0;  // of each quad in a byte, which holds the 128 that a warp has at most
  GRADWIRE_UNROLL
  for (std::uint32_t quad = 0; quad < kQuadsOfLane; ++quad) {
    counts |= simt::set_bits((marks >> (4 * quad)) & 15U) << (8 * quad);
  }
  const std::uint32_t sums = sum_to(counts);
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
  sum = 0;
  for (std::uint32_t w = 0; w < simt::warp(); ++w) {
    sum += of_warp[w];
  }
  GRADWIRE_UNROLL
  for (std::uint32_t quad = 0; quad < kQuadsOfLane; ++quad) {
    before[quad] += sum;
  }
}

/// Of the bins from the highest down, the one in which the count reaches `wanted`. By the whole block.
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
    shared.rivals = 0;
  }
  simt::sync();
}

/// The threshold among the few elements that are equal so far: a thread for each counts those before it. By the whole
/// block.
template <class Value, class Bits>
GRADWIRE_DEVICE Threshold<Bits> rank_rivals(SelectShared<Value>& shared, std::uint32_t inside,
                                            const Threshold<Bits>& t) {
  for_magnitudes(shared, [&](std::uint32_t r, Bits bits) {
    if (bits >> t.shift == t.prefix && ((inside >> r) & 1U) != 0) {
      shared.rival[simt::atomic_next(&shared.rivals)] = bits;
    }
  });
  simt::sync();
  if (simt::thread() < t.equal) {
    const Bits own = shared.rival[simt::thread()];
    std::uint32_t above = 0;
    std::uint32_t equal = 0;
    std::uint32_t first = simt::thread();  // of those equal to it
    for (std::uint32_t i = 0; i < t.equal; ++i) {
      const Bits other = shared.rival[i];
      above += other > own ? 1U : 0U;
      equal += other == own ? 1U : 0U;
      first = other == own && i < first ? i : first;
    }
    if (first == simt::thread() && above < t.ties && t.ties <= above + equal) {
      shared.digit = first;
      shared.above = above;
      shared.in_bin = equal;
    }
  }
  simt::sync();
  return {shared.rival[shared.digit], 0, t.ties - shared.above, shared.in_bin};
}

/// By the whole block; 1 <= selected < count. `inside`: what is marked below `count`.
template <class Value>
GRADWIRE_DEVICE auto find_threshold(SelectShared<Value>& shared, std::uint32_t inside, std::uint32_t selected) {
  using Bits = typename SelectShared<Value>::Bits;
  Threshold<Bits> t{0, sizeof(Bits) * 8 - 1, selected, kTileElements};
  do {
    const std::uint32_t digit = t.shift < kDigitBits ? t.shift : kDigitBits;
    const std::uint32_t low = t.shift - digit;
    static_assert(kBinsOfThread == 8);
    simt::store16(&shared.histogram[4 * simt::thread()], {});
    simt::store16(&shared.histogram[4 * (simt::kThreads + simt::thread())], {});
    simt::sync();
    for_magnitudes(shared, [&](std::uint32_t r, Bits bits) {
      if (bits >> t.shift == t.prefix && ((inside >> r) & 1U) != 0) {
        simt::atomic_add(&shared.histogram[static_cast<std::uint32_t>(bits >> low) % (1U << digit)], 1);
      }
    });
    simt::sync();
    find_bin(shared, t.ties);
    t = {t.prefix << digit | shared.digit, low, t.ties - shared.above, shared.in_bin};
    if (t.equal != t.ties && t.equal <= kRivals) {
      t = rank_rivals(shared, inside, t);
    }
  } while (t.equal != t.ties && t.shift != 0);
  return t;
}

/// shared.index <- what a tile of `count` keeps. By the whole block, behind a barrier; ends with one.
template <class Value>
GRADWIRE_DEVICE void select_indices(SelectShared<Value>& shared, std::uint32_t count, std::uint32_t selected) {
  if (selected == count) {
    for (std::uint32_t i = simt::thread(); i < count; i += simt::kThreads) {
      shared.index[i] = static_cast<std::uint16_t>(i);
    }
    simt::sync();
    return;
  }
  const std::uint32_t inside = marks_below(count);
  const auto t = find_threshold(shared, inside, selected);
  std::uint32_t keep = 0;
  std::uint32_t equal = 0;
  for_magnitudes(shared, [&](std::uint32_t r, auto bits) {
    keep |= (bits >> t.shift > t.prefix ? 1U : 0U) << r;
    equal |= (bits >> t.shift == t.prefix ? 1U : 0U) << r;
  });
  equal &= inside;
  std::uint32_t to[kQuadsOfLane];
  if (t.equal != t.ties) {
    order_marked(equal, shared.of_warp, to);
    GRADWIRE_UNROLL
    for (std::uint32_t r = 0; r < 4 * kQuadsOfLane; ++r) {
      const bool later = ((equal >> r) & 1U) != 0 && to[r / 4]++ >= t.ties;
      equal &= later ? ~(1U << r) : ~0U;
    }
    simt::sync();
  }
  keep = (keep & inside) | equal;
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

/// The values of what is selected, behind the indices; with `keeps`, x of these becomes what was dropped of them. By a
/// whole warp. Returns whether NaN or Inf was selected.
template <class Selected, class Value>
GRADWIRE_DEVICE bool put_selected(SelectShared<Value>& shared, const IndexCode& code, std::uint8_t* payload,
                                  bool keeps) {
  std::uint8_t* out = payload + code.bytes();
  const bool nonfinite = WarpSelected<Selected>::encode(SelectedInShared<Value>{shared}, code.selected, out);
  pad_tile(payload, code.bytes() + Selected::bytes(code.selected), EliasFano::kAlignment);
  simt::sync_warp();  // lanes read below what others wrote
  for (std::uint32_t j = simt::lane(); keeps && j < code.selected; j += simt::kLanes) {
    Value& x = shared.x[shared.index[j]];
    x = x - WarpSelected<Selected>::decode(out, j);
  }
  return nonfinite;
}

/// shared.code, zeros at first, <- the code of the indices, as threads from `first` on make it.
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

/// The bytes of shared.code. By the whole block.
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

/// Encodes shared.x, in which the residual is already; that becomes what was dropped. put_values(code) is
/// put_selected() of the values' coder. By the whole block, behind a barrier; ends with one. Returns whether NaN or Inf
/// was selected.
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
                           left_of(strip, place.count), x);
    }
  }
  simt::sync();
  return nonfinite;
}

/// Low bits of the j-th index, from aligned words: the tile is padded to these.
GRADWIRE_DEVICE std::uint32_t low_bits(const std::uint8_t* in, const IndexCode& code, std::uint32_t j) {
  if (code.low == 0) {
    return 0;
  }
  const std::uint32_t bit = code.run + code.low * j;
  const std::uint8_t* at = in + bit / 32 * 4;
  std::uint32_t bits = simt::load4(at) >> (bit % 32);
  if (bit % 32 + code.low > 32) {
    bits |= simt::load4(at + 4) << (32 - bit % 32);
  }
  return bits & ((1U << code.low) - 1);
}

/// body(j, index) for each index of a tile that is in order and inside: warps take words of the run in turn, lanes bits
/// of a word, and each warp counts the bits before its words itself. Returns to each thread whether what it saw was
/// as it should be; where one saw that it was not, indices may come twice. No barrier.
template <class Body>
GRADWIRE_DEVICE bool for_indices(const std::uint8_t* in, std::uint32_t count, std::uint32_t selected,
                                 const Body& body) {
  const IndexCode code = index_code(count, selected);
  const std::uint32_t words = (code.run + 31) / 32;
  const std::uint32_t lane = simt::lane();
  bool good = true;
  std::uint32_t before = 0;   // bits in the words behind
  std::uint32_t carried = 0;  // the last of them
  GRADWIRE_ROLLED
  for (std::uint32_t first = 0; first < words; first += simt::kLanes) {
    std::uint32_t own = 0;
    if (first + lane < words) {
      own = run_bits(simt::load4(in + 4 * (first + lane)), code, first + lane);
    }
    const std::uint32_t sum = before + sum_to(simt::set_bits(own));
    GRADWIRE_ROLLED
    for (std::uint32_t w = simt::warp(); w < simt::kLanes && first + w < words; w += simt::kWarps) {
      const std::uint32_t word = simt::shuffle(own, w);
      const std::uint32_t last = simt::shuffle(own, w - 1);
      const std::uint32_t j = simt::shuffle(sum, w) - simt::set_bits(word >> lane);
      if (((word >> lane) & 1U) == 0) {
        continue;
      }
      if (j >= selected) {
        good = false;
        continue;
      }
      const std::uint32_t high = 32 * (first + w) + lane - code.spread * j;
      const std::uint32_t low = low_bits(in, code, j);
      const std::uint32_t index = high << code.low | low;
      // High bits never fall; they are those of the index before where its bit is the one before, but in a bitmap.
      const std::uint32_t neighbour = lane != 0 ? word >> (lane - 1) : (w != 0 ? last : carried) >> 31;
      const bool repeats = code.spread != 0 && (neighbour & 1U) != 0 && low_bits(in, code, j - 1) >= low;
      if (repeats || index >= count) {
        good = false;
        continue;
      }
      body(j, index);
    }
    before = simt::shuffle(sum, simt::kLanes - 1);
    carried = simt::shuffle(own, simt::kLanes - 1);
  }
  return good && before == selected && spare_bits_zero(in, code);
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_SELECT_HPP
