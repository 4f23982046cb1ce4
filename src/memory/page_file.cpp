#include "memory/page_file.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <utility>

#define XXH_INLINE_ALL  // programs that link gradwire need no libxxhash
#include <xxhash.h>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "gradwire/error.hpp"

namespace gradwire::memory {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kNone = 0;  // the checksum of a page without content

std::uint64_t checksum_of(const std::byte* page, std::size_t bytes) {
  const std::uint64_t hash = XXH3_64bits(page, bytes);
  return hash == kNone ? 1 : hash;
}

// All files of the process, for pthread_atfork().
Mutex g_files_mutex;
std::vector<PageFile*>& files() REQUIRES(g_files_mutex) {
  static std::vector<PageFile*>& all = *new std::vector<PageFile*>;
  return all;
}

// pthread_atfork() has the locks held between its calls.
void settle_files() noexcept NO_THREAD_SAFETY_ANALYSIS {
  g_files_mutex.lock();
  for (PageFile* file : files()) {
    file->lock_for_fork();
  }
}
void release_files() noexcept NO_THREAD_SAFETY_ANALYSIS {
  for (PageFile* file : files()) {
    file->unlock_after_fork();
  }
  g_files_mutex.unlock();
}

void add_file(PageFile* file) {
  static const int registered = ::pthread_atfork(&settle_files, &release_files, &release_files);
  static_cast<void>(registered);
  const MutexLock lock(g_files_mutex);
  files().push_back(file);
}

void remove_file(PageFile* file) noexcept {
  const MutexLock lock(g_files_mutex);
  std::erase(files(), file);
}

FileBackend wished_backend(FileBackend wished) {
  const std::optional<std::string> named = environment("GRADWIRE_FILE_IO");
  if (wished != FileBackend::automatic || !named) {
    return wished;
  }
  for (const FileBackend backend : {FileBackend::automatic, FileBackend::io_uring, FileBackend::threads}) {
    if (*named == to_string(backend)) {
      return backend;
    }
  }
  throw Error(ErrorCode::invalid_argument,
              "GRADWIRE_FILE_IO is \"" + *named + "\"; it may be auto, io_uring or threads");
}

std::unique_ptr<FileRequests> make_requests(FileBackend wished, int descriptor, std::uint32_t in_flight,
                                            FileBackend& made) {
  if (wished != FileBackend::threads) {
    made = FileBackend::io_uring;
    if (std::unique_ptr<FileRequests> ring = make_ring(descriptor, in_flight)) {
      return ring;
    }
    if (wished == FileBackend::io_uring) {
      throw Error(ErrorCode::unsupported,
                  "this system does not allow io_uring (a kernel before 5.6, kernel.io_uring_disabled, or a filter of "
                  "system calls); unset GRADWIRE_FILE_IO, or set it to threads");
    }
    log(LogLevel::debug, "io_uring is not available here: threads read and write scratch files");
  }
  made = FileBackend::threads;
  return make_file_threads(descriptor, in_flight);
}

}  // namespace

std::string_view to_string(FileBackend backend) noexcept {
  switch (backend) {
    case FileBackend::automatic: return "auto";
    case FileBackend::io_uring: return "io_uring";
    case FileBackend::threads: return "threads";
  }
  return "?";
}

PageFile::PageFile(PageFileOptions options) : PageFile(std::move(options), {}) {}

PageFile::PageFile(PageFileOptions options, const MakeFileRequests& make)
    : options_(std::move(options)), file_(options_.folder, options_.holds) {
  if (options_.page_bytes == 0 || options_.page_bytes % kFileUnit != 0 || options_.in_flight == 0) {
    throw Error(ErrorCode::internal,
                "a page of a scratch file holds a multiple of 4096 bytes, and requests are limited");
  }
  FileBackend made = FileBackend::threads;
  requests_ = make ? make(file_.descriptor(), options_.in_flight)
                   : make_requests(wished_backend(options_.backend), file_.descriptor(), options_.in_flight, made);
  {
    const MutexLock lock(mutex_);
    statistics_.backend = made;
    statistics_.bypasses_cache = file_.bypasses_cache();
  }
  ended_.reserve(options_.in_flight);
  add_file(this);
}

