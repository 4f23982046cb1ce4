#include "security/key.hpp"

#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "base/text.hpp"
#include "gradwire/error.hpp"

namespace gradwire::security {
namespace {

[[noreturn]] void fail_to_lock(int number) {
  throw Error(ErrorCode::unsupported, "keys cannot be kept out of swap (" + text::reason_of(number) +
                                          "); raise the limit of locked memory (ulimit -l) on this host, or do not "
                                          "ask for it");
}

// The pages of keys. They are never given back, so that a key that a thread still uses at the end of the process stays
// readable.
class KeyPages {
 public:
  std::byte* take() {
    const MutexLock lock(mutex_);
    if (free_.empty()) {
      add_page();
    }
    std::byte* const key = free_.back();
    free_.pop_back();
    return key;
  }

  void give_back(std::byte* key) noexcept {
    wipe({key, kKeyBytes});
    const MutexLock lock(mutex_);
    free_.push_back(key);  // add_page() has reserved its place
  }

  void lock_all() {
    const MutexLock lock(mutex_);
    for (std::byte* const page : pages_) {
      lock_page(page);
    }
    locks_ = true;
  }

 private:
  void lock_page(std::byte* page) const {
    if (::mlock(page, page_bytes_) != 0) {
      fail_to_lock(errno);
    }
  }

  void add_page() REQUIRES(mutex_) {
    pages_.reserve(pages_.size() + 1);
    free_.reserve((pages_.size() + 1) * (page_bytes_ / kKeyBytes));
    void* const mapped = ::mmap(nullptr, page_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) {
      throw Error(ErrorCode::out_of_memory, "no memory for keys (" + text::reason_of(errno) + ")");
    }
    auto* const page = static_cast<std::byte*>(mapped);
    static_cast<void>(::madvise(page, page_bytes_, MADV_DONTDUMP));  // older kernels dump it
    if (locks_) {
      try {
        lock_page(page);
      } catch (...) {
        ::munmap(page, page_bytes_);
        throw;
      }
    }
    pages_.push_back(page);
    for (std::size_t at = 0; at < page_bytes_; at += kKeyBytes) {
      free_.push_back(page + at);
    }
  }

  const std::size_t page_bytes_ = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  Mutex mutex_;
  std::vector<std::byte*> pages_ GUARDED_BY(mutex_);
  std::vector<std::byte*> free_ GUARDED_BY(mutex_);
  bool locks_ GUARDED_BY(mutex_) = false;
};

KeyPages& key_pages() {
  static auto* const pages = new KeyPages;  // NOLINT(cppcoreguidelines-owning-memory): keys may outlive statics
  return *pages;
}

}  // namespace

Key::Key() : bytes_(key_pages().take()) {}

Key::Key(std::span<const std::byte> bytes) {
  if (bytes.size() != kKeyBytes) {
    throw Error(ErrorCode::internal, "a key of " + std::to_string(bytes.size()) + " bytes");
  }
  bytes_ = key_pages().take();
  std::memcpy(bytes_, bytes.data(), kKeyBytes);
}

Key::Key(Key&& other) noexcept : bytes_(std::exchange(other.bytes_, nullptr)) {}

Key& Key::operator=(Key&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

Key::~Key() {
  if (bytes_ != nullptr) {
    key_pages().give_back(bytes_);
  }
}

Key Key::random() {
  Key key;
  fill_random(key.bytes());
  return key;
}

void wipe(std::span<std::byte> bytes) noexcept {
  if (!bytes.empty()) {
    ::explicit_bzero(bytes.data(), bytes.size());
  }
}

void fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno != EINTR) {
      throw Error(ErrorCode::internal, "the kernel gives no random bytes (" + text::reason_of(errno) + ")");
    }
    bytes = bytes.subspan(got > 0 ? static_cast<std::size_t>(got) : 0);
  }
}

void lock_keys() { key_pages().lock_all(); }

}  // namespace gradwire::security
