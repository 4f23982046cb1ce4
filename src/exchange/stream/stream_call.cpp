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

// A sum by a library needs contiguous memory, kernels that divide by a scale know arrays alone, and so do those that
// prepare an input for its encoder: which add residuals that no encoder keeps, or multiply by a number on the device.
PiecesOfCall pieces_of_call(const StreamCall& call, const StreamTask& task, const StreamBackend& backend) {
  const int world = backend.world_size();
  if (call.request.collective != Collective::all_reduce || world == 1 || task.call.preconditioned ||
      is_native(call.request, {backend.rank(), world, call.tiers})) {
    return {};
  }
  const ResidualUse& residuals = task.call.residuals;
  const DeviceRange<float>& local = task.local_residual;
  const DeviceRange<float>& owner = task.owner_residual;
  const bool local_stays = local.data == nullptr || residuals.keeps.local;
  const bool owner_stays = owner.data == nullptr || (residuals.keeps.owner && owner.first == residuals.owned.first &&
                                                     owner.count == residuals.owned.count);
  const bool scales = task.call.scales_first() && task.reduction == Reduction::mean;
  const bool summed_before = task.call.node_sums.has_value();
  return {.input = !summed_before && local_stays && owner_stays && !scales && task.device_factor == nullptr,
          .output = true};
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
          .in_windows = arguments.in_windows,
          .name = std::move(arguments.name)};
}

}  // namespace gradwire::exchange
