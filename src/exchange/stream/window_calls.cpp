#include "exchange/stream/window_calls.hpp"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "base/units.hpp"
#include "exchange/stream/stream_lane.hpp"

namespace gradwire::exchange {
namespace {

std::uint32_t read(const std::uint32_t& word) {
  return std::atomic_ref(const_cast<std::uint32_t&>(word)).load(std::memory_order_relaxed);
}

}  // namespace

// All lossy codecs have one, without topk.
bool has_window_kernel(const codec::Codec& first, const codec::Codec& second) {
  return first.lossy() && first.spec().k == 0 && first.spec() == second.spec() && first.dtype() == second.dtype();
}

std::uint32_t window_blocks(std::uint32_t resident, std::uint32_t ranks_of_device, std::uint32_t taken) noexcept {
  const std::uint32_t left = resident > taken ? resident - taken : 0;
  return std::min(kernels::kMostWindowBlocks, left / std::max(1U, ranks_of_device));
}

WindowCalls::WindowCalls(std::unique_ptr<memory::PeerWindows> windows, const kernels::WindowShape& shape,
                         kernels::WindowWords& words, std::chrono::milliseconds timeout,
                         std::unique_ptr<BlockReservation> reservation)
    : reservation_(std::move(reservation)), windows_(std::move(windows)), timeout_(timeout) {
  if (shape.ranks > kernels::kMostWindowRanks || shape.blocks > kernels::kMostWindowBlocks) {
    throw Error(ErrorCode::internal, "windows for " + std::to_string(shape.ranks) + " ranks with " +
                                         std::to_string(shape.blocks) + " blocks each");
  }
  places_.shape = shape;
  places_.words = &words;
  places_.timeout_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(timeout).count());
  for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) {
    places_.window[rank] = reinterpret_cast<std::uint8_t*>(windows_->window(static_cast<int>(rank)));
  }
}

WindowCalls::~WindowCalls() {
  if (read(places_.words->missing) != 0 || read(places_.words->abort) != 0) {
    windows_->leak();
  }
}

// Where a call keeps residuals, it keeps those of both encodings; where it holds others, they are folded in, for which
// there is no kernel over windows.
bool WindowCalls::takes(const Schedule& schedule, const StreamTask& task) const {
  const ResidualUse& residuals = task.call.residuals;
  const codec::Codec& first = task.call.codecs.first;
  const codec::Codec& second = task.call.codecs.second;
  const bool by_both = residuals.keeps.local && residuals.keeps.owner && !residuals.moved;
  if (!task.in_windows || schedule.chunk_elements == 0 || schedule.lanes == 0 || task.call.weighted ||
      task.factor != 1 || task.device_factor != nullptr || task.call.preconditioned || (residuals.any && !by_both) ||
      !has_window_kernel(first, second) || task.count > kernels::kMostSeriesElements) {
    return false;
  }
  const std::uint64_t tiles = (schedule.chunk_elements + codec::kTileElements - 1) / codec::kTileElements;
  return tiles * first.payload_bytes(codec::kTileElements) <= places_.shape.slot_bytes;
}

kernels::WindowJob WindowCalls::job(const Lane& lane, const StreamTask& task) const {
  const ChunkSeries& series = lane.series.value();
  const kernels::WindowShape& shape = places_.shape;
  const kernels::CallFields fields{.codec = frame_codec(task.call.codecs.first, task.terms),
                                   .bucket = task.bucket,
                                   .step = task.step,
                                   .status = task.status,
                                   .nonfinite = task.nonfinite};
  const auto begin_of = [](const auto& range) { return range.data == nullptr ? nullptr : range.data - range.first; };
  kernels::WindowJob job{.places = places_, .encode = {}, .reduce = {}, .decode = {}};
  job.encode = {.call = fields,
                .frame = {.bytes = nullptr,
                          .count = series.chunk(0).count,  // no chunk is longer
                          .first_tile = static_cast<std::uint32_t>(series.begin / codec::kTileElements),
                          .hop = 0,
                          .peer = -1},
                .series = frame_series(series, shape.ranks),
                .values = task.input.data,
                .pieces = task.input_pieces,
                .values_dtype = task.dtype};
  job.reduce.call = fields;
  job.reduce.second = fields.codec;
  job.reduce.own = task.input.data;
  job.reduce.own_pieces = task.input_pieces;
  job.reduce.own_dtype = task.dtype;
  job.reduce.divisor = task.reduction == Reduction::mean ? shape.ranks : 1.0;
  job.reduce.out = places_.window[shape.rank] + kernels::slot_at(shape, 1, shape.rank);
  job.decode.call = fields;
  job.decode.values = task.output.data;
  job.decode.pieces = task.output_pieces;
  job.decode.values_dtype = task.dtype;
  if (task.call.residuals.any) {
    job.encode.residual = job.reduce.own_residual = begin_of(task.local_residual);
    job.reduce.owner_residual = begin_of(task.owner_residual);
  }
  return job;
}

void WindowCalls::abort() const noexcept { std::atomic_ref(places_.words->abort).store(1, std::memory_order_relaxed); }

void WindowCalls::check() const {
  const std::uint32_t missing = read(places_.words->missing);
  if (missing == 0 || read(places_.words->abort) != 0) {  // the caller of abort() reports the reason
    return;
  }
  const std::uint32_t rank = missing - 1;
  const bool own = rank == places_.shape.rank;
  throw Error(
      ErrorCode::timeout,
      "rank " + std::to_string(places_.shape.rank) + ": the ranks of this node waited for " +
          (own ? "this rank" : "rank " + std::to_string(rank)) + " inside an all-reduce, in vain (" +
          (timeout_.count() == 0 ? "that rank's job ended the communicator" : "timeout " + format_duration(timeout_)) +
          "), and results since then are NaN; this communicator is over. Is that rank alive, and does it make "
          "the same calls? Restart the job, with a longer timeout if that rank was only late",
      ErrorCause::world);
}

}  // namespace gradwire::exchange
