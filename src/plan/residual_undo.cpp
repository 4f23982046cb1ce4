// How a store undoes a step: pieces are copied as they are overwritten, while they are in the cache; a key of which the
// ranges change is copied whole, which happens where codecs or layouts do.
#include <algorithm>
#include <utility>

#include "plan/residual_store.hpp"

namespace gradwire::plan {

void ResidualStore::note_overwritten(const ResidualKey& key, std::uint64_t offset, const float* values,
                                     std::uint64_t count) {
  if (undo_ && !undo_->reshaped.contains(key)) {
    undo_->pieces.push_back({key, offset, count, undo_->values.size()});
    undo_->values.insert(undo_->values.end(), values, values + count);
  }
}

void ResidualStore::note_reshaped(const ResidualKey& key) {
  if (!undo_ || undo_->reshaped.contains(key)) {
    return;
  }
  const auto found = ranges_.find(key);
  undo_->reshaped.emplace(key, found == ranges_.end() ? std::nullopt : std::optional(found->second));
}

void ResidualStore::commit() noexcept {
  if (undo_) {
    undo_->pieces.clear();  // its memory stays for the next step
    undo_->values.clear();
    undo_->reshaped.clear();
    undo_->moved.reset();
  }
}

void ResidualStore::undo() {
  if (!undo_) {
    return;
  }
  Undo undo = std::move(*undo_);
  undo_.emplace();
  for (auto& [key, ranges] : undo.reshaped) {
    if (ranges) {
      ranges_[key] = std::move(*ranges);
    } else {
      ranges_.erase(key);
    }
  }
  for (auto piece = undo.pieces.rbegin(); piece != undo.pieces.rend(); ++piece) {  // the oldest counts
    if (float* kept = slice(piece->key, piece->offset, piece->count); kept != nullptr) {
      std::copy_n(undo.values.data() + piece->at, piece->count, kept);
    }
  }
  if (undo.moved) {
    moved_ = std::move(*undo.moved);
  }
}

}  // namespace gradwire::plan
