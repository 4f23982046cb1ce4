// The functions of libzstd that this project calls, declared as in zstd.h; they belong to its stable interface. A test
// compares them with the header where that is installed.
#pragma once

#include <cstddef>

namespace gradwire::codec::zstd {

inline constexpr int kCompressionLevel = 100;  // ZSTD_c_compressionLevel
inline constexpr int kHashLog = 102;           // ZSTD_c_hashLog
inline constexpr int kMinMatch = 105;          // ZSTD_c_minMatch

/// `CompressionContext` and `DecompressionContext` stand for ZSTD_CCtx and ZSTD_DCtx, `Parameter` for ZSTD_cParameter.
template <class CompressionContext, class DecompressionContext, class Parameter>
struct Functions {
  CompressionContext* (*create_compression)() = nullptr;
  std::size_t (*free_compression)(CompressionContext*) = nullptr;
  std::size_t (*set_parameter)(CompressionContext*, Parameter, int) = nullptr;
  std::size_t (*compress)(CompressionContext*, void*, std::size_t, const void*, std::size_t) = nullptr;
  DecompressionContext* (*create_decompression)() = nullptr;
  std::size_t (*free_decompression)(DecompressionContext*) = nullptr;
  std::size_t (*decompress)(DecompressionContext*, void*, std::size_t, const void*, std::size_t) = nullptr;
  unsigned (*is_error)(std::size_t) = nullptr;

  /// Calls body(name, function) for each.
  template <class Body>
  void for_each(Body body) {
    body("ZSTD_createCCtx", create_compression);
    body("ZSTD_freeCCtx", free_compression);
    body("ZSTD_CCtx_setParameter", set_parameter);
    body("ZSTD_compress2", compress);
    body("ZSTD_createDCtx", create_decompression);
    body("ZSTD_freeDCtx", free_decompression);
    body("ZSTD_decompressDCtx", decompress);
    body("ZSTD_isError", is_error);
  }
};

}  // namespace gradwire::codec::zstd
