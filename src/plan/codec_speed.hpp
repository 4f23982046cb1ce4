// How fast this machine's codecs are: measured, in milliseconds, for the cost model.
#pragma once

#include <chrono>

#include "gradwire/codec_spec.hpp"
#include "plan/cost_model.hpp"

namespace gradwire::plan {

/// What a codec makes of an f32 element and costs one thread, from runs over 64 Ki Gaussian elements that take about
/// `budget` in all; the quickest run counts, since others were disturbed. With `feedback` the encoder keeps a residual.
[[nodiscard]] CodecCost measure_codec(const CodecSpec& codec, bool feedback,
                                      std::chrono::nanoseconds budget = std::chrono::milliseconds(4));

}  // namespace gradwire::plan
