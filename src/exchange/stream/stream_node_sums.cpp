// Lanes in which a library sums inside nodes: what it sums, and the node's sum as encoders and the owner's sum read it.
#include <algorithm>
#include <utility>

#include "exchange/stream/stream_lane.hpp"

namespace gradwire::exchange {

// The library reads the input itself where that is what it shall sum.
void StreamLane::node_load(const Instruction& instruction) {
  const Elements all(instruction.chunk);
  const bool folds = touches(task_.local_residual, all) || touches(task_.owner_residual, all);
  SlotState& slot = slots_[instruction.slot];
  if (sum_dtype() == task_.dtype && task_.input.data != nullptr && !folds && own_factor() == 1 &&
      device_factor() == nullptr) {
    slot.memory = static_cast<std::byte*>(const_cast<void*>(input(all)));  // NOLINT: it is only read
    slot.bytes = slot_bytes(instruction);
    slot.borrowed = true;
    return;
  }
  open_slot(instruction);
  prepare(all, true, true, slot.memory, sum_dtype());
}

void StreamLane::sum_in_node(const Instruction& instruction, std::uint64_t group) {
  const NodePart& node = *lane_.node;
  SlotState& input = slots_[instruction.inputs[0]];
  SlotState& sum = slots_[instruction.slot];
  input.last_groups[StreamExecutor::kNode] = sum.last_groups[StreamExecutor::kNode] = group;
  summed_as_ = sum_dtype();
  trace(instruction);
  backend_.sum_in_node(input.memory, sum.memory, summed_as_, node.each, node.rest);
  const std::uint64_t sent = node.ranks * node.each + node.rest - node.part.count;
  count_sent(sent * element_bytes(summed_as_), sent, backend_.rank());
}

// Residuals are added in f32 at least, values in units of a scale are f32, and codecs of f64 read f64.
void StreamLane::node_fold(const Instruction& instruction) {
  const ResidualSites& keeps = task_.call.residuals.keeps;
  const Elements part(instruction.chunk);
  const bool folds = task_.node_residual != nullptr && !(keeps.intra && keeps.owner);
  const bool widens = working() == DType::f64 && summed_as_ != DType::f64;
  if (!folds && !task_.call.preconditioned && !widens) {
    return;
  }
  SlotState& sum = slots_[instruction.slot];
  if (summed_as_ != working()) {
    std::byte* wide = backend_.acquire(part.count * element_bytes(working()));
    backend_.convert(sum.memory, summed_as_, wide, working(), part.count, 1.0, nullptr, 1.0, nullptr);
    backend_.release(std::exchange(sum.memory, wide));
    summed_as_ = working();
  }
  const ChunkSeries& shards = lane_.node->shards;
  const double* inverse = share() == nullptr ? nullptr : execution_->totals_ + inverse_sum;
  for (std::uint64_t number = 0; folds && number <= shards.last; ++number) {
    const bool owned = number == lane_.node->own;
    if (owned ? keeps.owner : keeps.intra) {
      continue;
    }
    const Elements shard(shards.chunk(number));
    std::byte* values = sum.memory + (shard.first - part.first) * element_bytes(summed_as_);
    backend_.fold(node_residual(shard), owned ? divisor() : 1.0, owned ? device_divisor() : inverse, values, summed_as_,
                  shard.count);
  }
  rescale(part, sum.memory, summed_as_, 1.0, sum.memory, summed_as_, Units::of_scale);
}

void StreamLane::gather_in_node(const Instruction& instruction, std::uint64_t group) {
  const NodePart& node = *lane_.node;
  const std::size_t frames = instruction.inputs.size();
  const std::size_t number = slots_[instruction.inputs[0]].block;
  if (number == kNone || blocks_[number].slots != frames) {
    throw Error(ErrorCode::internal, std::string(execution_->schedule_.name) + ": the frames of lane " +
                                         std::to_string(index_) + " do not lie beside each other");
  }
  const FrameBlock& results = blocks_[number];
  for (const Slot slot : instruction.inputs) {
    slots_[slot].memory = results.data + slots_[slot].offset;
    slots_[slot].last_groups[StreamExecutor::kNode] = group;
  }
  trace(instruction);
  const std::uint64_t bytes = results.bytes / node.ranks;
  backend_.gather_in_node(results.data, bytes);
  count_sent((node.ranks - 1) * bytes, (node.ranks - 1) * node.part.count, backend_.rank());
  execution_->statistics_.frames_sent += (node.ranks - 1) * frames / node.ranks;
}

float* StreamLane::node_residual(Elements elements) const {
  if (task_.node_residual == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                task_.name + ": no memory for the residuals of the node's sums, which this call keeps");
  }
  return task_.node_residual + lane_.node->before + (elements.first - lane_.node->part.first);
}

StreamLane::Part StreamLane::summed_part(Elements elements, bool keeps) const {
  const std::byte* sum = slots_[lane_.node->sum].memory;
  return {.values = sum + (elements.first - lane_.node->part.first) * element_bytes(summed_as_),
          .dtype = summed_as_,
          .residual = keeps ? node_residual(elements) : nullptr};
}

}  // namespace gradwire::exchange
