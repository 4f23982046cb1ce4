// Coders of the values that topk selected, as one warp runs them: lane p takes values p, p + 32, .., which is also the
// order of the ordered sums. Their bytes follow the indices at any address.
//   bool encode(values, count, out)  by a whole warp; values[j] is the j-th; returns whether NaN or Inf was selected
//   Value decode(in, j)              one value
#ifndef GRADWIRE_KERNELS_DEVICE_SELECTED_CODERS_HPP
#define GRADWIRE_KERNELS_DEVICE_SELECTED_CODERS_HPP

#include "kernels/block.hpp"
#include "kernels/cast.hpp"
#include "kernels/device/warp_sum.hpp"
#include "kernels/int2.hpp"
#include "kernels/int4.hpp"
#include "kernels/sign.hpp"

namespace gradwire::kernels {

/// The bits of the largest magnitude, the same in all lanes.
template <class Values>
GRADWIRE_DEVICE std::uint32_t largest_selected(const Values& values, std::uint32_t count) {
  std::uint32_t absmax = 0;
  for (std::uint32_t j = simt::lane(); j < count; j += simt::kLanes) {
    const std::uint32_t bits = abs_bits(values[j]);
    absmax = bits > absmax ? bits : absmax;
  }
  return simt::warp_max(absmax);
}

/// out <- the bytes that body(index) returns.
template <class Body>
GRADWIRE_DEVICE void put_bytes(std::uint8_t* out, std::uint32_t bytes, Body body) {
  for (std::uint32_t b = simt::lane(); b < bytes; b += simt::kLanes) {
    out[b] = static_cast<std::uint8_t>(body(b));
  }
}

template <class Selected>
struct WarpSelected;

template <DType kWire>
struct WarpSelected<SelectedElements<kWire>> {
  using Wire = Element<kWire>;
  using Stored = typename Wire::Stored;

  template <class Values>
  GRADWIRE_DEVICE static bool encode(const Values& values, std::uint32_t count, std::uint8_t* out) {
    bool bad = false;
    for (std::uint32_t j = simt::lane(); j < count; j += simt::kLanes) {
      const Stored bits = Wire::stored(values[j]);
      store(out, j, bits);
      bad = bad || (bits & Wire::kExponent) == Wire::kExponent;
    }
    return simt::ballot(bad) != 0;
  }
  GRADWIRE_DEVICE static typename Wire::Value decode(const std::uint8_t* in, std::uint32_t j) {
    return Wire::value(load<Stored>(in, j));
  }
};

template <class Rule>
struct WarpSelected<SelectedBlock<Rule>> {
  using Code = typename Rule::Code;

