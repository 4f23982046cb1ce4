// Instructions that compute: each is a form with the types in its name, so that a name that is not here is unknown.
// NaN is canonical in results of f32, f16 and bf16 arithmetic, as it is on GPUs.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <unordered_map>

#include "tests/support/ptx/forms.hpp"
#include "tests/support/ptx/lanes.hpp"

namespace gradwire::ptx {
namespace {

using Table = std::unordered_map<std::string, Operation>;
using u8 = std::uint8_t;
using s8 = std::int8_t;
using u16 = std::uint16_t;
using s16 = std::int16_t;
using u32 = std::uint32_t;
using s32 = std::int32_t;
using u64 = std::uint64_t;
using s64 = std::int64_t;

void copy_value(Warp& warp, const Instruction& i, u32 lanes) {
  u64 result[32];
  std::memcpy(result, warp.in(i.operand[1]), sizeof result);
  warp.put(i.operand[0], lanes, result);
}

template <class T, class F>
void compare(Warp& warp, const Instruction& i, u32 lanes) {
  const u64* const a = warp.in(i.operand[1]);
  const u64* const b = warp.in(i.operand[2]);
  u32 bits = 0;
  for (int l = 0; l < 32; ++l) {
    bits |= F{}(value_of<T>(a[l]), value_of<T>(b[l])) ? 1U << l : 0U;
  }
  if (i.operands == 4) {  // combined with another predicate
    const u32 other = warp.predicates[i.operand[3]];
    bits = i.operation->name.find(".and.") != std::string::npos  ? bits & other
           : i.operation->name.find(".or.") != std::string::npos ? bits | other
                                                                 : bits ^ other;
  }
  warp.put_bits(i.operand[0], lanes, bits);
}

void select_value(Warp& warp, const Instruction& i, u32 lanes) {
  const u64* const a = warp.in(i.operand[1]);
  const u64* const b = warp.in(i.operand[2]);
  const u32 bits = warp.predicates[i.operand[3]];
  u64 result[32];
  for (int l = 0; l < 32; ++l) {
    result[l] = (bits >> l & 1) != 0 ? a[l] : b[l];
  }
  warp.put(i.operand[0], lanes, result);
}

template <class F>
void predicates(Warp& warp, const Instruction& i, u32 lanes) {
  const u32 a = warp.predicates[i.operand[1]];
  warp.put_bits(i.operand[0], lanes, F{}(a, i.operands == 3 ? warp.predicates[i.operand[2]] : 0));
}

// Packs parts of Part into one value, and back.
template <class Part>
void pack(Warp& warp, const Instruction& i, u32 lanes) {
  u64 result[32] = {};
  for (u32 part = 1; part < i.operands; ++part) {
    const u64* const a = warp.in(i.operand[part]);
    for (int l = 0; l < 32; ++l) {
      result[l] |= static_cast<u64>(static_cast<Part>(a[l])) << (8 * sizeof(Part) * (part - 1));
    }
  }
  warp.put(i.operand[0], lanes, result);
}
template <class Part>
void unpack(Warp& warp, const Instruction& i, u32 lanes) {
  u64 whole[32];
  std::memcpy(whole, warp.in(i.operand[i.operands - 1U]), sizeof whole);
  for (u32 part = 0; part + 1 < i.operands; ++part) {
    u64 result[32];
    for (int l = 0; l < 32; ++l) {
      result[l] = static_cast<Part>(whole[l] >> (8 * sizeof(Part) * part));
    }
    warp.put(i.operand[part], lanes, result);
  }
}

// Nanoseconds since 1970, as GPUs count them.
void read_clock(Warp& warp, const Instruction& i, u32 lanes) {
  constexpr u64 kBegun = 1'700'000'000'000'000'000;
  put_same(warp, i, lanes, kBegun + Machine::current->clock());
}

// A shift by the width of the type or more gives 0, or the sign.
template <class T>
constexpr T shift_left(T a, u32 by) {
  return by >= 8 * sizeof(T) ? T{0} : static_cast<T>(a << by);
}
template <class T>
constexpr T shift_right(T a, u32 by) {
  if (by >= 8 * sizeof(T)) {
    return a < 0 ? static_cast<T>(-1) : T{0};
  }
  return static_cast<T>(a >> by);
}
template <class T>
constexpr T insert_bits(T from, T into, u32 begin, u32 count) {
  begin &= 0xFF;
  count &= 0xFF;
  const u32 width = 8 * sizeof(T);
  for (u32 i = 0; i < count && begin + i < width; ++i) {
    const T bit = static_cast<T>(T{1} << (begin + i));
    into = static_cast<T>((into & ~bit) | ((from >> i & 1) != 0 ? bit : T{0}));
  }
  return into;
}
template <class T>
constexpr T extract_bits(T from, u32 begin, u32 count) {
  begin &= 0xFF;
  count &= 0xFF;
  const u32 width = 8 * sizeof(T);
  const auto bits = static_cast<std::make_unsigned_t<T>>(from);
  std::make_unsigned_t<T> result = 0;
  const u32 sign_at = std::min(begin + count - 1, width - 1);
  const bool fill = std::is_signed_v<T> && count != 0 && (bits >> sign_at & 1) != 0;
  for (u32 i = 0; i < width; ++i) {
    const bool inside = i < count && begin + i < width;
    const bool set = inside ? (bits >> (begin + i) & 1) != 0 : fill;
    result = static_cast<std::make_unsigned_t<T>>(result | (std::make_unsigned_t<T>{set} << i));
  }
  return static_cast<T>(result);
}
// Byte i of the result is the byte that nibble i of the selector names; its highest bit asks for the sign.
u32 permute(u32 low, u32 high, u32 selector) {
  const u64 bytes = u64{high} << 32 | low;
  u32 result = 0;
  for (u32 i = 0; i < 4; ++i) {
    const u32 nibble = selector >> (4 * i) & 0xF;
    u32 byte = static_cast<u32>(bytes >> (8 * (nibble & 7)) & 0xFF);
    byte = (nibble & 8) != 0 ? ((byte & 0x80) != 0 ? 0xFFU : 0U) : byte;
    result |= byte << (8 * i);
  }
  return result;
}
u32 highest_bit(u32 word) { return word == 0 ? 0xFFFFFFFFU : 31U - static_cast<u32>(std::countl_zero(word)); }
template <class T>
T reverse_bits(T word) {
  T result = 0;
  for (u32 i = 0; i < 8 * sizeof(T); ++i) {
    result |= (word >> i & 1) << (8 * sizeof(T) - 1 - i);
  }
  return result;
}

struct Adder {
  Table& table;

