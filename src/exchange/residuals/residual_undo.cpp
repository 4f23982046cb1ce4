// How a store undoes a step: encoders write to a second buffer of each range, and commit() swaps the two. A key that
// changes in any other way is copied whole first; that happens when codecs or layouts change.
#include <algorithm>
#include <utility>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "exchange/residuals/residual_store.hpp"

namespace gradwire::exchange {

namespace {

// The copy bypasses the caches: nobody reads it before the next step, and loading its lines first would take as long as
// writing them.
void copy_past_caches(const float* from, std::uint64_t count, float* to) {
  std::uint64_t i = 0;
#if defined(__SSE2__)
  constexpr std::uint64_t kLine = 16;  // floats in a cache line
  for (; i < count && reinterpret_cast<std::uintptr_t>(to + i) % (kLine * sizeof(float)) != 0; ++i) {
    to[i] = from[i];
  }
  for (; i + kLine <= count; i += kLine) {
    for (std::uint64_t j = i; j < i + kLine; j += 4) {
      _mm_stream_ps(to + j, _mm_loadu_ps(from + j));
    }
  }
  _mm_sfence();  // before another thread may read it
#endif
  std::copy(from + i, from + count, to + i);
}

}  // namespace

void ResidualStore::write(const ResidualKey& key, std::uint64_t offset, std::uint64_t count, const float* values,
                          std::uint64_t step) {
  Range& range = *range_of(key, offset, count);
  if (undo_ && !range.values.whole_blocks(offset - range.offset, count)) {
    note_change(key);  // the rest of a block is the last step's
  }
  const bool in_place = !undo_ || undo_->reshaped.contains(key);
  Values& to = in_place ? range.values : next_of(key, offset, count).values;
  const std::uint64_t first = offset - range.offset;
  if (float* floats = to.floats(); floats != nullptr && !in_place) {
    copy_past_caches(values, count, floats + first);
  } else {
    to.store(first, count, values, rounding(key, ResidualRounding::Use::step, step), offset);
  }
}

ResidualStore::Next& ResidualStore::next_of(const ResidualKey& key, std::uint64_t offset, std::uint64_t count) {
  const std::vector<Range>& ranges = ranges_.at(key);
  std::vector<Next>& nexts = undo_->next[key];
  nexts.resize(ranges.size());
  std::size_t i = 0;
  while (offset < ranges[i].offset || offset + count > ranges[i].end()) {
    ++i;
  }
  Next& next = nexts[i];
  if (next.values.empty()) {
    next.values = ranges[i].values;
  }
  const std::uint64_t begin = offset - ranges[i].offset;
  if (!next.written.empty() && next.written.back().end == begin) {
    next.written.back().end += count;
  } else {
    next.written.push_back({begin, begin + count});
  }
  return next;
}

namespace {

// Sorts the runs and joins those that touch.
template <class Elements>
void normalise(std::vector<Elements>& runs) {
  std::sort(runs.begin(), runs.end(), [](const Elements& a, const Elements& b) { return a.begin < b.begin; });
  std::size_t last = 0;
  for (std::size_t i = 1; i < runs.size(); ++i) {
    if (runs[i].begin <= runs[last].end) {
      runs[last].end = std::max(runs[last].end, runs[i].end);
    } else {
      runs[++last] = runs[i];
    }
  }
  runs.resize(std::min(runs.size(), last + 1));
}

// Returns the elements of `runs` that are in none of `others`. Both are in order, and no two runs of one touch.
template <class Elements>
std::vector<Elements> without(const std::vector<Elements>& runs, const std::vector<Elements>& others) {
  std::vector<Elements> left;
  for (Elements run : runs) {
    for (const Elements& other : others) {
      if (other.begin >= run.end) {
        break;
      }
      if (other.end <= run.begin) {
        continue;
      }
      if (other.begin > run.begin) {
        left.push_back({run.begin, other.begin});
      }
      run.begin = std::min(other.end, run.end);
    }
    if (run.begin < run.end) {
      left.push_back(run);
    }
  }
  return left;
}

template <class Elements>
void copy(const std::vector<Elements>& runs, const ResidualStore::Values& from, ResidualStore::Values& to) {
  for (const Elements& run : runs) {
    to.copy(run.begin, run.end - run.begin, from, run.begin, {}, 0);  // whole blocks, so nothing is rounded
  }
}

}  // namespace

void ResidualStore::note_change(const ResidualKey& key) {
  if (!undo_ || undo_->reshaped.contains(key)) {
    return;
  }
  const auto found = ranges_.find(key);
  undo_->reshaped.emplace(key, found == ranges_.end() ? std::nullopt : std::optional(found->second));
  if (const auto next = undo_->next.find(key); next != undo_->next.end()) {
    for (std::size_t i = 0; i < next->second.size(); ++i) {
      copy(next->second[i].written, next->second[i].values, found->second[i].values);
    }
    undo_->next.erase(next);
  }
}

void ResidualStore::copy_before_changes(std::uint32_t tensor) {
  for (const auto& [key, ranges] : ranges_) {
    if (key.tensor == tensor) {
      note_change(key);
    }
  }
}

void ResidualStore::remember() {
  Undo fresh;  // some compilers cannot make it in place, as a class inside this one
  fresh.changes = changes_;
  undo_ = std::move(fresh);
}

// Usually each step writes the same elements, and nothing has to be copied.
void ResidualStore::prepare_commit() {
  if (!undo_) {
    return;
  }
  for (auto& [key, nexts] : undo_->next) {
    const std::vector<Range>& ranges = ranges_.at(key);
    for (std::size_t i = 0; i < nexts.size(); ++i) {
      Next& next = nexts[i];
      if (next.written.empty()) {
        continue;
      }
      normalise(next.written);
      if (next.differs != next.written) {
        copy(without(next.differs, next.written), ranges[i].values, next.values);
        next.differs.clear();
      }
    }
  }
}

void ResidualStore::commit() {
  if (!undo_) {
    return;
  }
  prepare_commit();
  for (auto& [key, nexts] : undo_->next) {
    std::vector<Range>& ranges = ranges_.at(key);
    for (std::size_t i = 0; i < nexts.size(); ++i) {
      Next& next = nexts[i];
      if (!next.written.empty()) {
        std::swap(ranges[i].values, next.values);
        next.differs = std::exchange(next.written, {});
      }
    }
  }
  undo_->reshaped.clear();
  undo_->moved.reset();
  undo_->changes = changes_;
}

void ResidualStore::undo() {
  if (!undo_) {
    return;
  }
  Undo undo = std::move(*undo_);
  changes_ = undo.changes;
  remember();
  for (auto& [key, ranges] : undo.reshaped) {
    if (ranges) {
      ranges_[key] = std::move(*ranges);
    } else {
      ranges_.erase(key);
    }
  }
  if (undo.moved) {
    moved_ = std::move(*undo.moved);
  }
}

}  // namespace gradwire::exchange
