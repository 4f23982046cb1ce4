// The machine that runs kernels: grids of blocks of warps of 32 lanes. The lanes of a warp that are at the same place
// run in lockstep. Each lane has its own program counter; after a divergence the lanes furthest behind run first, so
// that lanes meet again. Instructions with .sync wait for their lanes, barriers for all threads of the block.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/support/ptx/module.hpp"
#include "tests/support/ptx/order.hpp"
#include "tests/support/ptx/shadow.hpp"

namespace gradwire::ptx {

inline constexpr std::uint32_t kAllLanes = 0xFFFFFFFFU;

enum class Schedule : std::uint8_t { ascending, descending, random };

/// Says which stores to global memory wait in a buffer before other threads see them.
enum class Buffered : std::uint8_t { none, strong, all };

struct Block;
struct Grid;

struct Warp {
  Block* block = nullptr;
  std::uint32_t number = 0;
  std::uint32_t launched = 0;  // lanes that exist
  std::uint32_t live = 0;      // lanes that did not exit
  std::uint32_t waiting = 0;   // lanes at an instruction with .sync whose other lanes are not there yet
  bool at_barrier = false;
  bool polled = false;           // it ended its turn by a load that may wait for another block
  std::uint32_t next[32] = {};   // the instruction of each lane
  std::uint32_t epoch[32] = {};  // of each lane: orders accesses inside the warp
  std::vector<std::uint64_t> values;
  std::vector<std::uint32_t> predicates;
  std::vector<std::uint8_t> local;
  std::vector<std::uint8_t> local_defined;

  [[nodiscard]] const std::uint64_t* in(std::uint32_t slot) const;
  [[nodiscard]] std::uint64_t* out(std::uint32_t slot) { return values.data() + std::size_t{slot} * 32; }
  void put(std::uint32_t slot, std::uint32_t lanes, const std::uint64_t (&result)[32]);
  void put_bits(std::uint32_t predicate, std::uint32_t lanes, std::uint32_t bits) {
    predicates[predicate] = (predicates[predicate] & ~lanes) | (bits & lanes);
  }
};

struct Block {
  Grid* grid = nullptr;
  std::uint32_t number = 0;
  std::uint32_t agent = 0;
  std::uint32_t epoch = 1;  // counts barriers
  std::vector<Warp> warps;
  std::vector<std::uint8_t> shared;  // noise at first: kernels may load what nobody stored, if no result depends on it
  std::vector<Cell> shared_cells;
  Knowledge knowledge;
  std::map<std::uint32_t, ThreadSync> threads;  // those that acquired or fenced since the last barrier
};

struct Launch {
  Kernel* kernel = nullptr;
  std::uint32_t blocks[3] = {1, 1, 1};
  std::uint32_t threads[3] = {1, 1, 1};
  std::size_t dynamic_shared = 0;
  std::vector<std::uint8_t> parameters;
};

/// A kernel under way.
struct Grid {
  Launch launch;
  std::uint32_t activity = 0;  // of Order
  std::uint64_t begun = 0;     // blocks so far
  std::uint64_t ended = 0;
  std::vector<std::unique_ptr<Block>> resident;
  std::vector<std::unique_ptr<Block>> spare;
  std::uint64_t instructions = 0;
  [[nodiscard]] std::uint64_t all_blocks() const {
    return std::uint64_t{launch.blocks[0]} * launch.blocks[1] * launch.blocks[2];
  }
  [[nodiscard]] std::uint32_t threads() const { return launch.threads[0] * launch.threads[1] * launch.threads[2]; }
};

/// Settings, from the environment: GRADWIRE_PTX_SCHEDULE=ascending|descending|random, GRADWIRE_PTX_SEED=N,
/// GRADWIRE_PTX_INSTRUCTIONS=N (most of one grid).
struct Settings {
  Schedule schedule = Schedule::ascending;
  std::uint64_t seed = 1;
  std::uint64_t most_instructions = 400'000'000;
  std::uint32_t most_resident = 64;
  // A weak store that another thread sees too early, or too late, is a race, so strong ones alone need to wait.
  Buffered buffered = Buffered::strong;
  bool finds_races = true;
  static Settings from_environment();
};

class Machine {
 public:
  Machine(const Settings& settings, Memory& memory, Order& order);

  /// Makes a grid; its parameters are copied.
  [[nodiscard]] std::unique_ptr<Grid> begin(Launch launch, std::uint32_t activity);
  /// Runs the grid for a while; returns whether it has ended. Throws Finding.
  bool run_slice(Grid& grid);

  [[nodiscard]] std::uint64_t instructions() const { return instructions_; }
  /// Grows whenever anything runs, or may arrive.
  [[nodiscard]] std::uint64_t progress() const { return instructions_ + memory_.stores.drains(); }
  [[nodiscard]] Memory& memory() { return memory_; }
  [[nodiscard]] Order& order() { return order_; }
  [[nodiscard]] const Settings& settings() const { return settings_; }
  [[nodiscard]] std::uint64_t clock() { return clock_ += 1000; }
  std::mt19937_64& random() { return random_; }
  /// Throws Finding with the place of the instruction.
  [[noreturn]] void fail(const Warp& warp, const Instruction& instruction, std::uint32_t lane,
                         const std::string& what) const;
  static Machine* current;  // while run_slice runs

 private:
  void begin_block(Grid& grid);
  bool run_block(Block& block, std::uint64_t quantum);
  std::uint64_t run_warp(Warp& warp, std::uint64_t quantum);
  std::uint64_t run_group(Warp& warp, std::uint32_t pc, std::uint64_t quantum, bool& ends);
  std::uint32_t next_place(const Warp& warp, std::uint32_t runnable);
  bool arrive(Warp& warp, const Instruction& instruction, std::uint32_t lanes, std::uint32_t pc) const;
  bool sync_lanes(Warp& warp, const Instruction& instruction, std::uint32_t lanes, std::uint32_t pc) const;
  void release_barrier(Block& block) const;
  [[noreturn]] void stuck(const Block& block) const;

  Settings settings_;
  Memory& memory_;
  Order& order_;
  std::mt19937_64 random_;
  std::uint64_t instructions_ = 0;
  std::uint64_t clock_ = 0;
};

}  // namespace gradwire::ptx
