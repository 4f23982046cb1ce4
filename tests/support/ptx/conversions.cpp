// Conversions between types, and the small floating-point types.
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "tests/support/ptx/addresses.hpp"
#include "tests/support/ptx/forms.hpp"
#include "tests/support/ptx/lanes.hpp"

namespace gradwire::ptx {
namespace {

using Table = std::unordered_map<std::string, Operation>;

float f32_of_f16(std::uint64_t slot) {
  const auto code = static_cast<std::uint32_t>(slot & 0x7FFF);
  const int exponent = static_cast<int>(code >> 10);
  const int fraction = static_cast<int>(code & 0x3FF);
  float size = 0;
  if (exponent == 31) {
    size = fraction == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  } else {
    size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                         : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  }
  return (slot & 0x8000) != 0 ? -size : size;
}
// To nearest, ties to even. A double holds every f32, so there is one rounding.
std::uint64_t f16_of(double value) {
  if (std::isnan(value)) {
    return 0x7FFF;
  }
  const std::uint64_t sign = std::signbit(value) ? 0x8000 : 0;
  const double size = std::fabs(value);
  if (size >= 65520) {
    return sign | 0x7C00;
  }
  const int exponent = size < std::ldexp(1.0, -14) ? -14 : std::ilogb(size);
  const auto units = static_cast<std::uint64_t>(std::nearbyint(std::ldexp(size, 10 - exponent)));
  return sign | ((static_cast<std::uint64_t>(exponent + 14) << 10) + units);
}
std::uint64_t bf16_of(float value) {
  if (std::isnan(value)) {
    return 0x7FFF;
  }
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return (bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16;  // to nearest, ties to even
}

double value_of_e4m3(std::uint32_t code) {
  const std::uint32_t exponent = code >> 3 & 15;
  const double fraction = code & 7;
  if ((code & 0x7F) == 0x7F) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const double size =
      exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, static_cast<int>(exponent) - 10);
  return (code & 0x80) != 0 ? -size : size;
}
// The nearest of the 127 finite sizes, of two equally near ones the even one; larger ones give the largest.
std::uint32_t e4m3_of(float value) {
  if (std::isnan(value)) {
    return 0x7F;
  }
  const std::uint32_t sign = std::signbit(value) ? 0x80 : 0;
  const double size = std::fabs(static_cast<double>(value));
  std::uint32_t below = 0;
  for (std::uint32_t step = 64; step != 0; step /= 2) {
    if (below + step <= 0x7E && value_of_e4m3(below + step) <= size) {
      below += step;
    }
  }
  if (below == 0x7E) {
    return sign | below;
  }
  const double under = size - value_of_e4m3(below);
  const double over = value_of_e4m3(below + 1) - size;
  return sign | (under < over || (under == over && below % 2 == 0) ? below : below + 1);
}

// To the nearest integer, towards zero, down or up; beyond the type's range its ends; 0 for NaN.
template <class T>
T to_integer(double wide, char mode) {
  const double whole = mode == 'n'   ? std::nearbyint(wide)
                       : mode == 'z' ? std::trunc(wide)
                       : mode == 'm' ? std::floor(wide)
                                     : std::ceil(wide);
  T result = 0;
  if (whole >= std::ldexp(1.0, std::numeric_limits<T>::digits)) {
    result = std::numeric_limits<T>::max();
  } else if (whole <= static_cast<double>(std::numeric_limits<T>::min())) {
    result = std::numeric_limits<T>::min();
  } else if (!std::isnan(whole)) {
    result = static_cast<T>(whole);
  }
  return result;
}

struct Adder {
  Table& table;

  void put(const std::string& name, Handler run, const char* signature = "=r,r") {
    table[name] = {name, signature, run, Flow::plain};
  }

  template <class D, class S>
  void between(const std::string& name) {
    put("cvt." + name, unary<D, S, decltype([](S a) { return static_cast<D>(a); })>);
  }

  template <class S>
  void from_integer(const std::string& type) {
    between<std::uint8_t, S>("u8." + type), between<std::int8_t, S>("s8." + type);
    between<std::uint16_t, S>("u16." + type), between<std::int16_t, S>("s16." + type);
    between<std::uint32_t, S>("u32." + type), between<std::int32_t, S>("s32." + type);
    between<std::uint64_t, S>("u64." + type), between<std::int64_t, S>("s64." + type);
    between<float, S>("rn.f32." + type), between<double, S>("rn.f64." + type);
    if constexpr (sizeof(S) >= 4) {
      to_integers<S, 'n'>("rni", type), to_integers<S, 'z'>("rzi", type);
      to_integers<S, 'm'>("rmi", type), to_integers<S, 'p'>("rpi", type);
    }
  }
  template <class T, char kMode>
  void to_integers(const std::string& mode, const std::string& type) {
    put("cvt." + mode + "." + type + ".f32",
        unary<T, float, decltype([](float a) { return to_integer<T>(static_cast<double>(a), kMode); })>);
    put("cvt." + mode + "." + type + ".f64",
        unary<T, double, decltype([](double a) { return to_integer<T>(a, kMode); })>);
  }

