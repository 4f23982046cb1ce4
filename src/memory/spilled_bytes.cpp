// Arrays whose pages a SpillCache holds.
#include <algorithm>
#include <utility>

#include "memory/spill_cache.hpp"

namespace gradwire::memory {
namespace {

// Disks want large requests; but pages under way at once are a part of the memory.
constexpr std::uint64_t kMostPageBytes = std::uint64_t{256} << 10;
constexpr std::uint64_t kPagesInMemory = 16;

// Returns the size of an array's pages, of which none is much smaller than the others.
std::size_t page_bytes_of(std::size_t bytes, std::uint64_t memory) {
  const std::size_t most = std::clamp<std::uint64_t>(memory / kPagesInMemory, kFileUnit, kMostPageBytes);
  const std::size_t pages = (bytes + most - 1) / most;
  const std::size_t each = (bytes + pages - 1) / pages;
  return (each + kFileUnit - 1) / kFileUnit * kFileUnit;
}

}  // namespace

std::uint64_t SpillCache::room_of(std::size_t bytes, std::uint64_t memory) {
  if (bytes == 0) {
    return 0;
  }
  const std::size_t page = page_bytes_of(bytes, memory);
  return (bytes + page - 1) / page * page;
}

SpilledBytes::SpilledBytes(std::shared_ptr<SpillCache> cache, std::size_t bytes)
    : cache_(std::move(cache)), bytes_(bytes) {
  if (bytes > 0) {
    page_bytes_ = page_bytes_of(bytes, cache_->memory());
    pages_ = cache_->add(bytes, page_bytes_);
  }
}

SpilledBytes::SpilledBytes(const SpilledBytes& other) : SpilledBytes(other.cache_, other.bytes_) {
  copy(0, bytes_, other, 0);
}

SpilledBytes::SpilledBytes(SpilledBytes&& other) noexcept
    : cache_(std::move(other.cache_)),
      bytes_(std::exchange(other.bytes_, 0)),
      page_bytes_(other.page_bytes_),
      pages_(std::exchange(other.pages_, {})) {}

SpilledBytes& SpilledBytes::operator=(SpilledBytes other) noexcept {
  std::swap(cache_, other.cache_);
  std::swap(bytes_, other.bytes_);
  std::swap(page_bytes_, other.page_bytes_);
  std::swap(pages_, other.pages_);
  return *this;
}

SpilledBytes::~SpilledBytes() {
  if (!pages_.empty()) {
    cache_->remove(pages_);
  }
}

template <class Body>
void SpilledBytes::for_each_piece(std::size_t first, std::size_t bytes, Body body) const {
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t offset = (first + done) % page_bytes_;
    const std::size_t some = std::min(bytes - done, page_bytes_ - offset);
    body(pages_[(first + done) / page_bytes_], offset, done, some);
    done += some;
  }
}

void SpilledBytes::read(std::size_t first, std::span<std::byte> to, SpillCache::Access access) const {
  for_each_piece(first, to.size(),
                 [&](SpillCache::Number page, std::size_t offset, std::size_t done, std::size_t bytes) {
                   cache_->read(page, offset, to.subspan(done, bytes), access);
                 });
}

void SpilledBytes::write(std::size_t first, std::span<const std::byte> from, SpillCache::Access access) {
  for_each_piece(first, from.size(),
                 [&](SpillCache::Number page, std::size_t offset, std::size_t done, std::size_t bytes) {
                   cache_->write(page, offset, from.subspan(done, bytes), access);
                 });
}

void SpilledBytes::fill_zero(std::size_t first, std::size_t bytes) {
  const std::vector<std::byte> zeros(std::min(bytes, page_bytes_));
  for_each_piece(first, bytes,
                 [&](SpillCache::Number page, std::size_t offset, std::size_t /*done*/, std::size_t some) {
                   cache_->write(page, offset, std::span(zeros).first(some), SpillCache::Access::look);
                 });
}

void SpilledBytes::copy(std::size_t first, std::size_t bytes, const SpilledBytes& from, std::size_t from_first) {
  Block room(std::min(bytes, page_bytes_), MemoryUse::staging);
  for_each_piece(first, bytes, [&](SpillCache::Number page, std::size_t offset, std::size_t done, std::size_t some) {
    const std::span piece(room.data(), some);
    from.look(from_first + done, piece);
    cache_->write(page, offset, piece, SpillCache::Access::look);
  });
}

}  // namespace gradwire::memory
