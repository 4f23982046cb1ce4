#include "memory/page_source.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <system_error>

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

void SystemPages::unmap(std::byte* memory, std::size_t bytes) noexcept { ::munmap(memory, bytes); }

std::string SystemPages::why() const { return "mmap: " + std::generic_category().message(error_); }

}  // namespace gradwire::memory