  void all() {
    using Bits = std::uint64_t;
    from_integer<std::uint8_t>("u8"), from_integer<std::int8_t>("s8");
    from_integer<std::uint16_t>("u16"), from_integer<std::int16_t>("s16");
    from_integer<std::uint32_t>("u32"), from_integer<std::int32_t>("s32");
    from_integer<std::uint64_t>("u64"), from_integer<std::int64_t>("s64");
    between<double, float>("f64.f32"), between<float, double>("rn.f32.f64");
    put("cvt.rni.f32.f32", unary<float, float, decltype([](float a) { return std::nearbyint(a); })>);
    put("cvt.rzi.f32.f32", unary<float, float, decltype([](float a) { return std::trunc(a); })>);
    put("cvt.rmi.f32.f32", unary<float, float, decltype([](float a) { return std::floor(a); })>);
    put("cvt.f32.f16", unary<float, Bits, decltype([](Bits a) { return f32_of_f16(a); })>);
    put("cvt.f64.f16", unary<double, Bits, decltype([](Bits a) { return static_cast<double>(f32_of_f16(a)); })>);
    put("cvt.rn.f16.f32", unary<Bits, float, decltype([](float a) { return f16_of(static_cast<double>(a)); })>);
    put("cvt.rn.f16.f64", unary<Bits, double, decltype([](double a) { return f16_of(a); })>);
    put("cvt.f32.bf16", unary<float, Bits, decltype([](Bits a) { return value_of<float>((a & 0xFFFF) << 16); })>);
    put("cvt.rn.bf16.f32", unary<Bits, float, decltype([](float a) { return bf16_of(a); })>);
    put("cvt.rn.f16x2.f32", binary<Bits, float, float, decltype([](float a, float b) {
                                     return f16_of(static_cast<double>(a)) << 16 | f16_of(static_cast<double>(b));
                                   })>,
        "=r,r,r");
    put("cvt.rn.bf16x2.f32",
        binary<Bits, float, float, decltype([](float a, float b) { return bf16_of(a) << 16 | bf16_of(b); })>, "=r,r,r");
    put("cvt.rn.satfinite.e4m3x2.f32",
        binary<Bits, float, float, decltype([](float a, float b) { return Bits{e4m3_of(a) << 8 | e4m3_of(b)}; })>,
        "=r,r,r");
    put("cvt.rn.f16x2.e4m3x2", unary<Bits, Bits, decltype([](Bits a) {
                                       return f16_of(value_of_e4m3(a >> 8 & 0xFF)) << 16 |
                                              f16_of(value_of_e4m3(a & 0xFF));
                                     })>);
    for (const char* space : {"global", "shared", "local", "const", "param"}) {
      const std::string end = std::string(space) + ".u64";
      put("cvta." + end, add_window), put("cvta.to." + end, remove_window);
    }
  }

  static std::uint64_t window_of(const Instruction& i);
  static void add_window(Warp& warp, const Instruction& i, std::uint32_t lanes);
  static void remove_window(Warp& warp, const Instruction& i, std::uint32_t lanes);
};

std::uint64_t Adder::window_of(const Instruction& i) {
  const std::string& name = i.operation->name;
  return name.find("shared") != std::string::npos  ? kSharedWindow
         : name.find("local") != std::string::npos ? kLocalWindow
                                                   : 0;  // addresses of parameters have theirs
}
void Adder::add_window(Warp& warp, const Instruction& i, std::uint32_t lanes) {
  const std::uint64_t window = window_of(i);
  const std::uint64_t* const a = warp.in(i.operand[1]);
  std::uint64_t result[32];
  for (int l = 0; l < 32; ++l) {
    result[l] = a[l] | window;
  }
  warp.put(i.operand[0], lanes, result);
}
void Adder::remove_window(Warp& warp, const Instruction& i, std::uint32_t lanes) {
  const std::uint64_t window = window_of(i);
  const std::uint64_t* const a = warp.in(i.operand[1]);
  std::uint64_t result[32];
  for (std::uint32_t l = 0; l < 32; ++l) {
    if (window != 0 && (lanes >> l & 1) != 0 && (a[l] & kWindowMask) != window) {
      Machine::current->fail(warp, i, l, "stray address: it is not in that memory");
    }
    result[l] = window != 0 ? a[l] & ~kWindowMask : a[l];
  }
  warp.put(i.operand[0], lanes, result);
}

}  // namespace

void add_conversions(std::unordered_map<std::string, Operation>& table) { Adder{table}.all(); }

}  // namespace gradwire::ptx
