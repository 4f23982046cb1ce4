#include "session/parts/tables/row_pull.hpp"

#include <algorithm>
#include <utility>

#include "table/id_codec.hpp"
#include "table/row_batch.hpp"

namespace gradwire::session {

RowPull::RowPull(table::RowStore& store, TableStatistics& counts, std::span<const std::uint64_t> ids,
                 std::size_t world_size)
    : store_(store),
      counts_(counts),
      merged_(table::merge_ids(ids, store.options().rows, store.said("pull").c_str())),
      rows_(merged_.ids.size() * store.options().width),
      asked_(world_size) {
  std::vector<std::uint32_t> own;  // indices into `merged_`
  std::vector<std::uint64_t> own_ids;
  for (std::uint32_t i = 0; i < merged_.ids.size(); ++i) {
    const std::uint64_t id = merged_.ids[i];
    if (store_.holds(id)) {
      own.push_back(i);
      own_ids.push_back(id);
    } else {
      asked_[static_cast<std::size_t>(store_.owner(id))].push_back(i);
    }
  }
  table::RowBatch rows(std::move(own_ids));
  const std::uint32_t width = store_.options().width;
  static_cast<void>(rows.advance(store.shard(), true, [&](std::size_t i, const float* values, std::uint64_t) {
    std::copy_n(values, width, rows_.data() + std::size_t{own[i]} * width);
  }));
  counts_.rows_own += own.size();
  counts_.rows_pulled += merged_.ids.size();
}

wire::Bytes RowPull::ask(std::size_t rank) const {
  std::vector<std::uint64_t> ids;
  for (const std::uint32_t i : asked_[rank]) {
    ids.push_back(merged_.ids[i]);
  }
  wire::Bytes out;
  if (!ids.empty()) {
    wire::put_varint(out, ids.size());
    table::encode_ids(ids, out);
  }
  return out;
}

wire::Bytes RowPull::answer(table::RowStore& store, const wire::Bytes& asked, std::size_t from) {
  wire::Bytes out;
  if (asked.empty()) {
    return out;
  }
  wire::ByteReader in(asked, store.said("pull") + ": what rank " + std::to_string(from) + " asks for");
  std::vector<std::uint64_t> ids = table::decode_ids(in, in.varint(), store.options().rows);
  in.expect_end();
  if (const auto id = store.first_not_held(ids)) {
    in.fail("row " + std::to_string(*id) + " is not held here");
  }
  store.encode(std::move(ids), out);
  return out;
}

void RowPull::take(std::size_t from, const wire::Bytes& answer) {
  const table::RowCodec& codec = store_.codec();
  const std::vector<std::uint32_t>& asked = asked_[from];
  for (std::size_t i = 0; i < asked.size(); ++i) {
    codec.decode(answer.data() + i * codec.row_bytes(), rows_.data() + std::size_t{asked[i]} * store_.options().width);
  }
  counts_.rows_received += asked.size();
}

}  // namespace gradwire::session
