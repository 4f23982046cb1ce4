#include "table/row_store.hpp"

#include <algorithm>
#include <utility>

#include "table/row_batch.hpp"

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

void RowStore::replace(Shard shard) {
  shard.continue_after(std::max(shard_.sequence(), shard.sequence()));
  shard.count_on(shard_);
  shard_ = std::move(shard);
}

void RowStore::encode(std::vector<std::uint64_t> ids, wire::Bytes& out) {
  const std::size_t begin = out.size();
  out.resize(begin + ids.size() * codec_.row_bytes());
  RowBatch rows(std::move(ids));
  static_cast<void>(rows.advance(shard_, true, [&](std::size_t i, const float* values, std::uint64_t /*version*/) {
    codec_.encode(values, out.data() + begin + i * codec_.row_bytes());
  }));
}

TableStatistics RowStore::statistics(TableStatistics counts) const noexcept {
  counts.rows_held = shard_.rows();
  counts.rows_nonfinite = shard_.nonfinite_rows();
  counts.store.rows_in_memory = shard_.rows();
  if (const TieredRows* tier = shard_.tier()) {
    const memory::PageFileStatistics file = tier->log().statistics();
    counts.store = {.rows_in_memory = tier->rows_in_memory(),
                    .rows_in_file = shard_.rows() - tier->rows_in_memory(),
                    .hits = tier->counts().hits,
                    .reads = tier->counts().reads,
                    .memory_bytes = tier->bytes(),
                    .file_bytes = file.file_bytes,
                    .bytes_read = file.read,
                    .bytes_written = file.written};
  }
  return counts;
}

}  // namespace gradwire::table
