#include "exchange/host/lane_run.hpp"

#include <algorithm>
#include <utility>

#include "observe/record.hpp"

namespace gradwire::exchange {
namespace {

constexpr std::uint32_t kChannelBits = 1;
constexpr std::uint32_t kSequenceBits = 11;
constexpr std::uint32_t kLaneBits = 13;
static_assert(kChannelBits + kSequenceBits + kLaneBits + kHopBits == 28, "tags of collectives end at kTagLimit");

// The place among kHops of the hop that a tag names.
std::size_t order_of(Tag tag) {
  const auto hop = static_cast<Hop>(tag & ((1U << kHopBits) - 1));
  return static_cast<std::size_t>(std::find(kHops.begin(), kHops.end(), hop) - kHops.begin());
}

bool computes(Opcode opcode) { return opcode != Opcode::receive && opcode != Opcode::send; }

}  // namespace

LaneRun::LaneRun(HostExecutor& executor, std::shared_ptr<Execution> execution, std::uint64_t index)
    : executor_(executor),
      execution_(std::move(execution)),
      task_(*execution_->task_),
      index_(index),
      lane_(execution_->schedule_.make_lane(index)),
      slots_(lane_.slots) {
  for (const Instruction& instruction : lane_.instructions) {
    for_each_slot(instruction, [this](Slot slot) { ++slots_[slot].uses; });
  }
  load_ = load_of(
      lane_, [this](const Instruction& instruction) { return slot_bytes(instruction); },
      [this](Hop hop, std::uint64_t count) { return task_.call.codecs.of(hop).room_bytes(count); });
}

void LaneRun::open(Window& window) { opened_ = window.open(load_, std::chrono::steady_clock::now()); }

void LaneRun::close(Window& window) const {
  window.close(load_, opened_, std::chrono::steady_clock::now());
  if (executor_.peer_waits_ != nullptr) {
    executor_.peer_waits_->lane_ended(last_);
  }
}

LaneRun::Outcome LaneRun::run() {
  harvest();
  bool posted = false;
  while (next_instruction_ < lane_.instructions.size()) {
    const Instruction& instruction = lane_.instructions[next_instruction_];
    if (!ready(instruction)) {
      return posted ? Outcome::posted : Outcome::blocked;
    }
    const std::uint64_t ticks = observe::ticks();
    const auto begin = std::chrono::steady_clock::now();
    execute(instruction);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    release_uses(instruction);
    ++next_instruction_;
    if (!computes(instruction.opcode)) {
      posted = true;
      continue;
    }
    Statistics& statistics = execution_->statistics_;
    (instruction.opcode == Opcode::decode || instruction.opcode == Opcode::copy ? statistics.decode_seconds
                                                                                : statistics.encode_seconds) += seconds;
    if (ticks != 0) {
      note_stage(instruction, ticks);
    }
    return Outcome::computed;
  }
  return posted ? Outcome::posted : Outcome::finished;
}

bool LaneRun::complete() {
  harvest();
  return next_instruction_ == lane_.instructions.size() && open_operations_ == 0;
}

bool LaneRun::ready(const Instruction& instruction) {
  const auto received = [this](Slot slot) {
    return slot == kOwnInput || slots_[slot].receive == nullptr || slots_[slot].receive->done();
  };
  switch (instruction.opcode) {
    case Opcode::reduce:
    case Opcode::reduce_encode:
      return execution_->weights_known_ && std::all_of(instruction.inputs.begin(), instruction.inputs.end(), received);
    case Opcode::sum_weights:
      if (std::all_of(instruction.inputs.begin(), instruction.inputs.end(), received)) {
        return true;
      }
      check_early_frames();
      return false;
    case Opcode::weight:
    case Opcode::native_reduce: return std::all_of(instruction.inputs.begin(), instruction.inputs.end(), received);
    case Opcode::send:
    case Opcode::decode: return received(instruction.slot);
    case Opcode::native_store:
      return received(instruction.slot) && std::all_of(instruction.inputs.begin(), instruction.inputs.end(), received);
    case Opcode::encode: return !task_.call.weights_first() || execution_->weights_known_;
    case Opcode::native_load:
      return (!task_.call.weights_first() || execution_->weights_known_) &&
             std::all_of(instruction.inputs.begin(), instruction.inputs.end(), received);
    default: return true;
  }
}

void LaneRun::execute(const Instruction& instruction) {
  switch (instruction.opcode) {
    case Opcode::receive: post_receive(instruction); break;
    case Opcode::send: post_send(instruction); break;
    case Opcode::encode: encode(instruction); break;
    case Opcode::reduce:
    case Opcode::reduce_encode:
      reduce(instruction);
      reduced_ = executor_.peer_waits_ != nullptr ? executor_.peer_waits_->total() : -1;
      break;
    case Opcode::decode: decode(instruction); break;
    case Opcode::copy: copy(instruction); break;
    case Opcode::weight: write_weight(instruction); break;
    case Opcode::sum_weights: sum_weights(instruction); break;
    case Opcode::native_ask: ask(instruction); break;
    case Opcode::native_load:
    case Opcode::native_reduce:
    case Opcode::native_store: native(instruction); break;
    case Opcode::node_load:
    case Opcode::node_sum:
    case Opcode::node_fold:
    case Opcode::node_gather:
      throw Error(ErrorCode::internal, std::string(to_string(instruction.opcode)) + ": no transport sums inside nodes");
  }
  trace(instruction, false);
}

void LaneRun::post_receive(const Instruction& instruction) {
  const auto bytes = open_slot(instruction);
  Pending& pending = pending_.emplace_back();
  pending.slot = instruction.slot;
  pending.posted = observe::ticks();
  pending.waited = executor_.peer_waits_ != nullptr ? executor_.peer_waits_->total() : 0;
  SlotState& slot = slots_[instruction.slot];
  slot.receive = &pending.operation;
  slot.from = instruction.peer;
  slot.hop = instruction.hop;
  ++slot.uses;  // the operation needs the slot until it is done
  if (instruction.hop != Hop::weight && task_.call.codecs.of(instruction.hop).packed()) {
    executor_.transport_.post_receive_at_most(pending.operation, instruction.peer, tag(instruction.hop), bytes);
  } else {
    executor_.transport_.post_receive(pending.operation, instruction.peer, tag(instruction.hop), bytes);
  }
  ++open_operations_;
}

void LaneRun::post_send(const Instruction& instruction) {
  Pending& pending = pending_.emplace_back();
  pending.slot = instruction.slot;
  pending.posted = observe::ticks();
  ++slots_[instruction.slot].uses;
  executor_.transport_.post_send(pending.operation, instruction.peer, tag(instruction.hop),
                                 message_in(slots_[instruction.slot]));
  ++open_operations_;
  if (instruction.hop != Hop::weight) {
    ++execution_->statistics_.frames_sent;
    execution_->statistics_.bytes_uncompressed +=
        execution_->schedule_.dense_bytes(instruction.chunk.count * element_bytes(task_.tensors.dtype()));
  }
}

Tag LaneRun::tag(Hop hop) const {
  return executor_.options_.channel << (kSequenceBits + kLaneBits + kHopBits) |
         (execution_->sequence_ & ((1U << kSequenceBits) - 1)) << (kLaneBits + kHopBits) |
         (static_cast<std::uint32_t>(index_) & ((1U << kLaneBits) - 1)) << kHopBits | static_cast<Tag>(hop);
}

void LaneRun::release_uses(const Instruction& instruction) {
  for_each_slot(instruction, [this](Slot slot) { release_slot(slot); });
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
      count_sent(pending.operation.peer, pending.operation.bytes_counted);
      if (pending.posted != 0) {
        note_message(pending);
      }
      if (executor_.peer_waits_ != nullptr && pending.operation.kind == Operation::Kind::receive) {
        note_arrival(pending);
      }
      release_slot(pending.slot);
    }
  }
}

