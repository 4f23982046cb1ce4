// The device's half of the table of codecs (src/codec/registry.cpp): the kernel's codec for an id and a dtype, once
// over whole tiles and once behind topk. A codec without a row here is an Error(unsupported) on a device.
#ifndef GRADWIRE_KERNELS_DEVICE_CODEC_TABLE_HPP
#define GRADWIRE_KERNELS_DEVICE_CODEC_TABLE_HPP

#include "kernels/bf16.hpp"
#include "kernels/device/jobs.hpp"
#include "kernels/device/selected_coders.hpp"
#include "kernels/device/warp_codecs.hpp"
#include "kernels/device/warp_rotation.hpp"
#include "kernels/device/warp_sign.hpp"
#include "kernels/exact.hpp"
#include "kernels/fp16.hpp"
#include "kernels/fp8.hpp"
#include "kernels/int2.hpp"
#include "kernels/int4.hpp"
#include "kernels/int8.hpp"
#include "kernels/sign.hpp"

namespace gradwire::kernels {

inline constexpr std::uint8_t kExactId = 1;
inline constexpr std::uint8_t kCodecIds = 9;  // all ids are below this

// Columns: id on the wire, scalar core, warp codec. CAST(dtype): exact.
#define GRADWIRE_DEVICE_EXACT(CAST) CAST(DType::f32) CAST(DType::f16) CAST(DType::bf16)
#define GRADWIRE_DEVICE_CODECS(ROW)   \
  ROW(2, Bf16, WarpCast<DType::bf16>) \
  ROW(3, Fp16, WarpBlock<Fp16Rule>)   \
  ROW(4, Int8, WarpBlock<Int8Rule>)   \
  ROW(5, Fp8, WarpBlock<Fp8Rule>)     \
  ROW(6, Int4, WarpRotated<Int4Grid>) \
  ROW(7, Int2, WarpRotated<Int2Grid>) \
  ROW(8, Sign, WarpSign)

template <class T>
struct Type {
  using type = T;
};

/// Whether the working values are f64.
GRADWIRE_HOST_DEVICE constexpr bool works_in_f64(const FrameCodec& codec) {
  return codec.id == kExactId && codec.dtype == DType::f64;
}

// Calls body(Type<C>) with the warp codec C of a codec without topk, or body(Type<K>) with the coder K of the values
// that topk selects; returns false where there is none. Value: the working type, which must be the codec's.
#define GRADWIRE_DEFINE_DISPATCH(ATTRIBUTE, with_codec, with_selected)      \
  template <class Value, class Body>                                        \
  ATTRIBUTE bool with_codec(const FrameCodec& codec, const Body& body) {    \
    if constexpr (sizeof(Value) == 8) {                                     \
      body(Type<WarpCast<DType::f64>>());                                   \
      return codec.id == kExactId;                                          \
    } else {                                                                \
      switch (codec.id) {                                                   \
        case kExactId:                                                      \
          GRADWIRE_DEVICE_EXACT(GRADWIRE_EXACT_CODEC) return false;         \
          GRADWIRE_DEVICE_CODECS(GRADWIRE_DENSE_CODEC)                      \
        default: return false;                                              \
      }                                                                     \
    }                                                                       \
  }                                                                         \
  template <class Value, class Body>                                        \
  ATTRIBUTE bool with_selected(const FrameCodec& codec, const Body& body) { \
    if constexpr (sizeof(Value) == 8) {                                     \
      body(Type<SelectedElements<DType::f64>>());                           \
      return codec.id == kExactId;                                          \
    } else {                                                                \
      switch (codec.id) {                                                   \
        case kExactId:                                                      \
          GRADWIRE_DEVICE_EXACT(GRADWIRE_EXACT_SELECTED) return false;      \
          GRADWIRE_DEVICE_CODECS(GRADWIRE_SELECTED_CODEC)                   \
        default: return false;                                              \
      }                                                                     \
    }                                                                       \
  }
#define GRADWIRE_EXACT_CODEC(type) \
  if (codec.dtype == type) {       \
    body(Type<WarpCast<type>>());  \
    return true;                   \
  }
#define GRADWIRE_EXACT_SELECTED(type)     \
  if (codec.dtype == type) {              \
    body(Type<SelectedElements<type>>()); \
    return true;                          \
  }
#define GRADWIRE_DENSE_CODEC(id, core, warp_codec) \
  case id:                                         \
    body(Type<warp_codec>());                      \
    return true;
#define GRADWIRE_SELECTED_CODEC(id, core, warp_codec) \
  case id: body(Type<typename core::Selected>()); return true;

GRADWIRE_DEFINE_DISPATCH(inline, host_with_codec, host_with_selected)
GRADWIRE_DEFINE_DISPATCH(GRADWIRE_DEVICE, with_codec, with_selected)

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_CODEC_TABLE_HPP
