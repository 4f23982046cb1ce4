// Plays a step on a copy of an arena, to find out how much memory it needs before it is captured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "exchange/stream/null_backend.hpp"
#include "memory/arena.hpp"

namespace gradwire::exchange {

/// Addresses that nobody may touch.
class NoMemory final : public memory::ArenaSource {
 public:
  [[nodiscard]] std::byte* allocate(std::size_t bytes) override {
    next_ += bytes;
    return reinterpret_cast<std::byte*>(next_ - bytes);  // NOLINT(performance-no-int-to-ptr)
  }
  void free(std::byte* /*slab*/) noexcept override {}
  [[nodiscard]] std::string why() const override { return {}; }

 private:
  std::uintptr_t next_ = std::uintptr_t{1} << 60;  // beyond what a device maps
};

/// Lets `arena` allocate at once the memory that it lacks for `play`, which gets a backend over a copy of the arena.
template <class Play>
void reserve_memory_of(memory::Arena& arena, int rank, int world_size, Play&& play) {
  NoMemory source;
  memory::Arena copy(arena, source);
  NullBackend backend(copy, rank, world_size);
  std::forward<Play>(play)(backend);
  const auto slabs = copy.slabs();
  arena.set_fixed(false);
  arena.add_slabs({slabs.begin() + static_cast<std::ptrdiff_t>(arena.slabs().size()), slabs.end()});
}

}  // namespace gradwire::exchange
