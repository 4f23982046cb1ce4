#include "collective/lane_run.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

namespace gradwire::collective {
namespace {

using codec::FrameReader;
using codec::FrameWriter;
using codec::kTileElements;

constexpr std::uint32_t kSequenceBits = 12;
constexpr std::uint32_t kLaneBits = 14;
constexpr std::uint32_t kHopBits = 2;
static_assert(kSequenceBits + kLaneBits + kHopBits == 28, "tags of collectives end at kTagLimit");

// Tiles of working values on the stack of a progress thread would be large; one pair a thread is enough.
struct Scratch {
  alignas(64) std::byte sum[kTileElements * sizeof(double)];
  alignas(64) std::byte input[kTileElements * sizeof(double)];
  alignas(64) float residual[kTileElements];
};
Scratch& scratch() {
  thread_local Scratch tiles;
  return tiles;
}

// Calls body(first element, count) for each tile of a chunk.
template <typename Body>
void for_each_tile(const Chunk& chunk, Body&& body) {
  for (std::uint64_t done = 0; done < chunk.count; done += kTileElements) {
    body(chunk.first + done, static_cast<std::uint32_t>(std::min<std::uint64_t>(kTileElements, chunk.count - done)));
  }
}

// What a rank says of its weight. The complement shows damage: these few bytes are no frame and carry no CRC.
struct WeightMessage {
  explicit WeightMessage(double weight) : bits(std::bit_cast<std::uint64_t>(weight)), complement(~bits) {}
  std::uint64_t bits;
  std::uint64_t complement;
};

bool computes(StepKind kind) { return kind != StepKind::receive && kind != StepKind::send; }

}  // namespace

LaneRun::LaneRun(HostExecutor& executor, std::shared_ptr<Execution> execution, std::uint64_t index)
    : executor_(executor),
      execution_(std::move(execution)),
      task_(*execution_->task_),
      index_(index),
      lane_(execution_->schedule_.make_lane(index)),
      slots_(lane_.slots) {
  for (const Step& step : lane_.steps) {
    for (const Slot input : step.inputs) {
      if (input != kOwnInput) {
        ++slots_[input].uses;
      }
    }
    if (step.kind != StepKind::reduce && step.kind != StepKind::sum_weights && step.kind != StepKind::copy) {
      ++slots_[step.slot].uses;
    }
  }
}

LaneRun::Outcome LaneRun::run() {
  harvest();
  bool posted = false;
  while (next_step_ < lane_.steps.size()) {
    const Step& step = lane_.steps[next_step_];
    if (!ready(step)) {
      return posted ? Outcome::posted : Outcome::blocked;
    }
    const auto begin = std::chrono::steady_clock::now();
    execute(step);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    release_uses(step);
    ++next_step_;
    if (!computes(step.kind)) {
      posted = true;
      continue;
    }
    Statistics& statistics = execution_->statistics_;
    (step.kind == StepKind::decode || step.kind == StepKind::copy ? statistics.decode_seconds
                                                                  : statistics.encode_seconds) += seconds;
    return Outcome::computed;
  }
  return posted ? Outcome::posted : Outcome::finished;
}

bool LaneRun::complete() {
  harvest();
  return next_step_ == lane_.steps.size() && open_operations_ == 0;
}

bool LaneRun::ready(const Step& step) {
  const auto received = [this](Slot slot) {
    return slot == kOwnInput || slots_[slot].receive == nullptr || slots_[slot].receive->done();
  };
  switch (step.kind) {
    case StepKind::reduce:
    case StepKind::reduce_encode:
      return execution_->weights_known_ && std::all_of(step.inputs.begin(), step.inputs.end(), received);
    case StepKind::sum_weights: return std::all_of(step.inputs.begin(), step.inputs.end(), received);
    case StepKind::send:
    case StepKind::decode:
    case StepKind::native_store: return received(step.slot);
    case StepKind::encode:
    case StepKind::native_load: return !execution_->encode_needs_weights_ || execution_->weights_known_;
    default: return true;
  }
}

void LaneRun::execute(const Step& step) {
  switch (step.kind) {
    case StepKind::receive: post_receive(step); break;
    case StepKind::send: post_send(step); break;
    case StepKind::encode: encode(step); break;
    case StepKind::reduce:
    case StepKind::reduce_encode: reduce(step); break;
    case StepKind::decode: decode(step); break;
    case StepKind::copy: copy(step); break;
    case StepKind::weight: write_weight(step); break;
    case StepKind::sum_weights: sum_weights(step); break;
    case StepKind::native_load:
    case StepKind::native_reduce:
    case StepKind::native_store: native(step); break;
  }
  trace(step, false);
}

void LaneRun::post_receive(const Step& step) {
  const auto bytes = open_slot(step);
  Pending& pending = pending_.emplace_back();
  pending.slot = step.slot;
  slots_[step.slot].receive = &pending.operation;
  ++slots_[step.slot].uses;  // until the operation is done
  executor_.transport_.post_receive(pending.operation, step.peer, tag(step.hop), bytes);
  ++open_operations_;
}

void LaneRun::post_send(const Step& step) {
  Pending& pending = pending_.emplace_back();
  pending.slot = step.slot;
  ++slots_[step.slot].uses;
  executor_.transport_.post_send(pending.operation, step.peer, tag(step.hop), slots_[step.slot].buffer.bytes());
  ++open_operations_;
  if (step.hop != kHopWeight) {
    ++execution_->statistics_.frames_sent;
    execution_->statistics_.bytes_uncompressed += step.chunk.count * element_bytes(task_.tensors.dtype());
  }
}

const void* LaneRun::own_input(std::uint64_t first, std::uint32_t count, void* to) const {
  const void* values = task_.tensors.load(first, count, to);
  if (task_.weighted) {
    const bool share = execution_->scale_first_ && task_.reduction == Reduction::mean;
    codec::multiply(task_.codecs.first.working(), values,
                    share ? task_.weight / execution_->total_weight_ : task_.weight, to, count);
    return to;
  }
  return values;
}

bool LaneRun::held(std::uint64_t first, std::uint32_t count) const {
  return task_.residuals != nullptr && (task_.residuals->holds(codec::EncodeSite::local, first, count) ||
                                        task_.residuals->holds(codec::EncodeSite::owner, first, count));
}

const void* LaneRun::contribution(std::uint64_t first, std::uint32_t count, Kept kept, void* to) const {
  const void* values = own_input(first, count, to);
  Residuals* residuals = task_.residuals;
  if (residuals == nullptr) {
    return values;
  }
  const bool folds_local = !kept.local && residuals->holds(codec::EncodeSite::local, first, count);
  const bool folds_owner = !kept.owner && residuals->holds(codec::EncodeSite::owner, first, count);
  if (!folds_local && !folds_owner) {
    return values;
  }
  const codec::Codec& codec = task_.codecs.first;
  if (values != to) {
    std::memcpy(to, values, count * codec.working_bytes());
  }
  const bool mean = task_.reduction == Reduction::mean;
  const double total = execution_->total_weight_;
  if (folds_local) {
    residuals->fold(codec::EncodeSite::local, first, count, mean && execution_->scale_first_ ? 1 / total : 1.0,
                    codec.working(), to);
  }
  if (folds_owner) {
    residuals->fold(codec::EncodeSite::owner, first, count, mean && !execution_->scale_first_ ? total : 1.0,
                    codec.working(), to);
  }
  return to;
}

void LaneRun::write_tile(FrameWriter& writer, codec::EncodeSite site, std::uint64_t first, std::uint32_t count,
                         const void* values) const {
  const bool keeps = site == codec::EncodeSite::owner ? task_.keeps_owner : task_.keeps_local;
  float* residual = keeps ? task_.residuals->load(site, first, count, scratch().residual) : nullptr;
  writer.write(values, residual, count);
  if (residual != nullptr) {
    task_.residuals->store(site, first, count, residual);
  }
}

bool LaneRun::divides() const { return task_.reduction == Reduction::mean && !execution_->scale_first_; }

bool LaneRun::verbatim() const {
  const codec::Codec& codec = task_.codecs.first;
  return !codec.lossy() && codec.dtype() == task_.tensors.dtype() && !task_.weighted && task_.residuals == nullptr;
}

void LaneRun::encode(const Step& step) {
  FrameWriter writer(task_.codecs.of_hop(step.hop), frame_info(step, step.hop), executor_.options_.checksum,
                     open_slot(step));
  for_each_tile(step.chunk, [&](std::uint64_t first, std::uint32_t count) {
    if (verbatim()) {
      writer.write_verbatim(task_.tensors.load_verbatim(first, count, scratch().input), count);
      return;
    }
    const void* values = contribution(first, count, {.local = task_.keeps_local}, scratch().input);
    write_tile(writer, step.site, first, count, values);
  });
  execution_->statistics_.nonfinite_frames += writer.finish() ? 1 : 0;
}

void LaneRun::reduce(const Step& step) {
  const codec::Codec& codec = task_.codecs.first;
  const int world = static_cast<int>(step.inputs.size());
  std::vector<std::optional<FrameReader>> readers(step.inputs.size());
  for (int rank = 0; rank < world; ++rank) {
    const Slot slot = step.inputs[static_cast<std::size_t>(rank)];
    if (slot != kOwnInput) {
      readers[static_cast<std::size_t>(rank)].emplace(codec, frame_info(step, 0), executor_.options_.checksum,
                                                      slots_[slot].buffer.bytes(), rank);
    }
  }
  std::optional<FrameWriter> writer;
  if (step.kind == StepKind::reduce_encode) {
    writer.emplace(task_.codecs.of_hop(step.hop), frame_info(step, step.hop), executor_.options_.checksum,
                   open_slot(step));
  }
  std::byte* sum = scratch().sum;
  for_each_tile(step.chunk, [&](std::uint64_t first, std::uint32_t count) {
    for (std::size_t rank = 0; rank < readers.size(); ++rank) {
      if (readers[rank]) {
        rank == 0 ? readers[rank]->read(sum, count) : readers[rank]->add(sum, count);
        continue;
      }
      const void* own = contribution(first, count, {.owner = task_.keeps_owner && writer}, scratch().input);
      if (rank == 0) {
        std::memcpy(sum, own, count * codec.working_bytes());
      } else {
        codec::add(codec.working(), sum, own, count);
      }
    }
    if (divides()) {
      codec::divide(codec.working(), sum, execution_->total_weight_, count);
    }
    if (!writer) {
      task_.tensors.store(first, count, sum);
      note_stored(first, count);
      return;
    }
    write_tile(*writer, step.site, first, count, sum);
  });
  bool nonfinite = writer && writer->finish();
  for (const auto& reader : readers) {
    nonfinite = nonfinite || (reader && reader->nonfinite());
  }
  execution_->nonfinite_ = execution_->nonfinite_ || (nonfinite && !writer);  // else decode() sees it, on every rank
  execution_->statistics_.nonfinite_frames += nonfinite ? 1 : 0;
}

// What is stored may be less finite than what arrived: f16 overflows early.
void LaneRun::note_stored(std::uint64_t first, std::uint32_t count) {
  execution_->nonfinite_ = execution_->nonfinite_ || !task_.tensors.finite_outputs(first, count);
}

void LaneRun::decode(const Step& step) {
  const codec::Codec& codec = task_.codecs.of_hop(step.hop);
  const bool as_stored = !codec.lossy() && codec.dtype() == task_.tensors.dtype();
  FrameReader reader(codec, frame_info(step, step.hop), executor_.options_.checksum, slots_[step.slot].buffer.bytes(),
                     step.peer);
  for_each_tile(step.chunk, [&](std::uint64_t first, std::uint32_t count) {
    if (as_stored) {
      void* bytes = task_.tensors.target_verbatim(first, count, scratch().sum);
      reader.read_verbatim(bytes, count);
      task_.tensors.store_verbatim(first, count, bytes);
      return;
    }
    void* values = task_.tensors.target(first, count, scratch().sum);
    reader.read(values, count);
    task_.tensors.store(first, count, values);
    if (element_bytes(task_.tensors.dtype()) < codec.working_bytes()) {
      note_stored(first, count);
    }
  });
  execution_->nonfinite_ = execution_->nonfinite_ || reader.nonfinite();
  execution_->statistics_.nonfinite_frames += reader.nonfinite() ? 1 : 0;
}

void LaneRun::copy(const Step& step) {
  const codec::Codec& codec = task_.codecs.first;
  const bool mean = task_.reduction == Reduction::mean;
  const double total = execution_->total_weight_;
  for_each_tile(step.chunk, [&](std::uint64_t first, std::uint32_t count) {
    const bool folds = total > 0 && held(first, count);
    if (!folds && (!task_.weighted || mean)) {  // one rank's weighted mean is its input
      const void* bytes = task_.tensors.load_verbatim(first, count, scratch().input);
      task_.tensors.store_verbatim(first, count, bytes);
      execution_->nonfinite_ = execution_->nonfinite_ || !codec::all_finite(task_.tensors.dtype(), bytes, count);
      return;
    }
    const void* values = contribution(first, count, {}, scratch().input);
    std::memmove(scratch().sum, values, count * codec.working_bytes());
    if (mean && !execution_->scale_first_) {
      codec::divide(codec.working(), scratch().sum, total, count);
    }
    execution_->nonfinite_ = execution_->nonfinite_ || !codec::all_finite(codec.working(), scratch().sum, count);
    task_.tensors.store(first, count, scratch().sum);
  });
}

void LaneRun::write_weight(const Step& step) {
  const WeightMessage message(task_.weight);
  std::memcpy(open_slot(step).data(), &message, sizeof message);
}

void LaneRun::sum_weights(const Step& step) {
  double total = 0;
  for (std::size_t rank = 0; rank < step.inputs.size(); ++rank) {
    WeightMessage message(0);
    std::memcpy(&message, slots_[step.inputs[rank]].buffer.bytes().data(), sizeof message);
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

void LaneRun::native(const Step& step) {
  const codec::TensorList& tensors = task_.tensors;
  const Chunk whole{0, static_cast<std::uint32_t>(tensors.count()), 0};
  const codec::Codec& codec = task_.codecs.first;
  const std::size_t element = codec.working_bytes();
  if (step.kind == StepKind::native_load) {
    std::byte* values = open_slot(step).data();
    for_each_tile(whole, [&](std::uint64_t first, std::uint32_t count) {
      std::memcpy(values + first * element, contribution(first, count, {}, scratch().input), count * element);
    });
    return;
  }
  std::byte* values = slots_[step.slot].buffer.bytes().data();
  if (step.kind == StepKind::native_reduce) {
    Pending& pending = pending_.emplace_back();
    pending.slot = step.slot;
    slots_[step.slot].receive = &pending.operation;
    ++slots_[step.slot].uses;
    executor_.transport_.post_all_reduce(pending.operation, View{values, tensors.count(), codec.dtype()});
    ++open_operations_;
    const auto world = static_cast<std::uint64_t>(executor_.transport_.world_size());
    execution_->statistics_.bytes_uncompressed += 2 * (world - 1) * tensors.bytes() / world;
    return;
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

std::span<std::byte> LaneRun::open_slot(const Step& step) {
  SlotState& slot = slots_[step.slot];
  slot.buffer = executor_.pool_.acquire(slot_bytes(step));
  return slot.buffer.bytes();
}

std::uint64_t LaneRun::slot_bytes(const Step& step) const {
  if (step.hop == kHopWeight) {
    return sizeof(WeightMessage);
  }
  if (step.kind == StepKind::native_load) {
    return task_.tensors.count() * task_.codecs.first.working_bytes();
  }
  return task_.codecs.of_hop(step.hop).frame_bytes(step.chunk.count);
}

codec::FrameInfo LaneRun::frame_info(const Step& step, std::uint8_t hop) const {
  return {.count = step.chunk.count,
          .first_tile = step.chunk.first_tile,
          .bucket = task_.bucket,
          .step = task_.step,
          .hop = hop};
}

Tag LaneRun::tag(std::uint8_t hop) const {
  return (execution_->sequence_ & ((1U << kSequenceBits) - 1)) << (kLaneBits + kHopBits) |
         (static_cast<std::uint32_t>(index_) & ((1U << kLaneBits) - 1)) << kHopBits | hop;
}

void LaneRun::release_uses(const Step& step) {
  for (const Slot input : step.inputs) {
    if (input != kOwnInput) {
      release_slot(input);
    }
  }
  if (step.kind != StepKind::reduce && step.kind != StepKind::sum_weights && step.kind != StepKind::copy) {
    release_slot(step.slot);
  }
}

void LaneRun::release_slot(Slot slot) {
  SlotState& state = slots_[slot];
  if (--state.uses == 0) {
    state.buffer.release();
  }
}

void LaneRun::harvest() {
  for (Pending& pending : pending_) {
    if (!pending.counted && pending.operation.done()) {
      pending.counted = true;
      --open_operations_;
      execution_->statistics_.bytes_sent += pending.operation.bytes_counted;
      release_slot(pending.slot);
    }
  }
}

std::vector<int> LaneRun::missing() const {
  std::vector<int> ranks;
  std::uint32_t earliest = ~0U;
  for (const Pending& pending : pending_) {
    const Operation& operation = pending.operation;
    if (!operation.pending() || operation.peer < 0) {
      continue;
    }
    const bool is_send = operation.kind == Operation::Kind::send;
    const std::uint32_t order = is_send ? ~0U - 1 : operation.tag & ((1U << kHopBits) - 1);
    if (order < earliest) {
      earliest = order;
      ranks.clear();
    }
    if (order == earliest) {
      ranks.push_back(operation.peer);
    }
  }
  return ranks;
}

void LaneRun::cancel(Transport& transport) noexcept {
  for (Pending& pending : pending_) {
    if (pending.operation.pending() && !transport.cancel(pending.operation)) {
      slots_[pending.slot].buffer.leak();
    }
  }
}

void LaneRun::trace(const Step& step, bool completed) const {
  if (!executor_.options_.trace) {
    return;
  }
  // A step that reads received frames proves that they have arrived.
  for (const Slot input : step.inputs) {
    if (input != kOwnInput && slots_[input].receive != nullptr) {
      executor_.options_.trace(
          {StepKind::receive, execution_->sequence_, index_, 0, slots_[input].receive->peer, true});
    }
  }
  executor_.options_.trace({step.kind, execution_->sequence_, index_, step.hop, step.peer, completed});
}

}  // namespace gradwire::collective
