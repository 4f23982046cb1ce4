#include "exchange/default_codecs.hpp"

#include <algorithm>
#include <cstdint>

#include "codec/codec.hpp"

namespace gradwire::exchange {

CodecSpec intra_codec(const CodecSpec& codec, const std::optional<CodecSpec>& asked) {
  const codec::Codec between(codec, DType::f32);
  if (between.packed()) {  // inside nodes packing takes longer than the bytes that it saves
    return asked.value_or(CodecSpec::exact());
  }
  return between.lossy() ? asked.value_or(CodecSpec::parse("bf16")) : codec;
}

double bits_per_element(const CodecSpec& codec) {
  constexpr double kBits = 8;
  return kBits * static_cast<double>(codec::Codec(codec, DType::f32).payload_bytes(codec::kTileElements)) /
         static_cast<double>(codec::kTileElements);
}

CodecSpec default_second_hop(const CodecSpec& codec, int parts) {
  if (codec.k == 0) {
    return codec;
  }
  CodecSpec second = codec;
  second.k = static_cast<std::uint16_t>(
      std::min<std::uint64_t>(codec::kTileElements, std::uint64_t{codec.k} * static_cast<std::uint64_t>(parts)));
  const CodecSpec dense = CodecSpec::parse("int4");
  return bits_per_element(second) > bits_per_element(dense) ? dense : second;
}

}  // namespace gradwire::exchange
