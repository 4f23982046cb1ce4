#include "memory/arena.hpp"

#include <algorithm>
#include <iterator>
#include <new>

#include "gradwire/error.hpp"

namespace gradwire::memory {
std::size_t Arena::block_bytes(std::size_t bytes) noexcept {
  return std::max<std::size_t>(1, (bytes + kAlignment - 1) / kAlignment) * kAlignment;
}

Arena::Arena(ArenaSource& source, std::size_t slab_bytes) : source_(source), slab_bytes_(slab_bytes) {}

Arena::Arena(const Arena& other, ArenaSource& source)
    : source_(source),
      slab_bytes_(other.slab_bytes_),
      slabs_(other.slabs_),
      used_(other.used_),
      in_use_(other.in_use_),
      peak_(other.peak_),
      held_(other.held_) {
  for (Slab& slab : slabs_) {
    slab.owned = false;
  }
}

Arena::~Arena() {
  for (const Slab& slab : slabs_) {
    if (slab.owned) {
      source_.free(slab.data);
    }
  }
}

std::byte* Arena::acquire(std::size_t bytes) { return acquire_from(0, bytes); }

std::byte* Arena::acquire_lasting(std::size_t bytes) { return acquire_from(fence_, bytes); }

std::byte* Arena::acquire_from(std::size_t first_slab, std::size_t bytes) {
  const std::size_t size = block_bytes(bytes);
  std::byte* block = take(first_slab, size);
  if (block == nullptr) {
    grow(size);
    block = take(first_slab, size);
  }
  in_use_ += size;
  peak_ = std::max(peak_, in_use_);
  return block;
}

std::byte* Arena::take(std::size_t first_slab, std::size_t bytes) {
  if (loan_) {
    return take_from(kLoan, bytes);
  }
  std::byte* block = nullptr;
  for (std::size_t index = first_slab; block == nullptr && index < slabs_.size(); ++index) {
    block = take_from(index, bytes);
  }
  return block;
}

// Takes the first free range of a slab that fits; null where none does.
std::byte* Arena::take_from(std::size_t index, std::size_t bytes) {
  Slab& from = slab(index);
  const auto found =
      std::find_if(from.free.begin(), from.free.end(), [=](const auto& free) { return free.second >= bytes; });
  if (found == from.free.end()) {
    return nullptr;
  }
  const auto [offset, free] = *found;
  used_.emplace(from.data + offset, Used{index, offset, bytes});
  from.free.erase(found);
  if (free > bytes) {
    from.free.emplace(offset + bytes, free - bytes);
  }
  return from.data + offset;
}

void Arena::grow(std::size_t bytes) {
  const std::string held = std::to_string(in_use_) + " of " + std::to_string(held_) + " bytes are in use";
  if (fixed_) {
    throw Error(ErrorCode::out_of_memory, "a block of " + std::to_string(bytes) +
                                              " bytes was not reserved before capture (" + held +
                                              "): call reserve() on every rank before the capture begins");
  }
  if (loan_) {
    throw Error(ErrorCode::out_of_memory,
                "a block of " + std::to_string(bytes) + " bytes does not fit into the memory on loan");
  }
  for (const std::size_t size : {std::max(bytes, slab_bytes_), bytes}) {
    if (std::byte* data = source_.allocate(size); data != nullptr) {
      add_slab(data, size);
      return;
    }
  }
  throw Error(ErrorCode::out_of_memory, "no device memory for a block of " + std::to_string(bytes) + " bytes (" + held +
                                            "): " + source_.why() + "; use smaller buckets, or leave gradwire more");
}

void Arena::add_slab(std::byte* data, std::size_t bytes) {
  slabs_.push_back({data, bytes, true, {{0, bytes}}});
  held_ += bytes;
}

void Arena::begin_loan(std::byte* memory, std::size_t bytes) {
  loan_.emplace(Slab{.data = memory, .bytes = bytes, .owned = false, .free = {{0, bytes}}});
}

void Arena::release(std::byte* block) noexcept {
  const auto found = used_.find(block);
  if (found == used_.end()) {
    return;
  }
  auto [index, offset, bytes] = found->second;
  used_.erase(found);
  in_use_ -= bytes;
  auto& free = slab(index).free;
  auto next = free.lower_bound(offset);
  if (next != free.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = free.erase(next);
  }
  if (next != free.begin() && std::prev(next)->first + std::prev(next)->second == offset) {
    std::prev(next)->second += bytes;
    return;
  }
  try {
    free.emplace(offset, bytes);
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the block is lost until the arena ends
  }
}

void Arena::add_slabs(const std::vector<std::size_t>& sizes) {
  const std::size_t before = slabs_.size();
  for (const std::size_t bytes : sizes) {
    const std::size_t size = block_bytes(bytes);
    std::byte* data = source_.allocate(size);
    if (data == nullptr) {
      const std::string why = source_.why();
      drop_slabs(before);
      throw Error(ErrorCode::out_of_memory, "cannot reserve " + std::to_string(size) + " bytes of device memory: " +
                                                why + "; use smaller buckets, or leave gradwire more");
    }
    add_slab(data, size);
  }
}

void Arena::drop_slabs(std::size_t kept) noexcept {
  for (; slabs_.size() > kept; slabs_.pop_back()) {
    held_ -= slabs_.back().bytes;
    source_.free(slabs_.back().data);
  }
  fence_ = std::min(fence_, kept);
}

std::vector<std::size_t> Arena::slabs() const {
  std::vector<std::size_t> sizes;
  for (const Slab& slab : slabs_) {
    sizes.push_back(slab.bytes);
  }
  return sizes;
}

}  // namespace gradwire::memory
