// What is known of each byte of memory: whether it may be accessed, whether it was written, and by whom it was last
// written and read.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/support/ptx/module.hpp"
#include "tests/support/ptx/order.hpp"
#include "tests/support/ptx/store_buffer.hpp"

namespace gradwire::ptx {

struct Cell {
  Stamp writer = 0;
  Stamp reader = 0;  // two readers suffice: any later writer is not one of them
  Stamp other_reader = 0;
};

/// What a thread acquired and released beside the barriers of its block.
struct ThreadSync {
  Knowledge acquired;
  Knowledge observed;  // by relaxed loads: an acquiring fence makes it acquired
  Knowledge fenced;    // what later relaxed stores publish
  Scope observed_scope = Scope::none;
  Scope fenced_scope = Scope::none;
};

/// Checks an access against the cell's earlier ones and notes it. Returns the stamp that it races with, or 0.
[[nodiscard]] Stamp note_load(Cell& cell, Stamp stamp, const Viewer& viewer);
[[nodiscard]] Stamp note_store(Cell& cell, Stamp stamp, const Viewer& viewer);

struct Allocation {
  std::uint64_t base = 0;
  std::size_t bytes = 0;
  std::string name;
  std::vector<std::uint8_t> state;  // kDefined, kForbidden, kLost
  std::vector<Cell> cells;
};
inline constexpr std::uint8_t kDefined = 1;
inline constexpr std::uint8_t kForbidden = 2;
inline constexpr std::uint8_t kLost = 4;  // of a store there nothing arrives

/// Keeps global memory: the allocations of a process, what releases published, and stores that did not arrive yet.
class Memory {
 public:
  void add(const void* base, std::size_t bytes, std::string name, bool defined);
  /// Forgets an allocation; returns false if none begins there.
  bool remove(const void* base);
  [[nodiscard]] Allocation* find(std::uint64_t address);
  /// Nothing may access these bytes from now on.
  void forbid(const void* from, std::size_t bytes);
  /// What kernels store to these bytes from now on is lost, as on a link that fails.
  void lose(const void* at, std::size_t bytes);
  /// These bytes count as never written.
  void undefine(const void* from, std::size_t bytes);
  /// Checks a copy or a fill of the host's, or one that a stream does. Throws Finding.
  void note_copy(const void* from, bool writes, std::size_t bytes, std::uint32_t agent, const Order& order,
                 const std::string& name);
  void copy_state(void* to, const void* from, std::size_t bytes);

  /// Notes what a store, or an update, leaves at its address.
  void publish(std::uint64_t address, const std::optional<Publication>& made, bool updates);
  [[nodiscard]] const Publication* published(std::uint64_t address) const;
  [[nodiscard]] bool has_published() const { return !publications_.empty(); }

  StoreBuffer stores;

 private:
  std::unordered_map<std::uint64_t, Publication> publications_;
  std::map<std::uint64_t, Allocation> allocations_;
  Allocation* last_ = nullptr;
};

}  // namespace gradwire::ptx
