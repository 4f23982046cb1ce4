#include "table/hot_rows.hpp"

#include <cstring>

namespace gradwire::table {

HotRows::Place HotRows::add(std::uint64_t id, std::uint64_t version) {
  const Place place = free_.back();
  index_.set(id, place);
  free_.pop_back();
  row(place) = {.id = id, .version = version, .taken = true, .changed = false, .nonfinite = false, .uses = 0};
  return place;
}

void HotRows::remove(Place place) {
  index_.erase(row(place).id);
  row(place).taken = false;
  free_.push_back(place);  // has room, since add() took it from there
}

HotRows::Place HotRows::coldest() noexcept {
  for (;; ++hand_) {
    if (hand_ >= chunks_.size() * kChunkRows) {
      hand_ = 0;
    }
    HotRow& candidate = row(hand_);
    if (candidate.taken && candidate.uses == 0) {
      return hand_++;
    }
    candidate.uses = static_cast<std::uint8_t>(candidate.uses > 0 ? candidate.uses - 1 : 0);
  }
}

void HotRows::add_chunk() {
  free_.reserve((chunks_.size() + 1) * kChunkRows);
  chunks_.emplace_back(chunk_bytes(), memory::MemoryUse::tables);
  std::memset(chunks_.back().data(), 0, kChunkRows * sizeof(HotRow));
  for (Place i = 0; i < kChunkRows; ++i) {
    free_.push_back(static_cast<Place>(chunks_.size() * kChunkRows - 1 - i));
  }
}

void HotRows::remove_chunk() noexcept {
  const auto first = static_cast<Place>((chunks_.size() - 1) * kChunkRows);
  std::erase_if(free_, [first](Place place) { return place >= first; });
  chunks_.pop_back();
}

void HotRows::add_blocks(std::vector<memory::Block*>& blocks) {
  for (memory::Block& chunk : chunks_) {
    blocks.push_back(&chunk);
  }
  index_.add_blocks(blocks);
}

}  // namespace gradwire::table
