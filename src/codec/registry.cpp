// This file is compiled once for each instruction set (foreach_target includes it again): the SIMD part of each kernel
// file replaces the scalar core of the same name in the table below; a codec without one keeps its scalar core.
// Each row is in two tables: the codec over whole tiles, and behind the selector topk.
#include "codec/registry.hpp"

#if defined(GRADWIRE_HIGHWAY)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/registry.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#endif

#include "kernels/bf16.hpp"
#include "kernels/exact.hpp"
#include "kernels/fp16.hpp"
#include "kernels/fp8.hpp"
#include "kernels/int2.hpp"
#include "kernels/int4.hpp"
#include "kernels/int8.hpp"
#include "kernels/sign.hpp"
#include "kernels/stochastic_bf16.hpp"
#include "kernels/stochastic_int8.hpp"
#if defined(GRADWIRE_HIGHWAY)
#include "kernels/stochastic_bf16_simd.hpp"
#include "kernels/stochastic_int8_simd.hpp"
#endif
#include "kernels/topk.hpp"
#include "kernels/topk_version1.hpp"

#ifndef GRADWIRE_CODEC_TABLE
// The table of codecs. Columns: core (kTensor is the dtype of the tensor), name, id on the wire, lossy.
#define GRADWIRE_CODEC_TABLE(ROW)        \
  ROW(Exact<kTensor>, "exact", 1, false) \
  ROW(Bf16, "bf16", 2, true)             \
  ROW(Fp16, "fp16", 3, true)             \
  ROW(Int8, "int8", 4, true)             \
  ROW(Fp8, "fp8", 5, true)               \
  ROW(Int4, "int4", 6, true)             \
  ROW(Int2, "int2", 7, true)             \
  ROW(Sign, "sign", 8, true)

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "codec/cpu.hpp"
#include "gradwire/error.hpp"

namespace gradwire::codec {

using Coders = decltype(InstructionSet::coders);
template <std::int64_t kTarget>  // of Highway
constexpr Coders kCodersOf = nullptr;
template <std::int64_t kTarget>
constexpr ResidualCoders kResidualCodersOf = {};

namespace {

// Returns the result of `decode`, or true where it returns nothing.
template <class Decode>
bool succeeds(const Decode& decode) {
  if constexpr (std::is_void_v<decltype(decode())>) {
    decode();
    return true;
  } else {
    return decode();
  }
}

// A core with its types erased.
template <class Core>
constexpr TileCoder coder_of() {
  using Value = typename Core::Value;
  using kernels::Residual;
  using kernels::Tile;
  TileCoder coder{};
  coder.working = std::is_same_v<Value, double> ? Working::f64 : Working::f32;
  coder.tile_bytes = [](std::uint32_t k, std::uint32_t count) { return Core::tile_bytes(k, count); };
  if constexpr (requires { &Core::encode; }) {
    coder.encode = [](const Tile& tile, const void* values, Residual residual, std::uint32_t count, std::uint8_t* out) {
      return Core::encode(tile, static_cast<const Value*>(values), residual, count, out);
    };
  }
  coder.decode = [](const Tile& tile, const std::uint8_t* in, std::uint32_t count, void* values) {
    return succeeds([&] { return Core::decode(tile, in, count, static_cast<Value*>(values)); });
  };
  coder.decode_add = [](const Tile& tile, const std::uint8_t* in, std::uint32_t count, void* values) {
    return succeeds([&] { return Core::decode_add(tile, in, count, static_cast<Value*>(values)); });
  };
  if constexpr (requires { &Core::copy; }) {
    coder.copy = [](const void* elements, std::uint32_t count, std::uint8_t* out) {
      return Core::copy(elements, count, out);
    };
    coder.narrow = [](const void* values, std::uint32_t count, std::uint8_t* elements) {
      Core::narrow(static_cast<const Value*>(values), count, elements);
    };
  }
  return coder;
}

}  // namespace
}  // namespace gradwire::codec

// Defines, in a namespace of kernels, coders(dtype, selected) over the cores that are visible there, and
// kResidualCoders.
#define GRADWIRE_CODER_ROW(core, name, id, lossy) codec::coder_of<core>(),
#define GRADWIRE_SELECTED_ROW(core, name, id, lossy) codec::coder_of<TopK<typename core::Selected>>(),
#define GRADWIRE_TABLE_BY_DTYPE(table, function, row)                      \
  template <DType kTensor>                                                 \
  inline constexpr codec::TileCoder table[] = {GRADWIRE_CODEC_TABLE(row)}; \
  inline const codec::TileCoder* function(DType tensor) {                  \
    switch (tensor) {                                                      \
      case DType::f16: return table<DType::f16>;                           \
      case DType::bf16: return table<DType::bf16>;                         \
      case DType::f64: return table<DType::f64>;                           \
      case DType::f32: break;                                              \
    }                                                                      \
    return table<DType::f32>;                                              \
  }
