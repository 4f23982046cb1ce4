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
  place_steps();
  count_uses();
}

// The round is the same on every rank, even where ranks have different steps of a lane.
int StreamLane::round_of_hop(Hop hop) const noexcept {
  if (hop == Hop::weight) {
    return task_.call.weights_first() ? -1 : 0;
  }
  return hop == Hop::result ? 1 : 0;
}

bool StreamLane::feeds(const Step& step) noexcept {
  switch (step.kind) {
    case StepKind::encode:
    case StepKind::reduce_encode:
    case StepKind::weight:
    case StepKind::sum_weights:
    case StepKind::native_load: return true;
    default: return false;
  }
}

void StreamLane::place_steps() {
  std::vector<int> ready(lane_.slots, 0);  // first round of computation in which a slot may be read
  const auto ready_at = [&](Slot slot) { return slot == kOwnInput ? 0 : ready[slot]; };
  rounds_.reserve(lane_.steps.size());
  for (const Step& step : lane_.steps) {
    int round = 0;
    switch (step.kind) {
      case StepKind::receive:
        round = round_of_hop(step.hop);
        ready[step.slot] = round + 1;
        break;
      case StepKind::send:
        round = round_of_hop(step.hop);
        if (ready[step.slot] > round) {
          throw Error(ErrorCode::internal, std::string(execution_->schedule_.name) + ": lane " +
                                               std::to_string(index_) + " sends to rank " + std::to_string(step.peer) +
                                               " before it has what it sends");
        }
        break;
      case StepKind::weight: ready[step.slot] = round = round_of_hop(Hop::weight); break;
      case StepKind::native_reduce: ready[step.slot] = 1; break;
      case StepKind::decode:
      case StepKind::native_store: round = ready[step.slot]; break;
      case StepKind::reduce:
      case StepKind::reduce_encode:
      case StepKind::sum_weights:
        for (const Slot slot : step.inputs) {
          round = std::max(round, ready_at(slot));
        }
        if (step.kind == StepKind::reduce_encode) {
          ready[step.slot] = round;
        }
        break;
      case StepKind::encode:
      case StepKind::native_ask:  // on hosts only
      case StepKind::native_load:
      case StepKind::copy: break;
    }
    rounds_.push_back(round);
    round_ = std::min(round_, round);
    last_round_ = std::max(last_round_, is_message(step) || is_native(step) ? round + 1 : round);
  }
}

void StreamLane::count_uses() {
  for (const Step& step : lane_.steps) {
    for_each_slot(step, [this](Slot slot) { ++slots_[slot].uses; });
  }
}

bool StreamLane::has(bool (*wanted)(const Step&) noexcept) const noexcept {
  for (std::size_t i = 0; i < lane_.steps.size(); ++i) {
    if (rounds_[i] == round_ && wanted(lane_.steps[i])) {
      return true;
    }
  }
  return false;
}

void StreamLane::feed() {
  for (std::size_t i = 0; i < lane_.steps.size(); ++i) {
    if (rounds_[i] == round_ && feeds(lane_.steps[i])) {
      compute(lane_.steps[i]);
    }
  }
}

bool StreamLane::finish_round() {
  for (std::size_t i = 0; i < lane_.steps.size(); ++i) {
    const Step& step = lane_.steps[i];
    if (rounds_[i] == round_ && !feeds(step) && !is_message(step) && !is_native(step)) {
      compute(step);
    }
  }
  return ++round_ <= last_round_;
}

void StreamLane::open_receives() {
  for (std::size_t i = 0; i < lane_.steps.size(); ++i) {
    if (rounds_[i] == round_ && lane_.steps[i].kind == StepKind::receive) {
      open_slot(lane_.steps[i]);
    }
  }
}

// Messages between two ranks are matched by their order: by hop, then in the order of the steps, of which sender and
// receiver have one each.
void StreamLane::communicate(std::uint64_t group) {
  for (const Hop hop : kHops) {
    for (std::size_t i = 0; i < lane_.steps.size(); ++i) {
      const Step& step = lane_.steps[i];
      if (rounds_[i] != round_ || !is_message(step) || step.hop != hop) {
        continue;
      }
      SlotState& slot = slots_[step.slot];
      executor_.trace(
          {.kind = step.kind, .sequence = execution_->sequence_, .lane = index_, .round = round_, .peer = step.peer});
      slot.last_group = group;
      if (step.kind == StepKind::receive) {
        backend_.receive({slot.memory, slot.bytes}, step.peer);
      } else {
        backend_.send({slot.memory, slot.bytes}, step.peer);
        Statistics& statistics = execution_->statistics_;
        statistics.bytes_sent += slot.bytes;
        if (hop != Hop::weight) {
          ++statistics.frames_sent;
          statistics.bytes_uncompressed +=
              execution_->schedule_.dense_bytes(step.chunk.count * element_bytes(task_.dtype));
        }
      }
      used(step.slot);
    }
  }
}

void StreamLane::reduce_natively(std::uint64_t group) {
  for (std::size_t i = 0; i < lane_.steps.size(); ++i) {
    const Step& step = lane_.steps[i];
    if (rounds_[i] != round_ || !is_native(step)) {
      continue;
    }
    SlotState& slot = slots_[step.slot];
    slot.last_group = group;
    executor_.trace({.kind = step.kind, .sequence = execution_->sequence_, .lane = index_, .round = round_});
    backend_.all_reduce(slot.memory, task_.call.codecs.first.dtype(), task_.count);
    const auto world = static_cast<std::uint64_t>(backend_.world_size());
    Statistics& statistics = execution_->statistics_;
    statistics.bytes_sent += 2 * (world - 1) * slot.bytes / world;  // a perfect ring sends so many
    statistics.bytes_uncompressed += 2 * (world - 1) * task_.count * element_bytes(task_.dtype) / world;
    used(step.slot);
  }
}

std::byte* StreamLane::open_slot(const Step& step) {
  SlotState& slot = slots_[step.slot];
  slot.bytes = slot_bytes(step);
  slot.memory = backend_.acquire(slot.bytes);
  return slot.memory;
}

std::uint64_t StreamLane::slot_bytes(const Step& step) const {
  if (step.hop == Hop::weight) {
    return sizeof(double);
  }
  if (step.kind == StepKind::native_load) {
    return task_.count * element_bytes(task_.call.codecs.first.dtype());
  }
  return task_.call.codecs.of(step.hop).frame_bytes(step.chunk.count);
}

void StreamLane::used(Slot index) {
  SlotState& slot = slots_[index];
  if (--slot.uses > 0 || slot.borrowed) {
    return;
  }
  if (slot.last_group > executor_.waited_) {
    executor_.parked_.push_back(slot.memory);
  } else {
    backend_.release(slot.memory);
  }
  slot.memory = nullptr;
}

}  // namespace gradwire::exchange
