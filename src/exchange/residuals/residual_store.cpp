#include "exchange/residuals/residual_store.hpp"

#include <algorithm>
#include <utility>

namespace gradwire::exchange {
namespace {

using Range = ResidualStore::Range;

struct Overlap {
  std::uint64_t begin;
  std::uint64_t end;
  [[nodiscard]] bool empty() const { return begin >= end; }
};

Overlap overlap(const Range& range, std::uint64_t offset, std::uint64_t count) {
  return {std::max(range.offset, offset), std::min(range.end(), offset + count)};
}

// Returns the range that covers all of the elements; null if none does.
template <class Ranges>
auto* covering(Ranges& ranges, std::uint64_t offset, std::uint64_t count) {
  const auto found = std::find_if(ranges.begin(), ranges.end(), [=](const Range& range) {
    const std::uint64_t skipped = offset - range.offset;
    return offset >= range.offset && skipped <= range.values.size() && count <= range.values.size() - skipped;
  });
  return found == ranges.end() ? nullptr : &*found;
}

template <typename T>
void fold_into(ResidualStore::Values& residuals, std::uint64_t first, std::uint64_t count, ResidualStore::Worth worth,
               T* values) {
  constexpr std::uint64_t kPiece = 256;
  const auto f = static_cast<T>(worth.factor);
  for (std::uint64_t done = 0; done < count; done += kPiece) {
    float room[kPiece];
    const std::uint64_t some = std::min(kPiece, count - done);
    const float* residual = residuals.look(first + done, some, room);
    for (std::uint64_t i = 0; i < some; ++i) {
      const float held = worth.decay * residual[i];
      if (held != 0) {  // adding 0 would change a value of -0; devices, which cannot skip a tile, do the same
        values[done + i] += f * static_cast<T>(held);
      }
    }
  }
  residuals.fill_zero(first, count);
}

}  // namespace

ResidualRounding ResidualStore::rounding_of_blocks(const ResidualKey& key, const Values& values) {
  const bool rounds = values.dtype() == ResidualDType::int8;
  return rounding(key, ResidualRounding::Use::change, rounds ? changes_++ : changes_);
}

void ResidualStore::keep(const ResidualKey& key, std::uint64_t offset, std::uint64_t count,
                         std::optional<std::uint64_t> position) {
  if (count == 0) {
    if (!has(key)) {
      note_change(key);
      ranges_[key];
    }
    return;
  }
  const Range* covers = range_of(key, offset, count);
  if (covers != nullptr && (!position || covers->values.has_blocks_at(offset - covers->offset, *position))) {
    return;
  }
  note_change(key);
  std::vector<Range>& ranges = ranges_[key];
  const ResidualDType dtype = form_.dtype_of(key.tensor);
  const std::uint64_t lead = dtype == ResidualDType::int8 ? position.value_or(0) % kResidualBlock : 0;
  Range kept{offset, Values(count, dtype, spill_of(key.tensor), static_cast<std::uint32_t>(lead))};
  std::vector<Range> all;
  for (const Range& range : ranges) {
    const Overlap moved = overlap(range, offset, count);
    if (moved.empty()) {
      all.push_back(range);
      continue;
    }
    const std::uint64_t first = moved.begin - range.offset;
    const std::uint64_t past = moved.end - range.offset;
    kept.values.copy(moved.begin - offset, past - first, range.values, first, rounding_of_blocks(key, kept.values),
                     moved.begin);
    if (first > 0) {
      all.push_back({range.offset, range.values.part(0, first)});
    }
    if (past < range.values.size()) {
      all.push_back({moved.end, range.values.part(past, range.values.size() - past)});
    }
  }
  all.push_back(std::move(kept));
  ranges = std::move(all);
}

void ResidualStore::add(const ResidualKey& key, std::uint64_t offset, const Values& values, float factor) {
  keep(key, offset, values.size(), range_of(key, offset, values.size()) ? std::nullopt : std::optional(values.lead()));
  note_change(key);
  if (values.empty()) {
    return;
  }
  Range& range = *range_of(key, offset, values.size());
  range.values.change(offset - range.offset, values.size(), rounding(key, ResidualRounding::Use::change, changes_++),
                      offset, [&](float kept, std::uint64_t i) { return kept + factor * values[i]; });
}

const Range* ResidualStore::range_of(const ResidualKey& key, std::uint64_t offset, std::uint64_t count) const {
  const auto found = ranges_.find(key);
  return found == ranges_.end() ? nullptr : covering(found->second, offset, count);
}

Range* ResidualStore::range_of(const ResidualKey& key, std::uint64_t offset, std::uint64_t count) {
  const auto found = ranges_.find(key);
  return found == ranges_.end() ? nullptr : covering(found->second, offset, count);
}

const float* ResidualStore::load(const ResidualKey& key, std::uint64_t offset, std::uint64_t count,
                                 float* scratch) const {
  const Range* range = range_of(key, offset, count);
  return range == nullptr ? nullptr : range->values.load(offset - range->offset, count, scratch);
}

float* ResidualStore::slice(const ResidualKey& key, std::uint64_t offset, std::uint64_t count) {
  Range* range = range_of(key, offset, count);
  float* values = range == nullptr ? nullptr : range->values.floats();
  return values == nullptr ? nullptr : values + (offset - range->offset);
}

bool ResidualStore::holds(const ResidualKey& key, std::uint64_t offset, std::uint64_t count) const {
  const auto found = ranges_.find(key);
  return found != ranges_.end() && std::any_of(found->second.begin(), found->second.end(), [&](const Range& range) {
           const Overlap asked = overlap(range, offset, count);
           return !asked.empty() && range.values.any_nonzero(asked.begin - range.offset, asked.end - asked.begin);
         });
}

void ResidualStore::fold(const ResidualKey& key, std::uint64_t offset, std::uint64_t count, Worth worth,
                         codec::Working type, void* values) {
  const auto found = ranges_.find(key);
  if (found == ranges_.end()) {
    return;
  }
  note_change(key);
  for (Range& range : found->second) {
    const Overlap folded = overlap(range, offset, count);
    if (folded.empty()) {
      continue;
    }
    const std::uint64_t first = folded.begin - range.offset;
    const std::uint64_t elements = folded.end - folded.begin;
    if (type == codec::Working::f64) {
      fold_into(range.values, first, elements, worth, static_cast<double*>(values) + (folded.begin - offset));
    } else {
      fold_into(range.values, first, elements, worth, static_cast<float*>(values) + (folded.begin - offset));
    }
  }
}

void ResidualStore::multiply(float factor) {
  for (auto& [key, ranges] : ranges_) {
    for (Range& range : ranges) {
      range.values.change(0, range.values.size(), rounding(key, ResidualRounding::Use::change, changes_), range.offset,
                          [factor](float x, std::uint64_t) { return x * factor; });
    }
  }
  count_change_between_steps();
  if (undo_) {
    undo_->next.clear();
  }
}

void ResidualStore::set_form(ResidualForm form) {
  form_ = std::move(form);
  for (auto& [key, ranges] : ranges_) {
    const ResidualDType dtype = form_.dtype_of(key.tensor);
    const ResidualValues::Spill spill = ranges.empty() ? nullptr : spill_of(key.tensor);
    for (Range& range : ranges) {
      if (dtype != range.values.dtype() || !range.values.lies_in(spill)) {
        range.values =
            range.values.as(dtype, spill, rounding(key, ResidualRounding::Use::conversion, changes_), range.offset);
        if (undo_) {
          undo_->next.erase(key);
        }
      }
    }
  }
  std::erase_if(spills_, [&](const auto& spill) {
    return std::none_of(form_.places.begin(), form_.places.end(),
                        [&](const auto& place) { return place == spill.first; });
  });
  count_change_between_steps();
}

ResidualStore ResidualStore::empty_beside(ResidualForm form) {
  for (const std::optional<ResidualPlace>& place : form.places) {
    if (place) {
      static_cast<void>(spill_at(*place));
    }
  }
  ResidualStore store;
  store.spills_ = spills_;
  store.set_form(std::move(form));
  return store;
}

const ResidualValues::Spill& ResidualStore::spill_at(const ResidualPlace& place) {
  ResidualValues::Spill& spill = spills_[place];
  if (spill == nullptr) {
    spill = std::make_shared<memory::SpillCache>(memory::PageFileOptions{.folder = place.folder, .holds = "residuals"},
                                                 place.memory);
  }
  return spill;
}

ResidualValues::Spill ResidualStore::spill_of(std::uint32_t tensor) {
  const ResidualPlace* place = form_.place_of(tensor);
  return place == nullptr ? nullptr : spill_at(*place);
}

void ResidualStore::reserve(const ResidualPlace& place, std::uint64_t bytes) { spill_at(place)->reserve(bytes); }

void ResidualStore::reserve_copy() {
  for (const auto& [place, spill] : spills_) {
    std::uint64_t room = 0;
    for (const auto& [key, ranges] : ranges_) {
      for (const Range& range : ranges) {
        room +=
            range.values.spill() == spill ? memory::SpillCache::room_of(range.values.byte_count(), place.memory) : 0;
      }
    }
    if (room > 0) {
      spill->reserve_beside(room);
    }
  }
}

void ResidualStore::drop(const ResidualKey& key) {
  if (has(key)) {
    note_change(key);
    ranges_.erase(key);
  }
}

void ResidualStore::clear_moved(std::uint32_t tensor) {
  if (undo_ && !undo_->moved && moved(tensor)) {
    undo_->moved = moved_;
  }
  moved_.erase(tensor);
}

std::map<ResidualKey, std::vector<Range>> ResidualStore::take_entries() {
  if (undo_) {
    remember();  // drops the second buffers
  }
  return std::exchange(ranges_, {});
}

std::uint64_t ResidualStore::second_bytes() const {
  std::uint64_t total = 0;
  if (undo_) {
    for (const auto& [key, ranges] : undo_->next) {
      for (const Next& range : ranges) {
        total += range.values.byte_count();
      }
    }
  }
  return total;
}

std::uint64_t ResidualStore::bytes() const {
  std::uint64_t total = 0;
  for (const auto& [key, ranges] : ranges_) {
    for (const Range& range : ranges) {
      total += range.values.byte_count();
    }
  }
  return total;
}

std::uint64_t ResidualStore::resident_bytes() const {
  std::uint64_t total = bytes() + second_bytes();
  for (const auto& [place, spill] : spills_) {
    const memory::SpillStatistics statistics = spill->statistics();
    total -= std::min(total, statistics.bytes - statistics.resident);
  }
  return total;
}

std::vector<memory::Block*> ResidualStore::blocks() {
  std::vector<memory::Block*> all;
  for (auto& [key, ranges] : ranges_) {
    for (Range& range : ranges) {
      all.push_back(&range.values.block());
    }
  }
  if (undo_) {
    for (auto& [key, nexts] : undo_->next) {
      for (Next& next : nexts) {
        all.push_back(&next.values.block());
      }
    }
  }
  return all;
}

}  // namespace gradwire::exchange
