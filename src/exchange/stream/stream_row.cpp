// Rows: the frames of one round of a lane that one job encodes or decodes, whatever the number of ranks. Their chunks
// follow the formula of the lane (ChunkRow) and their frames lie in one piece of memory, so a kernel finds each by its
// number. What no formula gives, such as segments of different sizes, is computed one frame after the other.
#include <algorithm>
#include <utility>

#include "exchange/stream/stream_lane.hpp"

namespace gradwire::exchange {
namespace {

constexpr std::uint64_t kAlignment = 256;  // of a frame in a row, as if it were acquired by itself

// Finds the shards whose chunks these are: all from the first one on, except for one at most.
bool find_shards(const ChunkRow& chunks, const std::vector<Chunk>& wanted, std::vector<std::uint32_t>& shards) {
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
  return (codec.frame_bytes(count) + kAlignment - 1) / kAlignment * kAlignment;
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

// A row of decoders waits for all its frames.
void StreamLane::find_rows() {
  row_of_.assign(lane_.instructions.size(), kNone);
  for (const Opcode opcode : {Opcode::encode, Opcode::decode}) {
    std::vector<std::size_t> instructions;
    for (std::size_t i = 0; i < lane_.instructions.size(); ++i) {
      if (lane_.instructions[i].opcode == opcode) {
        instructions.push_back(i);
      }
    }
    std::optional<Row> row = row_of(opcode, std::move(instructions));
    if (!row) {
      continue;
    }
    rows_.push_back(std::move(*row));
    if (rows_.back().frames.frames > 1 && !give_memory(rows_.size() - 1)) {
      rows_.pop_back();
      continue;
    }
    int last = 0;
    for (const std::size_t i : rows_.back().instructions) {
      row_of_[i] = rows_.size() - 1;
      last = std::max(last, rounds_[i]);
    }
    for (const std::size_t i : rows_.back().instructions) {
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
  Row row{.opcode = sum->opcode};
  for (const Slot input : sum->inputs) {
    if (input != kOwnInput && slots_[input].row == kNone) {
      slots_[input].row = rows_.size();
      slots_[input].offset = row.bytes;
      row.bytes += pitch;
      ++row.slots;
    }
  }
  rows_.push_back(std::move(row));
}

std::optional<StreamLane::Row> StreamLane::row_of(Opcode opcode, std::vector<std::size_t> instructions) const {
  const auto at = [this](std::size_t i) -> const Instruction& { return lane_.instructions[i]; };
  std::sort(instructions.begin(), instructions.end(),
            [&](std::size_t a, std::size_t b) { return at(a).chunk.first < at(b).chunk.first; });
  std::vector<Chunk> chunks;
  for (const std::size_t i : instructions) {
    chunks.push_back(at(i).chunk);
  }
  std::vector<std::uint32_t> shards;
  const std::size_t least = opcode == Opcode::encode ? 1 : 2;  // one encoder still shares the launch of headers
  if (!lane_.row || chunks.size() < least || !find_shards(*lane_.row, chunks, shards)) {
    return std::nullopt;
  }
  const Instruction& first = at(instructions[0]);
  const auto all = [&](const auto& is) { return std::all_of(instructions.begin(), instructions.end(), is); };
  std::size_t number = 0;
  const bool by_shard = all([&](std::size_t i) { return at(i).peer == static_cast<int>(shards[number++]); });
  if (!all([&](std::size_t i) { return at(i).hop == first.hop && (by_shard || at(i).peer == first.peer); })) {
    return std::nullopt;
  }
  Row row{.opcode = opcode, .runs = runs_of(chunks)};
  for (std::uint32_t i = 0; i < shards.size() && row.frames.left_out > i; ++i) {
    row.frames.left_out = shards[i] != i ? i : row.frames.left_out;
  }
  const auto longest = [](const Chunk& a, const Chunk& b) { return a.count < b.count; };
  row.place = {.count = std::max_element(chunks.begin(), chunks.end(), longest)->count,
               .first_tile = chunks.size() == 1 ? chunks[0].first_tile
                                                : static_cast<std::uint32_t>(lane_.row->begin / codec::kTileElements),
               .hop = static_cast<std::uint8_t>(first.hop),
               .peer = by_shard ? -1 : first.peer};
  const std::uint64_t pitch = pitch_of(task_.call.codecs.of(first.hop), row.place.count);
  if (lane_.row->end > kernels::kMostRowElements || pitch * chunks.size() > kernels::kMostRowBytes) {
    return std::nullopt;
  }
  row.frames.frames = static_cast<std::uint32_t>(chunks.size());
  row.frames.pitch = static_cast<std::uint32_t>(pitch);
  row.frames.each = static_cast<std::uint32_t>(lane_.row->each);
  row.frames.longer = lane_.row->longer;
  row.frames.tiles = lane_.row->tiles;
  row.frames.begin = static_cast<std::uint32_t>(lane_.row->begin);
  row.frames.end = static_cast<std::uint32_t>(lane_.row->end);
  row.bytes = pitch * chunks.size();
  row.starts_at = *std::min_element(instructions.begin(), instructions.end());
  row.instructions = std::move(instructions);
  return row;
}

// Lets the frames of a row lie beside each other, unless another row has laid them elsewhere.
bool StreamLane::give_memory(std::size_t number) {
  Row& row = rows_[number];
  const std::size_t before = slots_[lane_.instructions[row.instructions[0]].slot].row;
  std::uint64_t offset = 0;
  for (const std::size_t i : row.instructions) {
    const SlotState& slot = slots_[lane_.instructions[i].slot];
    if (slot.row != before || (before != kNone && slot.offset != offset)) {
      return false;
    }
    offset += row.frames.pitch;
  }
  if (before == kNone) {
    offset = 0;
    for (const std::size_t i : row.instructions) {
      SlotState& slot = slots_[lane_.instructions[i].slot];
      slot.row = number;
      slot.offset = offset;
      offset += row.frames.pitch;
      ++row.slots;
    }
  }
  return true;
}

void StreamLane::run(std::size_t index) {
  const Instruction& instruction = lane_.instructions[index];
  if (row_of_[index] == kNone) {
    compute(instruction);
    return;
  }
  const Row& row = rows_[row_of_[index]];
  if (row.starts_at != index) {
    return;  // the row has run
  }
  const bool encodes = row.opcode == Opcode::encode;
  if (encodes) {
    open_headers(row);
  }
  if (encodes ? !encodes_at_once(row) : !decodes_at_once()) {
    for (const std::size_t i : row.instructions) {
      compute(lane_.instructions[i]);
    }
    return;
  }
  for (const std::size_t i : row.instructions) {
    trace(lane_.instructions[i]);
  }
  encodes ? encode_row(row) : decode_row(row);
  for (const std::size_t i : row.instructions) {
    used(lane_.instructions[i].slot);
  }
}

void StreamLane::open_headers(const Row& row) {
  std::vector<kernels::HeaderJob> jobs;
  for (const std::size_t i : row.instructions) {
    open_slot(lane_.instructions[i]);
    slots_[lane_.instructions[i].slot].opened = true;
  }
  const Hop hop = lane_.instructions[row.instructions[0]].hop;
  jobs.push_back({.call = fields(task_.call.codecs.of(hop)), .frame = placed(row), .row = row.frames});
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

kernels::FramePlace StreamLane::placed(const Row& row) const {
  kernels::FramePlace place = row.place;
  place.bytes = reinterpret_cast<std::uint8_t*>(slots_[lane_.instructions[row.instructions[0]].slot].memory);
  return place;
}

// Values that must be prepared for an encoder lie in memory as in the bucket, so they must be most of it.
bool StreamLane::encodes_at_once(const Row& row) const {
  return row.frames.frames > 1 && (all_ready(row) || execution_->schedule_.lanes == 1) &&
         (task_.input.data == nullptr || covers(task_.input, whole())) &&
         (!task_.call.residuals.keeps.local || covers(task_.local_residual, whole()));
}

bool StreamLane::all_ready(const Row& row) const {
  return std::all_of(row.runs.begin(), row.runs.end(), [this](Elements run) { return lies_ready(run); });
}

void StreamLane::encode_row(const Row& row) {
  Part part{.values = nullptr, .dtype = task_.dtype, .factor = own_factor()};
  if (all_ready(row)) {
    part.values = task_.input.data == nullptr ? nullptr : input(whole());
  } else {
    part = {.values = nullptr, .dtype = working(), .factor = 1};
    part.scratch = backend_.acquire(task_.count * element_bytes(part.dtype));
    part.values = part.scratch;
    for (const Elements& run : row.runs) {
      prepare_part(run, folds_local_in(run), folds_owner_in(run), part.scratch + run.first * element_bytes(part.dtype));
    }
  }
  float* residual = task_.call.residuals.keeps.local ? task_.local_residual.data - task_.local_residual.first : nullptr;
  const auto rescale_residuals = [&](Units units) {
    for (const Elements& run : row.runs) {
      rescale_residual(run, residual == nullptr ? nullptr : residual + run.first, units);
    }
  };
  rescale_residuals(Units::of_scale);
  backend_.encode({.call = fields(task_.call.codecs.of(static_cast<Hop>(row.place.hop))),
                   .frame = placed(row),
                   .row = row.frames,
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

void StreamLane::decode_row(const Row& row) {
  const Result result = open_result(whole());
  backend_.decode({.call = fields(task_.call.codecs.of(static_cast<Hop>(row.place.hop))),
                   .frame = placed(row),
                   .row = row.frames,
                   .values = result.values,
                   .values_dtype = result.dtype,
                   .add = false});
  for (const Elements& run : row.runs) {
    auto* values = static_cast<std::byte*>(result.values) + run.first * element_bytes(result.dtype);
    rescale(run, values, result.dtype, 1.0, output(run), task_.dtype, Units::of_gradient);
  }
  if (result.scratch != nullptr) {
    backend_.release(result.scratch);
  }
}

}  // namespace gradwire::exchange
