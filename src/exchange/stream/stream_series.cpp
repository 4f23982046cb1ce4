// Series: the frames of one round of a lane that one job encodes or decodes, whatever the number of ranks. Their chunks
// follow the formula of the lane (ChunkSeries) and their frames lie in one piece of memory, so a kernel finds each by
// its number. Chunks that no formula gives, such as segments of different sizes, are computed one frame after the
// other.
#include <algorithm>
#include <utility>

#include "exchange/stream/stream_lane.hpp"
#include "memory/arena.hpp"

namespace gradwire::exchange {
namespace {

// Finds the shards whose chunks these are: all from the first one on, except for one at most.
bool find_shards(const ChunkSeries& chunks, const std::vector<Chunk>& wanted, std::vector<std::uint32_t>& shards) {
  std::uint32_t shard = 0;
  for (const Chunk& chunk : wanted) {
    if (chunks.chunk(shard) != chunk && shard == shards.size()) {
      ++shard;  // the one that is left out
    }
    if (chunks.chunk(shard) != chunk) {
      return false;
    }
    shards.push_back(shard++);
  }
  return true;
}

std::uint64_t pitch_of(const codec::Codec& codec, std::uint32_t count) {
  return (codec.frame_bytes(count) + memory::Arena::kAlignment - 1) / memory::Arena::kAlignment *
         memory::Arena::kAlignment;
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
    all_series_.push_back(std::move(*series));
    if (all_series_.back().frames.frames > 1 && !give_memory(all_series_.size() - 1)) {
      all_series_.pop_back();
      continue;
    }
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
  const std::uint64_t pitch = pitch_of(task_.call.codecs.first, sum->chunk.count);
  Series series{.opcode = sum->opcode};
  for (const Slot input : sum->inputs) {
    if (input != kOwnInput && !is_sum(input) && slots_[input].series == kNone) {
      slots_[input].series = all_series_.size();
      slots_[input].offset = series.bytes;
      series.bytes += pitch;
      ++series.slots;
    }
  }
  all_series_.push_back(std::move(series));
}

std::optional<StreamLane::Series> StreamLane::series_of(Opcode opcode, std::vector<std::size_t> instructions) const {
  const auto at = [this](std::size_t i) -> const Instruction& { return lane_.instructions[i]; };
  std::sort(instructions.begin(), instructions.end(),
            [&](std::size_t a, std::size_t b) { return at(a).chunk.first < at(b).chunk.first; });
  std::vector<Chunk> chunks;
  for (const std::size_t i : instructions) {
    chunks.push_back(at(i).chunk);
  }
  std::vector<std::uint32_t> shards;
  const std::size_t least = opcode == Opcode::encode ? 1 : 2;  // one encoder still shares the launch of headers
  const std::optional<ChunkSeries>& formula =
      lane_.node && opcode == Opcode::encode ? lane_.node->shards : lane_.series;
  if (!formula || chunks.size() < least || !find_shards(*formula, chunks, shards)) {
    return std::nullopt;
  }
  const Instruction& first = at(instructions[0]);
  const auto all = [&](const auto& is) { return std::all_of(instructions.begin(), instructions.end(), is); };
  std::size_t number = 0;
  const bool by_shard = all([&](std::size_t i) { return at(i).peer == static_cast<int>(shards[number++]); });
  if (!all([&](std::size_t i) { return at(i).hop == first.hop && (by_shard || at(i).peer == first.peer); })) {
    return std::nullopt;
  }
  Series series{.opcode = opcode, .origin = {formula->base, formula->end}, .runs = runs_of(chunks)};
  for (std::uint32_t i = 0; i < shards.size() && series.frames.left_out > i; ++i) {
    series.frames.left_out = shards[i] != i ? i : series.frames.left_out;
  }
  const auto longest = [](const Chunk& a, const Chunk& b) { return a.count < b.count; };
  series.place = {.count = std::max_element(chunks.begin(), chunks.end(), longest)->count,
                  .first_tile = chunks.size() == 1 ? chunks[0].first_tile
                                                   : static_cast<std::uint32_t>(formula->base_tile +
                                                                                formula->begin / codec::kTileElements),
                  .hop = static_cast<std::uint8_t>(first.hop),
                  .peer = by_shard ? -1 : first.peer};
  const std::uint64_t pitch = pitch_of(task_.call.codecs.of(first.hop), series.place.count);
  if (formula->end > kernels::kMostSeriesElements || pitch * chunks.size() > kernels::kMostSeriesBytes) {
    return std::nullopt;
  }
  series.frames.frames = static_cast<std::uint32_t>(chunks.size());
  series.frames.pitch = static_cast<std::uint32_t>(pitch);
  series.frames.each = static_cast<std::uint32_t>(formula->each);
  series.frames.longer = formula->longer;
  series.frames.tiles = formula->tiles;
  series.frames.begin = static_cast<std::uint32_t>(formula->begin);
  series.frames.end = static_cast<std::uint32_t>(formula->end);
  series.frames.last = static_cast<std::uint32_t>(formula->last);
  series.bytes = pitch * chunks.size();
  series.starts_at = *std::min_element(instructions.begin(), instructions.end());
  series.instructions = std::move(instructions);
  return series;
}

// Lets the frames of a series lie beside each other, unless another series has laid them elsewhere.
bool StreamLane::give_memory(std::size_t number) {
  Series& series = all_series_[number];
  const std::size_t before = slots_[lane_.instructions[series.instructions[0]].slot].series;
  std::uint64_t offset = 0;
  for (const std::size_t i : series.instructions) {
    const SlotState& slot = slots_[lane_.instructions[i].slot];
    if (slot.series != before || (before != kNone && slot.offset != offset)) {
      return false;
    }
    offset += series.frames.pitch;
  }
  if (before == kNone) {
    offset = 0;
    for (const std::size_t i : series.instructions) {
      SlotState& slot = slots_[lane_.instructions[i].slot];
      slot.series = number;
      slot.offset = offset;
      offset += series.frames.pitch;
      ++series.slots;
    }
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
  executor_.computed_ = executor_.computed_ || feeds(instruction);
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
  std::vector<kernels::HeaderJob> jobs;
  for (const std::size_t i : series.instructions) {
    open_slot(lane_.instructions[i]);
    slots_[lane_.instructions[i].slot].opened = true;
  }
  const Hop hop = lane_.instructions[series.instructions[0]].hop;
  jobs.push_back({.call = fields(task_.call.codecs.of(hop)), .frame = placed(series), .series = series.frames});
  const auto sums = [](const Instruction& instruction) { return instruction.opcode == Opcode::reduce_encode; };
  const auto sum = std::find_if(lane_.instructions.begin(), lane_.instructions.end(), sums);
  if (sum != lane_.instructions.end()) {
    std::byte* frame = open_slot(*sum);
    slots_[sum->slot].opened = true;
    jobs.push_back({.call = fields(task_.call.codecs.second),
                    .frame = {.bytes = reinterpret_cast<std::uint8_t*>(frame),
                              .count = sum->chunk.count,
                              .first_tile = sum->chunk.first_tile,
                              .hop = static_cast<std::uint8_t>(sum->hop),
                              .peer = -1}});
  }
  backend_.open_headers(jobs);
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
  backend_.encode({.call = fields(task_.call.codecs.of(static_cast<Hop>(series.place.hop))),
                   .frame = placed(series),
                   .series = series.frames,
                   .opened = true,
                   .values = part.values,
                   .values_dtype = part.dtype,
                   .factor = part.factor,
                   .residual = residual});
  rescale_residuals(Units::of_gradient);
  if (part.scratch != nullptr) {
    backend_.release(part.scratch);
  }
}

bool StreamLane::decodes_at_once() const {
  const bool in_place = !task_.call.preconditioned || task_.dtype == DType::f32;
  return (in_place || execution_->schedule_.lanes == 1) && covers(task_.output, whole());
}

void StreamLane::decode_series(const Series& series) {
  const Result result = open_result(series.origin);
  backend_.decode({.call = fields(task_.call.codecs.of(static_cast<Hop>(series.place.hop))),
                   .frame = placed(series),
                   .series = series.frames,
                   .values = result.values,
                   .values_dtype = result.dtype,
                   .add = false});
  for (const Elements& run : series.runs) {
    auto* values =
        static_cast<std::byte*>(result.values) + (run.first - series.origin.first) * element_bytes(result.dtype);
    rescale(run, values, result.dtype, 1.0, output(run), task_.dtype, Units::of_gradient);
  }
  if (result.scratch != nullptr) {
    backend_.release(result.scratch);
  }
}

}  // namespace gradwire::exchange