void LaneRun::count_sent(int peer, std::uint64_t bytes) const {
  executor_.tiers_->count_sent(execution_->statistics_, bytes, executor_.transport_.rank(), peer);
}

std::vector<int> LaneRun::missing() const {
  std::vector<int> ranks;
  std::size_t earliest = kHops.size() + 1;
  for (const Pending& pending : pending_) {
    const Operation& operation = pending.operation;
    if (!operation.pending() || operation.peer < 0) {
      continue;
    }
    const bool is_send = operation.kind == Operation::Kind::send;
    const std::size_t order = is_send ? kHops.size() : order_of(operation.tag);
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

bool LaneRun::sending() const noexcept {
  return std::any_of(pending_.begin(), pending_.end(), [](const Pending& pending) {
    return pending.operation.pending() && pending.operation.kind != Operation::Kind::receive;
  });
}

void LaneRun::cancel(Transport& transport) noexcept {
  for (Pending& pending : pending_) {
    if (pending.operation.pending() && !transport.cancel(pending.operation)) {
      slots_[pending.slot].buffer.leak();
    }
  }
}

observe::Event LaneRun::event(observe::EventKind kind, std::uint64_t bytes) const {
  return {.bytes = bytes,
          .source = executor_.options_.source,
          .step = task_.step,
          .bucket = task_.bucket,
          .kind = kind,
          .lane = static_cast<std::uint16_t>(index_)};
}

void LaneRun::note_stage(const Instruction& instruction, std::uint64_t begin) const {
  using observe::EventKind;
  const std::uint64_t bytes = instruction.chunk.count * element_bytes(task_.tensors.dtype());
  switch (instruction.opcode) {
    case Opcode::encode: observe::record_since(begin, event(EventKind::encode, bytes)); break;
    case Opcode::reduce:
    case Opcode::reduce_encode: observe::record_since(begin, event(EventKind::reduce, bytes)); break;
    case Opcode::decode:
    case Opcode::copy: observe::record_since(begin, event(EventKind::decode, bytes)); break;
    case Opcode::native_load:
    case Opcode::native_store: observe::record_since(begin, event(EventKind::native, task_.tensors.bytes())); break;
    default: break;  // hardly any work, or a message
  }
}

void LaneRun::note_message(const Pending& pending) const {
  using observe::EventKind;
  const Operation& operation = pending.operation;
  const bool receives = operation.kind == Operation::Kind::receive;
  const bool sends = operation.kind == Operation::Kind::send;
  observe::Event message = event(receives ? EventKind::receive
                                 : sends  ? EventKind::send
                                          : EventKind::all_reduce,
                                 receives ? operation.bytes : operation.bytes_counted);
  message.hop = receives || sends ? operation.tag & ((1U << kHopBits) - 1) : 0;
  message.peer = observe::peer_of(operation.peer);
  observe::record_since(pending.posted, message);
}

// The wait for a peer's result counts only from the moment when this rank has made its own: before that, a result may
// be late because the frames that it needs are.
void LaneRun::note_arrival(const Pending& pending) {
  using Frame = observe::PeerWaits::Frame;
  observe::PeerWaits& waits = *executor_.peer_waits_;
  const Operation& operation = pending.operation;
  const auto hop = static_cast<Hop>(operation.tag & ((1U << kHopBits) - 1));
  if (hop != Hop::own) {
    waits.came(operation.peer, reduced_ >= 0 ? std::max(pending.waited, reduced_) : waits.total(), operation.bytes,
               Frame::result);
    return;
  }
  if (waits.came(operation.peer, pending.waited, operation.bytes, index_ == 0 ? Frame::first : Frame::own)) {
    last_ = operation.peer;
  }
}

void LaneRun::trace(const Instruction& instruction, bool completed) const {
  if (!executor_.options_.trace) {
    return;
  }
  // An instruction that reads received frames proves that they have arrived.
  for (const Slot input : instruction.inputs) {
    if (input != kOwnInput && slots_[input].receive != nullptr) {
      executor_.options_.trace(
          {Opcode::receive, execution_->sequence_, index_, Hop::own, slots_[input].receive->peer, true});
    }
  }
  executor_.options_.trace(
      {instruction.opcode, execution_->sequence_, index_, instruction.hop, instruction.peer, completed});
}

}  // namespace gradwire::exchange
