// Arrays of bytes of which a limited share lies in memory and the rest in a scratch file. Pages move between the two as
// users pass over them: again and again in about the same order, as the buckets of a step do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/forked.hpp"
#include "base/mutex.hpp"
#include "memory/block.hpp"
#include "memory/page_file.hpp"

namespace gradwire::memory {

/// Counts the bytes of a SpillCache.
struct SpillStatistics {
  std::uint64_t bytes = 0;       // of all arrays
  std::uint64_t resident = 0;    // in memory now, requests under way included
  std::uint64_t high_water = 0;  // the most that ever was
  std::uint64_t demanded = 0;    // bytes that were read only when they were needed, not ahead
  std::uint64_t compared = 0;    // pages that were looked at to find those that make room
  PageFileStatistics file;
};

/// Any thread may call any function.
///
/// A round is one pass over the arrays. The cache notes the order in which pages are used in a round. If not all fits,
/// it keeps an even share of them in memory, and others come and go: it reads those that the last round used next, and
/// writes those behind that this round has finished. So each round moves only what does not fit, and moves it at an
/// even pace. Any other order works too, but then readers wait for the file.
class SpillCache {
 public:
  /// `memory`: bytes of pages that may be resident. `file` names the folder; its page_bytes are set here.
  SpillCache(PageFileOptions file, std::uint64_t memory, const MakeFileRequests& make = {});
  SpillCache(const SpillCache&) = delete;
  SpillCache& operator=(const SpillCache&) = delete;
  /// All arrays are gone by then.
  ~SpillCache();

  /// Returns the bytes that an array of so many takes of the file of a cache with so much memory: whole pages.
  [[nodiscard]] static std::uint64_t room_of(std::size_t bytes, std::uint64_t memory);
  /// Takes room on the disk for arrays whose room_of() is so many bytes in all. Error(invalid_argument) names the
  /// folder if it is full.
  void reserve(std::uint64_t bytes);
  /// Does the same for arrays beside those that there are.
  void reserve_beside(std::uint64_t bytes);
  [[nodiscard]] std::uint64_t memory() const noexcept { return memory_; }
  [[nodiscard]] SpillStatistics statistics() const;

 private:
  friend class SpilledBytes;
  using Number = std::uint32_t;  // of a page

  enum class Io : std::uint8_t { none, reads, writes };
  struct Page {
    Block memory;              // empty: not resident
    std::size_t bytes = 0;     // a multiple of kFileUnit
    std::size_t slot = 0;      // in resident_, where it is resident
    std::size_t used = 0;      // of them; only the last page of an array has fewer
    std::int64_t place = -1;   // its first unit in the file; negative: none
    PageFile::Ticket request;  // of `io`
    Io io = Io::none;
    bool holds = false;          // false: all of it is zero, and it lies nowhere
    bool dirty = false;          // the file does not hold it
    bool hot = false;            // stays in memory
    bool finished = false;       // in its round
    std::uint64_t round = 0;     // in which it was last used
    std::uint64_t position = 0;  // in order_, from 1; 0: not there
    std::size_t loaded = 0;      // bytes in its round
    std::size_t stored = 0;
  };
  // Where pages lie in the file. A page keeps its place.
  struct Places {
    std::map<std::size_t, std::vector<std::int64_t>> free;  // by bytes
    std::int64_t end = 0;                                   // units
  };
  enum class Access : std::uint8_t { load, store, look };  // a look is no part of a round

  // Returns zero pages of `page_bytes` each for an array.
  [[nodiscard]] std::vector<Number> add(std::size_t bytes, std::size_t page_bytes);
  void remove(std::span<const Number> pages) noexcept;
  void read(Number page, std::size_t offset, std::span<std::byte> to, Access access);
  void write(Number page, std::size_t offset, std::span<const std::byte> from, Access access);

