// topk on a device: a thread block holds a tile in shared memory, finds the bits of the smallest magnitude that is
// selected by a radix search over histograms (counts only, so that atomics may come in any order), and lists what is
// selected in ascending order by counting ballots. One warp codes what was selected.
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
inline constexpr std::uint32_t kTileOfWarp = kTileElements / simt::kWarps;

template <class Value>
struct alignas(16) SelectShared {
  Value x[kTileElements];
  union {
    std::uint32_t histogram[kBins];
    std::uint16_t index[kTileElements];
  };
  std::uint32_t of_warp[simt::kWarps];
  std::uint32_t digit;   // the bin that holds the last selected one
  std::uint32_t above;   // elements in higher bins
  std::uint32_t in_bin;  // and in this one
  std::uint32_t nonfinite;
};

/// What is selected: magnitudes whose bits >> shift are above `prefix`, and the first `ties` of those equal to it.
template <class Bits>
struct Threshold {
  Bits prefix;
  std::uint32_t shift;
  std::uint32_t ties;
};

/// The value of each thread summed over the threads before it; `of_warp` is free afterwards only behind a barrier.
GRADWIRE_DEVICE std::uint32_t sum_before(std::uint32_t value, std::uint32_t (&of_warp)[simt::kWarps]) {
  std::uint32_t sum = value;
  GRADWIRE_UNROLL
  for (std::uint32_t distance = 1; distance < simt::kLanes; distance *= 2) {
    const std::uint32_t other = simt::shuffle_up(sum, distance);
    sum += simt::lane() >= distance ? other : 0U;
  }
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

/// Of the bins from the highest down, the one in which the count reaches `wanted`. By the whole block.
template <class Value>
GRADWIRE_DEVICE void find_bin(SelectShared<Value>& shared, std::uint32_t wanted) {
  const std::uint32_t top = kBins - 1 - simt::thread() * kBinsOfThread;
  std::uint32_t own = 0;
  GRADWIRE_UNROLL
  for (std::uint32_t i = 0; i < kBinsOfThread; ++i) {
    own += shared.histogram[top - i];
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

/// By the whole block; 1 <= selected < count.
template <class Value>
GRADWIRE_DEVICE auto find_threshold(SelectShared<Value>& shared, std::uint32_t count, std::uint32_t selected) {
  using Bits = decltype(magnitude_bits(Value{}));
  Threshold<Bits> t{0, sizeof(Bits) * 8 - 1, selected};
  for (bool done = false; !done;) {
    const std::uint32_t digit = t.shift < kDigitBits ? t.shift : kDigitBits;
    const std::uint32_t low = t.shift - digit;
    GRADWIRE_UNROLL
    for (std::uint32_t i = 0; i < kBinsOfThread; ++i) {
      shared.histogram[i * simt::kThreads + simt::thread()] = 0;
    }
    simt::sync();
    for (std::uint32_t i = simt::thread(); i < count; i += simt::kThreads) {
      const Bits bits = magnitude_bits(shared.x[i]);
      if (bits >> t.shift == t.prefix) {
        simt::atomic_add(&shared.histogram[static_cast<std::uint32_t>(bits >> low) % (1U << digit)], 1);
      }
    }
    simt::sync();
    find_bin(shared, t.ties);
    t = {t.prefix << digit | shared.digit, low, t.ties - shared.above};
    done = low == 0 || shared.in_bin == t.ties;  // all that is in the bin is selected
  }
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
  const auto t = find_threshold(shared, count, selected);
  const std::uint32_t begin = simt::warp() * kTileOfWarp + simt::lane();
  std::uint32_t counted = 0;  // above + 2^16 equal; a warp has 512 elements
  for (std::uint32_t i = begin; i < begin - simt::lane() + kTileOfWarp; i += simt::kLanes) {
    const auto bits = i < count ? magnitude_bits(shared.x[i]) >> t.shift : 0;
    counted += i < count && bits > t.prefix ? 1U : 0U;
    counted += i < count && bits == t.prefix ? 0x10000U : 0U;
  }
  counted = static_cast<std::uint32_t>(simt::warp_sum(static_cast<std::int32_t>(counted)));
  if (simt::lane() == 0) {
    shared.of_warp[simt::warp()] = counted;
  }
  simt::sync();
  std::uint32_t before = 0;
  for (std::uint32_t w = 0; w < simt::warp(); ++w) {
    before += shared.of_warp[w];
  }
  std::uint32_t equal = before >> 16;
  std::uint32_t to = (before & 0xFFFFU) + (equal < t.ties ? equal : t.ties);
  const std::uint32_t lower = (1U << simt::lane()) - 1;  // lanes before this one
  for (std::uint32_t i = begin; i < begin - simt::lane() + kTileOfWarp; i += simt::kLanes) {
    const auto bits = i < count ? magnitude_bits(shared.x[i]) >> t.shift : 0;
    const bool tie = i < count && bits == t.prefix;
    const std::uint32_t ties = simt::ballot(tie);
    const bool keep = (i < count && bits > t.prefix) || (tie && equal + simt::set_bits(ties & lower) < t.ties);
    const std::uint32_t all = simt::ballot(keep);
    if (keep) {
      shared.index[to + simt::set_bits(all & lower)] = static_cast<std::uint16_t>(i);
    }
    equal += simt::set_bits(ties);
    to += simt::set_bits(all);
  }
  simt::sync();
}

template <class Value>
struct SelectedInShared {
  const SelectShared<Value>& shared;
  GRADWIRE_DEVICE Value operator[](std::uint32_t j) const { return shared.x[shared.index[j]]; }
};

/// Indices and values of what is selected; x of these becomes what was dropped of them. By a whole warp. Returns
/// whether NaN or Inf was selected.
template <class Selected, class Value>
GRADWIRE_DEVICE bool put_selected(SelectShared<Value>& shared, std::uint32_t count, std::uint32_t selected,
                                  std::uint8_t* payload) {
  const IndexCode code = index_code(count, selected);
  put_bytes(payload, code.bytes(), [&](std::uint32_t b) { return index_byte(shared.index, code, b); });
  std::uint8_t* out = payload + code.bytes();
  const bool nonfinite = WarpSelected<Selected>::encode(SelectedInShared<Value>{shared}, selected, out);
  pad_tile(payload, code.bytes() + Selected::bytes(selected), EliasFano::kAlignment);
  simt::sync_warp();  // lanes read below what others wrote
  for (std::uint32_t j = simt::lane(); j < selected; j += simt::kLanes) {
    Value& x = shared.x[shared.index[j]];
    x = x - WarpSelected<Selected>::decode(out, j);
  }
  return nonfinite;
}

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

/// Encodes shared.x + residual. By the whole block, behind a barrier; ends with one. Returns whether NaN or Inf was
/// selected.
template <class Selected, class Value>
GRADWIRE_DEVICE bool encode_selected_tile(SelectShared<Value>& shared, const TilePlace& place, float* residual,
                                          std::uint8_t* payload) {
  const std::uint32_t selected = selected_count(place.tile.k, place.count);
  const auto left_behind = [&](std::uint32_t strip) {  // the strip's residual
    return reinterpret_cast<std::uint8_t*>(residual + place.first + strip * kStrip);
  };
  if (residual != nullptr) {
    for (std::uint32_t strip = simt::warp(); strip < strips(place.count); strip += simt::kWarps) {
      Value x[kHeld];
      Value old[kHeld];
      load_as<DType::f32>(left_behind(strip), left_of(strip, place.count), old);
      load_strip(shared, strip, x);
      GRADWIRE_UNROLL
      for (int r = 0; r < kHeld; ++r) {
        x[r] = x[r] + old[r];
      }
      store_strip(shared, strip, x);
    }
    simt::sync();
  }
  select_indices(shared, place.count, selected);
  if (simt::warp() == 0) {
    const bool bad = put_selected<Selected>(shared, place.count, selected, payload);
    if (simt::lane() == 0) {
      shared.nonfinite = bad ? 1U : 0U;
    }
  }
  simt::sync();
  const bool nonfinite = shared.nonfinite != 0;
  if (residual != nullptr && !nonfinite) {
    for (std::uint32_t strip = simt::warp(); strip < strips(place.count); strip += simt::kWarps) {
      Value x[kHeld];
      load_strip(shared, strip, x);
      store_as<DType::f32>(left_behind(strip), left_of(strip, place.count), x);
    }
  }
  simt::sync();
  return nonfinite;
}

/// Indices of a tile as they are read, and what reading them takes.
struct IndexShared {
  std::uint16_t index[kTileElements];
  std::uint32_t of_warp[simt::kWarps];
};

/// shared.index <- the indices of a tile: a thread takes a word of the run. Returns whether there are `selected`,
/// ascending and inside the tile; the same in all threads. By the whole block, which may still read `index`, but not
/// `of_warp`; ends with a barrier.
template <class Shared>
GRADWIRE_DEVICE bool load_indices(Shared& shared, const std::uint8_t* in, std::uint32_t count, std::uint32_t selected) {
  static_assert(32 * simt::kThreads >= kTileElements + 8, "a run is no longer than a bitmap, but for its last byte");
  const IndexCode code = index_code(count, selected);
  const std::uint32_t first = 32 * simt::thread();
  std::uint32_t word = 0;
  if (first < code.run) {
    word = run_bits(simt::load4(in + 4 * simt::thread()), code, simt::thread());
  }
  std::uint32_t j = sum_before(simt::set_bits(word), shared.of_warp);
  for (; word != 0; word &= word - 1, ++j) {
    if (j < selected) {
      const std::uint32_t place = first + simt::set_bits((word & (0U - word)) - 1);
      shared.index[j] = static_cast<std::uint16_t>(load_index(in, code, place, j));
    }
  }
  bool bad = simt::thread() == simt::kThreads - 1 && (j != selected || !spare_bits_zero(in, code));
  simt::sync();
  for (j = simt::thread(); j < selected; j += simt::kThreads) {
    bad = bad || shared.index[j] >= (j + 1 < selected ? shared.index[j + 1] : count);
  }
  return !simt::sync_or(bad);
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_SELECT_HPP
