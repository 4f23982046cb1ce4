#include "collective/launch.hpp"

namespace gradwire::collective {

codec::Codec codec_for(Algorithm algorithm, CodecSpec spec, DType dtype) {
  return {algorithm == Algorithm::dense ? CodecSpec::parse("exact") : spec, dtype};
}

Schedule all_reduce_over(const Transport& transport, Algorithm algorithm, const codec::Codec& codec,
                         std::uint64_t count, bool weighted, std::uint64_t chunk_bytes, bool deterministic) {
  const Shape shape{transport.rank(), transport.world_size(), weighted, chunk_bytes};
  const TransportCapabilities capabilities = transport.capabilities();
  const bool has_dtype = (codec.dtype() == DType::f32 && capabilities.native_all_reduce_f32) ||
                         (codec.dtype() == DType::f64 && capabilities.native_all_reduce_f64);
  if (algorithm == Algorithm::dense && has_dtype && !deterministic && shape.world_size > 1 &&
      count * element_bytes(codec.dtype()) < kNativeBelowBytes) {
    return native_all_reduce(shape, count);
  }
  return all_reduce(algorithm, shape, count, codec);
}

}  // namespace gradwire::collective
