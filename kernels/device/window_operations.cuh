// One unit of the CUDA library and one of the tests' emulated library include this file.
#include <algorithm>
#include <string>

#include "kernels/device/codec_table.hpp"
#include "kernels/device/window_check.hpp"
#include "kernels/device/window_operations.hpp"
#include "kernels/device/window_reduce.hpp"

namespace gradwire::kernels {
namespace {

// Calls body(Type<C>) for the warp codec C; exact values are left to the library's own sum.
template <class Body>
bool with_window_codec(const FrameCodec& codec, const Body& body) {
  switch (codec.k == 0 ? codec.id : kExactId) {
    GRADWIRE_DEVICE_CODECS(GRADWIRE_DENSE_CODEC)
    default: return false;
  }
}

template <class Body>
void with_each_window_codec(const Body& body) {
  for (std::uint8_t id = kExactId; id < kCodecIds; ++id) {
    with_window_codec({.id = id}, body);
  }
}

}  // namespace

bool has_window_kernel(const FrameCodec& codec) noexcept {
  return with_window_codec(codec, [](auto) {});
}

void all_reduce_windows(const WindowJob& job, void* stream) {
  const FrameCodec& codec = job.encode.call.codec;
  const bool found = with_window_codec(codec, [&]<class C>(Type<C>) {
    const std::uint32_t blocks = job.places.shape.blocks;
    if (job.encode.pieces.count == 0 && job.decode.pieces.count == 0) {
      simt::launch("reduce_windows", reduce_windows<C, WindowJob>, blocks, stream, job);
    } else {
      const WindowPiecesJob pieces{job.places, {job.encode}, {job.reduce}, {job.decode}};
      simt::launch("reduce_windows", reduce_windows<C, WindowPiecesJob>, blocks, stream, pieces);
    }
  });
  if (!found) {
    throw Error(ErrorCode::unsupported,
                "no kernel over windows for codec " + std::to_string(codec.id) + " with k " + std::to_string(codec.k));
  }
}

void check_windows(const WindowPlaces& places, void* stream) {
  simt::launch("exchange_words", exchange_words, places.shape.blocks, stream, places);
}

std::uint32_t resident_window_blocks() {
  std::uint32_t least = simt::resident_blocks("exchange_words", exchange_words);
  with_each_window_codec([&]<class C>(Type<C>) {
    least = std::min({least, simt::resident_blocks("reduce_windows", reduce_windows<C, WindowJob>),
                      simt::resident_blocks("reduce_windows", reduce_windows<C, WindowPiecesJob>)});
  });
  return least;
}

void load_window_kernels() {
  simt::load_kernel("exchange_words", exchange_words);
  with_each_window_codec([]<class C>(Type<C>) {
    simt::load_kernel("reduce_windows", reduce_windows<C, WindowJob>);
    simt::load_kernel("reduce_windows", reduce_windows<C, WindowPiecesJob>);
  });
}

}  // namespace gradwire::kernels
