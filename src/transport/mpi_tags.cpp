#include "transport/mpi_tags.hpp"

#include <algorithm>
#include <bit>

namespace gradwire::transport {
namespace {

constexpr unsigned kMostSlotBits = 9;
constexpr unsigned kLeastTagBits = 12;  // hop and 512 lanes
constexpr unsigned kHopBits = 3;
constexpr unsigned kLaneBits = 13;
constexpr unsigned kCollectiveBits = 28;
static_assert(Tag{1} << kCollectiveBits == kTagLimit);
static_assert(TagPlan::kMostSlots < 1U << kMostSlotBits);

}  // namespace

TagPlan::TagPlan(int tag_upper_bound) noexcept {
  const auto width = static_cast<unsigned>(std::bit_width(static_cast<std::uint64_t>(tag_upper_bound) + 1) - 1);
  const unsigned left = width > kLeastTagBits + 1 ? width - kLeastTagBits - 1 : 0;  // one bit is for the kind
  const unsigned slot_bits = std::min(left, kMostSlotBits);
  bits_ = std::min(width - 1 - slot_bits, kCollectiveBits);
  slots_ = std::min((1U << slot_bits) - 1, kMostSlots);
}

// A peer may be ahead by as many lanes as this rank has under way, so only half of the lane numbers are usable at once.
std::uint64_t TagPlan::most_lanes() const noexcept {
  const unsigned lane_bits = std::min(bits_ - kHopBits, kLaneBits);
  return (std::uint64_t{1} << lane_bits) / 2;
}

SlotTable::SlotTable(unsigned slots) : slots_(std::min(slots, TagPlan::kMostSlots)) {
  for (unsigned slot = 1; slot <= slots_; ++slot) {
    free_.set(slot);
  }
}

// Where there are few slots, all belong to the first place, so that an offer that is alone finds them all.
SlotTable::Set SlotTable::slots_of(std::size_t place) const {
  const unsigned reserved = slots_ >= std::size_t{4} * kReserved * (kPlaces - 1) ? kReserved : 0;
  const unsigned first_end = slots_ - reserved * (kPlaces - 1);  // the last slot of the first place
  const unsigned begin = place == 0 ? 1 : first_end + 1 + reserved * static_cast<unsigned>(place - 1);
  const unsigned end = place == 0 ? first_end + 1 : begin + reserved;
  Set set{};
  for (unsigned slot = begin; slot < end; ++slot) {
    if (free_.test(slot)) {
      set[slot / 64] |= std::uint64_t{1} << slot % 64;
    }
  }
  return set;
}

SlotTable::Offer SlotTable::offer() {
  const MutexLock lock(mutex_);
  std::size_t at = 0;
  while (at < under_way_.size() && under_way_[at]) {
    ++at;
  }
  if (at == under_way_.size()) {
    return {.free = {}, .place = kPlaces};
  }
  under_way_[at] = true;
  return {.free = slots_of(at), .place = at};
}

std::optional<unsigned> SlotTable::settle(const Offer& offer, const Set& common) {
  const MutexLock lock(mutex_);
  if (offer.place < kPlaces) {
    under_way_[offer.place] = false;
  }
  for (std::size_t word = 0; word < common.size(); ++word) {
    const std::uint64_t both = common[word] & offer.free[word];
    if (both != 0) {
      const auto slot = static_cast<unsigned>(word * 64) + static_cast<unsigned>(std::countr_zero(both));
      free_.reset(slot);
      return slot;
    }
  }
  return std::nullopt;
}

void SlotTable::release(unsigned slot) {
  const MutexLock lock(mutex_);
  if (slot >= 1 && slot <= slots_) {
    free_.set(slot);
  }
}

unsigned SlotTable::take_first() {
  const MutexLock lock(mutex_);
  free_.reset(1);
  return 1;
}

std::size_t SlotTable::taken() const {
  const MutexLock lock(mutex_);
  return slots_ - free_.count();
}

}  // namespace gradwire::transport
