// Rows of a table in a scratch file. Records are appended in segments, which are written as a whole, and never change;
// a row that changes gets a new record, and its old one is garbage. A shard and its copies share one log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/forked.hpp"
#include "base/mutex.hpp"
#include "gradwire/error.hpp"
#include "memory/block.hpp"
#include "memory/page_file.hpp"

namespace gradwire::table {

struct RecordHead {
  static constexpr std::uint64_t kNoRow = ~std::uint64_t{0};
  std::uint64_t id = 0;
  std::uint64_t version : 63 = 0;
  std::uint64_t nonfinite : 1 = 0;
};
static_assert(sizeof(RecordHead) == 16);

/// A record in memory that somebody else owns.
struct RecordView {
  const RecordHead* head = nullptr;  // null: not there
  const float* floats = nullptr;
};

/// Where the records of a log lie: pages of whole records, in segments of whole pages.
struct RecordLayout {
  /// The layout of rows of `row_floats` floats, in a table that has `memory` bytes of memory.
  RecordLayout(std::uint32_t row_floats, std::uint64_t memory) noexcept;

  std::size_t floats;
  std::size_t record_bytes;
  std::size_t page_bytes;
  std::size_t page_records;
  std::size_t segment_pages;
  std::size_t segment_records;
  std::size_t batch;  // pages that are read together

  [[nodiscard]] std::size_t segment_bytes() const noexcept { return segment_pages * page_bytes; }
  [[nodiscard]] std::uint64_t page_of(std::size_t record) const noexcept { return record / page_records; }
  /// The place of a record in its page.
  [[nodiscard]] std::size_t offset_of(std::size_t record) const noexcept {
    return record % page_records * record_bytes;
  }
};

class RowLog;

/// Records that are being read. The log lives at least as long. The destructor waits for reads that have begun.
class RowFetch {
 public:
  ~RowFetch();
  RowFetch(const RowFetch&) = delete;
  RowFetch& operator=(const RowFetch&) = delete;

  /// Whether wait() would return, or throw, at once.
  [[nodiscard]] bool done();
  /// Waits for all records. Throws Error(corrupt), which names the folder, if they cannot be read.
  void wait();
  /// Returns the record, valid while this lives; empty if it is not among these. To be called after wait().
  [[nodiscard]] RecordView find(std::uint32_t record) const noexcept;
  [[nodiscard]] bool is_of(const RowLog& log) const noexcept { return log_.get() == &log; }

 private:
  friend class RowLog;
  explicit RowFetch(std::shared_ptr<RowLog> log) : log_(std::move(log)) {}

  std::shared_ptr<RowLog> log_;
  std::vector<std::uint64_t> pages_;  // ascending
  memory::Block memory_;              // of these pages
  std::vector<memory::PageFile::Ticket> tickets_;
  std::size_t ended_ = 0;  // tickets whose request has ended
};

class RowLog : public std::enable_shared_from_this<RowLog> {
 public:
  using Record = std::uint32_t;
  static constexpr Record kMostRecords = ~Record{0} - 2;

  struct Options {
    std::string table;  // in messages
    std::filesystem::path folder;
    std::uint32_t floats = 0;                // of a row
    std::uint64_t memory = 0;                // of the table; buffers take about a tenth, between 0.6 and 5 MiB
    memory::MakeFileRequests requests = {};  // for tests
  };
  /// Throws what the constructor of PageFile throws.
  explicit RowLog(Options options);
  RowLog(const RowLog&) = delete;
  RowLog& operator=(const RowLog&) = delete;
  ~RowLog();

  /// The log has one user for each shard that refers to its records. Only while there is one may records be released.
  void add_user() noexcept;
  void remove_user() noexcept;
  [[nodiscard]] std::uint64_t users() const noexcept;

  /// Appends a record. It may wait for a write before. Throws Error(out_of_memory) that names the folder if the disk is
  /// full; from then on every append throws the same.
  [[nodiscard]] Record append(const RecordHead& head, const float* floats);
  /// Counts a record as garbage.
  void release(Record record) noexcept;
  /// Begins to read records.
  [[nodiscard]] std::unique_ptr<RowFetch> fetch(std::span<const Record> records);

  /// Whether so much of the file is garbage that a segment should be cleaned: its user then appends anew the records of
  /// most_garbage() that are in use, and releases them.
  [[nodiscard]] bool wants_cleaning() const noexcept;
  [[nodiscard]] std::vector<Record> most_garbage();
  /// Whether users have gone since the last recount(). Their records count as in use until then.
  [[nodiscard]] bool wants_recount() const noexcept;
  /// `in_use` calls its argument for each record in use.
  template <class InUse>
  void recount(InUse in_use) {
    const MutexLock lock(mutex_);
    begin_recount();
    in_use([this](Record record) {
      mutex_.assert_held();
      ++segments_[record / layout_.segment_records].live;
    });
    end_recount();
  }

  /// How many fetches of batch() records there should be at once at most, so that buffers stay in their memory.
  static constexpr std::size_t kMostFetches = 8;
  [[nodiscard]] std::size_t batch() const noexcept { return layout_.batch; }
  /// The memory of all buffers, with those of kMostFetches fetches.
  [[nodiscard]] std::uint64_t buffer_bytes() const noexcept;
  [[nodiscard]] memory::PageFileStatistics statistics() const { return file_.statistics(); }
  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return file_.folder(); }
  [[nodiscard]] const std::string& table() const noexcept { return table_; }

 private:
  friend class RowFetch;
  static constexpr std::size_t kBuffers = 4;
  struct Segment {
    enum class State : std::uint8_t { free, buffered, written };
    std::uint32_t live = 0;
    std::uint32_t readers = 0;  // pages that are being read
    State state = State::free;
    std::uint8_t buffer = 0;  // of a buffered one
  };
  struct Buffer {
    memory::Block memory;
    std::uint32_t segment = 0;
    memory::PageFile::Ticket ticket = {};
    bool in_use = false;
  };

  void clear_unwritten(std::byte* copy, std::uint64_t page) const REQUIRES(mutex_);
  void open_segment() REQUIRES(mutex_);
  void close_segment() REQUIRES(mutex_);
  void end_write(Buffer& buffer) REQUIRES(mutex_);
  void free_if_empty(std::uint32_t segment) noexcept REQUIRES(mutex_);
  void begin_recount() REQUIRES(mutex_);
  void end_recount() REQUIRES(mutex_);
  void end_reads(const std::vector<std::uint64_t>& pages) noexcept;

  const Home home_;
  const std::string table_;
  const RecordLayout layout_;
  memory::PageFile file_;

  mutable Mutex mutex_;
  std::uint64_t users_ GUARDED_BY(mutex_) = 0;
  bool recount_ GUARDED_BY(mutex_) = false;
  std::vector<Segment> segments_ GUARDED_BY(mutex_);
  std::vector<std::uint32_t> free_ GUARDED_BY(mutex_);
  std::uint64_t live_ GUARDED_BY(mutex_) = 0;  // records in use
  std::vector<Buffer> buffers_ GUARDED_BY(mutex_);
  std::deque<std::uint8_t> writing_ GUARDED_BY(mutex_);  // buffers, the oldest first
  std::optional<std::uint8_t> open_ GUARDED_BY(mutex_);  // the buffer that takes records
  std::size_t next_ GUARDED_BY(mutex_) = 0;              // its next record
  std::optional<Error> failure_ GUARDED_BY(mutex_);
};

}  // namespace gradwire::table
