// Runs a warp: the lanes at one place run in lockstep until they part, or meet others.
#include <algorithm>

#include "tests/support/ptx/lanes.hpp"

namespace gradwire::ptx {
namespace {

std::uint32_t first_of(std::uint32_t lanes) { return static_cast<std::uint32_t>(__builtin_ctz(lanes)); }

// Lanes at one place, and where the nearest other lanes ahead of them are.
struct Group {
  std::uint32_t lanes = 0, stop = kNone;
};

Group group_at(const Warp& warp, std::uint32_t pc) {
  Group group;
  for_each_lane(warp.live, [&](std::uint32_t lane) {
    if (warp.next[lane] == pc) {
      group.lanes |= 1U << lane;
    } else if (warp.next[lane] > pc) {
      group.stop = std::min(group.stop, warp.next[lane]);
    }
  });
  return group;
}

void send_to(Warp& warp, std::uint32_t lanes, std::uint32_t pc) {
  for_each_lane(lanes, [&](std::uint32_t lane) { warp.next[lane] = pc; });
}

}  // namespace

// Returns whether the instruction could run: all lanes that it names are here.
bool Machine::sync_lanes(Warp& warp, const Instruction& instruction, std::uint32_t lanes, std::uint32_t pc) const {
  const std::uint32_t lane = first_of(lanes);
  const bool all = instruction.operation->name.starts_with("mma.");
  const std::uint32_t named =
      all ? kAllLanes : static_cast<std::uint32_t>(warp.in(instruction.operand[instruction.operands - 1U])[lane]);
  const std::uint32_t members = named & warp.launched;
  if ((lanes & ~named) != 0) {
    fail(warp, instruction, lane, "a lane runs an instruction that does not name it");
  }
  if ((members & ~warp.live) != 0) {
    fail(warp, instruction, lane, "an instruction waits for lanes that have exited");
  }
  if ((members & ~lanes) != 0) {
    return false;
  }
  instruction.operation->run(warp, instruction, lanes);
  send_to(warp, lanes, pc + 1);
  warp.waiting &= ~lanes;
  return true;
}

// The lanes furthest behind run next, so that lanes meet again; at random it is sometimes others.
std::uint32_t Machine::next_place(const Warp& warp, std::uint32_t runnable) {
  std::uint32_t pc = kNone;
  if (settings_.schedule == Schedule::random && random_() % 8 == 0) {
    while (pc == kNone) {
      const auto lane = static_cast<std::uint32_t>(random_() % 32);
      pc = (runnable >> lane & 1) != 0 ? warp.next[lane] : kNone;
    }
    return pc;
  }
  for_each_lane(runnable, [&](std::uint32_t lane) { pc = std::min(pc, warp.next[lane]); });
  return pc;
}

// Returns whether all lanes of the warp are at the barrier now.
bool Machine::arrive(Warp& warp, const Instruction& instruction, std::uint32_t lanes, std::uint32_t pc) const {
  send_to(warp, lanes, pc);
  if (instruction.guard != kNone) {
    fail(warp, instruction, first_of(lanes), "a guarded barrier");
  }
  if (warp.live != warp.launched) {
    fail(warp, instruction, first_of(lanes), "lanes of this warp have exited and never come to the barrier");
  }
  warp.waiting |= lanes;
  if (lanes == warp.live) {
    warp.waiting = 0;
    warp.at_barrier = true;
  }
  return warp.at_barrier;
}

// Runs one group of lanes until they part, meet others, wait, or have used `quantum`. Returns the instructions run;
// sets `ends` where the warp's turn ends.
std::uint64_t Machine::run_group(Warp& warp, std::uint32_t pc, std::uint64_t quantum, bool& ends) {
  const std::vector<Instruction>& code = warp.block->grid->launch.kernel->code;
  const Group group = group_at(warp, pc);
  const std::uint32_t lanes = group.lanes;
  std::uint64_t ran = 0;
  while (pc != group.stop && ran < quantum) {
    if (pc >= code.size()) {
      throw Finding("a thread runs past the end of " + warp.block->grid->launch.kernel->readable);
    }
    const Instruction& instruction = code[pc];
    ++ran;
    std::uint32_t active = lanes;
    if (instruction.guard != kNone) {
      const std::uint32_t bits = warp.predicates[instruction.guard];
      active &= instruction.guard_negated ? ~bits : bits;
    }
    switch (instruction.operation->flow) {
      case Flow::plain:
      case Flow::memory:
        if (active != 0) {
          instruction.operation->run(warp, instruction, active);
        }
        ++pc;
        if (instruction.memory.scope != Scope::none && instruction.memory.kind == MemoryForm::Kind::load) {
          warp.polled = ends = true;
          send_to(warp, lanes, pc);
          return ran;
        }
        continue;
      case Flow::branch:
        if (active == lanes && lanes == warp.live) {
          pc = instruction.target;
          continue;
        }
        send_to(warp, lanes & ~active, pc + 1);
        send_to(warp, active, instruction.target);
        return ran;
      case Flow::exit:
        warp.live &= ~active;
        send_to(warp, lanes & ~active, pc + 1);
        return ran;
      case Flow::warp_sync:
        send_to(warp, lanes & ~active, pc + 1);
        send_to(warp, active, pc);
        if (active != 0 && !sync_lanes(warp, instruction, active, pc)) {
          warp.waiting |= active;
          return ran - 1;
        }
        return ran;
      case Flow::barrier: ends = arrive(warp, instruction, lanes, pc); return ends ? ran : ran - 1;
      case Flow::nap:
        send_to(warp, lanes, pc + 1);
        ends = true;
        return ran;
      case Flow::trap: fail(warp, instruction, first_of(lanes), "trap");
    }
  }
  send_to(warp, lanes, pc);
  return ran;
}

// Returns the instructions run; 0 if all lanes wait.
std::uint64_t Machine::run_warp(Warp& warp, std::uint64_t quantum) {
  std::uint64_t ran = 0;
  bool ends = false;
  while (!ends && ran < quantum && warp.live != 0) {
    const std::uint32_t runnable = warp.live & ~warp.waiting;
    if (runnable == 0) {
      break;
    }
    ran += run_group(warp, next_place(warp, runnable), quantum - ran, ends);
  }
  return ran;
}

}  // namespace gradwire::ptx