  void put(const std::string& name, const char* signature, Handler run) {
    table[name] = {name, signature, run, Flow::plain};
  }

  template <class T>
  void integers(const std::string& type) {
    using U = std::make_unsigned_t<T>;
    using Wide = std::conditional_t<std::is_signed_v<T>, s64, u64>;
    put("add." + type, "=r,r,r",
        binary<T, T, T, decltype([](T a, T b) { return static_cast<T>(static_cast<U>(a) + static_cast<U>(b)); })>);
    put("sub." + type, "=r,r,r",
        binary<T, T, T, decltype([](T a, T b) { return static_cast<T>(static_cast<U>(a) - static_cast<U>(b)); })>);
    put("mul.lo." + type, "=r,r,r",
        binary<T, T, T, decltype([](T a, T b) { return static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b)); })>);
    put("mad.lo." + type, "=r,r,r,r",
        ternary<T, T, T, T, decltype([](T a, T b, T c) {
                  return static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b) + static_cast<u64>(c));
                })>);
    put("min." + type, "=r,r,r", binary<T, T, T, decltype([](T a, T b) { return a < b ? a : b; })>);
    put("max." + type, "=r,r,r", binary<T, T, T, decltype([](T a, T b) { return a > b ? a : b; })>);
    // On GPUs a division by zero sets all bits.
    put("div." + type, "=r,r,r", binary<T, T, T, decltype([](T a, T b) {
                                          return b == 0 ? static_cast<T>(-1)
                                                 : std::is_signed_v<T> && b == static_cast<T>(-1)
                                                     ? static_cast<T>(U{0} - static_cast<U>(a))
                                                     : static_cast<T>(a / b);
                                        })>);
    put("rem." + type, "=r,r,r",
        binary<T, T, T, decltype([](T a, T b) {
                 return b == 0 ? a : (std::is_signed_v<T> && b == static_cast<T>(-1)) ? T{0} : static_cast<T>(a % b);
               })>);
    put("shr." + type, "=r,r,r", binary<T, T, u32, decltype([](T a, u32 b) { return shift_right<T>(a, b); })>);
    put("neg." + type, "=r,r", unary<T, T, decltype([](T a) { return static_cast<T>(U{0} - static_cast<U>(a)); })>);
    put("abs." + type, "=r,r",
        unary<T, T, decltype([](T a) { return a < 0 ? static_cast<T>(U{0} - static_cast<U>(a)) : a; })>);
    put("bfe." + type, "=r,r,r,r",
        ternary<T, T, u32, u32, decltype([](T a, u32 b, u32 c) { return extract_bits<T>(a, b, c); })>);
    if constexpr (sizeof(T) <= 4) {
      put("mul.wide." + type, "=r,r,r", binary<Wide, T, T, decltype([](T a, T b) {
                                                 return static_cast<Wide>(static_cast<Wide>(a) * static_cast<Wide>(b));
                                               })>);
      put("mad.wide." + type, "=r,r,r,r",
          ternary<Wide, T, T, Wide, decltype([](T a, T b, Wide c) {
                    return static_cast<Wide>(static_cast<u64>(static_cast<Wide>(a) * static_cast<Wide>(b)) +
                                             static_cast<u64>(c));
                  })>);
      put("mul.hi." + type, "=r,r,r",
          binary<T, T, T, decltype([](T a, T b) {
                   return static_cast<T>((static_cast<Wide>(a) * static_cast<Wide>(b)) >> (8 * sizeof(T)));
                 })>);
    } else {
      using Double = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
      put("mul.hi." + type, "=r,r,r",
          binary<T, T, T, decltype([](T a, T b) {
                   return static_cast<T>((static_cast<Double>(a) * static_cast<Double>(b)) >> 64);
                 })>);
    }
    orders<T>(type);
  }

  template <class T>
  void orders(const std::string& type) {
    for (const char* combined : {"", ".and", ".or", ".xor"}) {
      const char* signature = combined[0] == '\0' ? "=p,r,r" : "=p,r,r,p";
      const std::string end = std::string(combined) + "." + type;
      put("setp.eq" + end, signature, compare<T, decltype([](T a, T b) { return a == b; })>);
      put("setp.ne" + end, signature, compare<T, decltype([](T a, T b) { return a < b || a > b; })>);
      put("setp.lt" + end, signature, compare<T, decltype([](T a, T b) { return a < b; })>);
      put("setp.le" + end, signature, compare<T, decltype([](T a, T b) { return a <= b; })>);
      put("setp.gt" + end, signature, compare<T, decltype([](T a, T b) { return a > b; })>);
      put("setp.ge" + end, signature, compare<T, decltype([](T a, T b) { return a >= b; })>);
      if constexpr (std::is_floating_point_v<T>) {
        put("setp.neu" + end, signature, compare<T, decltype([](T a, T b) { return !(a == b); })>);
        put("setp.equ" + end, signature, compare<T, decltype([](T a, T b) { return !(a < b || a > b); })>);
        put("setp.ltu" + end, signature, compare<T, decltype([](T a, T b) { return !(a >= b); })>);
        put("setp.leu" + end, signature, compare<T, decltype([](T a, T b) { return !(a > b); })>);
        put("setp.gtu" + end, signature, compare<T, decltype([](T a, T b) { return !(a <= b); })>);
        put("setp.geu" + end, signature, compare<T, decltype([](T a, T b) { return !(a < b); })>);
        put("setp.nan" + end, signature, compare<T, decltype([](T a, T b) { return std::isnan(a) || std::isnan(b); })>);
        put("setp.num" + end, signature,
            compare<T, decltype([](T a, T b) { return !std::isnan(a) && !std::isnan(b); })>);
      }
    }
  }

  template <class T>
  void bits(const std::string& type) {
    put("and." + type, "=r,r,r", binary<T, T, T, decltype([](T a, T b) { return static_cast<T>(a & b); })>);
    put("or." + type, "=r,r,r", binary<T, T, T, decltype([](T a, T b) { return static_cast<T>(a | b); })>);
    put("xor." + type, "=r,r,r", binary<T, T, T, decltype([](T a, T b) { return static_cast<T>(a ^ b); })>);
    put("not." + type, "=r,r", unary<T, T, decltype([](T a) { return static_cast<T>(~a); })>);
    put("shl." + type, "=r,r,r", binary<T, T, u32, decltype([](T a, u32 b) { return shift_left<T>(a, b); })>);
    put("shr." + type, "=r,r,r", binary<T, T, u32, decltype([](T a, u32 b) { return shift_right<T>(a, b); })>);
    put("setp.eq." + type, "=p,r,r", compare<T, decltype([](T a, T b) { return a == b; })>);
    put("setp.ne." + type, "=p,r,r", compare<T, decltype([](T a, T b) { return a != b; })>);
    if constexpr (sizeof(T) >= 4) {
      put("bfi." + type, "=r,r,r,r,r", [](Warp& warp, const Instruction& i, u32 lanes) {
        const u64* const from = warp.in(i.operand[1]);
        const u64* const into = warp.in(i.operand[2]);
        const u64* const begin = warp.in(i.operand[3]);
        const u64* const count = warp.in(i.operand[4]);
        u64 result[32];
        for (int l = 0; l < 32; ++l) {
          result[l] = insert_bits<T>(static_cast<T>(from[l]), static_cast<T>(into[l]), static_cast<u32>(begin[l]),
                                     static_cast<u32>(count[l]));
        }
        warp.put(i.operand[0], lanes, result);
      });
      put("brev." + type, "=r,r", unary<T, T, decltype([](T a) { return reverse_bits<T>(a); })>);
      put("popc." + type, "=r,r", unary<u32, T, decltype([](T a) { return static_cast<u32>(std::popcount(a)); })>);
      put("clz." + type, "=r,r", unary<u32, T, decltype([](T a) { return static_cast<u32>(std::countl_zero(a)); })>);
    }
  }

  template <class T>
  void floats(const std::string& type) {
    put("add.rn." + type, "=r,r,r", binary<T, T, T, decltype([](T a, T b) { return a + b; })>);
    put("sub.rn." + type, "=r,r,r", binary<T, T, T, decltype([](T a, T b) { return a - b; })>);
    put("mul.rn." + type, "=r,r,r", binary<T, T, T, decltype([](T a, T b) { return a * b; })>);
    put("div.rn." + type, "=r,r,r", binary<T, T, T, decltype([](T a, T b) { return a / b; })>);
    put("fma.rn." + type, "=r,r,r,r", ternary<T, T, T, T, decltype([](T a, T b, T c) { return std::fma(a, b, c); })>);
    put("rcp.rn." + type, "=r,r", unary<T, T, decltype([](T a) { return T{1} / a; })>);
    put("sqrt.rn." + type, "=r,r", unary<T, T, decltype([](T a) { return std::sqrt(a); })>);
    for (const char* name : {"add.", "sub.", "mul."}) {  // without .rn they may be contracted: never with -fmad=false
      table[name + type] = table[std::string(name) + "rn." + type];
      table[name + type].name = name + type;
    }
    using Bits = std::conditional_t<sizeof(T) == 4, u32, u64>;
    put("neg." + type, "=r,r",
        unary<Bits, Bits, decltype([](Bits a) { return static_cast<Bits>(a ^ (Bits{1} << (8 * sizeof(T) - 1))); })>);
    put("abs." + type, "=r,r",
        unary<Bits, Bits, decltype([](Bits a) { return static_cast<Bits>(a & ~(Bits{1} << (8 * sizeof(T) - 1))); })>);
    orders<T>(type);
  }

  void all() {
    integers<u16>("u16"), integers<s16>("s16"), integers<u32>("u32"), integers<s32>("s32"), integers<u64>("u64"),
        integers<s64>("s64");
    bits<u16>("b16"), bits<u32>("b32"), bits<u64>("b64");
    floats<float>("f32"), floats<double>("f64");
    for (const char* type : {"b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"}) {
      put(std::string("mov.") + type, "=r,r", copy_value);
      put(std::string("selp.") + type, "=r,r,r,p", select_value);
    }
    put("mov.clock", "=r,c", read_clock);
    put("mov.pred", "=p,p", predicates<decltype([](u32 a, u32) { return a; })>);
    put("not.pred", "=p,p", predicates<decltype([](u32 a, u32) { return ~a; })>);
    put("and.pred", "=p,p,p", predicates<decltype([](u32 a, u32 b) { return a & b; })>);
    put("or.pred", "=p,p,p", predicates<decltype([](u32 a, u32 b) { return a | b; })>);
    put("xor.pred", "=p,p,p", predicates<decltype([](u32 a, u32 b) { return a ^ b; })>);
    put("pack.8x4", "=r,R", pack<u8>), put("pack.8x2", "=r,R", pack<u8>);
    put("pack.16x2", "=r,R", pack<u16>), put("pack.16x4", "=r,R", pack<u16>), put("pack.32x2", "=r,R", pack<u32>);
    put("unpack.8x4", "=R,r", unpack<u8>), put("unpack.8x2", "=R,r", unpack<u8>);
    put("unpack.16x2", "=R,r", unpack<u16>), put("unpack.16x4", "=R,r", unpack<u16>),
        put("unpack.32x2", "=R,r", unpack<u32>);
    put("prmt.b32", "=r,r,r,r",
        ternary<u32, u32, u32, u32, decltype([](u32 a, u32 b, u32 c) { return permute(a, b, c); })>);
    put("bfind.u32", "=r,r", unary<u32, u32, decltype([](u32 a) { return highest_bit(a); })>);
    put("bfind.shiftamt.u32", "=r,r",
        unary<u32, u32, decltype([](u32 a) { return a == 0 ? 0xFFFFFFFFU : 31U - highest_bit(a); })>);
    put("shf.l.wrap.b32", "=r,r,r,r", ternary<u32, u32, u32, u32, decltype([](u32 a, u32 b, u32 c) {
                                                return static_cast<u32>((u64{b} << 32 | a) << (c & 31) >> 32);
                                              })>);
    put("shf.r.wrap.b32", "=r,r,r,r", ternary<u32, u32, u32, u32, decltype([](u32 a, u32 b, u32 c) {
                                                return static_cast<u32>((u64{b} << 32 | a) >> (c & 31));
                                              })>);
  }
};

}  // namespace

const Operation* find_operation(std::string_view name) {
  static const Table table = [] {
    Table made;
    Adder{made}.all();
    add_conversions(made);
    add_flow(made);
    return made;
  }();
  const auto found = table.find(std::string(name));
  return found == table.end() ? nullptr : &found->second;
}

}  // namespace gradwire::ptx
