#include "tests/support/ptx/machine.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>

namespace gradwire::ptx {

Machine* Machine::current = nullptr;

const std::uint64_t* Warp::in(std::uint32_t slot) const {
  const Kernel& kernel = *block->grid->launch.kernel;
  return slot < kernel.slots ? values.data() + std::size_t{slot} * 32
                             : kernel.constants.data() + std::size_t{slot - kernel.slots} * 32;
}

void Warp::put(std::uint32_t slot, std::uint32_t lanes, const std::uint64_t (&result)[32]) {
  std::uint64_t* const to = out(slot);
  if (lanes == kAllLanes) {
    std::memcpy(to, result, sizeof result);
    return;
  }
  for (; lanes != 0; lanes &= lanes - 1) {
    const int lane = __builtin_ctz(lanes);
    to[lane] = result[lane];
  }
}

Settings Settings::from_environment() {
  Settings settings;
  const char* const schedule = std::getenv("GRADWIRE_PTX_SCHEDULE");
  const std::string name = schedule == nullptr ? "ascending" : schedule;
  if (name != "ascending" && name != "descending" && name != "random") {
    throw Finding("GRADWIRE_PTX_SCHEDULE=" + name + ": it is ascending, descending or random");
  }
  settings.schedule = name == "random"       ? Schedule::random
                      : name == "descending" ? Schedule::descending
                                             : Schedule::ascending;
  if (const char* const seed = std::getenv("GRADWIRE_PTX_SEED"); seed != nullptr) {
    settings.seed = std::strtoull(seed, nullptr, 0);
  }
  if (const char* const most = std::getenv("GRADWIRE_PTX_INSTRUCTIONS"); most != nullptr) {
    settings.most_instructions = std::strtoull(most, nullptr, 0);
  }
  return settings;
}

Machine::Machine(const Settings& settings, Memory& memory, Order& order)
    : settings_(settings), memory_(memory), order_(order), random_(settings.seed) {}

void Machine::fail(const Warp& warp, const Instruction& instruction, std::uint32_t lane,
                   const std::string& what) const {
  const Kernel& kernel = *warp.block->grid->launch.kernel;
  const std::string source = kernel.module->source_of(instruction);
  throw Finding(what + ": " + kernel.readable + ", block " + std::to_string(warp.block->number) + ", thread " +
                std::to_string(warp.number * 32 + lane) + ", PTX line " + std::to_string(instruction.line) + ": " +
                std::string(instruction.text) + (source.empty() ? "" : " (" + source + ")"));
}

std::unique_ptr<Grid> Machine::begin(Launch launch, std::uint32_t activity) {
  auto grid = std::make_unique<Grid>();
  grid->launch = std::move(launch);
  grid->activity = activity;
  return grid;
}

namespace {

void set_special(Warp& warp, std::uint32_t slot, std::uint64_t value) { std::fill_n(warp.out(slot), 32, value); }

void begin_warp(Warp& warp, Block& block, const Launch& launch) {
  const Kernel& kernel = *launch.kernel;
  const std::uint32_t threads = launch.threads[0] * launch.threads[1] * launch.threads[2];
  warp.block = &block;
  const std::uint32_t lanes = std::min(32U, threads - warp.number * 32);
  warp.launched = warp.live = lanes == 32 ? kAllLanes : (1U << lanes) - 1;
  warp.waiting = 0;
  warp.at_barrier = false;
  std::fill_n(warp.next, 32, 0U);
  std::fill_n(warp.epoch, 32, 0U);
  warp.values.resize(std::size_t{kernel.slots} * 32);
  warp.predicates.assign(kernel.predicates, 0);
  warp.predicates[1] = kAllLanes;
  warp.local.resize(32 * kernel.local_bytes);
  warp.local_defined.assign(32 * kernel.local_bytes, 0);
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    const std::uint32_t thread = warp.number * 32 + lane;
    warp.out(kThreadX)[lane] = thread % launch.threads[0];
    warp.out(kThreadY)[lane] = thread / launch.threads[0] % launch.threads[1];
    warp.out(kThreadZ)[lane] = thread / launch.threads[0] / launch.threads[1];
    warp.out(kLane)[lane] = lane;
    warp.out(kLanesBelow)[lane] = (1U << lane) - 1;
    warp.out(kLanesUpTo)[lane] = (2ULL << lane) - 1;
  }
  set_special(warp, kBlockX, block.number % launch.blocks[0]);
  set_special(warp, kBlockY, block.number / launch.blocks[0] % launch.blocks[1]);
  set_special(warp, kBlockZ, block.number / launch.blocks[0] / launch.blocks[1]);
  for (std::uint32_t d = 0; d < 3; ++d) {
    set_special(warp, kBlockSizeX + d, launch.threads[d]);
    set_special(warp, kBlocksX + d, launch.blocks[d]);
  }
  set_special(warp, kWarpNumber, warp.number);
  set_special(warp, kSharedBytes, launch.dynamic_shared);
}

}  // namespace