  template <class Values>
  GRADWIRE_DEVICE static bool encode(const Values& values, std::uint32_t count, std::uint8_t* out) {
    const std::uint32_t absmax = largest_selected(values, count);
    const bool nonfinite = absmax >= kInfinity;
    const std::uint16_t scale_bits = nonfinite ? kNanBf16 : Rule::scale(absmax);
    if (simt::lane() == 0) {
      store(out, 0, scale_bits);
    }
    const bool coded = !nonfinite && scale_bits != 0;
    const float inverse = coded ? 1.0F / from_bf16(scale_bits) : 0.0F;
    for (std::uint32_t j = simt::lane(); j < count; j += simt::kLanes) {
      store(out + 2, j, coded ? Rule::quantize(values[j], inverse) : Code{0});
    }
    return nonfinite;
  }
  GRADWIRE_DEVICE static float decode(const std::uint8_t* in, std::uint32_t j) {
    return Rule::level(load<Code>(in + 2, j)) * from_bf16(load<std::uint16_t>(in, 0));
  }
};

template <>
struct WarpSelected<SelectedNibbles> {
  template <class Values>
  GRADWIRE_DEVICE static bool encode(const Values& values, std::uint32_t count, std::uint8_t* out) {
    const std::uint32_t absmax = largest_selected(values, count);
    const bool nonfinite = absmax >= kInfinity;
    const std::uint16_t scale_bits = nonfinite ? kNanBf16 : SelectedNibbles::scale(absmax);
    if (simt::lane() == 0) {
      store(out, 0, scale_bits);
    }
    const bool coded = !nonfinite && scale_bits != 0;
    const float inverse = coded ? 1.0F / from_bf16(scale_bits) : 0.0F;
    const auto code = [&](std::uint32_t j) {
      return coded && j < count ? SelectedNibbles::quantize(values[j], inverse) : 0U;
    };
    put_bytes(out + 2, (count + 1) / 2, [&](std::uint32_t b) { return code(2 * b) | code(2 * b + 1) << 4; });
    return nonfinite;
  }
  GRADWIRE_DEVICE static float decode(const std::uint8_t* in, std::uint32_t j) {
    const std::int32_t code = (in[2 + j / 2] >> (j % 2 * 4)) & 15;
    return static_cast<float>(2 * code - 15) * from_bf16(load<std::uint16_t>(in, 0));
  }
};

template <>
struct WarpSelected<SelectedPairs> {
  template <class Values>
  GRADWIRE_DEVICE static bool encode(const Values& values, std::uint32_t count, std::uint8_t* out) {
    const std::uint32_t absmax = largest_selected(values, count);
    const bool nonfinite = absmax >= kInfinity;
    const bool coded = !nonfinite && absmax >= kSmallestNormal;
    const float down = coded ? inverse_power_of_two(absmax) : 0.0F;
    const auto magnitude = [&](std::uint32_t j) { return bits_as<float>(abs_bits(values[j])) * down; };
    std::uint16_t scale[2] = {nonfinite ? kNanBf16 : std::uint16_t{0}, nonfinite ? kNanBf16 : std::uint16_t{0}};
    float mean = 0;
    if (coded) {
      float all = 0;
      for (std::uint32_t j = simt::lane(); j < count; j += simt::kLanes) {
        all = all + magnitude(j);
      }
      mean = sum_partials(all) / static_cast<float>(count);
      float low = 0;
      float high = 0;
      std::int32_t members = 0;  // number of values above the mean
      for (std::uint32_t j = simt::lane(); j < count; j += simt::kLanes) {
        const float a = magnitude(j);
        const bool above = a > mean;
        low = above ? low : low + a;
        high = above ? high + a : high;
        members += above ? 1 : 0;
      }
      low = sum_partials(low);
      high = sum_partials(high);
      members = simt::warp_sum(members);
      const auto others = static_cast<std::int32_t>(count) - members;
      scale[0] = others == 0 ? std::uint16_t{0} : scale_nearest(low / static_cast<float>(others), absmax);
      scale[1] = members == 0 ? std::uint16_t{0} : scale_nearest(high / static_cast<float>(members), absmax);
    }
    if (simt::lane() == 0) {
      store(out, 0, scale[0]);
      store(out, 1, scale[1]);
    }
    const auto code = [&](std::uint32_t j) {
      return coded && j < count ? bits_as<std::uint32_t>(values[j]) >> 31 | (magnitude(j) > mean ? 2U : 0U) : 0U;
    };
    put_bytes(out + 4, (count + 3) / 4, [&](std::uint32_t b) {
      return code(4 * b) | code(4 * b + 1) << 2 | code(4 * b + 2) << 4 | code(4 * b + 3) << 6;
    });
    return nonfinite;
  }
  GRADWIRE_DEVICE static float decode(const std::uint8_t* in, std::uint32_t j) {
    const std::uint32_t code = (static_cast<std::uint32_t>(in[4 + j / 4]) >> (j % 4 * 2)) & 3U;
    const std::uint32_t scale = load<std::uint16_t>(in, code >> 1);
    return bits_as<float>((scale << 16) ^ (code << 31));
  }
};

template <>
struct WarpSelected<SelectedSigns> {
  template <class Values>
  GRADWIRE_DEVICE static bool encode(const Values& values, std::uint32_t count, std::uint8_t* out) {
    const std::uint32_t absmax = largest_selected(values, count);
    const bool nonfinite = absmax >= kInfinity;
    std::uint16_t scale_bits = nonfinite ? kNanBf16 : std::uint16_t{0};
    if (!nonfinite && absmax >= kSmallestNormal) {
      const float down = inverse_power_of_two(absmax);
      float partial = 0;
      for (std::uint32_t j = simt::lane(); j < count; j += simt::kLanes) {
        partial = partial + bits_as<float>(abs_bits(values[j])) * down;
      }
      scale_bits = scale_nearest(sum_partials(partial) / static_cast<float>(count), absmax);
    }
    if (simt::lane() == 0) {
      store(out, 0, scale_bits);
    }
    const bool coded = !nonfinite && scale_bits != 0;
    put_bytes(out + 2, (count + 7) / 8, [&](std::uint32_t b) {
      std::uint32_t bits = 0;
      for (std::uint32_t i = 0; coded && i < 8 && 8 * b + i < count; ++i) {
        bits |= bits_as<std::uint32_t>(values[8 * b + i]) >> 31 << i;
      }
      return bits;
    });
    return nonfinite;
  }
  GRADWIRE_DEVICE static float decode(const std::uint8_t* in, std::uint32_t j) {
    return Sign::value(load<std::uint16_t>(in, 0), (static_cast<std::uint32_t>(in[2 + j / 8]) >> (j % 8)) & 1U);
  }
};

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_SELECTED_CODERS_HPP
