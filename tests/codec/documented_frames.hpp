// Decodes frames behind topk. It is written only from docs/reference/wire-format.md and wire-format-topk.md: it uses
// nothing of the library, and reads bit by bit where the library reads words.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

namespace gradwire::test::documented {

using Bytes = std::span<const std::uint8_t>;

inline bool bit_of(Bytes bytes, std::size_t i) { return ((bytes[i / 8] >> (i % 8)) & 1) != 0; }

inline std::uint64_t number(Bytes bytes, std::size_t at, std::size_t size) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < size; ++i) {
    value |= std::uint64_t{bytes[at + i]} << (8 * i);
  }
  return value;
}

/// The sizes of "With a selector": l, the bits of the run, and the bytes of the indices.
struct IndexSizes {
  std::size_t low;
  std::size_t run;
  bool bitmap;
  std::size_t bytes;
};
inline IndexSizes index_sizes(std::size_t n, std::size_t q) {
  const auto low = static_cast<std::size_t>(std::floor(std::log2(static_cast<double>(n) / static_cast<double>(q))));
  const std::size_t run = q + ((n - 1) >> low);
  const std::size_t coded = (q * low + run + 7) / 8;
  const std::size_t map = (n + 7) / 8;
  return map < coded ? IndexSizes{0, n, true, map} : IndexSizes{low, run, false, coded};
}

/// Returns the indices of a tile of n elements that keeps q; no value if they are damaged.
inline std::optional<std::vector<std::uint32_t>> indices(Bytes in, std::size_t n, std::size_t q) {
  const IndexSizes sizes = index_sizes(n, q);
  std::vector<std::uint32_t> found;
  for (std::size_t place = 0; place < sizes.run; ++place) {
    if (!bit_of(in, place)) {
      continue;
    }
    const std::size_t j = found.size();
    if (j == q) {
      return std::nullopt;
    }
    std::size_t index = place;
    if (!sizes.bitmap) {
      index = (place - j) << sizes.low;
      for (std::size_t b = 0; b < sizes.low; ++b) {
        index += bit_of(in, sizes.run + j * sizes.low + b) ? std::size_t{1} << b : 0U;
      }
    }
    if (index >= n || (j > 0 && index <= found.back())) {
      return std::nullopt;
    }
    found.push_back(static_cast<std::uint32_t>(index));
  }
  for (std::size_t spare = sizes.run + q * sizes.low; spare < 8 * sizes.bytes; ++spare) {
    if (bit_of(in, spare)) {
      return std::nullopt;
    }
  }
  return found.size() == q ? std::optional(found) : std::nullopt;
}

inline float from_bf16(Bytes in, std::size_t at) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(number(in, at, 2) << 16));
}
inline float from_f16(std::uint32_t bits) {
  const float sign = (bits >> 15) != 0 ? -1.0F : 1.0F;
  const int exponent = static_cast<int>((bits >> 10) & 31U);
  const auto mantissa = static_cast<float>(bits & 1023U);
  if (exponent == 31) {
    return mantissa == 0 ? sign * HUGE_VALF : std::nanf("");
  }
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}
inline float from_e4m3(std::uint32_t bits) {
  const float sign = (bits & 0x80U) != 0 ? -1.0F : 1.0F;
  const int e = static_cast<int>((bits >> 3) & 15U);
  const auto f = static_cast<float>(bits & 7U);
  if ((bits & 0x7FU) == 0x7FU) {
    return std::nanf("");
  }
  return sign * (e == 0 ? std::ldexp(f / 8, -6) : std::ldexp(1 + f / 8, e - 7));
}

inline double element(Bytes in, std::size_t j, unsigned dtype) {
  switch (dtype) {
    case 1: return std::bit_cast<float>(static_cast<std::uint32_t>(number(in, 4 * j, 4)));
    case 2: return from_f16(static_cast<std::uint32_t>(number(in, 2 * j, 2)));
    case 3: return from_bf16(in, 2 * j);
    case 4: return std::bit_cast<double>(number(in, 8 * j, 8));
    default: throw std::runtime_error("dtype");
  }
}

/// Returns the number of bytes of q values that follow the indices: v(q).
inline std::size_t value_bytes(unsigned codec, unsigned dtype, std::size_t q) {
  constexpr std::size_t kElement[] = {0, 4, 2, 2, 8};
  switch (codec) {
    case 1: return q * kElement[dtype];
    case 2: return 2 * q;
    case 3: return 2 + 2 * q;
    case 4:
    case 5: return 2 + q;
    case 6: return 2 + (q + 1) / 2;
    case 7: return 4 + (q + 3) / 4;
    case 8: return 2 + (q + 7) / 8;
    default: throw std::runtime_error("codec");
  }
}

/// Returns the j-th value.
inline double value(Bytes in, std::size_t j, unsigned codec, unsigned dtype) {
  switch (codec) {
    case 1: return element(in, j, dtype);
    case 2: return from_bf16(in, 2 * j);
    case 3: return from_f16(static_cast<std::uint32_t>(number(in, 2 + 2 * j, 2))) * from_bf16(in, 0);
    case 4: return static_cast<float>(static_cast<std::int8_t>(in[2 + j])) * from_bf16(in, 0);
    case 5: return from_e4m3(in[2 + j]) * from_bf16(in, 0);
    case 6: {
      const int c = (in[2 + j / 2] >> (4 * (j % 2))) & 15;
      return static_cast<float>(2 * c - 15) * from_bf16(in, 0);
    }
    case 7: {
      const unsigned c = (static_cast<unsigned>(in[4 + j / 4]) >> (2 * (j % 4))) & 3U;
      const float magnitude = from_bf16(in, (c & 2U) != 0 ? 2 : 0);
      return (c & 1U) != 0 ? -magnitude : magnitude;
    }
    default: return bit_of(in.subspan(2), j) ? -from_bf16(in, 0) : from_bf16(in, 0);
  }
}

/// Returns the values of a frame of version 2 with k > 0 and without a length after its header.
inline std::vector<double> decode(Bytes frame) {
  if (frame.size() < 32 || number(frame, 0, 4) != 0x31575247 || frame[4] != 2 || (frame[6] & 0xFCU) != 0) {
    throw std::runtime_error("header");
  }
  const unsigned dtype = frame[5];
  const unsigned codec = frame[7];
  const std::size_t k = number(frame, 8, 2);
  const std::size_t count = number(frame, 12, 4);
  std::vector<double> values(count);
  std::size_t at = 32;
  for (std::size_t first = 0; first < count; first += 4096) {
    const std::size_t n = std::min<std::size_t>(4096, count - first);
    const std::size_t q = std::min(std::max<std::size_t>((k * n + 2048) / 4096, 1), n);
    const std::size_t index_bytes = index_sizes(n, q).bytes;
    const std::size_t bytes = index_bytes + value_bytes(codec, dtype, q);
    const auto found = indices(frame.subspan(at, index_bytes), n, q);
    if (!found) {
      throw std::runtime_error("indices");
    }
    for (std::size_t j = 0; j < q; ++j) {
      values[first + (*found)[j]] = value(frame.subspan(at + index_bytes), j, codec, dtype);
    }
    at += (bytes + 3) / 4 * 4;
  }
  if (at != frame.size()) {
    throw std::runtime_error("length");
  }
  return values;
}

}  // namespace gradwire::test::documented
