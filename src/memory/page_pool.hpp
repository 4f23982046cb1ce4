// The page pool: host memory for payloads of 4 KiB or more, taken from the system in regions of 2 MiB, which fit huge
// pages. Blocks have size classes with lists of free blocks; these are joined to runs of pages only when a request
// finds nothing else (lazy merging). The pool has no thread: the session that ends a step calls tend().
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.hpp"
#include "memory/page_runs.hpp"
#include "memory/page_source.hpp"

namespace gradwire::memory {

/// Says what a block is for.
enum class MemoryUse : std::uint8_t {
  frames,     // encoded chunks on their way
  residuals,  // what error feedback keeps, and second buffers of it
  tables,     // rows, their optimizer state and index
  copies,     // values that sync modes, or measurements of errors, keep aside
  staging,    // host copies of what lies elsewhere
};
inline constexpr std::size_t kMemoryUses = 5;
[[nodiscard]] std::string_view to_string(MemoryUse use) noexcept;

/// Most bytes that the pool takes from the system, and who set them, for messages.
struct MemoryLimit {
  std::uint64_t bytes = ~std::uint64_t{0};
  std::string source = "no limit";
};

/// A block that was taken from the pool or freed.
struct PoolEvent {
  const std::byte* memory;
  std::size_t bytes;
  MemoryUse use;
  bool taken;
};

struct PagePoolOptions {
  MemoryLimit limit = {};
  /// If given, it is asked for the limit again before a request is refused.
  std::function<MemoryLimit(std::uint64_t reserved)> limit_now = {};

  HugePages huge_pages = HugePages::madvise;
  Protection protection = {};  // of all memory from now on; what was once asked for stays
  bool merges_lazily = true;   // false: each freed block is joined with its neighbours at once

  /// Free memory above `trim_above` bytes that was not needed for `trim_after` goes back to the system.
  std::uint64_t trim_above = std::uint64_t{64} << 20;
  std::chrono::milliseconds trim_after = std::chrono::seconds(10);

  /// Compaction is due where a request finds no run of pages although more than this share of the pool is free; after
  /// so many requests in a row that failed; or where a look, every `look_every`, finds more than kAimedReserve times
  /// what is in use.
  double compact_free = 0.6;
  std::uint32_t compact_failures = 3;
  std::chrono::milliseconds look_every = std::chrono::seconds(30);
};

/// Bytes of the pool. Blocks count with what their size class has.
struct PagePoolStatistics {
  struct OfUse {
    std::uint64_t in_use = 0;
    std::uint64_t high_water = 0;  // the most that was ever in use
  };
  std::array<OfUse, kMemoryUses> uses = {};
  std::uint64_t in_use = 0;
  std::uint64_t high_water = 0;
  std::uint64_t reserved = 0;  // taken from the system: in use, or free for the next request
  std::uint64_t reserved_high_water = 0;
  std::uint64_t limit = 0;
  std::uint64_t longest_free = 0;  // the longest run of free pages, without blocks that wait in lists
  std::uint64_t maps = 0;          // requests to the system
  std::uint64_t failures = 0;      // requests that were refused
  std::uint64_t compactions = 0;
  std::uint64_t moved = 0;           // by compactions
  std::uint64_t trimmed = 0;         // given back to the system
  HugePages pages = HugePages::off;  // of the newest region

  [[nodiscard]] std::uint64_t free() const noexcept { return reserved - in_use; }
  /// Returns the share of the free bytes that does not lie in the longest run; 0 where nothing is free.
  [[nodiscard]] double fragmentation() const noexcept;
  /// Returns one line for people.
  [[nodiscard]] std::string to_text() const;
};

class Block;

/// Any thread may call any function.
class PagePool {
 public:
  using Clock = std::chrono::steady_clock;
  /// Compaction gives memory back until no more is reserved than this times what is in use, and a region.
  static constexpr double kAimedReserve = 1.25;

  explicit PagePool(PageSource& source, PagePoolOptions options = {});
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;
  /// Gives back what is free; a region with a block in it stays mapped for ever.
  ~PagePool();

  /// Returns uninitialised memory, aligned to kPageBytes; `bytes` is at least 1. Error(out_of_memory) names sizes, the
  /// limit and who set it. Tell free() the same size and use. Objects of class Block do so.
  [[nodiscard]] std::byte* allocate(std::size_t bytes, MemoryUse use);
  void free(std::byte* memory, std::size_t bytes, MemoryUse use) noexcept;

  /// Returns whether the pool may come to hold `bytes` more within its limit, if they were in one piece or fit free
  /// runs.
  [[nodiscard]] bool has_room(std::uint64_t bytes);
  /// Throws Error(out_of_memory) of allocate() if the pool has no such room. `what` begins its message: "step 3 needs".
  void require(std::uint64_t bytes, std::string_view what);