void Machine::begin_block(Grid& grid) {
  std::unique_ptr<Block> block;
  if (grid.spare.empty()) {
    block = std::make_unique<Block>();
    block->grid = &grid;
    block->warps.resize((grid.threads() + 31) / 32);
  } else {
    block = std::move(grid.spare.back());
    grid.spare.pop_back();
  }
  const std::uint64_t all = grid.all_blocks();
  std::uint64_t number = grid.begun++;
  if (settings_.schedule == Schedule::descending) {
    number = all - 1 - number;
  } else if (settings_.schedule == Schedule::random) {
    std::uint64_t stride = settings_.seed % all + 1;
    while (std::gcd(stride, all) != 1) {
      ++stride;
    }
    number = (number * stride + settings_.seed) % all;
  }
  block->number = static_cast<std::uint32_t>(number);
  block->agent = order_.add_agent(grid.activity, block->number);
  block->epoch = 1;
  block->knowledge = {};
  block->threads.clear();
  const std::size_t shared = grid.launch.kernel->shared_bytes + grid.launch.dynamic_shared;
  block->shared.resize(shared);
  for (std::size_t at = 0; at < shared; at += sizeof(std::uint64_t)) {
    const std::uint64_t noise = random_();
    std::memcpy(block->shared.data() + at, &noise, std::min(sizeof noise, shared - at));
  }
  block->shared_cells.assign(shared, {});
  for (std::uint32_t w = 0; w < block->warps.size(); ++w) {
    block->warps[w].number = w;
    begin_warp(block->warps[w], *block, grid.launch);
  }
  grid.resident.push_back(std::move(block));
}

bool Machine::run_slice(Grid& grid) {
  current = this;
  if (grid.ended == grid.all_blocks()) {
    memory_.stores.drain(random_, memory_);
    return !memory_.stores.holds_of(grid.activity);
  }
  std::size_t at = 0;
  if (grid.begun < grid.all_blocks() && grid.resident.size() < settings_.most_resident) {
    begin_block(grid);
    at = grid.resident.size() - 1;
  } else if (settings_.schedule == Schedule::random) {
    at = random_() % grid.resident.size();
  } else {  // in turn
    std::rotate(grid.resident.begin(), grid.resident.begin() + 1, grid.resident.end());
    at = grid.resident.size() - 1;
  }
  const bool random = settings_.schedule == Schedule::random;
  if (run_block(*grid.resident[at], random ? 1 + random_() % 20'000 : 200'000)) {
    grid.spare.push_back(std::move(grid.resident[at]));
    grid.resident.erase(grid.resident.begin() + static_cast<std::ptrdiff_t>(at));
    ++grid.ended;
  }
  return grid.ended == grid.all_blocks() && !memory_.stores.holds_of(grid.activity);
}

