#include "wire/crc32c.hpp"

#include <array>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gradwire::wire {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78U;

// kTables[k][b]: the effect of byte b on the state when k zero bytes follow it.
constexpr auto kTables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t state = byte;
    for (int bit = 0; bit < 8; ++bit) {
      state = (state >> 1) ^ ((state & 1U) != 0 ? kPolynomial : 0U);
    }
    tables[0][byte] = state;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t state = tables[k - 1][byte];
      tables[k][byte] = (state >> 8) ^ tables[0][state & 0xFFU];
    }
  }
  return tables;
}();

std::uint64_t load64(const std::byte* data) {
  std::uint64_t word = 0;
  std::memcpy(&word, data, sizeof word);
  return word;
}

// Eight bytes a step ("slicing by 8").
std::uint32_t update_portable(std::uint32_t state, const std::byte* data, std::size_t bytes) {
  for (; bytes >= 8; bytes -= 8, data += 8) {
    const std::uint64_t word = load64(data) ^ state;
    state = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      state ^= kTables[7 - i][(word >> (8 * i)) & 0xFFU];
    }
  }
  for (; bytes > 0; --bytes, ++data) {
    state = (state >> 8) ^ kTables[0][(state ^ std::to_integer<std::uint32_t>(*data)) & 0xFFU];
  }
  return state;
}

#if defined(__x86_64__)

// The constant that moves a state over `bytes` zero bytes: x^(8 bytes - 33) mod P, reflected. The carry-less product of
// state and constant has 63 bits; crc32 of it by the instruction multiplies by x^32 more and reduces, and reflection
// adds one.
constexpr std::uint64_t shift_constant(std::size_t bytes) {
  std::uint32_t power = 0x80000000U;  // x^0
  for (std::size_t i = 0; i < 8 * bytes - 33; ++i) {
    power = (power >> 1) ^ ((power & 1U) != 0 ? kPolynomial : 0U);
  }
  return power;
}

__attribute__((target("sse4.2,pclmul"))) std::uint32_t shift(std::uint32_t state, std::uint64_t constant) {
  const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128(static_cast<int>(state)),
                                               _mm_cvtsi64_si128(static_cast<long long>(constant)), 0);
  return static_cast<std::uint32_t>(_mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(product))));
}

// The crc32 instruction takes 3 cycles and starts one a cycle: three stretches of kLane bytes side by side, then
// joined.
template <std::size_t kLane>
__attribute__((target("sse4.2,pclmul"))) std::uint32_t update_three(std::uint32_t state, const std::byte*& data,
                                                                    std::size_t& bytes) {
  constexpr std::uint64_t kOneLane = shift_constant(kLane);
  constexpr std::uint64_t kTwoLanes = shift_constant(2 * kLane);
  for (; bytes >= 3 * kLane; bytes -= 3 * kLane, data += 3 * kLane) {
    std::uint64_t a = state;
    std::uint64_t b = 0;
    std::uint64_t c = 0;
    for (std::size_t i = 0; i < kLane; i += 8) {
      a = _mm_crc32_u64(a, load64(data + i));
      b = _mm_crc32_u64(b, load64(data + kLane + i));
      c = _mm_crc32_u64(c, load64(data + 2 * kLane + i));
    }
    state = shift(static_cast<std::uint32_t>(a), kTwoLanes) ^ shift(static_cast<std::uint32_t>(b), kOneLane) ^
            static_cast<std::uint32_t>(c);
  }
  return state;
}

__attribute__((target("sse4.2,pclmul"))) std::uint32_t update_sse42(std::uint32_t state, const std::byte* data,
                                                                    std::size_t bytes) {
  state = update_three<1360>(state, data, bytes);  // three lanes are just under a page of 4096 bytes
  state = update_three<128>(state, data, bytes);
  for (; bytes >= 8; bytes -= 8, data += 8) {
    state = static_cast<std::uint32_t>(_mm_crc32_u64(state, load64(data)));
  }
  for (; bytes > 0; --bytes, ++data) {
    state = _mm_crc32_u8(state, std::to_integer<unsigned char>(*data));
  }
  return state;
}

bool has_sse42() noexcept { return __builtin_cpu_supports("sse4.2") != 0 && __builtin_cpu_supports("pclmul") != 0; }

constexpr std::array kMethods{Crc32cMethod{"portable", update_portable}, Crc32cMethod{"sse4.2", update_sse42}};
#else
bool has_sse42() noexcept { return false; }
constexpr std::array kMethods{Crc32cMethod{"portable", update_portable}};
#endif

}  // namespace

std::span<const Crc32cMethod> crc32c_methods() noexcept {
  static const std::size_t count = has_sse42() ? kMethods.size() : 1;
  return std::span(kMethods).first(count);
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc) noexcept {
  return ~crc32c_methods().back().update(~crc, bytes.data(), bytes.size());
}

}  // namespace gradwire::wire