#define GRADWIRE_DEFINE_CODERS                                                                          \
  GRADWIRE_TABLE_BY_DTYPE(kWholeTiles, whole_tiles, GRADWIRE_CODER_ROW)                                 \
  GRADWIRE_TABLE_BY_DTYPE(kSelectedTiles, selected_tiles, GRADWIRE_SELECTED_ROW)                        \
  inline const codec::TileCoder* coders(DType tensor, bool selected) {                                  \
    return selected ? selected_tiles(tensor) : whole_tiles(tensor);                                     \
  }                                                                                                     \
  inline constexpr codec::ResidualCoders kResidualCoders{StochasticBf16::narrow, StochasticBf16::widen, \
                                                         StochasticInt8::narrow, StochasticInt8::widen};
#endif  // GRADWIRE_CODEC_TABLE

#if defined(GRADWIRE_HIGHWAY)
HWY_BEFORE_NAMESPACE();
namespace gradwire::kernels::HWY_NAMESPACE {
GRADWIRE_DEFINE_CODERS
}  // namespace gradwire::kernels::HWY_NAMESPACE
namespace gradwire::codec {
template <>
constexpr Coders kCodersOf<HWY_TARGET> = kernels::HWY_NAMESPACE::coders;
template <>
constexpr ResidualCoders kResidualCodersOf<HWY_TARGET> = kernels::HWY_NAMESPACE::kResidualCoders;
}  // namespace gradwire::codec
HWY_AFTER_NAMESPACE();
#endif

#if !defined(GRADWIRE_HIGHWAY) || HWY_ONCE
namespace gradwire::kernels::scalar {
GRADWIRE_DEFINE_CODERS
#define GRADWIRE_VERSION1_ROW(core, name, id, lossy) codec::coder_of<TopKVersion1<typename core::Selected>>(),
GRADWIRE_TABLE_BY_DTYPE(kVersion1Tiles, version1_tiles, GRADWIRE_VERSION1_ROW)
}  // namespace gradwire::kernels::scalar

namespace gradwire::codec {
namespace {

std::vector<InstructionSet> find_instruction_sets() {
  std::vector<InstructionSet> sets{{"scalar", kernels::scalar::coders, kernels::scalar::kResidualCoders}};
#if defined(GRADWIRE_HIGHWAY)
  // Highway's own dispatch is in its library, and this code needs its headers only. The widest target has the lowest
  // bit.
  const auto add = [&]<int kBit>(std::integral_constant<int, kBit>) {
    constexpr std::int64_t kTarget = std::int64_t{1} << kBit;
    // HWY_SCALAR would be our own scalar cores again, see kernels/simd.hpp.
    if constexpr ((kTarget & HWY_TARGETS & ~HWY_SCALAR) != 0) {
      if (cpu_runs(kTarget)) {
        sets.push_back({hwy::TargetName(kTarget), kCodersOf<kTarget>, kResidualCodersOf<kTarget>});
      }
    }
  };
  [&]<int... kBits>(std::integer_sequence<int, kBits...>) { (add(std::integral_constant<int, 62 - kBits>{}), ...); }
  (std::make_integer_sequence<int, 63>{});
#endif
  return sets;
}

}  // namespace

std::span<const CodecEntry> codecs() noexcept {
#define GRADWIRE_ENTRY_ROW(core, name, id, lossy) CodecEntry{name, id, lossy},
  static constexpr std::array kEntries{GRADWIRE_CODEC_TABLE(GRADWIRE_ENTRY_ROW)};
#undef GRADWIRE_ENTRY_ROW
  return kEntries;
}

const CodecEntry* find_codec(std::uint8_t id) noexcept {
  const auto entry = std::ranges::find(codecs(), id, &CodecEntry::id);
  return entry != codecs().end() ? &*entry : id == kPacked.id ? &kPacked : nullptr;
}

const CodecEntry* find_codec(std::string_view name) noexcept {
  const auto entry = std::ranges::find(codecs(), name, &CodecEntry::name);
  return entry != codecs().end() ? &*entry : name == kPacked.name ? &kPacked : nullptr;
}

std::string codec_names() {
  std::string names;
  for (const CodecEntry& entry : codecs()) {
    names +=
        names.empty() ? std::string(entry.name) + ", " + std::string(kPacked.name) : ", " + std::string(entry.name);
  }
  return names;
}

const TileCoder& version1_selected_coder(const CodecEntry& codec, DType tensor) noexcept {
  return kernels::scalar::version1_tiles(tensor)[&codec - codecs().data()];
}

std::span<const InstructionSet> instruction_sets() {
  // The vector is never destroyed, since jobs make sums in atexit handlers and in destructors of static objects.
  static const auto& sets = *new std::vector<InstructionSet>(find_instruction_sets());
  return sets;
}

const InstructionSet& active_instruction_set() {
  static const InstructionSet* const active = [] {
    const std::string choice = environment("GRADWIRE_SIMD").value_or("auto");
    if (choice != "auto" && choice != "scalar") {
      throw Error(ErrorCode::invalid_argument, "GRADWIRE_SIMD is \"" + choice + "\": write auto or scalar");
    }
    return choice == "scalar" ? &instruction_sets().front() : &instruction_sets().back();
  }();
  return *active;
}

}  // namespace gradwire::codec
#endif  // HWY_ONCE
