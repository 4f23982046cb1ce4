#include "tests/support/recording_executor.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "gradwire/error.hpp"

namespace gradwire::exchange {
namespace {

// The key is (from, to, lane, hop): messages are matched in the order in which they are sent and awaited.
using Key = std::tuple<int, int, std::uint64_t, Hop>;
struct Channel {
  std::vector<Instruction> sent;
  std::size_t awaited = 0;
};
using Mail = std::map<Key, Channel>;

// A receive that must be over before its slot is read.
struct Awaited {
  const Instruction* instruction = nullptr;
  std::size_t message = 0;  // index in its channel
};

std::string describe(int rank, std::uint64_t lane, const Instruction& instruction) {
  return "rank " + std::to_string(rank) + " lane " + std::to_string(lane) + " " +
         std::string(to_string(instruction.opcode)) + " peer " + std::to_string(instruction.peer) + " hop " +
         std::to_string(static_cast<int>(instruction.hop)) + " round " + std::to_string(instruction.round);
}

struct RecordedLane {
  std::uint64_t index;
  Lane lane;
  std::size_t next = 0;
  std::vector<Awaited> awaited;  // by slot
};

class World {
 public:
  World(std::span<const Schedule> schedules, int window)
      : schedules_(schedules), window_(window), ranks_(schedules.size()) {}

  std::vector<RecordedInstruction> run() {
    for (bool worked = true; worked;) {
      worked = false;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        worked = advance(static_cast<int>(rank)) || worked;
      }
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!ranks_[rank].lanes.empty()) {
        const RecordedLane& lane = ranks_[rank].lanes.front();
        throw Error(ErrorCode::internal,
                    "stuck: " + describe(static_cast<int>(rank), lane.index, lane.lane.instructions[lane.next]));
      }
    }
    for (const auto& [key, channel] : mail_) {
      if (channel.sent.size() > channel.awaited) {
        throw Error(ErrorCode::internal, "nobody receives what rank " + std::to_string(std::get<0>(key)) +
                                             " sends to rank " + std::to_string(std::get<1>(key)) + " in lane " +
                                             std::to_string(std::get<2>(key)));
      }
    }
    return std::move(recorded_);
  }

 private:
  struct Rank {
    std::uint64_t opened = 0;
    std::deque<RecordedLane> lanes;
  };

  bool advance(int rank) {
    Rank& state = ranks_[static_cast<std::size_t>(rank)];
    const Schedule& schedule = schedules_[static_cast<std::size_t>(rank)];
    while (state.opened < schedule.lanes && state.lanes.size() < static_cast<std::size_t>(window_)) {
      RecordedLane lane{state.opened, schedule.make_lane(state.opened), 0, {}};
      lane.awaited.resize(lane.lane.slots);
      state.lanes.push_back(std::move(lane));
      ++state.opened;
    }
    bool worked = false;
    for (RecordedLane& lane : state.lanes) {
      while (lane.next < lane.lane.instructions.size() && run_next(rank, lane)) {
        worked = true;
      }
    }
    std::erase_if(state.lanes, [](const RecordedLane& lane) { return lane.next == lane.lane.instructions.size(); });
    return worked;
  }

  // Returns whether the messages that a slot waits for have been sent.
  bool arrived(int rank, RecordedLane& lane, Slot slot) {
    if (slot == kOwnInput || lane.awaited[slot].instruction == nullptr) {
      return true;
    }
    const Instruction& receive = *lane.awaited[slot].instruction;
    const std::vector<Instruction>& sent = mail_[{receive.peer, rank, lane.index, receive.hop}].sent;
    if (sent.size() <= lane.awaited[slot].message) {
      return false;
    }
    const Instruction& message = sent[lane.awaited[slot].message];
    if (message.chunk.first != receive.chunk.first || message.chunk.count != receive.chunk.count ||
        message.round != receive.round) {
      throw Error(ErrorCode::internal,
                  describe(rank, lane.index, receive) + ": sender and receiver disagree about the chunk or the round");
    }
    lane.awaited[slot].instruction = nullptr;
    return true;
  }

  bool run_next(int rank, RecordedLane& lane) {
    const Instruction& instruction = lane.lane.instructions[lane.next];
    for (const Slot input : instruction.inputs) {
      if (!arrived(rank, lane, input)) {
        return false;
      }
    }
    switch (instruction.opcode) {
      case Opcode::receive:
        lane.awaited[instruction.slot] = {&instruction,
                                          mail_[{instruction.peer, rank, lane.index, instruction.hop}].awaited++};
        break;
      case Opcode::send:
        if (!arrived(rank, lane, instruction.slot)) {
          return false;
        }
        mail_[{rank, instruction.peer, lane.index, instruction.hop}].sent.push_back(instruction);
        break;
      case Opcode::decode:
      case Opcode::native_store:
        if (!arrived(rank, lane, instruction.slot)) {
          return false;
        }
        break;
      default: break;
    }
    recorded_.push_back({rank, lane.index, instruction});
    ++lane.next;
    return true;
  }

  std::span<const Schedule> schedules_;
  int window_;
  std::vector<Rank> ranks_;
  Mail mail_;
  std::vector<RecordedInstruction> recorded_;
};

}  // namespace

std::vector<RecordedInstruction> record(std::span<const Schedule> world, int window) {
  return World(world, window).run();
}

}  // namespace gradwire::exchange
