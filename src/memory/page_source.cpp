#include "memory/page_source.hpp"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <new>
#include <string_view>
#include <system_error>

#include "base/units.hpp"
#include "gradwire/error.hpp"

namespace gradwire::memory {
namespace {

constexpr int kProtection = PROT_READ | PROT_WRITE;
constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;

std::byte* map_pages(std::size_t bytes, int flags) noexcept {
  void* const memory = ::mmap(nullptr, bytes, kProtection, flags, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

// mmap aligns to pages only. So this maps one region more, and unmaps what lies before and behind the aligned part.
std::byte* map_aligned(std::size_t bytes) noexcept {
  std::byte* const memory = map_pages(bytes, kFlags);
  if (memory == nullptr || reinterpret_cast<std::uintptr_t>(memory) % kRegionBytes == 0) {
    return memory;
  }
  ::munmap(memory, bytes);
  std::byte* const more = map_pages(bytes + kRegionBytes, kFlags);
  if (more == nullptr) {
    return nullptr;
  }
  const std::size_t before = (kRegionBytes - reinterpret_cast<std::uintptr_t>(more) % kRegionBytes) % kRegionBytes;
  if (before > 0) {
    ::munmap(more, before);
  }
  ::munmap(more + before + bytes, kRegionBytes - before);
  return more + before;
}

}  // namespace

std::byte* SystemPages::map(std::size_t bytes, HugePages huge) noexcept {
  std::byte* const memory = map_unprotected(bytes, huge);
  if (memory == nullptr) {
    return nullptr;
  }
  try {
    mapped_.emplace(address_of(memory), bytes);
    if (protect(memory, bytes, protection_)) {
      return memory;
    }
  } catch (const std::bad_alloc&) {
    error_ = ENOMEM;
  }
  unmap(memory, bytes);
  return nullptr;
}

std::byte* SystemPages::map_unprotected(std::size_t bytes, HugePages huge) noexcept {
  call_ = "mmap";
  if (huge == HugePages::hugetlbfs) {
    // Without MAP_NORESERVE the pages are set aside now, so that no later access can fail for want of them.
    if (std::byte* const memory = map_pages(bytes, kFlags | MAP_HUGETLB | (21 << MAP_HUGE_SHIFT)); memory != nullptr) {
      given_ = HugePages::hugetlbfs;
      bind(memory, bytes);
      return memory;
    }
  }
  std::byte* const memory = map_aligned(bytes);
  if (memory == nullptr) {
    error_ = errno;
    return nullptr;
  }
  bind(memory, bytes);
  given_ = huge != HugePages::off && ::madvise(memory, bytes, MADV_HUGEPAGE) == 0 ? HugePages::madvise : HugePages::off;
  return memory;
}

void SystemPages::bind(std::byte* memory, std::size_t bytes) const noexcept {
  if (const Placement* placement = placement_; placement != nullptr) {
    bind_memory(*placement, memory, bytes);
  }
}

void SystemPages::unmap(std::byte* memory, std::size_t bytes) noexcept {
  ::munmap(memory, bytes);
  const PageAddress begin = address_of(memory);
  const PageAddress end = begin + bytes;
  auto at = mapped_.upper_bound(begin);
  at = at == mapped_.begin() ? at : std::prev(at);
  while (at != mapped_.end() && at->first < end) {
    const PageAddress its_end = at->first + at->second;
    if (at->first < begin) {
      at->second = std::min(at->second, begin - at->first);
      ++at;
    } else {
      at = mapped_.erase(at);
    }
    if (its_end > end) {
      try {
        mapped_.emplace(end, its_end - end);
      } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): a later protect() leaves that part out
      }
      break;
    }
  }
}

bool SystemPages::protect(std::byte* memory, std::size_t bytes, Protection wanted) noexcept {
  if (wanted.not_dumped && ::madvise(memory, bytes, MADV_DONTDUMP) != 0) {
    call_ = "madvise(MADV_DONTDUMP)";
  } else if (wanted.locked && ::mlock(memory, bytes) != 0) {
    call_ = "mlock";
  } else {
    return true;
  }
  error_ = errno;
  return false;
}

void SystemPages::protect(Protection added) {
  std::size_t bytes = kRegionBytes;
  std::byte* const trial = map_unprotected(bytes, HugePages::off);  // says now whether a later region can be had
  bool done = trial != nullptr && protect(trial, bytes, added);
  if (trial != nullptr) {
    ::munmap(trial, bytes);
  }
  for (auto at = mapped_.begin(); done && at != mapped_.end(); ++at) {
    bytes = at->second;
    done = protect(memory_at(at->first), bytes, added);
  }
  if (!done) {
    throw Error(ErrorCode::unsupported, "host memory of " + format_bytes(bytes) + " cannot be protected: " + why());
  }
  protection_.not_dumped = protection_.not_dumped || added.not_dumped;
  protection_.locked = protection_.locked || added.locked;
}

std::string SystemPages::why() const {
  std::string text = std::string(call_) + ": " + std::generic_category().message(error_);
  rlimit limit{};
  if (std::string_view(call_) == "mlock" && ::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    const bool endless = limit.rlim_cur == RLIM_INFINITY;
    text +=
        "; RLIMIT_MEMLOCK is " + (endless ? "unlimited" : format_bytes(limit.rlim_cur)) +
        " here: raise it (ulimit -l, or LimitMEMLOCK of systemd), or take lock_memory out of the policy's [security]";
  }
  return text;
}

}  // namespace gradwire::memory
