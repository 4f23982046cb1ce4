#include "collective/launch.hpp"

namespace gradwire::collective {

codec::Codec codec_for(Algorithm algorithm, CodecSpec spec, DType dtype) {
  return {algorithm == Algorithm::dense ? CodecSpec::parse("exact") : spec, dtype};
}

HopCodecs hop_codecs(CodecSpec first, CodecSpec second, DType dtype, bool widened) {
  const DType wire = widened && element_bytes(dtype) < element_bytes(DType::f32) ? DType::f32 : dtype;
  const HopCodecs codecs{{first, wire}, {second, wire}};
  if (codecs.first.working() == codecs.second.working()) {
    return codecs;
  }
  return {{first, DType::f32}, {second, DType::f32}};
}

Schedule all_reduce_over(const Transport& transport, Algorithm algorithm, const HopCodecs& codecs, std::uint64_t count,
                         const AllReduceOptions& options) {
  const Shape shape{transport.rank(), transport.world_size(), options.weighted, options.chunk_bytes,
                    options.folds_owner};
  const DType dtype = codecs.first.dtype();
  const TransportCapabilities capabilities = transport.capabilities();
  const bool has_dtype = (dtype == DType::f32 && capabilities.native_all_reduce_f32) ||
                         (dtype == DType::f64 && capabilities.native_all_reduce_f64);
  if (algorithm == Algorithm::dense && has_dtype && !options.deterministic && shape.world_size > 1 &&
      count * element_bytes(dtype) < options.native_below) {
    return native_all_reduce(shape, count);
  }
  return all_reduce(algorithm, shape, count, codecs);
}

}  // namespace gradwire::collective