  /// Gives back what was idle for long enough, and looks whether compaction is due. A session calls it between steps.
  void tend(Clock::time_point now = Clock::now());
  /// Returns whether compaction is due: some owner should offer its blocks to compact().
  [[nodiscard]] bool compaction_due() const noexcept { return compaction_due_.load(std::memory_order_relaxed); }
  /// Moves blocks out of sparsely used regions and gives these back. Until it returns nobody may use the blocks, whose
  /// data() changes. Null and empty blocks, and those of another pool, are left out. Returns the bytes given back.
  std::uint64_t compact(std::span<Block* const> blocks);

  /// Gives free memory above a lower limit back. Error(unsupported) where the system refuses the protection; then
  /// nothing else has changed.
  void configure(PagePoolOptions options);
  /// `watch` is told from now on of all blocks, in order, and may not use the pool; empty: nobody is.
  void watch(std::function<void(const PoolEvent&)> watch);
  [[nodiscard]] PagePoolOptions options() const;
  [[nodiscard]] PagePoolStatistics statistics() const;

  /// Holds the pool's lock during a fork, so that the child finds the pool whole.
  void lock_for_fork() noexcept ACQUIRE(mutex_) { mutex_.lock(); }
  void unlock_after_fork() noexcept RELEASE(mutex_) { mutex_.unlock(); }

 private:
  // Blocks of up to kExactPages pages have a class for each size; above, each doubling has kSteps classes. Larger
  // blocks than those of the last class have whole pages, and are never kept in lists.
  static constexpr std::size_t kExactPages = 16;
  static constexpr std::size_t kSteps = 8;
  static constexpr std::size_t kMostClassPages = 1024;
  static constexpr std::size_t kClasses = kExactPages + kSteps * 6;

  class Evacuation;
  struct Class {
    std::vector<std::byte*> free;  // has room for all blocks of the class that were cut
    std::size_t cut = 0;           // in use or in `free`
  };
  struct Size {
    std::size_t number;  // of the class; kClasses: none
    std::size_t pages;
  };
  [[nodiscard]] static Size size_of(std::size_t bytes) noexcept;

  void count(MemoryUse use, std::uint64_t bytes) noexcept REQUIRES(mutex_);
  [[nodiscard]] std::byte* cut(const Size& size) REQUIRES(mutex_);
  [[nodiscard]] PageAddress find_run(std::size_t pages) REQUIRES(mutex_);
  [[nodiscard]] bool grow(std::size_t pages) REQUIRES(mutex_);
  [[nodiscard]] bool may_grow(std::uint64_t bytes) REQUIRES(mutex_);
  [[nodiscard]] bool fits(std::uint64_t bytes) REQUIRES(mutex_);
  void join(std::byte* memory, std::size_t pages) REQUIRES(mutex_);
  void join_all() REQUIRES(mutex_);
  std::uint64_t give_back(std::uint64_t most) REQUIRES(mutex_);
  void unmap(PageRun run) REQUIRES(mutex_);
  [[nodiscard]] std::string refusal(std::uint64_t bytes, std::string_view what) REQUIRES(mutex_);
  void note_failure(std::uint64_t bytes) noexcept REQUIRES(mutex_);
  [[nodiscard]] std::uint64_t aimed() const noexcept REQUIRES(mutex_);
  [[nodiscard]] bool move(Block& block, Evacuation& evacuation) REQUIRES(mutex_);

  PageSource& source_;
  mutable Mutex mutex_;
  PagePoolOptions options_ GUARDED_BY(mutex_);
  std::function<void(const PoolEvent&)> watch_ GUARDED_BY(mutex_);
  std::array<Class, kClasses> classes_ GUARDED_BY(mutex_);
  PageRuns runs_ GUARDED_BY(mutex_);
  std::vector<PageRun> unjoined_ GUARDED_BY(mutex_);  // large blocks; has room for all of them
  std::size_t large_ GUARDED_BY(mutex_) = 0;          // large blocks in use or in `unjoined_`
  PagePoolStatistics statistics_ GUARDED_BY(mutex_);
  std::uint32_t failures_in_a_row_ GUARDED_BY(mutex_) = 0;
  std::uint64_t window_high_water_ GUARDED_BY(mutex_) = 0;  // the most in use since window_begin_
  std::uint64_t last_window_high_water_ GUARDED_BY(mutex_) = 0;
  Clock::time_point window_begin_ GUARDED_BY(mutex_) = Clock::now();
  Clock::time_point last_look_ GUARDED_BY(mutex_) = Clock::now();
  std::atomic<bool> compaction_due_ = false;
};

}  // namespace gradwire::memory
