// What a codec makes of a job's own values: encoded and decoded here, sent nowhere.
#pragma once

#include <cstddef>

#include "drop_in/observed.hpp"
#include "gradwire/codec_spec.hpp"
#include "gradwire/dtype.hpp"

namespace gradwire::drop_in {

/// Of an input no more than this is looked at; each of the two buffers that it takes is no larger.
inline constexpr std::size_t kMostSampledBytes = std::size_t{1} << 20;

/// Encodes the first `most_bytes` of `input`, which are in host memory, and decodes them again. The values stay as they
/// are. Error(unsupported) where the codec does not support the dtype; nothing is sampled of exact values.
[[nodiscard]] SampledValues sample_values(const CodecSpec& spec, ConstView input,
                                          std::size_t most_bytes = kMostSampledBytes);

}  // namespace gradwire::drop_in
