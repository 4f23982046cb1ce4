#include "collective/launch.hpp"

namespace gradwire::collective {

codec::Codec codec_for(Algorithm algorithm, CodecSpec spec, DType dtype) {
  return {algorithm == Algorithm::dense ? CodecSpec::parse("exact") : spec, dtype};
}

HopCodecs hop_codecs(CodecSpec first, CodecSpec second, DType dtype, bool widened, std::optional<CodecSpec> node) {
  const DType wide = element_bytes(dtype) < element_bytes(DType::f32) ? DType::f32 : dtype;
  // Exact parts of a lossy sum are weighted before they travel, which takes more than 16 bits.
  const bool mixed = node && !codec::Codec(first, wide).lossy() && codec::Codec(*node, wide).lossy();
  const DType wire = widened || mixed ? wide : dtype;
  const CodecSpec sums = node.value_or(first);
  const HopCodecs codecs{{first, wire}, {second, wire}, {sums, node ? wide : wire}};
  if (codecs.first.working() == codecs.second.working() && codecs.first.working() == codecs.node.working()) {
    return codecs;
  }
  return {{first, DType::f32}, {second, DType::f32}, {sums, DType::f32}};
}

namespace {

bool has_native(const TransportCapabilities& capabilities, DType dtype) {
  return (dtype == DType::f32 && capabilities.native_all_reduce_f32) ||
         (dtype == DType::f64 && capabilities.native_all_reduce_f64);
}

}  // namespace

bool dense_in_call(const Transport& transport, DType dtype, std::uint64_t count, const Tiers& tiers) {
  const TransportCapabilities capabilities = transport.capabilities();
  const std::uint64_t bytes = count * element_bytes(dtype);
  return capabilities.all_reduce_in_call && has_native(capabilities, dtype) && transport.world_size() > 1 &&
         tiers.nodes() == 1 && bytes >= kNativeBelowBytes && bytes < kInCallBelowBytes;
}

Schedule all_reduce_over(const Transport& transport, Algorithm algorithm, const HopCodecs& codecs, std::uint64_t count,
                         const AllReduceOptions& options) {
  const Shape shape{transport.rank(),    transport.world_size(), options.weighted,
                    options.chunk_bytes, options.folds_owner,    options.tiers};
  const DType dtype = codecs.first.dtype();
  if (algorithm == Algorithm::dense && has_native(transport.capabilities(), dtype) && !options.deterministic &&
      shape.world_size > 1 && (options.asks || count * element_bytes(dtype) < options.native_below)) {
    return native_all_reduce(shape, count, {.asks = options.asks, .compares_terms = options.compares_terms});
  }
  return all_reduce(algorithm, shape, count, codecs);
}

}  // namespace gradwire::collective