  void bring(Number number) REQUIRES(mutex_);
  void settle(Page& page) REQUIRES(mutex_);
  void settle_quietly(Page& page) noexcept REQUIRES(mutex_);
  void take_memory(Number number) REQUIRES(mutex_);
  void give_memory(Page& page) noexcept REQUIRES(mutex_);
  void make_room(std::size_t bytes) REQUIRES(mutex_);
  void begin_read(Number number) REQUIRES(mutex_);
  void begin_write(Number number) REQUIRES(mutex_);
  void reclaim_written(bool waits) REQUIRES(mutex_);
  bool evict(std::size_t bytes) REQUIRES(mutex_);
  [[nodiscard]] std::uint64_t distance_of(const Page& page) const REQUIRES(mutex_);
  void use(Number number, Access access, std::size_t bytes) REQUIRES(mutex_);
  void begin_round() REQUIRES(mutex_);
  void choose_hot() REQUIRES(mutex_);
  void read_ahead() REQUIRES(mutex_);
  void limit_writes(std::size_t bytes) REQUIRES(mutex_);
  void write_behind() REQUIRES(mutex_);

  Home home_;
  const std::uint64_t memory_;
  const std::uint64_t ahead_bytes_;
  PageFile file_;
  mutable Mutex mutex_;
  std::deque<Page> pages_ GUARDED_BY(mutex_);
  std::vector<Number> free_pages_ GUARDED_BY(mutex_);
  std::vector<Number> resident_ GUARDED_BY(mutex_);  // in no order
  Places places_ GUARDED_BY(mutex_);

  std::uint64_t round_ GUARDED_BY(mutex_) = 1;
  std::vector<Number> order_ GUARDED_BY(mutex_);    // of the last round
  std::vector<Number> trace_ GUARDED_BY(mutex_);    // of this one so far
  std::uint64_t at_ GUARDED_BY(mutex_) = 0;         // the furthest position of this round
  std::deque<Number> finished_ GUARDED_BY(mutex_);  // wait to be written
  std::deque<Number> writing_ GUARDED_BY(mutex_);
  SpillStatistics statistics_ GUARDED_BY(mutex_);
};

/// Holds bytes in a SpillCache, zeros at first. A copy has pages of its own in the same cache. Every function but the
/// destructor may throw the errors of PageFile, after which the bytes are what they were before the call or, in the
/// range of a write or a fill, in part the new ones.
class SpilledBytes {
 public:
  SpilledBytes() = default;
  SpilledBytes(std::shared_ptr<SpillCache> cache, std::size_t bytes);
  SpilledBytes(const SpilledBytes& other);
  SpilledBytes(SpilledBytes&& other) noexcept;
  SpilledBytes& operator=(SpilledBytes other) noexcept;
  ~SpilledBytes();

  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
  [[nodiscard]] bool empty() const noexcept { return bytes_ == 0; }
  [[nodiscard]] const std::shared_ptr<SpillCache>& cache() const noexcept { return cache_; }

  /// A round calls these: it loads and then stores each byte at most once.
  void load(std::size_t first, std::span<std::byte> to) const { read(first, to, SpillCache::Access::load); }
  void store(std::size_t first, std::span<const std::byte> from) { write(first, from, SpillCache::Access::store); }
  /// Do the same outside of rounds: for files, copies and changes of all bytes.
  void look(std::size_t first, std::span<std::byte> to) const { read(first, to, SpillCache::Access::look); }
  void replace(std::size_t first, std::span<const std::byte> from) { write(first, from, SpillCache::Access::look); }
  void fill_zero(std::size_t first, std::size_t bytes);
  /// Copies bytes of another array, which may be of another cache.
  void copy(std::size_t first, std::size_t bytes, const SpilledBytes& from, std::size_t from_first);

 private:
  void read(std::size_t first, std::span<std::byte> to, SpillCache::Access access) const;
  void write(std::size_t first, std::span<const std::byte> from, SpillCache::Access access);
  // Calls body(page, offset in it, offset in the range, bytes) for each page of a range.
  template <class Body>
  void for_each_piece(std::size_t first, std::size_t bytes, Body body) const;

  std::shared_ptr<SpillCache> cache_;
  std::size_t bytes_ = 0;
  std::size_t page_bytes_ = 0;
  std::vector<SpillCache::Number> pages_;
};

}  // namespace gradwire::memory
