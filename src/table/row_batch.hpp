// Reads many rows of a shard one after another, while those that lie in a file come some hundreds at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "table/shard.hpp"

namespace gradwire::table {

class RowBatch {
 public:
  static constexpr std::size_t kAhead = 2;  // fetches under way at once

  explicit RowBatch(std::vector<std::uint64_t> ids) noexcept : ids_(std::move(ids)) {}

  [[nodiscard]] std::span<const std::uint64_t> ids() const noexcept { return ids_; }
  /// Passes rows to take(i, values, version), row ids[i] as it is then, in ascending i. Returns whether all have been
  /// passed. Without `waits` it returns when the next row is still on its way from the file; call it again later.
  template <class Take>
  bool advance(Shard& shard, bool waits, Take take) {
    while (next_ < ids_.size()) {
      while (begun_.size() < kAhead && first_not_begun_ < ids_.size()) {
        begun_.push_back(shard.begin(std::span(ids_).subspan(first_not_begun_)));
        first_not_begun_ += begun_.back().count;
      }
      const TieredRows::Begun& now = begun_.front();
      if (now.fetch != nullptr) {
        if (!waits && !now.fetch->done()) {
          return false;
        }
        now.fetch->wait();
      }
      for (const std::size_t end = next_ + now.count; next_ < end; ++next_) {
        shard.use(ids_[next_], now.fetch.get(),
                  [&](const float* values, std::uint64_t version) { take(next_, values, version); });
      }
      begun_.pop_front();
      shard.tend();
    }
    return true;
  }

 private:
  std::vector<std::uint64_t> ids_;
  std::deque<TieredRows::Begun> begun_;
  std::size_t first_not_begun_ = 0;
  std::size_t next_ = 0;
};

}  // namespace gradwire::table
