#include "exchange/stream/stream_call.hpp"

#include <utility>

namespace gradwire::exchange {
StreamCall make_stream_call(CallRequest request, const StreamBackend& backend, std::optional<std::uint64_t> chunk_bytes,
                            std::shared_ptr<const Tiers> tiers) {
  request.chunk_bytes = stream_chunks(backend.world_size(), chunk_bytes);
  if (request.algorithm == Algorithm::automatic) {
    request.algorithm = Algorithm::two_shot;
  }
  Resolved resolved = resolve(request, {backend.rank(), backend.world_size(), tiers});
  return {std::move(request), std::move(resolved), std::move(tiers)};
}

StreamTask make_stream_task(const StreamCall& call, StreamDevice& device, StreamArguments arguments) {
  const CallRequest& request = call.request;
  const ResidualUse::Range whole{0, request.count};
  const auto part = [&](Collective of_segments) {
    return request.collective == of_segments ? segment_of(request, device.backend().rank()) : whole;
  };
  const ResidualUse::Range in = part(Collective::all_gather);
  const ResidualUse::Range out = part(Collective::reduce_scatter);
  return {.input = {arguments.input, in.first, in.count},
          .output = {arguments.output, out.first, out.count},
          .count = request.count,
          .dtype = request.dtype,
          .call = call.resolved.call,
          .reduction = arguments.reduction,
          .weight = arguments.weight,
          .factor = arguments.factor,
          .device_factor = arguments.device_factor,
          .bucket = arguments.bucket,
          .step = arguments.step,
          .status = &device.status(),
          .nonfinite = device.nonfinite(),
          .local_residual = arguments.local_residual,
          .owner_residual = arguments.owner_residual,
          .node_residual = arguments.node_residual,
          .powers = {arguments.powers, whole.first, whole.count},
          .terms = arguments.terms,
          .tiers = call.tiers != nullptr && call.tiers->nodes() > 1 ? call.tiers : nullptr,
          .name = std::move(arguments.name)};
}

}  // namespace gradwire::exchange
