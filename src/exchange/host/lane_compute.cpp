// The instructions of a lane that compute: encoding, summing, decoding, and adding residuals.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "base/per_thread.hpp"
#include "exchange/host/lane_run.hpp"
#include "memory/block.hpp"
#include "observe/record.hpp"

namespace gradwire::exchange {
namespace {

using codec::FrameReader;
using codec::FrameWriter;
using codec::kTileElements;

// Tiles of working values would be large on the stack of a progress thread, and one set a thread suffices. It is on the
// heap: thread-local variables of a drop-in that is loaded late must fit into the little space that the C library keeps
// free for them.
struct Scratch {
  alignas(64) std::byte sum[kTileElements * sizeof(double)];
  alignas(64) std::byte input[kTileElements * sizeof(double)];
  alignas(64) float residual[kTileElements];
  alignas(64) float scale[kTileElements];
};
static_assert(std::is_trivially_default_constructible_v<Scratch> && alignof(Scratch) <= memory::kPageBytes);

Scratch& scratch() {
  struct Memory {
    memory::Block block{sizeof(Scratch), memory::MemoryUse::frames};
  };
  return *reinterpret_cast<Scratch*>(per_thread<Memory>().block.data());
}

// Calls body(first element, count) for each tile of a chunk.
template <typename Body>
void for_each_tile(const Chunk& chunk, Body&& body) {
  for (std::uint64_t done = 0; done < chunk.count; done += kTileElements) {
    body(chunk.first + done, static_cast<std::uint32_t>(std::min<std::uint64_t>(kTileElements, chunk.count - done)));
  }
}

// The message with a rank's weight. The complement shows damage, since these few bytes are no frame and carry no CRC.
struct WeightMessage {
  explicit WeightMessage(double weight) : bits(std::bit_cast<std::uint64_t>(weight)), complement(~bits) {}
  std::uint64_t bits;
  std::uint64_t complement;
};

}  // namespace

const void* LaneRun::own_input(std::uint64_t first, std::uint32_t count, void* to) const {
  const void* values = task_.tensors.load(first, count, to);
  if (task_.call.weighted) {
    const bool share = task_.call.scales_first() && task_.reduction == Reduction::mean;
    codec::multiply(task_.call.codecs.first.working(), values,
                    share ? task_.weight / execution_->total_weight_ : task_.weight, to, count);
    return to;
  }
  return values;
}

bool LaneRun::held(std::uint64_t first, std::uint32_t count) const {
  return task_.residuals != nullptr && (task_.residuals->holds(codec::EncodeSite::local, first, count) ||
                                        task_.residuals->holds(codec::EncodeSite::intra, first, count) ||
                                        task_.residuals->holds(codec::EncodeSite::owner, first, count));
}

const void* LaneRun::contribution(std::uint64_t first, std::uint32_t count, ResidualSites keeps, void* to) const {
  const void* values = own_input(first, count, to);
  ResidualAccess* residuals = task_.residuals;
  if (residuals == nullptr) {
    return values;
  }
  const bool folds_local = !keeps.local && residuals->holds(codec::EncodeSite::local, first, count);
  const bool folds_intra = !keeps.intra && residuals->holds(codec::EncodeSite::intra, first, count);
  const bool folds_owner = !keeps.owner && residuals->holds(codec::EncodeSite::owner, first, count);
  if (!folds_local && !folds_intra && !folds_owner) {
    return values;
  }
  const codec::Codec& codec = task_.call.codecs.first;
  if (values != to) {
    std::memcpy(to, values, count * codec.working_bytes());
  }
  const bool mean = task_.reduction == Reduction::mean;
  const double total = execution_->total_weight_;
  const double share = mean && task_.call.scales_first() ? 1 / total : 1.0;
  if (folds_local) {
    residuals->fold(codec::EncodeSite::local, first, count, share, codec.working(), to);
  }
  if (folds_intra) {
    residuals->fold(codec::EncodeSite::intra, first, count, share, codec.working(), to);
  }
  if (folds_owner) {
    residuals->fold(codec::EncodeSite::owner, first, count, mean && !task_.call.scales_first() ? total : 1.0,
                    codec.working(), to);
  }
  return to;
}

codec::TileScale LaneRun::scale_of(std::uint64_t first, std::uint32_t count) const {
  return {task_.call.preconditioned ? &*task_.preconditioner : nullptr, first, count, scratch().scale};
}

const void* LaneRun::scaled_contribution(std::uint64_t first, std::uint32_t count, ResidualSites keeps,
                                         codec::TileScale& scale) const {
  void* to = scratch().input;
  const void* values = contribution(first, count, keeps, to);
  if (!scale) {
    return values;
  }
  if (values != to) {
    std::memcpy(to, values, count * sizeof(float));
  }
  scale.divide(static_cast<float*>(to));
  return to;
}

void LaneRun::write_tile(FrameWriter& writer, codec::EncodeSite site, std::uint64_t first, std::uint32_t count,
                         const void* values, codec::TileScale& scale) const {
  const bool keeps = site == codec::EncodeSite::owner   ? task_.call.residuals.keeps.owner
                     : site == codec::EncodeSite::intra ? task_.call.residuals.keeps.intra
                                                        : task_.call.residuals.keeps.local;
  float* room = scratch().residual;
  const float* before = keeps ? task_.residuals->load(site, first, count, room) : nullptr;
  if (before == nullptr) {
    writer.write(values, nullptr, count);
    return;
  }
  float* after = task_.residuals->target(site, first, count, room);
  if (scale) {
    if (before != room) {
      std::memcpy(room, before, count * sizeof(float));
      before = room;
    }
    scale.divide(room);
  }
  writer.write(values, {before, after}, count);
  if (scale) {
    scale.multiply(after);
  }
  if (after == room) {
    task_.residuals->store(site, first, count, room);
  }
}

void LaneRun::store_result(std::uint64_t first, std::uint32_t count, void* values, codec::TileScale& scale) const {
  if (scale) {
    scale.multiply(static_cast<float*>(values));
  }
  task_.tensors.store(first, count, values);
}

bool LaneRun::divides() const { return task_.reduction == Reduction::mean && !task_.call.scales_first(); }

bool LaneRun::verbatim() const {
  const codec::Codec& codec = task_.call.codecs.first;
  return !codec.lossy() && codec.dtype() == task_.tensors.dtype() && !task_.call.weighted &&
         task_.residuals == nullptr && !task_.call.preconditioned;
}

void LaneRun::encode(const Instruction& instruction) {
  FrameWriter writer(task_.call.codecs.of(instruction.hop), frame_info(instruction, instruction.hop),
                     executor_.options_.checksum, open_slot(instruction));
  for_each_tile(instruction.chunk, [&](std::uint64_t first, std::uint32_t count) {
    if (verbatim()) {
      writer.write_verbatim(task_.tensors.load_verbatim(first, count, scratch().input), count);
      return;
    }
    codec::TileScale scale = scale_of(first, count);
    const void* values = scaled_contribution(first, count, {.local = task_.call.residuals.keeps.local}, scale);
    write_tile(writer, instruction.site, first, count, values, scale);
  });
  execution_->statistics_.nonfinite_frames += finish(writer, instruction.slot) ? 1 : 0;
  slots_[instruction.slot].from = executor_.transport_.rank();
  slots_[instruction.slot].hop = instruction.hop;
}

void LaneRun::reduce(const Instruction& instruction) {
  const codec::Codec& codec = task_.call.codecs.first;
  const bool part = instruction.site == codec::EncodeSite::intra;  // the sum is only a node's part
  std::vector<std::optional<FrameReader>> readers(instruction.inputs.size());
  std::vector<memory::BufferPool::Buffer> rooms(readers.size());
  for (std::size_t i = 0; i < readers.size(); ++i) {
    if (instruction.inputs[i] != kOwnInput) {
      const SlotState& slot = slots_[instruction.inputs[i]];
      const codec::Codec& coded = task_.call.codecs.of(slot.hop);
      rooms[i] = room_for(coded, instruction.chunk.count);
      readers[i].emplace(coded, frame_info(instruction, slot.hop), executor_.options_.checksum, message_in(slot),
                         slot.from, rooms[i].bytes());
    }
  }
  std::optional<FrameWriter> writer;
  if (instruction.opcode == Opcode::reduce_encode) {
    writer.emplace(task_.call.codecs.of(instruction.hop), frame_info(instruction, instruction.hop),
                   executor_.options_.checksum, open_slot(instruction));
  }
  std::byte* sum = scratch().sum;
  for_each_tile(instruction.chunk, [&](std::uint64_t first, std::uint32_t count) {
    codec::TileScale scale = scale_of(first, count);
    for (std::size_t i = 0; i < readers.size(); ++i) {
      if (readers[i]) {
        i == 0 ? readers[i]->read(sum, count) : readers[i]->add(sum, count);
        continue;
      }
      const void* own = scaled_contribution(first, count,
                                            {.intra = task_.call.residuals.keeps.intra && part,
                                             .owner = task_.call.residuals.keeps.owner && writer && !part},
                                            scale);
      if (i == 0) {
        std::memcpy(sum, own, count * codec.working_bytes());
      } else {
        codec::add(codec.working(), sum, own, count);
      }
    }
    if (divides() && !part) {
      codec::divide(codec.working(), sum, execution_->total_weight_, count);
    }
    if (!writer) {
      store_result(first, count, sum, scale);
      note_stored(first, count);
      return;
    }
    write_tile(*writer, instruction.site, first, count, sum, scale);
  });
  bool nonfinite = writer && finish(*writer, instruction.slot);
  for (const auto& reader : readers) {
    nonfinite = nonfinite || (reader && reader->nonfinite());
  }
  execution_->nonfinite_ = execution_->nonfinite_ || (nonfinite && !writer);  // with a writer every decode() sees it
  execution_->statistics_.nonfinite_frames += nonfinite ? 1 : 0;
}

// A finite value that arrived may be stored as Inf, since f16 overflows early.
void LaneRun::note_stored(std::uint64_t first, std::uint32_t count) {
  execution_->nonfinite_ = execution_->nonfinite_ || !task_.tensors.finite_outputs(first, count);
}

void LaneRun::decode(const Instruction& instruction) {
  const codec::Codec& codec = task_.call.codecs.of(instruction.hop);
  const bool as_stored = !codec.lossy() && codec.dtype() == task_.tensors.dtype() && !task_.call.preconditioned;
  const memory::BufferPool::Buffer room = room_for(codec, instruction.chunk.count);
  FrameReader reader(codec, frame_info(instruction, instruction.hop), executor_.options_.checksum,
                     message_in(slots_[instruction.slot]), instruction.peer, room.bytes());
  for_each_tile(instruction.chunk, [&](std::uint64_t first, std::uint32_t count) {
    if (as_stored) {
      void* bytes = task_.tensors.target_verbatim(first, count, scratch().sum);
      reader.read_verbatim(bytes, count);
      task_.tensors.store_verbatim(first, count, bytes);
      return;
    }
    void* values = task_.tensors.target(first, count, scratch().sum);
    reader.read(values, count);
    codec::TileScale scale = scale_of(first, count);
    store_result(first, count, values, scale);
    if (element_bytes(task_.tensors.dtype()) < codec.working_bytes()) {
      note_stored(first, count);
    }
  });
  execution_->nonfinite_ = execution_->nonfinite_ || reader.nonfinite();
  execution_->statistics_.nonfinite_frames += reader.nonfinite() ? 1 : 0;
}

void LaneRun::copy(const Instruction& instruction) {
  const codec::Codec& codec = task_.call.codecs.first;
  const bool mean = task_.reduction == Reduction::mean;
  const double total = execution_->total_weight_;
  for_each_tile(instruction.chunk, [&](std::uint64_t first, std::uint32_t count) {
    const bool folds = total > 0 && held(first, count);
    if (!folds && (!task_.call.weighted || mean)) {  // one rank's weighted mean is its input
      const void* bytes = task_.tensors.load_verbatim(first, count, scratch().input);
      task_.tensors.store_verbatim(first, count, bytes);
      execution_->nonfinite_ = execution_->nonfinite_ || !codec::all_finite(task_.tensors.dtype(), bytes, count);
      return;
    }
    const void* values = contribution(first, count, {}, scratch().input);
    std::memmove(scratch().sum, values, count * codec.working_bytes());
    if (mean && !task_.call.scales_first()) {
      codec::divide(codec.working(), scratch().sum, total, count);
    }
    execution_->nonfinite_ = execution_->nonfinite_ || !codec::all_finite(codec.working(), scratch().sum, count);
    task_.tensors.store(first, count, scratch().sum);
  });
}

void LaneRun::write_weight(const Instruction& instruction) {
  if (!instruction.inputs.empty()) {
    static_cast<void>(answer(instruction));
  }
  const WeightMessage message(task_.weight);
  std::memcpy(open_slot(instruction).data(), &message, sizeof message);
}

// A rank whose call has no weight sends none. Only its frames can show that, so their terms are checked while this rank
// still waits for the weight.
void LaneRun::check_early_frames() {
  for (Pending& pending : pending_) {
    const SlotState& slot = slots_[pending.slot];
    if (!task_.terms || pending.terms_known || pending.operation.kind != Operation::Kind::receive ||
        !pending.operation.done() || slot.hop == Hop::weight) {
      continue;
    }
    pending.terms_known = true;
    codec::check_terms(message_in(slot), *task_.terms, slot.from);
  }
}

void LaneRun::sum_weights(const Instruction& instruction) {
  double total = 0;
  for (std::size_t rank = 0; rank < instruction.inputs.size(); ++rank) {
    WeightMessage message(0);
    std::memcpy(&message, slots_[instruction.inputs[rank]].buffer.bytes().data(), sizeof message);
    const auto weight = std::bit_cast<double>(message.bits);
    if (message.complement != ~message.bits || !(weight >= 0) || !std::isfinite(weight)) {
      throw Error(ErrorCode::corrupt, task_.name + ": the weight of rank " + std::to_string(rank) +
                                          " arrived damaged; check the network and the memory of both nodes");
    }
    total += weight;
  }
  if (!(total > 0) || !std::isfinite(total)) {
    throw Error(ErrorCode::invalid_argument, task_.name + ": the weights of all ranks sum to " + std::to_string(total) +
                                                 "; at least one must be above 0");
  }
  execution_->total_weight_ = total;
  execution_->weights_known_ = true;
}

std::byte* LaneRun::native_values(Slot slot) const {
  return in_place_ != nullptr ? in_place_ : slots_[slot].buffer.bytes().data();
}

void LaneRun::native(const Instruction& instruction) {
  const codec::TensorList& tensors = task_.tensors;
  const Chunk whole{0, static_cast<std::uint32_t>(tensors.count()), 0};
  const codec::Codec& codec = task_.call.codecs.first;
  const std::size_t element = codec.working_bytes();
  if (instruction.opcode == Opcode::native_load) {
    if (!instruction.inputs.empty()) {
      in_call_ = answer(instruction)[0] == static_cast<float>(executor_.transport_.world_size());
    }
    // The sum is in place only in the blocking call: a nonblocking one that is given up may still write to its memory.
    in_place_ = in_call_ && !task_.call.weighted && task_.residuals == nullptr ? tensors.whole_output() : nullptr;
    std::byte* values = in_place_ != nullptr ? in_place_ : open_slot(instruction).data();
    for_each_tile(whole, [&](std::uint64_t first, std::uint32_t count) {
      const void* from = contribution(first, count, {}, scratch().input);
      if (from != values + first * element) {
        std::memcpy(values + first * element, from, count * element);
      }
    });
    return;
  }
  std::byte* values = native_values(instruction.slot);
  if (instruction.opcode == Opcode::native_reduce) {
    if (!instruction.inputs.empty()) {
      static_cast<void>(answer(instruction));  // the library must not be given sums that differ in size
    }
    const View view{values, tensors.count(), codec.dtype()};
    const auto world = static_cast<std::uint64_t>(executor_.transport_.world_size());
    execution_->statistics_.bytes_uncompressed += 2 * (world - 1) * tensors.bytes() / world;
    if (!in_call_) {
      post_native(instruction.slot, view);
      return;
    }
    const TransportCounters before = executor_.transport_.counters();
    const std::uint64_t ticks = observe::ticks();
    executor_.transport_.all_reduce(view);
    const std::uint64_t sent = executor_.transport_.counters().bytes_sent - before.bytes_sent;
    count_sent(Tiers::kAllPeers, sent);
    observe::record_since(ticks, event(observe::EventKind::all_reduce, sent));
    return;
  }
  if (!instruction.inputs.empty()) {
    static_cast<void>(answer(instruction));
  }
  for_each_tile(whole, [&](std::uint64_t first, std::uint32_t count) {
    if (divides()) {
      codec::divide(codec.working(), values + first * element, execution_->total_weight_, count);
    }
    execution_->nonfinite_ =
        execution_->nonfinite_ || !codec::all_finite(codec.working(), values + first * element, count);
    tensors.store(first, count, values + first * element);
  });
}

std::span<std::byte> LaneRun::open_slot(const Instruction& instruction) {
  SlotState& slot = slots_[instruction.slot];
  slot.filled = slot_bytes(instruction);
  slot.buffer = executor_.pool_.acquire(slot.filled);
  return slot.buffer.bytes();
}

std::span<const std::byte> LaneRun::message_in(const SlotState& slot) {
  return slot.buffer.bytes().first(slot.receive != nullptr ? slot.receive->bytes : slot.filled);
}

memory::BufferPool::Buffer LaneRun::room_for(const codec::Codec& codec, std::uint32_t count) const {
  const std::uint64_t bytes = codec.room_bytes(count);
  return bytes == 0 ? memory::BufferPool::Buffer() : executor_.pool_.acquire(bytes);
}

// Finishes the frame of a slot; returns whether NaN or Inf was seen.
bool LaneRun::finish(FrameWriter& writer, Slot slot) {
  const bool nonfinite = writer.finish();
  slots_[slot].filled = writer.bytes();
  return nonfinite;
}

std::uint64_t LaneRun::slot_bytes(const Instruction& instruction) const {
  if (instruction.hop == Hop::weight) {
    return sizeof(WeightMessage);
  }
  if (instruction.opcode == Opcode::native_ask) {
    return task_.terms ? sizeof(Answer) : sizeof(float);
  }
  if (instruction.opcode == Opcode::native_load) {
    return task_.tensors.count() * task_.call.codecs.first.working_bytes();
  }
  return task_.call.codecs.of(instruction.hop).frame_bytes(instruction.chunk.count);
}

codec::FrameInfo LaneRun::frame_info(const Instruction& instruction, Hop hop) const {
  return {.count = instruction.chunk.count,
          .first_tile = instruction.chunk.first_tile,
          .bucket = task_.bucket,
          .step = task_.step,
          .hop = static_cast<std::uint8_t>(hop),
          .terms = task_.terms.value_or(0),
          .epoch = executor_.options_.epoch};
}

}  // namespace gradwire::exchange
