// Places blocks in a few large slabs of memory whose use a queue (a stream) orders, not the host: a released block can
// be acquired again at once, for work that the queue does behind its present work. Blocks are placed first fit in the
// order in which slabs were made, so the same requests from the same state never take more memory the second time, and
// the memory of a dry run can be reserved. One thread at a time may use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace gradwire::memory {

/// Bytes of a session's memory on its device, and of pinned host memory.
struct Footprint {
  std::uint64_t bytes_in_use = 0;  // acquired now
  std::uint64_t peak_bytes = 0;    // the maximum of bytes_in_use
  std::uint64_t held_bytes = 0;    // taken from the device, acquired or not
  std::uint64_t pinned_bytes = 0;  // pinned host memory for staging
};

/// The source of slabs.
class ArenaSource {
 public:
  ArenaSource() = default;
  ArenaSource(const ArenaSource&) = delete;
  ArenaSource& operator=(const ArenaSource&) = delete;
  virtual ~ArenaSource() = default;

  /// Returns memory aligned to Arena::kAlignment; null where there is none.
  [[nodiscard]] virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void free(std::byte* slab) noexcept = 0;
  /// Returns the reason why allocate() last returned null, for messages.
  [[nodiscard]] virtual std::string why() const = 0;
};

class Arena {
 public:
  static constexpr std::size_t kAlignment = 256;  // alignment of blocks in bytes; their sizes are multiples of it
  /// Returns the memory that a block of so many bytes takes.
  [[nodiscard]] static std::size_t block_bytes(std::size_t bytes) noexcept;
  static constexpr std::size_t kSlabBytes = std::size_t{32} << 20;

  /// `slab_bytes`: least bytes that it requests from the source at once, if the source has that much.
  explicit Arena(ArenaSource& source, std::size_t slab_bytes = kSlabBytes);
  /// A copy with the same blocks in the same places, for a dry run over another source, which provides only the slabs
  /// that the copy takes beyond them.
  Arena(const Arena& other, ArenaSource& source);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  /// At its end nothing may use its blocks any more.
  ~Arena();

  /// Takes a block. Error(out_of_memory) names the size; while fixed, also what to call.
  [[nodiscard]] std::byte* acquire(std::size_t bytes);
  /// Does the same for a block that lasts beyond one use: it never lies in slabs from before the last fence().
  [[nodiscard]] std::byte* acquire_lasting(std::size_t bytes);
  /// Says that a graph was captured: whenever it is replayed, it may write to any block that was acquired and released
  /// so far.
  void fence() noexcept { fence_ = slabs_.size(); }
  /// Null is allowed.
  void release(std::byte* block) noexcept;

  /// From here to end_loan() blocks lie in this memory alone, which stays the caller's and is aligned to kAlignment.
  /// By then all of them must be released.
  void begin_loan(std::byte* memory, std::size_t bytes);
  void end_loan() noexcept { loan_.reset(); }

  /// Adds slabs of these sizes, in order. If it throws Error(out_of_memory), it has added none.
  void add_slabs(const std::vector<std::size_t>& sizes);
  /// Gives the latest slabs back to the source until `kept` are left. No block may lie in them, and no work use them.
  void drop_slabs(std::size_t kept) noexcept;
  /// Returns the sizes of all slabs, in the order in which they were taken.
  [[nodiscard]] std::vector<std::size_t> slabs() const;

  /// While fixed, the arena requests nothing from the source, for capture into a graph.
  void set_fixed(bool fixed) noexcept { fixed_ = fixed; }

  /// pinned_bytes is 0.
  [[nodiscard]] Footprint footprint() const noexcept { return {in_use_, peak_, held_, 0}; }

 private:
  struct Slab {
    std::byte* data;
    std::size_t bytes;
    bool owned;
    std::map<std::size_t, std::size_t> free;  // offset to bytes; no two touch
  };
  struct Used {
    std::size_t slab;
    std::size_t offset;
    std::size_t bytes;
  };

  std::byte* acquire_from(std::size_t first_slab, std::size_t bytes);
  std::byte* take(std::size_t first_slab, std::size_t bytes);
  std::byte* take_from(std::size_t index, std::size_t bytes);
  [[nodiscard]] Slab& slab(std::size_t index) { return index == kLoan ? *loan_ : slabs_[index]; }
  void grow(std::size_t bytes);
  void add_slab(std::byte* data, std::size_t bytes);

  static constexpr std::size_t kLoan = ~std::size_t{0};  // index of the slab on loan

  ArenaSource& source_;
  std::size_t slab_bytes_;
  std::vector<Slab> slabs_;
  std::optional<Slab> loan_;
  std::unordered_map<std::byte*, Used> used_;
  bool fixed_ = false;
  std::size_t fence_ = 0;  // slabs below it may be in use by graphs
  std::uint64_t in_use_ = 0;
  std::uint64_t peak_ = 0;
  std::uint64_t held_ = 0;
};

}  // namespace gradwire::memory
