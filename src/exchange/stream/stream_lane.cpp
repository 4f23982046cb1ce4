#include "exchange/stream/stream_lane.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace gradwire::exchange {

StreamLane::StreamLane(StreamExecutor& executor, std::shared_ptr<StreamExecution> execution, std::uint64_t index)
    : executor_(executor),
      backend_(executor.backend_),
      execution_(std::move(execution)),
      task_(*execution_->task_),
      index_(index),
      lane_(execution_->schedule_.make_lane(index)),
      slots_(lane_.slots) {
  place_instructions();
  count_uses();
  find_series();
}

bool StreamLane::feeds(const Instruction& instruction) noexcept {
  switch (instruction.opcode) {
    case Opcode::encode:
    case Opcode::reduce_encode:
    case Opcode::weight:
    case Opcode::sum_weights:
    case Opcode::native_load:
    case Opcode::node_load:
    case Opcode::node_fold: return true;
    default: return false;
  }
}

void StreamLane::place_instructions() {
  std::vector<int> ready(lane_.slots, 0);  // first round of computation in which a slot may be read
  const auto ready_at = [&](Slot slot) { return slot == kOwnInput ? 0 : ready[slot]; };
  rounds_.reserve(lane_.instructions.size());
  for (const Instruction& instruction : lane_.instructions) {
    int round = instruction.round;
    switch (instruction.opcode) {
      case Opcode::receive:
      case Opcode::native_reduce:
      case Opcode::node_sum: ready[instruction.slot] = round + 1; break;
      case Opcode::node_gather:
        for (const Slot slot : instruction.inputs) {
          ready[slot] = round + 1;
        }
        break;
      case Opcode::send:
        if (ready[instruction.slot] > round) {
          throw Error(ErrorCode::internal, std::string(execution_->schedule_.name) + ": lane " +
                                               std::to_string(index_) + " sends to rank " +
                                               std::to_string(instruction.peer) + " before it has what it sends");
        }
        break;
      case Opcode::weight: ready[instruction.slot] = round; break;
      case Opcode::decode:
      case Opcode::node_fold:
      case Opcode::native_store: round = ready[instruction.slot]; break;
      case Opcode::encode:
      case Opcode::reduce:
      case Opcode::reduce_encode:
      case Opcode::sum_weights:
        for (const Slot slot : instruction.inputs) {
          round = std::max(round, ready_at(slot));
        }
        if (instruction.opcode == Opcode::reduce_encode || instruction.opcode == Opcode::encode) {
          ready[instruction.slot] = round;
        }
        break;
      case Opcode::native_ask:  // on hosts only
      case Opcode::native_load:
      case Opcode::node_load:
      case Opcode::copy: break;
    }
    rounds_.push_back(round);
    round_ = std::min(round_, round);
    last_round_ = std::max(last_round_, is_computed(instruction) ? round : round + 1);
  }
}

void StreamLane::count_uses() {
  for (const Instruction& instruction : lane_.instructions) {
    for_each_slot(instruction, [this](Slot slot) { ++slots_[slot].uses; });
  }
}

bool StreamLane::has(bool (*wanted)(const Instruction&) noexcept) const noexcept {
  for (std::size_t i = 0; i < lane_.instructions.size(); ++i) {
    if (rounds_[i] == round_ && wanted(lane_.instructions[i])) {
      return true;
    }
  }
  return false;
}

StreamLane::Groups StreamLane::reads(bool (*wanted)(const Instruction&) noexcept) const noexcept {
  Groups last{};
  for (std::size_t i = 0; i < lane_.instructions.size(); ++i) {
    if (rounds_[i] == round_ && wanted(lane_.instructions[i])) {
      for_each_slot(lane_.instructions[i], [&](Slot slot) { StreamExecutor::raise(last, slots_[slot].last_groups); });
    }
  }
  return last;
}

std::uint64_t StreamLane::brought() const noexcept {
  return reads(&StreamLane::is<Opcode::node_gather>)[StreamExecutor::kMessages];
}

void StreamLane::feed() {
  if (std::exchange(fed_, true)) {
    return;
  }
  for (std::size_t i = 0; i < lane_.instructions.size(); ++i) {
    if (rounds_[i] == round_ && feeds(lane_.instructions[i])) {
      run(i);
    }
  }
}

bool StreamLane::finish_round() {
  for (std::size_t i = 0; i < lane_.instructions.size(); ++i) {
    const Instruction& instruction = lane_.instructions[i];
    if (rounds_[i] == round_ && is_rest(instruction)) {
      run(i);
    }
  }
  fed_ = used_library_ = false;
  return ++round_ <= last_round_;
}

void StreamLane::open_receives() {
  for (std::size_t i = 0; i < lane_.instructions.size(); ++i) {
    const Instruction& instruction = lane_.instructions[i];
    const bool receives = instruction.opcode == Opcode::receive || instruction.opcode == Opcode::node_sum;
    if (rounds_[i] == round_ && receives && slots_[instruction.slot].memory == nullptr) {
      open_slot(instruction);
    }
  }
}

