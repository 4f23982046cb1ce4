// The headers of frames, which are written ahead of the kernels that fill the frames.
#ifndef GRADWIRE_KERNELS_DEVICE_FRAME_HEADERS_HPP
#define GRADWIRE_KERNELS_DEVICE_FRAME_HEADERS_HPP

#include "kernels/device/frame_words.hpp"

namespace gradwire::kernels {

/// The headers that one launch writes: those of a round's encoders, and that of the owner's sum of a later round.
struct HeaderList {
  static constexpr std::uint32_t kMost = 2;
  HeaderJob job[kMost];
  std::uint32_t jobs = 0;
};

/// Writes headers, without flags, a thread a word. It runs before the kernels that fill the frames and may set a flag.
GRADWIRE_KERNEL open_frames(GRADWIRE_PARAMETER(HeaderList) list) {
  std::uint32_t before = 0;
  for (std::uint32_t at = 0; at < list.jobs; ++at) {
    const HeaderJob& job = list.job[at];
    const std::uint32_t words = job.series.frames * kHeaderWords;
    for (std::uint32_t i = simt::block() * simt::kThreads + simt::thread(); i < before + words;
         i += simt::blocks() * simt::kThreads) {
      if (i >= before) {
        open_word(job, i - before);
      }
    }
    before += words;
  }
}

}  // namespace gradwire::kernels

#endif  // GRADWIRE_KERNELS_DEVICE_FRAME_HEADERS_HPP
