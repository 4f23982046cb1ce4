// Measures the effect of a codec on a job's own values, which are encoded and decoded here, but not sent.
#pragma once

#include <cstddef>

#include "drop_in/observed.hpp"
#include "gradwire/codec_spec.hpp"
#include "gradwire/dtype.hpp"

namespace gradwire::drop_in {

/// At most this much of an input is sampled; each of the two buffers for it is no larger.
inline constexpr std::size_t kMostSampledBytes = std::size_t{1} << 20;

/// Encodes the first `most_bytes` of `input`, which are in host memory, and decodes them again. Does not change the
/// input. Throws Error(unsupported) if the codec does not support the dtype. Exact values are not sampled.
[[nodiscard]] SampledValues sample_values(const CodecSpec& spec, ConstView input,
                                          std::size_t most_bytes = kMostSampledBytes);

}  // namespace gradwire::drop_in
