#include "exchange/residuals/residual_store.hpp"

#include <algorithm>
#include <bit>
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

bool any_nonzero(const float* values, std::uint64_t count) {
  std::uint64_t i = 0;
  for (; i + 64 <= count; i += 64) {
    std::uint32_t bits = 0;
    for (std::uint64_t j = i; j < i + 64; ++j) {
      bits |= std::bit_cast<std::uint32_t>(values[j]);
    }
    if (bits << 1 != 0) {  // without the sign
      return true;
    }
  }
  return std::any_of(values + i, values + count, [](float x) { return x != 0; });
}

template <typename T>
void fold_into(float* residual, std::uint64_t count, ResidualStore::Worth worth, T* values) {
  const auto f = static_cast<T>(worth.factor);
  for (std::uint64_t i = 0; i < count; ++i) {
    const float held = worth.decay * residual[i];
    residual[i] = 0;
    if (held != 0) {  // adding 0 would change a value of -0; devices, which cannot skip a tile, do the same
      values[i] += f * static_cast<T>(held);
    }
  }
}

}  // namespace

void ResidualStore::keep(const ResidualKey& key, std::uint64_t offset, std::uint64_t count) {
  if (count == 0 ? has(key) : slice(key, offset, count) != nullptr) {
    return;
  }
  note_change(key);
  std::vector<Range>& ranges = ranges_[key];
  if (count == 0) {
    return;
  }
  Range kept{offset, Values(count)};
  std::vector<Range> all;
  for (const Range& range : ranges) {
    const Overlap moved = overlap(range, offset, count);
    if (moved.empty()) {
      all.push_back(range);
      continue;
    }
    const auto at = [&](std::uint64_t element) { return range.values.begin() + (element - range.offset); };
    std::copy(at(moved.begin), at(moved.end), kept.values.begin() + (moved.begin - offset));
    if (range.offset < moved.begin) {
      all.push_back({range.offset, Values(range.values.begin(), at(moved.begin))});
    }
    if (moved.end < range.end()) {
      all.push_back({moved.end, Values(at(moved.end), range.values.end())});
    }
  }
  all.push_back(std::move(kept));
  ranges = std::move(all);
}

void ResidualStore::add(const ResidualKey& key, std::uint64_t offset, const Values& values, float factor) {
  keep(key, offset, values.size());
  note_change(key);
  float* kept = slice(key, offset, values.size());
  for (std::size_t i = 0; kept != nullptr && i < values.size(); ++i) {
    kept[i] += factor * values[i];
  }
}

float* ResidualStore::slice(const ResidualKey& key, std::uint64_t offset, std::uint64_t count) {
  const auto found = ranges_.find(key);
  if (found == ranges_.end()) {
    return nullptr;
  }
  for (Range& range : found->second) {
    const std::uint64_t skipped = offset - range.offset;
    if (offset >= range.offset && skipped <= range.values.size() && count <= range.values.size() - skipped) {
      return range.values.data() + skipped;
    }
  }
  return nullptr;
}

bool ResidualStore::holds(const ResidualKey& key, std::uint64_t offset, std::uint64_t count) const {
  const auto found = ranges_.find(key);
  return found != ranges_.end() && std::any_of(found->second.begin(), found->second.end(), [&](const Range& range) {
           const Overlap asked = overlap(range, offset, count);
           return !asked.empty() &&
                  any_nonzero(range.values.data() + (asked.begin - range.offset), asked.end - asked.begin);
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
    float* residual = range.values.data() + (folded.begin - range.offset);
    const std::uint64_t elements = folded.end - folded.begin;
    if (type == codec::Working::f64) {
      fold_into(residual, elements, worth, static_cast<double*>(values) + (folded.begin - offset));
    } else {
      fold_into(residual, elements, worth, static_cast<float*>(values) + (folded.begin - offset));
    }
  }
}

void ResidualStore::multiply(float factor) {
  for (auto& [key, ranges] : ranges_) {
    for (Range& range : ranges) {
      for (float& x : range.values) {
        x *= factor;
      }
    }
  }
  if (undo_) {
    undo_->next.clear();
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

std::uint64_t ResidualStore::second_bytes() const {
  std::uint64_t total = 0;
  if (undo_) {
    for (const auto& [key, ranges] : undo_->next) {
      for (const Next& range : ranges) {
        total += range.values.size() * sizeof(float);
      }
    }
  }
  return total;
}

std::uint64_t ResidualStore::bytes() const {
  std::uint64_t total = 0;
  for (const auto& [key, ranges] : ranges_) {
    for (const Range& range : ranges) {
      total += range.values.size() * sizeof(float);
    }
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