// Runs the warps in turn; returns whether all threads have exited.
bool Machine::run_block(Block& block, std::uint64_t quantum) {
  const auto count = static_cast<std::uint32_t>(block.warps.size());
  std::vector<std::uint32_t> turns(count);
  std::iota(turns.begin(), turns.end(), 0U);
  if (settings_.schedule == Schedule::descending) {
    std::reverse(turns.begin(), turns.end());
  }
  std::uint64_t used = 0;
  while (used < quantum) {
    memory_.stores.drain(random_, memory_);
    if (settings_.schedule == Schedule::random) {
      std::shuffle(turns.begin(), turns.end(), random_);
    }
    std::uint64_t ran = 0;
    bool live = false;
    bool all_at_barrier = true;
    bool only_polls = true;
    for (const std::uint32_t w : turns) {
      Warp& warp = block.warps[w];
      if (warp.live != 0 && !warp.at_barrier) {
        warp.polled = false;
        const bool random = settings_.schedule == Schedule::random;
        ran += run_warp(warp, random ? 1 + random_() % 300 : 20'000);
        only_polls = only_polls && warp.polled;
      }
      live = live || warp.live != 0;
      all_at_barrier = all_at_barrier && warp.at_barrier;
    }
    used += ran;
    block.grid->instructions += ran;
    instructions_ += ran;
    if (!live) {
      return true;
    }
    if (all_at_barrier) {
      release_barrier(block);
    } else if (ran == 0) {
      stuck(block);
    } else if (only_polls) {
      return false;  // other blocks may store what this one waits for
    }
    if (block.grid->instructions > settings_.most_instructions) {
      const Warp& warp =
          *std::find_if(block.warps.begin(), block.warps.end(), [](const Warp& w) { return w.live != 0; });
      const int lane = __builtin_ctz(warp.live);
      fail(warp, block.grid->launch.kernel->code[warp.next[lane]], static_cast<std::uint32_t>(lane),
           "no end: " + std::to_string(block.grid->instructions) + " instructions");
    }
  }
  return false;
}

void Machine::stuck(const Block& block) const {
  std::string where;
  const Warp* first = nullptr;
  std::uint32_t first_lane = 0;
  for (const Warp& warp : block.warps) {
    for (std::uint32_t lane = 0; lane < 32; ++lane) {
      if ((warp.live >> lane & 1) != 0 && first == nullptr) {
        first = &warp;
        first_lane = lane;
      }
    }
    if (warp.live != warp.launched || !warp.at_barrier) {
      where += " warp " + std::to_string(warp.number) +
               (warp.live == 0    ? " has exited;"
                : warp.at_barrier ? " waits;"
                                  : " waits for its own lanes;");
    }
  }
  fail(*first, block.grid->launch.kernel->code[first->next[first_lane]], first_lane,
       "deadlock: threads wait for others that never come:" + where);
}

void Machine::release_barrier(Block& block) const {
  const std::vector<Instruction>& code = block.grid->launch.kernel->code;
  const std::uint32_t pc = block.warps[0].next[__builtin_ctz(block.warps[0].live)];
  const Instruction& instruction = code[pc];
  std::uint32_t any = 0;
  std::uint32_t all = kAllLanes;
  std::uint32_t count = 0;
  for (const Warp& warp : block.warps) {
    const std::uint32_t other = warp.next[__builtin_ctz(warp.live)];
    if (other != pc) {
      fail(warp, code[other], 0,
           "barriers meet: other threads wait at PTX line " + std::to_string(instruction.line) + ", not at this one");
    }
    if (instruction.operands == 2) {
      const std::uint32_t bits = warp.predicates[instruction.operand[1]];
      any |= bits & warp.live;
      all &= bits | ~warp.live;
      count += static_cast<std::uint32_t>(__builtin_popcount(bits & warp.live));
    }
  }
  for (auto& [thread, sync] : block.threads) {
    block.knowledge.add(sync.acquired);
  }
  block.threads.clear();
  ++block.epoch;
  for (Warp& warp : block.warps) {
    if (instruction.operands == 2) {
      const std::string& name = instruction.operation->name;
      if (name.find("popc") != std::string::npos) {
        std::uint64_t result[32];
        std::fill(result, result + 32, count);
        warp.put(instruction.operand[0], warp.live, result);
      } else {
        const bool is = name.find(".or.") != std::string::npos ? any != 0 : all == kAllLanes;
        warp.put_bits(instruction.operand[0], warp.live, is ? kAllLanes : 0);
      }
    }
    warp.at_barrier = false;
    std::fill_n(warp.epoch, 32, 0U);
    std::fill_n(warp.next, 32, pc + 1);
  }
}

}  // namespace gradwire::ptx
