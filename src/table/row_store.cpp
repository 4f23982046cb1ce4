#include "table/row_store.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace gradwire::table {
RowStore::RowStore(RowOptions options)
    : options_(std::move(options)),
      codec_(options_.codec, options_.width),
      gradient_codec_(options_.gradient_codec, options_.width),
      shard_(options_) {}

void RowStore::enter(ReplicaRing ring, int rank) {
  ring_ = std::move(ring);
  rank_ = rank;
}

std::optional<std::uint64_t> RowStore::first_not_held(std::span<const std::uint64_t> ids) const noexcept {
  const auto at = std::ranges::find_if(ids, [this](std::uint64_t id) { return !holds(id); });
  return at == ids.end() ? std::nullopt : std::optional(*at);
}

void RowStore::replace(std::span<const Shard::Row> rows) {
  Shard shard(options_);
  shard.continue_after(shard_.sequence());
  for (const Shard::Row& row : rows) {
    shard.restore(row);
  }
  shard_ = std::move(shard);
}

void RowStore::encode(std::span<const std::uint64_t> ids, wire::Bytes& out) const {
  std::size_t at = out.size();
  out.resize(at + ids.size() * codec_.row_bytes());
  std::vector<float> row(options_.width);
  for (const std::uint64_t id : ids) {
    shard_.read(id, row.data());
    codec_.encode(row.data(), out.data() + at);
    at += codec_.row_bytes();
  }
}

TableStatistics RowStore::statistics(TableStatistics counts) const noexcept {
  counts.rows_held = shard_.rows();
  counts.rows_nonfinite = shard_.nonfinite_rows();
  return counts;
}

}  // namespace gradwire::table
