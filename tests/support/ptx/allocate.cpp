// Kernels have up to ten thousand registers of 256 bytes a warp; few are alive at once. Slots are given by a linear
// scan over the ranges in which a data-flow analysis finds registers alive. Lanes never share what is in a slot, so one
// lane's value may end in it while another lane's value of another register begins.
#include <algorithm>
#include <queue>

#include "tests/support/ptx/addresses.hpp"
#include "tests/support/ptx/module.hpp"

namespace gradwire::ptx {
namespace {

using Bits = std::vector<std::uint64_t>;

struct BasicBlock {
  std::uint32_t begin = 0, end = 0;
  std::vector<std::uint32_t> next;
  Bits reads, writes, in, out;
};

bool is_register(std::uint32_t slot) { return (slot & kConstant) == 0 && slot >= kSpecials; }

template <class Body>
void for_values(const Instruction& instruction, bool destinations, Body body) {
  for (std::uint32_t i = 0; i < instruction.operands; ++i) {
    if ((instruction.value_operands >> i & 1) != 0 && (i < instruction.destinations) == destinations &&
        is_register(instruction.operand[i])) {
      body(instruction.operand[i] - kSpecials);
    }
  }
}

bool ends_block(const Instruction& instruction) {
  return instruction.operation->flow == Flow::branch || instruction.operation->flow == Flow::exit;
}

std::vector<BasicBlock> basic_blocks(const Kernel& kernel) {
  const auto size = static_cast<std::uint32_t>(kernel.code.size());
  std::vector<bool> leads(size + 1, false);
  leads[0] = leads[size] = true;
  for (std::uint32_t i = 0; i < size; ++i) {
    if (ends_block(kernel.code[i])) {
      leads[i + 1] = true;
      if (kernel.code[i].operation->flow == Flow::branch) {
        leads[kernel.code[i].target] = true;
      }
    }
  }
  std::vector<BasicBlock> blocks;
  std::vector<std::uint32_t> at(size + 1, 0);
  for (std::uint32_t i = 0; i < size; ++i) {
    if (leads[i]) {
      blocks.push_back({i, i, {}, {}, {}, {}, {}});
    }
    at[i] = static_cast<std::uint32_t>(blocks.size() - 1);
    blocks.back().end = i + 1;
  }
  for (BasicBlock& block : blocks) {
    const Instruction& last = kernel.code[block.end - 1];
    if (last.operation->flow == Flow::branch && last.target < size) {
      block.next.push_back(at[last.target]);
    }
    if ((!ends_block(last) || last.guard != kNone) && block.end < size) {
      block.next.push_back(at[block.end]);
    }
  }
  return blocks;
}

void find_live(const Kernel& kernel, std::vector<BasicBlock>& blocks, std::size_t words) {
  for (BasicBlock& block : blocks) {
    block.reads.assign(words, 0);
    block.writes.assign(words, 0);
    block.in.assign(words, 0);
    block.out.assign(words, 0);
    for (std::uint32_t i = block.begin; i < block.end; ++i) {
      const Instruction& instruction = kernel.code[i];
      for_values(instruction, false, [&](std::uint32_t r) {
        if ((block.writes[r / 64] >> r % 64 & 1) == 0) {
          block.reads[r / 64] |= 1ULL << r % 64;
        }
      });
      if (instruction.guard == kNone) {  // otherwise lanes that do not write keep what they have
        for_values(instruction, true, [&](std::uint32_t r) { block.writes[r / 64] |= 1ULL << r % 64; });
      }
    }
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
      for (std::size_t w = 0; w < words; ++w) {
        std::uint64_t out = 0;
        for (const std::uint32_t next : block->next) {
          out |= blocks[next].in[w];
        }
        const std::uint64_t in = block->reads[w] | (out & ~block->writes[w]);
        changed = changed || in != block->in[w];
        block->out[w] = out;
        block->in[w] = in;
      }
    }
  }
}

struct Range {
  std::uint32_t begin = kNone, end = 0;
  void add(std::uint32_t at) {
    begin = std::min(begin, at);
    end = std::max(end, at);
  }
};

}  // namespace

void allocate_slots(Kernel& kernel) {
  const std::uint32_t registers = kernel.slots - kSpecials;
  const std::size_t words = registers / 64 + 1;
  std::vector<Range> ranges(registers);
  if (!kernel.code.empty()) {
    std::vector<BasicBlock> blocks = basic_blocks(kernel);
    find_live(kernel, blocks, words);
    for (const BasicBlock& block : blocks) {
      for (std::uint32_t r = 0; r < registers; ++r) {
        if ((block.in[r / 64] >> r % 64 & 1) != 0) {
          ranges[r].add(block.begin);
        }
        if ((block.out[r / 64] >> r % 64 & 1) != 0) {
          ranges[r].add(block.end);
        }
      }
    }
  }
  for (std::uint32_t i = 0; i < kernel.code.size(); ++i) {
    for (const bool destinations : {false, true}) {
      for_values(kernel.code[i], destinations, [&](std::uint32_t r) { ranges[r].add(i); });
    }
  }
  std::vector<std::uint32_t> order;
  for (std::uint32_t r = 0; r < registers; ++r) {
    if (ranges[r].begin != kNone) {
      order.push_back(r);
    }
  }
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return ranges[a].begin < ranges[b].begin; });
  using End = std::pair<std::uint32_t, std::uint32_t>;  // of a range, and its slot
  std::priority_queue<End, std::vector<End>, std::greater<>> active;
  std::vector<std::uint32_t> slot(registers, 0);
  std::uint32_t slots = kSpecials;
  for (const std::uint32_t r : order) {
    if (!active.empty() && active.top().first < ranges[r].begin) {
      slot[r] = active.top().second;
      active.pop();
    } else {
      slot[r] = slots++;
    }
    active.emplace(ranges[r].end, slot[r]);
  }
  kernel.slots = slots;
  for (Instruction& instruction : kernel.code) {
    for (std::uint32_t i = 0; i < instruction.operands; ++i) {
      std::uint32_t& operand = instruction.operand[i];
      if ((instruction.value_operands >> i & 1) == 0) {
        continue;
      }
      if ((operand & kConstant) != 0) {
        operand = slots + (operand & ~kConstant);
      } else if (operand >= kSpecials) {
        operand = slot[operand - kSpecials];
      }
    }
  }
}

}  // namespace gradwire::ptx
