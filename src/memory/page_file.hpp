// A scratch file of fixed-size pages for data that does not fit into memory. The file has no name, is readable by its
// owner only (mode 0600), and ends with the process, however that ends. Reads and writes are asynchronous and bypass
// the page cache (O_DIRECT) where the file system allows it. Nothing in it survives, so nothing is ever synced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/forked.hpp"
#include "base/mutex.hpp"
#include "memory/file_requests.hpp"
#include "memory/scratch_file.hpp"

namespace gradwire::memory {

struct PageFileOptions {
  std::filesystem::path folder;        // must exist
  std::string holds = "pages";         // what the file is for, in messages: "residuals"
  std::size_t page_bytes = kFileUnit;  // a multiple of kFileUnit
  FileBackend backend = FileBackend::automatic;
  std::uint32_t in_flight = 64;  // most requests that the system has at once; a further one waits
};

struct PageFileStatistics {
  std::uint64_t written = 0;  // bytes that were asked for, each time they were
  std::uint64_t read = 0;     // bytes
  std::uint64_t writes = 0;   // requests
  std::uint64_t reads = 0;
  std::uint64_t waits = 0;       // calls of wait() that found the request unfinished
  double waited_seconds = 0;     // in these, and where in_flight was reached
  std::uint64_t file_bytes = 0;  // up to the end of the last page that was written or reserved
  FileBackend backend = FileBackend::threads;
  bool bypasses_cache = true;  // false: the page cache takes memory beside this process
};

/// Any thread may call any function. The caller orders requests: a page that is under way in one request may not be in
/// another one before wait() returned for the first, unless both read. Requests end in any order.
///
/// In a forked child requests throw Error(unsupported), and the destructor leaves the parent's file as it is. A fork
/// waits until no request is under way, since the kernel writes to memory that the child would share.
class PageFile {
 public:
  using Page = std::uint64_t;

  /// Stands for one request; wait() must be called once for each. The default one stands for none.
  struct Ticket {
    std::uint32_t slot = 0;
    std::uint32_t number = 0;  // 0: no request
    [[nodiscard]] bool empty() const noexcept { return number == 0; }
  };

  /// Opens the file. Error(invalid_argument) names the folder if that cannot be written; Error(unsupported) if the
  /// backend that was asked for is not available (FileBackend::automatic then takes threads). A file system that
  /// refuses O_DIRECT, or lies in memory itself, is logged.
  explicit PageFile(PageFileOptions options);
  /// For tests: requests go through `requests`, which is made over the descriptor of the file.
  PageFile(PageFileOptions options, const MakeFileRequests& make);
  PageFile(const PageFile&) = delete;
  PageFile& operator=(const PageFile&) = delete;
  /// Waits for the requests under way, whose errors are lost.
  ~PageFile();

  /// Begins to write pages from `first` on. `memory` is aligned to kFileUnit, holds whole pages, at least one, and must
  /// not change before wait() returns. It may wait for another request to end. Error(invalid_argument) where the
  /// process may not write a file of that size (RLIMIT_FSIZE).
  [[nodiscard]] Ticket write(Page first, std::span<const std::byte> memory);
  /// Begins to read pages that were written completely. The content of `memory`, aligned to kFileUnit and of whole
  /// pages, is undefined until wait() returns.
  [[nodiscard]] Ticket read(Page first, std::span<std::byte> memory);
  /// Waits for the end of a request. Error(invalid_argument): it could not be written (a full disk, a quota) or read;
  /// Error(corrupt): what was read is not what was written. Messages name the folder and what to do. Pages whose write
  /// failed have no content any more; after a failed read the file may be asked again.
  void wait(Ticket ticket);
  /// Returns whether wait() would return, or throw, at once.
  [[nodiscard]] bool done(Ticket ticket);

  /// Takes the room for pages [0, pages) on the disk, where the file system can do so. Error(invalid_argument) if it is
  /// full.
  void reserve(Page pages);

  [[nodiscard]] std::size_t page_bytes() const noexcept { return options_.page_bytes; }
  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return options_.folder; }
  [[nodiscard]] PageFileStatistics statistics() const;

  /// Waits until nothing is under way and holds the file's lock during a fork.
  void lock_for_fork() noexcept ACQUIRE(mutex_);
  void unlock_after_fork() noexcept RELEASE(mutex_) { mutex_.unlock(); }

 private:
  struct Request {
    FileRequest what;
    Page first = 0;
    std::uint32_t number = 0;  // 0: the slot is free
    bool ended = false;
    std::int64_t result = 0;
  };

  [[nodiscard]] Ticket begin(const FileRequest& what, Page first) REQUIRES(mutex_);
  void collect(bool waits) REQUIRES(mutex_);
  template <class Reached>
  void wait_until(Reached reached) REQUIRES(mutex_);
  void complete(const Request& request);
  void check(const Request& request);
  [[nodiscard]] Page check_pages(Page first, const std::byte* memory, std::size_t bytes) const;
  [[noreturn]] void fail(const Request& request, int reason);

  Home home_;
  PageFileOptions options_;
  ScratchFile file_;
  std::unique_ptr<FileRequests> requests_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Request> slots_ GUARDED_BY(mutex_);
  std::vector<std::uint32_t> free_slots_ GUARDED_BY(mutex_);
  std::uint32_t number_ GUARDED_BY(mutex_) = 0;  // of the newest request
  std::vector<FileResult> ended_;                // belongs to the thread that set `collecting_`
  bool collecting_ GUARDED_BY(mutex_) = false;
  std::uint32_t under_way_ GUARDED_BY(mutex_) = 0;
  std::vector<std::uint64_t> checksums_ GUARDED_BY(mutex_);  // by page; 0: it has no content
  PageFileStatistics statistics_ GUARDED_BY(mutex_);
};

}  // namespace gradwire::memory