PageFile::~PageFile() {
  if (home_.is_elsewhere()) {  // the threads or the ring are the parent's
    static_cast<void>(requests_.release());
    return;
  }
  remove_file(this);
  const MutexLock lock(mutex_);
  wait_until([&]() REQUIRES(mutex_) { return under_way_ == 0 && !collecting_; });
}

PageFile::Page PageFile::check_pages(Page first, const std::byte* memory, std::size_t bytes) const {
  if (bytes == 0 || bytes % options_.page_bytes != 0 || reinterpret_cast<std::uintptr_t>(memory) % kFileUnit != 0) {
    throw Error(ErrorCode::internal, "a request to a scratch file needs whole pages and aligned memory");
  }
  return first + bytes / options_.page_bytes;
}

PageFile::Ticket PageFile::write(Page first, std::span<const std::byte> memory) {
  file_.check_home();
  const Page end = check_pages(first, memory.data(), memory.size());
  std::vector<std::uint64_t> checksums;
  checksums.reserve(end - first);
  for (std::size_t at = 0; at < memory.size(); at += options_.page_bytes) {
    checksums.push_back(checksum_of(memory.data() + at, options_.page_bytes));
  }
  const MutexLock lock(mutex_);
  if (end * options_.page_bytes > statistics_.file_bytes) {
    file_.check_size(end * options_.page_bytes);
    statistics_.file_bytes = end * options_.page_bytes;
  }
  if (end > checksums_.size()) {
    checksums_.resize(end, kNone);
  }
  std::copy(checksums.begin(), checksums.end(), checksums_.begin() + static_cast<std::ptrdiff_t>(first));
  ++statistics_.writes;
  statistics_.written += memory.size();
  return begin({.slot = 0,
                .writes = true,
                .offset = first * options_.page_bytes,
                .memory = const_cast<std::byte*>(memory.data()),  // a request to write only reads it
                .bytes = memory.size()},
               first);
}

PageFile::Ticket PageFile::read(Page first, std::span<std::byte> memory) {
  file_.check_home();
  const Page end = check_pages(first, memory.data(), memory.size());
  const MutexLock lock(mutex_);
  if (end > checksums_.size() || std::find(checksums_.begin() + static_cast<std::ptrdiff_t>(first),
                                           checksums_.begin() + static_cast<std::ptrdiff_t>(end),
                                           kNone) != checksums_.begin() + static_cast<std::ptrdiff_t>(end)) {
    throw Error(ErrorCode::internal, "a page of a scratch file was read before it was written");
  }
  ++statistics_.reads;
  statistics_.read += memory.size();
  return begin({.slot = 0,
                .writes = false,
                .offset = first * options_.page_bytes,
                .memory = memory.data(),
                .bytes = memory.size()},
               first);
}

PageFile::Ticket PageFile::begin(const FileRequest& what, Page first) {
  if (under_way_ == options_.in_flight) {
    const Clock::time_point before = Clock::now();
    wait_until([&]() REQUIRES(mutex_) { return under_way_ < options_.in_flight; });
    statistics_.waited_seconds += std::chrono::duration<double>(Clock::now() - before).count();
  }
  if (free_slots_.empty()) {
    free_slots_.push_back(static_cast<std::uint32_t>(slots_.size()));
    slots_.emplace_back();
  }
  const std::uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  number_ += number_ + 1 == 0 ? 2 : 1;  // 0 is none
  Request& request = slots_[slot];
  request = {.what = what, .first = first, .number = number_, .ended = false, .result = 0};
  request.what.slot = slot;
  if (requests_->begin(request.what)) {
    ++under_way_;
  } else {
    request.ended = true;  // complete() makes it
  }
  return {slot, request.number};
}

// One thread at a time waits for the system, without the lock; others wait until it has found something.
template <class Reached>
void PageFile::wait_until(Reached reached) {
  while (!reached()) {
    if (collecting_) {
      changed_.wait(mutex_);
    } else {
      collect(true);
    }
  }
}

void PageFile::collect(bool waits) {
  collecting_ = true;
  ended_.clear();
  if (waits) {
    const MutexUnlock unlock(mutex_);
    requests_->collect(ended_, true);
  } else {
    requests_->collect(ended_, false);
  }
  collecting_ = false;
  for (const FileResult& result : ended_) {
    Request& request = slots_[result.slot];
    request.ended = true;
    request.result = result.bytes;
    --under_way_;
  }
  changed_.notify_all();
}