// Messages between two ranks are matched by their order: by hop, then in the order of the instructions, of which sender
// and receiver have one each.
void StreamLane::communicate(std::uint64_t group) {
  for (const Hop hop : kHops) {
    for (std::size_t i = 0; i < lane_.instructions.size(); ++i) {
      const Instruction& instruction = lane_.instructions[i];
      if (rounds_[i] != round_ || !is_message(instruction) || instruction.hop != hop) {
        continue;
      }
      SlotState& slot = slots_[instruction.slot];
      trace(instruction);
      slot.last_groups[StreamExecutor::kMessages] = group;
      if (joint_ != nullptr) {
        joint_->add_message(instruction.opcode == Opcode::send, instruction.peer, slot.memory, slot.bytes);
      } else if (instruction.opcode == Opcode::receive) {
        backend_.receive({slot.memory, slot.bytes}, instruction.peer);
      } else {
        backend_.send({slot.memory, slot.bytes}, instruction.peer);
      }
      if (instruction.opcode == Opcode::send) {
        count_sent(slot.bytes, instruction.chunk.count, instruction.peer);
        execution_->statistics_.frames_sent += hop != Hop::weight ? 1 : 0;
      }
      used(instruction.slot);
    }
  }
}

void StreamLane::count_sent(std::uint64_t bytes, std::uint64_t elements, int peer) {
  execution_->count_sent(bytes, elements, backend_.rank(), peer);
}

void StreamLane::use_library(std::uint64_t group) {
  used_library_ = true;
  for (std::size_t i = 0; i < lane_.instructions.size(); ++i) {
    const Instruction& instruction = lane_.instructions[i];
    if (rounds_[i] != round_ || !is_librarys(instruction)) {
      continue;
    }
    if (instruction.opcode != Opcode::native_reduce) {
      instruction.opcode == Opcode::node_sum ? sum_in_node(instruction, group) : gather_in_node(instruction, group);
      for_each_slot(instruction, [this](Slot slot) { used(slot); });
      continue;
    }
    SlotState& slot = slots_[instruction.slot];
    slot.last_groups[StreamExecutor::kMessages] = group;
    trace(instruction);
    backend_.all_reduce(slot.memory, task_.call.codecs.first.dtype(), task_.count);
    const auto world = static_cast<std::uint64_t>(backend_.world_size());
    // A perfect ring sends so many.
    count_sent(2 * (world - 1) * slot.bytes / world, 0, Tiers::kAllPeers);
    execution_->statistics_.bytes_uncompressed += 2 * (world - 1) * task_.count * element_bytes(task_.dtype) / world;
    used(instruction.slot);
  }
}

std::byte* StreamLane::open_slot(const Instruction& instruction) {
  SlotState& slot = slots_[instruction.slot];
  executor_.computed();  // messages must not use the memory before it is acquired
  slot.bytes = slot_bytes(instruction);
  if (slot.block == kNone) {
    slot.memory = backend_.acquire(slot.bytes);
    return slot.memory;
  }
  FrameBlock& block = block_of(slot);
  if (block.data == nullptr) {
    block.data = backend_.acquire(block.bytes);
  }
  slot.memory = block.data + slot.offset;
  return slot.memory;
}

std::uint64_t StreamLane::slot_bytes(const Instruction& instruction) const {
  if (instruction.hop == Hop::weight) {
    return sizeof(double);
  }
  if (instruction.opcode == Opcode::native_load) {
    return task_.count * element_bytes(task_.call.codecs.first.dtype());
  }
  if (instruction.opcode == Opcode::node_load || instruction.opcode == Opcode::node_sum) {
    return instruction.chunk.count * element_bytes(sum_dtype());
  }
  return task_.call.codecs.of(instruction.hop).frame_bytes(instruction.chunk.count);
}

void StreamLane::used(Slot index) {
  SlotState& slot = slots_[index];
  if (--slot.uses > 0 || slot.borrowed) {
    return;
  }
  std::byte* memory = std::exchange(slot.memory, nullptr);
  Groups last = slot.last_groups;
  if (slot.block != kNone) {
    FrameBlock& block = block_of(slot);
    StreamExecutor::raise(block.last_groups, last);
    if (--block.slots > 0) {
      return;
    }
    memory = std::exchange(block.data, nullptr);
    last = block.last_groups;
  }
  if (executor_.waited_for(last)) {
    free(memory);
  } else {
    executor_.parked_.push_back({memory, last});
  }
}

void StreamLane::enqueue(std::span<const kernels::HeaderJob> jobs) {
  if (joint_ == nullptr) {
    backend_.open_headers(jobs);
    return;
  }
  for (const kernels::HeaderJob& job : jobs) {
    joint_->add(job);
  }
}

}  // namespace gradwire::exchange
