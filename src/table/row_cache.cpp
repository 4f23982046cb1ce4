#include "table/row_cache.hpp"

#include <algorithm>

namespace gradwire::table {

std::uint64_t RowCache::bytes_per_row(std::uint32_t width) noexcept {
  constexpr std::uint64_t kIndexBytes = 64;  // two to four cells a row
  return std::uint64_t{width} * sizeof(float) + sizeof(Entry) + kIndexBytes;
}

RowCache::RowCache(std::uint64_t bytes, std::uint32_t width)
    : width_(width),
      row_bytes_(bytes_per_row(width)),
      capacity_(static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes / row_bytes_, kEnd - 1))),
      memory_(std::size_t{capacity_} * width * sizeof(float), memory::MemoryUse::tables) {
  entries_.reserve(capacity_);
}

RowCache::Entry* RowCache::find(std::uint64_t id) noexcept {
  const std::uint32_t place = index_.find(id);
  return place == kEnd ? nullptr : &entries_[place];
}

const float* RowCache::values(const Entry& entry) const noexcept {
  return all_values() + std::size_t{place(entry)} * width_;
}

void RowCache::touch(Entry& entry) noexcept {
  unlink(entry);
  link_first(entry);
}

RowCache::Entry* RowCache::put(std::uint64_t id, const float* values) {
  if (capacity_ == 0) {
    return nullptr;
  }
  Entry* entry = find(id);
  if (entry == nullptr) {
    if (entries_.size() < capacity_) {
      entry = &entries_.emplace_back();
    } else {
      entry = &entries_[oldest_];
      unlink(*entry);
      index_.erase(entry->id);
    }
    *entry = Entry{.id = id};
    index_.insert(id, place(*entry));
    link_first(*entry);
  } else {
    touch(*entry);
  }
  std::copy_n(values, width_, all_values() + std::size_t{place(*entry)} * width_);
  return entry;
}

void RowCache::clear() noexcept {
  for (const Entry& entry : entries_) {
    index_.erase(entry.id);
  }
  entries_.clear();
  newest_ = oldest_ = kEnd;
}

void RowCache::unlink(Entry& entry) noexcept {
  (entry.newer == kEnd ? newest_ : entries_[entry.newer].older) = entry.older;
  (entry.older == kEnd ? oldest_ : entries_[entry.older].newer) = entry.newer;
}

void RowCache::link_first(Entry& entry) noexcept {
  entry.newer = kEnd;
  entry.older = newest_;
  (newest_ == kEnd ? oldest_ : entries_[newest_].newer) = place(entry);
  newest_ = place(entry);
}

}  // namespace gradwire::table
