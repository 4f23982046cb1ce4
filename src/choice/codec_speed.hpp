// Measures the speed of codecs on this machine for the cost model. A measurement takes milliseconds.
#pragma once

#include <chrono>
#include <cstdint>

#include "exchange/model/cost_model.hpp"
#include "gradwire/codec_spec.hpp"

namespace gradwire::choice {

/// Encoded bytes and seconds of one thread for an f32 element, from runs over `tiles` tiles of Gaussian elements that
/// take about `budget` in all (16 tiles stay in a cache, 1024 do not). The fastest run counts, since others were
/// disturbed. With `feedback` the encoder keeps a residual.
[[nodiscard]] exchange::CodecCost measure_codec(const CodecSpec& spec, bool feedback,
                                                std::chrono::nanoseconds budget = std::chrono::milliseconds(4),
                                                std::uint32_t tiles = 16);

}  // namespace gradwire::choice
