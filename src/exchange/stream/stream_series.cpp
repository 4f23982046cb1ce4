// Series: the frames of one round of a lane that one job encodes or decodes, whatever the number of ranks. Their chunks
// follow the formula of the lane (ChunkSeries) and their frames lie in one piece of memory, so a kernel finds each by
// its number. Chunks that no formula gives, such as segments of different sizes, are computed one frame after the
// other.
#include <algorithm>
#include <utility>

#include "exchange/stream/stream_lane.hpp"
#include "kernels/device/frame_series.hpp"
#include "memory/arena.hpp"

namespace gradwire::exchange {
namespace {

// Returns whether the frames of a series, as kernels find them in a run that begins at element `base`, hold these
// chunks.
bool holds(const kernels::FramePlace& place, const kernels::FrameSeries& frames, std::uint64_t base,
           const std::vector<Chunk>& chunks) {
  for (std::uint32_t i = 0; i < frames.frames; ++i) {
    const kernels::SeriesFrame frame = kernels::frame_of_series(place, frames, i);
    if (Chunk{base + frame.first, frame.place.count, frame.place.first_tile} != chunks[i]) {
      return false;
    }
  }
  return true;
}

// Returns the number of the shard that has no chunk among `chunks`, which are those of the other shards in order.
std::uint32_t left_out_of(const ChunkSeries& series, const std::vector<Chunk>& chunks) {
  std::uint32_t shard = 0;
  while (shard < chunks.size() && series.chunk(shard) == chunks[shard]) {
    ++shard;
  }
  return shard;
}

std::vector<Elements> runs_of(const std::vector<Chunk>& chunks) {
  std::vector<Elements> runs;
  for (const Chunk& chunk : chunks) {
    if (!runs.empty() && runs.back().first + runs.back().count == chunk.first) {
      runs.back().count += chunk.count;
    } else {
      runs.emplace_back(chunk);
    }
  }
  return runs;
}

}  // namespace

std::uint64_t frame_pitch(const codec::Codec& codec, std::uint32_t count) {
  return (codec.frame_bytes(count) + memory::Arena::kAlignment - 1) / memory::Arena::kAlignment *
         memory::Arena::kAlignment;
}

// A series of decoders waits for all its frames.
void StreamLane::find_series() {
  series_of_.assign(lane_.instructions.size(), kNone);
  for (const Opcode opcode : {Opcode::encode, Opcode::decode}) {
    std::vector<std::size_t> instructions;
    for (std::size_t i = 0; i < lane_.instructions.size(); ++i) {
      if (lane_.instructions[i].opcode == opcode) {
        instructions.push_back(i);
      }
    }
    std::optional<Series> series = series_of(opcode, std::move(instructions));
    if (!series) {
      continue;
    }
    if (series->frames.frames > 1 && !give_memory(*series)) {
      continue;
    }
    all_series_.push_back(std::move(*series));
    int last = 0;
    for (const std::size_t i : all_series_.back().instructions) {
      series_of_[i] = all_series_.size() - 1;
      last = std::max(last, rounds_[i]);
    }
    for (const std::size_t i : all_series_.back().instructions) {
      rounds_[i] = last;
    }
  }
  find_inputs();
}

// The frames that this rank sums lie beside each other, too, in rank order.
void StreamLane::find_inputs() {
  const auto sums = [](const Instruction& i) {
    return i.opcode == Opcode::reduce_encode || i.opcode == Opcode::reduce;
  };
  const auto sum = std::find_if(lane_.instructions.begin(), lane_.instructions.end(), sums);
  if (sum == lane_.instructions.end()) {
    return;
  }
  std::vector<Slot> received;
  for (const Slot input : sum->inputs) {
    if (input != kOwnInput && !is_sum(input) && slots_[input].block == kNone) {
      received.push_back(input);
    }
  }
  lay_out(received, frame_pitch(task_.call.codecs.first, sum->chunk.count));
}

StreamLane::SumInputs StreamLane::inputs_of(const Instruction& sum) const {
  const auto alone = static_cast<std::uint32_t>(frame_pitch(task_.call.codecs.first, sum.chunk.count));
  SumInputs inputs{.pitch = joint_ != nullptr ? joint_->pitch : alone};
  std::uint64_t frames = 0;
  for (std::size_t rank = 0; rank < sum.inputs.size(); ++rank) {
    const Slot slot = sum.inputs[rank];
    if (slot == kOwnInput || is_sum(slot)) {
      inputs.own_rank = static_cast<int>(rank);
      continue;
    }
    const auto* memory = reinterpret_cast<const std::uint8_t*>(slots_[slot].memory);
    inputs.frames = frames == 0 ? memory : inputs.frames;
    if (memory != inputs.frames + frames++ * inputs.pitch) {
      throw Error(ErrorCode::internal, task_.name + ": the frame of rank " + std::to_string(rank) +
                                           " does not lie behind that of the rank before it");
    }
  }
  return inputs;
}

void StreamLane::lay_out(const std::vector<Slot>& slots, std::uint64_t pitch) {
  std::uint64_t offset = 0;
  for (const Slot slot : slots) {
    slots_[slot].block = blocks_.size();
    slots_[slot].offset = offset;
    offset += pitch;
  }
  blocks_.push_back({.bytes = offset, .slots = static_cast<std::uint32_t>(slots.size())});
}

std::optional<StreamLane::Series> StreamLane::series_of(Opcode opcode, std::vector<std::size_t> instructions) const {
  const auto at = [this](std::size_t i) -> const Instruction& { return lane_.instructions[i]; };
  std::sort(instructions.begin(), instructions.end(),
            [&](std::size_t a, std::size_t b) { return at(a).chunk.first < at(b).chunk.first; });
  std::vector<Chunk> chunks;
  chunks.reserve(instructions.size());
  for (const std::size_t i : instructions) {
    chunks.push_back(at(i).chunk);
  }
  const std::size_t least = opcode == Opcode::encode ? 1 : 2;  // one encoder still shares the launch of headers
  const std::optional<ChunkSeries>& given = lane_.node && opcode == Opcode::encode ? lane_.node->shards : lane_.series;
  if (!given || chunks.size() < least || given->end > kernels::kMostSeriesElements) {
    return std::nullopt;
  }
  const ChunkSeries& formula = *given;
  const Instruction& first = at(instructions[0]);
  const auto all = [&](const auto& is) { return std::all_of(instructions.begin(), instructions.end(), is); };
  const std::uint32_t left_out = left_out_of(formula, chunks);
  int shard = 0;
  const bool by_shard = all([&](std::size_t i) {
    shard += shard == static_cast<int>(left_out) ? 1 : 0;
    return at(i).peer == shard++;
  });
  if (!all([&](std::size_t i) { return at(i).hop == first.hop && (by_shard || at(i).peer == first.peer); })) {
    return std::nullopt;
  }
  const auto longest = [](const Chunk& a, const Chunk& b) { return a.count < b.count; };
  Series series{.opcode = opcode, .origin = {formula.base, formula.end}, .runs = runs_of(chunks)};
  series.place = {.count = std::max_element(chunks.begin(), chunks.end(), longest)->count,
                  .first_tile = chunks.size() == 1 ? chunks[0].first_tile
                                                   : static_cast<std::uint32_t>(formula.base_tile +
                                                                                formula.begin / codec::kTileElements),
                  .hop = static_cast<std::uint8_t>(first.hop),
                  .peer = by_shard ? -1 : first.peer};
  const std::uint64_t pitch = frame_pitch(task_.call.codecs.of(first.hop), series.place.count);
  if (pitch * chunks.size() > kernels::kMostSeriesBytes) {
    return std::nullopt;
  }
  series.frames = frame_series(formula, static_cast<std::uint32_t>(chunks.size()));
  series.frames.left_out = left_out;
  series.frames.pitch = static_cast<std::uint32_t>(pitch);
  if (series.frames.frames > 1 && !holds(series.place, series.frames, formula.base, chunks)) {
    return std::nullopt;
  }
  series.starts_at = *std::min_element(instructions.begin(), instructions.end());
  series.instructions = std::move(instructions);
  return series;
}

bool StreamLane::give_memory(const Series& series) {
  std::vector<Slot> slots;
  for (const std::size_t i : series.instructions) {
    slots.push_back(lane_.instructions[i].slot);
  }
  const std::size_t before = slots_[slots[0]].block;
  std::uint64_t offset = 0;
  for (const Slot slot : slots) {
    if (slots_[slot].block != before || (before != kNone && slots_[slot].offset != offset)) {
      return false;
    }
    offset += series.frames.pitch;
  }
  if (before == kNone) {
    lay_out(slots, series.frames.pitch);
  }
  return true;
}

void StreamLane::run(std::size_t index) {
  const Instruction& instruction = lane_.instructions[index];
  if (series_of_[index] == kNone) {
    compute(instruction);
    return;
  }
  const Series& series = all_series_[series_of_[index]];
  if (series.starts_at != index) {
    return;  // the series has run
  }
  const bool encodes = series.opcode == Opcode::encode;
  if (encodes) {
    open_headers(series);
  }
  if (encodes ? !encodes_at_once(series) : !decodes_at_once()) {
    for (const std::size_t i : series.instructions) {
      compute(lane_.instructions[i]);
    }
    return;
  }
  for (const std::size_t i : series.instructions) {
    trace(lane_.instructions[i]);
  }
  encodes ? encode_series(series) : decode_series(series);
  for (const std::size_t i : series.instructions) {
    for_each_slot(lane_.instructions[i], [this](Slot slot) { used(slot); });
  }
}

void StreamLane::open_headers(const Series& series) {
  for (const std::size_t i : series.instructions) {
    open_slot(lane_.instructions[i]);
  }
  const Hop hop = lane_.instructions[series.instructions[0]].hop;
  std::vector<kernels::HeaderJob> jobs{
      {.call = fields(task_.call.codecs.of(hop)), .frame = placed(series), .series = series.frames}};
  const auto sums = [](const Instruction& instruction) { return instruction.opcode == Opcode::reduce_encode; };
  const auto sum = std::find_if(lane_.instructions.begin(), lane_.instructions.end(), sums);
  if (sum != lane_.instructions.end()) {
    jobs.push_back(kernels::header_of({.call = fields(task_.call.codecs.first),
                                       .second = frame_codec(task_.call.codecs.second, task_.terms),
                                       .count = sum->chunk.count,
                                       .first_tile = sum->chunk.first_tile,
                                       .out = reinterpret_cast<std::uint8_t*>(open_slot(*sum))}));
  }
  enqueue(jobs);
}

kernels::FramePlace StreamLane::placed(const Series& series) const {
  kernels::FramePlace place = series.place;
  place.bytes = reinterpret_cast<std::uint8_t*>(slots_[lane_.instructions[series.instructions[0]].slot].memory);
  return place;
}

// Values that must be prepared for an encoder lie in memory as in the bucket, so they must be most of it.
bool StreamLane::encodes_at_once(const Series& series) const {
  if (lane_.node) {
    return series.frames.frames > 1;
  }
  return series.frames.frames > 1 && (all_ready(series) || execution_->schedule_.lanes == 1) &&
         (task_.input.data == nullptr || covers(task_.input, whole())) &&
         (!task_.call.residuals.keeps.local || covers(task_.local_residual, whole()));
}

bool StreamLane::all_ready(const Series& series) const {
  return std::all_of(series.runs.begin(), series.runs.end(), [this](Elements run) { return lies_ready(run); });
}

void StreamLane::encode_series(const Series& series) {
  Part part{.values = nullptr, .dtype = task_.dtype, .factor = own_factor()};
  if (lane_.node) {
    part = summed_part(series.origin, task_.call.residuals.keeps.intra);
  } else if (all_ready(series)) {
    part.values = input(whole());
    part.pieces = input_pieces(whole());
  } else {
    part = {.values = nullptr, .dtype = working(), .factor = 1};
    part.scratch = backend_.acquire(task_.count * element_bytes(part.dtype));
    part.values = part.scratch;
    for (const Elements& run : series.runs) {
      prepare_part(run, folds_local_in(run), folds_owner_in(run), part.scratch + run.first * element_bytes(part.dtype));
    }
  }
  float* residual = lane_.node                         ? part.residual
                    : task_.call.residuals.keeps.local ? task_.local_residual.data - task_.local_residual.first
                                                       : nullptr;
  const auto rescale_residuals = [&](Units units) {
    for (const Elements& run : series.runs) {
      rescale_residual(run, residual == nullptr ? nullptr : residual + (run.first - series.origin.first), units);
    }
  };
  rescale_residuals(Units::of_scale);
  enqueue(kernels::EncodeJob{.call = fields(task_.call.codecs.of(static_cast<Hop>(series.place.hop))),
                             .frame = placed(series),
                             .series = series.frames,
                             .opened = true,
                             .values = part.values,
                             .pieces = part.pieces,
                             .values_dtype = part.dtype,
                             .factor = part.factor,
                             .residual = residual});
  rescale_residuals(Units::of_gradient);
  if (part.scratch != nullptr) {
    free(part.scratch);
  }
}

bool StreamLane::decodes_at_once() const {
  const bool in_place = !task_.call.preconditioned || task_.dtype == DType::f32;
  const bool there = task_.output_pieces.count != 0 || covers(task_.output, whole());
  return (in_place || execution_->schedule_.lanes == 1) && there;
}

void StreamLane::decode_series(const Series& series) {
  const Result result = open_result(series.origin);
  enqueue(kernels::DecodeJob{.call = fields(task_.call.codecs.of(static_cast<Hop>(series.place.hop))),
                             .frame = placed(series),
                             .series = series.frames,
                             .values = result.values,
                             .pieces = result.pieces,
                             .values_dtype = result.dtype,
                             .add = false});
  if (task_.call.preconditioned) {
    for (const Elements& run : series.runs) {
      auto* values =
          static_cast<std::byte*>(result.values) + (run.first - series.origin.first) * element_bytes(result.dtype);
      rescale(run, values, result.dtype, 1.0, output(run), task_.dtype, Units::of_gradient);
    }
  }
  if (result.scratch != nullptr) {
    backend_.release(result.scratch);
  }
}

}  // namespace gradwire::exchange