bool PageFile::done(Ticket ticket) {
  file_.check_home();
  const MutexLock lock(mutex_);
  if (ticket.empty() || slots_[ticket.slot].ended) {
    return true;
  }
  if (!collecting_) {
    collect(false);
  }
  return slots_[ticket.slot].ended;
}

void PageFile::wait(Ticket ticket) {
  if (ticket.empty()) {
    return;
  }
  file_.check_home();
  Request request;
  {
    const MutexLock lock(mutex_);
    if (ticket.slot >= slots_.size() || slots_[ticket.slot].number != ticket.number) {
      throw Error(ErrorCode::internal, "a request to a scratch file was waited for twice");
    }
    if (!slots_[ticket.slot].ended) {
      const Clock::time_point before = Clock::now();
      ++statistics_.waits;
      wait_until([&]() REQUIRES(mutex_) { return slots_[ticket.slot].ended; });
      statistics_.waited_seconds += std::chrono::duration<double>(Clock::now() - before).count();
    }
    request = std::exchange(slots_[ticket.slot], {});
    free_slots_.push_back(ticket.slot);
  }
  complete(request);
  if (!request.what.writes) {
    check(request);
  }
}

// Makes the part of a request that the system left out, or all of one that it gave back.
void PageFile::complete(const Request& request) {
  const FileRequest& what = request.what;
  const std::int64_t result = request.result;
  if (result < 0 && result != -EINTR && result != -EAGAIN && result != -ECANCELED) {
    fail(request, static_cast<int>(-result));
  }
  for (std::size_t done = result > 0 ? static_cast<std::size_t>(result) : 0; done < what.bytes;) {
    done -= done % kFileUnit;
    const auto offset = static_cast<off_t>(what.offset + done);
    const ssize_t moved = what.writes ? ::pwrite(file_.descriptor(), what.memory + done, what.bytes - done, offset)
                                      : ::pread(file_.descriptor(), what.memory + done, what.bytes - done, offset);
    if (moved < static_cast<ssize_t>(std::min(kFileUnit, what.bytes - done)) && !(moved < 0 && errno == EINTR)) {
      fail(request, moved < 0 ? errno : what.writes ? ENOSPC : 0);
    }
    done += moved > 0 ? static_cast<std::size_t>(moved) : 0;
  }
}

void PageFile::check(const Request& request) {
  for (std::size_t page = 0; page * options_.page_bytes < request.what.bytes; ++page) {
    const std::uint64_t found = checksum_of(request.what.memory + page * options_.page_bytes, options_.page_bytes);
    const MutexLock lock(mutex_);
    if (found != checksums_[request.first + page]) {
      fail({.what = request.what, .first = request.first + page}, 0);
    }
  }
}

// `reason` is an errno; 0: the file holds something else than was written.
void PageFile::fail(const Request& request, int reason) {
  const std::string page = "page " + std::to_string(request.first) + " of the scratch file of " + options_.holds;
  if (reason == 0) {
    throw Error(ErrorCode::corrupt,
                file_.message(page + " is not what was written there, so the disk or another program changed it", 0));
  }
  if (request.what.writes) {
    const MutexLock lock(mutex_);
    std::fill_n(checksums_.begin() + static_cast<std::ptrdiff_t>(request.first),
                request.what.bytes / options_.page_bytes, kNone);
  }
  throw Error(ErrorCode::invalid_argument,
              file_.message(page + " cannot be " + (request.what.writes ? "written" : "read"), reason));
}

void PageFile::reserve(Page pages) {
  file_.check_home();
  const std::uint64_t bytes = pages * options_.page_bytes;
  file_.reserve(bytes);
  const MutexLock lock(mutex_);
  statistics_.file_bytes = std::max(statistics_.file_bytes, bytes);
}

PageFileStatistics PageFile::statistics() const {
  const MutexLock lock(mutex_);
  return statistics_;
}

void PageFile::lock_for_fork() noexcept {
  mutex_.lock();
  if (!home_.is_elsewhere()) {
    wait_until([&]() REQUIRES(mutex_) { return under_way_ == 0 && !collecting_; });
  }
}

}  // namespace gradwire::memory
