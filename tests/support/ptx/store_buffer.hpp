// Holds stores that other threads need not see yet. A thread sees its own; all others see them when they arrive in
// memory, which happens in random order, and at the latest when a thread looks that is ordered behind the store.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "tests/support/ptx/module.hpp"
#include "tests/support/ptx/order.hpp"

namespace gradwire::ptx {

/// A release leaves this at an address.
struct Publication {
  Knowledge knowledge;
  Scope scope = Scope::none;
  std::uint32_t activity = 0;
};

struct PendingStore {
  std::uint64_t address = 0;
  std::uint32_t size = 0;  // in bytes, at most 32
  std::uint8_t bytes[32] = {};
  Stamp stamp = 0;
  std::uint32_t activity = 0;
  std::optional<Publication> publication;
  Scope fenced = Scope::none;  // as far as that it has been made visible

  [[nodiscard]] bool overlaps(std::uint64_t other, std::size_t other_size) const {
    return address < other + other_size && other < address + size;
  }
};

class Memory;

class StoreBuffer {
 public:
  [[nodiscard]] bool empty() const { return pending_.empty(); }
  [[nodiscard]] bool holds_of(std::uint32_t activity) const;
  /// Returns how often drain() found some.
  [[nodiscard]] std::uint64_t drains() const { return drains_; }
  void add(const PendingStore& store) { pending_.push_back(store); }

  /// Lets those arrive that `viewer` must see at these bytes; with `own`, those of its thread, too.
  void settle(std::uint64_t address, std::size_t size, const Viewer& viewer, bool own, Memory& memory);
  /// Puts over `bytes`, which were loaded from `address`, what the thread itself stored there.
  void forward(std::uint64_t address, std::size_t size, const Viewer& viewer, std::uint8_t* bytes) const;
  /// Makes a sequentially consistent fence: what `viewer` stored or is ordered behind is visible to all in `scope`.
  void fence(const Viewer& viewer, Scope scope, Memory& memory);
  /// Lets some arrive, or all, or in three of four calls none.
  void drain(std::mt19937_64& random, Memory& memory);

 private:
  // Lets one arrive, and before it the earlier ones that it overlaps. Returns how many these were.
  std::size_t arrive(std::size_t at, Memory& memory);

  std::vector<PendingStore> pending_;  // of those that overlap, the earlier arrives first
  std::uint64_t drains_ = 0;
};

}  // namespace gradwire::ptx
