#include "table/record_index.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

namespace gradwire::table {
namespace {

constexpr std::uint32_t kFirstCells = 4;

/// Returns whether a part with one more id would be fuller than 4/5, where searches become long.
bool too_full(std::uint32_t count, std::uint32_t cells) noexcept {
  return std::uint64_t{count + 1} * 5 > std::uint64_t{cells} * 4;
}

}  // namespace

std::uint64_t RecordIndex::new_writer() noexcept {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

RecordIndex RecordIndex::copy() {
  RecordIndex other(*this);
  other.writer_ = new_writer();
  writer_ = new_writer();  // from here on neither index may write to the parts so far
  return other;
}

void RecordIndex::put(Part& part, std::uint32_t cell, std::uint64_t id, Number number) const noexcept {
  std::uint32_t* words = part.words.data() + std::size_t{cell} * words_;
  words[0] = number;
  words[1] = static_cast<std::uint32_t>(id);
  if (words_ == 3) {
    words[2] = static_cast<std::uint32_t>(id >> 32U);
  }
}

std::uint32_t RecordIndex::cell_of(const Part& part, std::uint64_t id, std::uint32_t within) const noexcept {
  std::uint32_t cell = home_of(within, part.cells);
  while (number_in(part, cell) != kNone && id_in(part, cell) != id) {
    cell = cell + 1 == part.cells ? 0 : cell + 1;
  }
  return cell;
}

RecordIndex::Number RecordIndex::find(std::uint64_t id) const noexcept {
  const Place place = place_of(id);
  const Part* part = parts_[place.part].get();
  return part == nullptr ? kNone : number_in(*part, cell_of(*part, id, place.within));
}

std::shared_ptr<RecordIndex::Part> RecordIndex::empty_part(std::uint32_t cells) const {
  auto part = std::make_shared<Part>();
  part->writer = writer_;
  part->cells = cells;
  part->words.resize(std::size_t{cells} * words_);
  std::fill(part->words.begin(), part->words.end(), kNone);
  return part;
}

RecordIndex::Part& RecordIndex::own_part(std::uint32_t number) {
  std::shared_ptr<Part>& part = parts_[number];
  if (part->writer != writer_) {
    part = std::make_shared<Part>(*part);
    part->writer = writer_;
  }
  return *part;
}

void RecordIndex::set(std::uint64_t id, Number number) {
  const Place place = place_of(id);
  std::shared_ptr<Part>& part = parts_[place.part];
  if (part != nullptr) {
    const std::uint32_t cell = cell_of(*part, id, place.within);
    if (number_in(*part, cell) != kNone) {
      put(own_part(place.part), cell, id, number);
      return;
    }
  }
  if (part == nullptr || too_full(part->count, part->cells)) {
    const std::uint32_t cells = part == nullptr ? kFirstCells : part->cells + std::max(kFirstCells, part->cells / 4);
    std::shared_ptr<Part> larger = empty_part(cells);
    for (std::uint32_t cell = 0; part != nullptr && cell < part->cells; ++cell) {
      if (number_in(*part, cell) != kNone) {
        const std::uint64_t moved = id_in(*part, cell);
        put(*larger, cell_of(*larger, moved, place_of(moved).within), moved, number_in(*part, cell));
      }
    }
    larger->count = part == nullptr ? 0 : part->count;
    bytes_ += (larger->words.size() - (part == nullptr ? 0 : part->words.size())) * sizeof(std::uint32_t);
    part = std::move(larger);
  }
  Part& own = own_part(place.part);
  put(own, cell_of(own, id, place.within), id, number);
  ++own.count;
  ++count_;
}

/// Cells behind the hole move up, so that no search ends too early.
void RecordIndex::erase(std::uint64_t id) {
  const Place place = place_of(id);
  Part& part = own_part(place.part);
  const auto distance = [&](std::uint32_t from, std::uint32_t to) {
    return to >= from ? to - from : to + part.cells - from;
  };
  std::uint32_t hole = cell_of(part, id, place.within);
  for (std::uint32_t cell = hole;;) {
    cell = cell + 1 == part.cells ? 0 : cell + 1;
    const Number number = number_in(part, cell);
    if (number == kNone) {
      break;
    }
    const std::uint64_t here = id_in(part, cell);
    if (distance(home_of(place_of(here).within, part.cells), cell) >= distance(hole, cell)) {
      put(part, hole, here, number);
      hole = cell;
    }
  }
  part.words[std::size_t{hole} * words_] = kNone;
  --part.count;
  --count_;
}

void RecordIndex::add_blocks(std::vector<memory::Block*>& blocks) {
  for (const std::shared_ptr<Part>& part : parts_) {
    if (part != nullptr) {
      blocks.push_back(&part->words.block());
    }
  }
}

}  // namespace gradwire::table
