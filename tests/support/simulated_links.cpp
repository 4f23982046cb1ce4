#include "tests/support/simulated_links.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "gradwire/error.hpp"

namespace gradwire::exchange {

SimulatedLinks::SimulatedLinks(int ranks, SimulatedLink link, WindowLimits limits, std::uint64_t known_window)
    : link_(link) {
  for (int rank = 0; rank < ranks; ++rank) {
    ranks_.push_back({.window = Window(limits)});
    ranks_.back().window.set_known(known_window);
  }
}

Window::Time SimulatedLinks::now() const {
  return Window::Time(std::chrono::duration_cast<Window::Time::duration>(std::chrono::duration<double>(now_)));
}

void SimulatedLinks::post(Event::Kind kind, double at, const Key& key, std::uint64_t bytes) {
  events_.push({kind, at, order_++, key, bytes});
}

double SimulatedLinks::run(std::span<const Schedule> schedules,
                           const std::function<std::uint64_t(const Instruction&)>& frame_bytes) {
  const double begin = now_;
  frame_bytes_ = &frame_bytes;
  channels_.clear();
  for (Rank& rank : ranks_) {
    rank.next_lane = 0;
    rank.sent = 0;
  }
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    open_lanes(static_cast<int>(rank), schedules[rank]);
  }
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    if (const int rank = take(event); rank >= 0) {
      advance(rank, std::get<2>(event.key));
      open_lanes(rank, schedules[static_cast<std::size_t>(rank)]);
    }
  }
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_[rank].lanes.empty() || ranks_[rank].next_lane != schedules[rank].lanes) {
      throw Error(ErrorCode::internal,
                  "rank " + std::to_string(rank) + " is stuck in lane " + std::to_string(ranks_[rank].next_lane));
    }
  }
  return now_ - begin;
}

// Returns the rank that may go on now; a negative number means none.
int SimulatedLinks::take(const Event& event) {
  const auto [from, to, lane, hop] = event.key;
  switch (event.kind) {
    case Event::Kind::leaves: {
      Rank& receiver = ranks_[static_cast<std::size_t>(to)];
      peak_queue_seconds_ = std::max(peak_queue_seconds_, receiver.in_free - event.at);
      receiver.in_free =
          std::max(receiver.in_free, event.at) + static_cast<double>(event.bytes) / link_.bytes_per_second;
      const double late = link_.jitter_seconds * static_cast<double>(random_()) / std::mt19937::max();
      post(Event::Kind::arrives, receiver.in_free + link_.latency_seconds + late, event.key, event.bytes);
      return -1;
    }
    case Event::Kind::arrives: ++channels_[event.key].arrived; return to;
    case Event::Kind::sent: {
      Rank& sender = ranks_[static_cast<std::size_t>(from)];
      --sender.sending;
      --sender.lanes.at(lane).sending;
      return from;
    }
  }
  return -1;
}

// Computing takes no time, so lanes do not wait for each other: one lane goes on, and others may open in its place.
void SimulatedLinks::advance(int rank, std::uint64_t index) {
  Rank& self = ranks_[static_cast<std::size_t>(rank)];
  const auto found = self.lanes.find(index);
  if (found == self.lanes.end()) {
    return;  // this rank has not opened the lane yet
  }
  OpenLane& lane = found->second;
  while (lane.next < lane.lane.instructions.size() && run_next(rank, lane)) {
  }
  if (lane.next == lane.lane.instructions.size() && lane.sending == 0) {
    self.window.close(lane.load, lane.opened, now());
    self.lanes.erase(found);
  }
}

void SimulatedLinks::open_lanes(int rank, const Schedule& schedule) {
  Rank& self = ranks_[static_cast<std::size_t>(rank)];
  while (self.next_lane < schedule.lanes) {
    Lane lane = schedule.make_lane(self.next_lane);
    const LaneLoad load = load_of(lane, *frame_bytes_, [](Hop, std::uint64_t) { return std::uint64_t{0}; });
    if (!self.window.admits(load)) {
      if (self.sending == 0) {
        self.window.starved();
      }
      return;
    }
    OpenLane open{.index = self.next_lane, .lane = std::move(lane), .load = load};
    open.awaited.resize(open.lane.slots);
    open.opened = self.window.open(load, now());
    peak_memory_ = std::max(peak_memory_, self.window.memory());
    self.lanes.emplace(self.next_lane, std::move(open));
    advance(rank, self.next_lane++);
  }
}

bool SimulatedLinks::arrived(int rank, OpenLane& lane, Slot slot) {
  if (slot == kOwnInput || lane.awaited[slot].first == nullptr) {
    return true;
  }
  const Instruction& receive = *lane.awaited[slot].first;
  return channels_[{receive.peer, rank, lane.index, receive.hop}].arrived > lane.awaited[slot].second;
}

bool SimulatedLinks::run_next(int rank, OpenLane& lane) {
  const Instruction& instruction = lane.lane.instructions[lane.next];
  const auto here = [&](Slot slot) { return arrived(rank, lane, slot); };
  if (!std::all_of(instruction.inputs.begin(), instruction.inputs.end(), here)) {
    return false;
  }
  if (instruction.opcode == Opcode::receive) {
    lane.awaited[instruction.slot] = {&instruction,
                                      channels_[{instruction.peer, rank, lane.index, instruction.hop}].awaited++};
  } else if (instruction.opcode == Opcode::send) {
    if (!here(instruction.slot)) {
      return false;
    }
    Rank& self = ranks_[static_cast<std::size_t>(rank)];
    const std::uint64_t bytes = (*frame_bytes_)(instruction);
    const double begin = std::max(now_, self.out_free);
    self.out_free = begin + static_cast<double>(bytes) / link_.bytes_per_second;
    const Key key{rank, instruction.peer, lane.index, instruction.hop};
    post(Event::Kind::leaves, begin, key, bytes);
    self.sent += bytes;
    if (!link_.hides_queue) {
      ++self.sending;
      ++lane.sending;
      post(Event::Kind::sent, self.out_free, key, bytes);
    }
  } else if (instruction.opcode == Opcode::decode && !here(instruction.slot)) {
    return false;
  }
  ++lane.next;
  return true;
}

}  // namespace gradwire::exchange
