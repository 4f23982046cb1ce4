#include "session/parts/tables/row_move.hpp"

#include <algorithm>
#include <iterator>

#include "base/units.hpp"
#include "table/replica_ring.hpp"
#include "table/row_block.hpp"

namespace gradwire::session {

using table::Shard;

RowMove::RowMove(table::RowStore& store)
    : store_(store),
      codec_("exact", static_cast<std::uint32_t>(table::row_floats(store.options().optimizer, store.options().width))) {
}

RowMove::RowsByRank RowMove::rows_for(const TableWorld& from, const TableWorld& to, int self) const {
  std::vector<int> now;  // the rank in `to`, by rank in `from`; -1: it has ended
  std::vector<bool> left;
  for (const Processes::Id who : from.members) {
    const auto at = std::ranges::lower_bound(to.members, who);
    const bool here = at != to.members.end() && *at == who;
    left.push_back(here);
    now.push_back(here ? static_cast<int>(at - to.members.begin()) : -1);
  }
  const table::ReplicaRing before(from.members, from.nodes, store_.options().copies);
  if (const double lost = before.lost(left); lost > 0) {
    throw Error(ErrorCode::too_few,
                "table \"" + store_.options().name + "\": " + format_number(100 * lost, 2) +
                    "% of its rows are gone: all " + std::to_string(before.copies()) +
                    " ranks that held a copy of them have ended; start the job again from a checkpoint (gradwire run "
                    "--restarts), or ask for more copies");
  }
  RowsByRank rows(to.members.size());
  std::vector<int> have;
  for (const Shard::Row& row : store_.shard().sorted()) {
    have.clear();
    for (const int rank : before.holders(row.id)) {
      if (now[static_cast<std::size_t>(rank)] >= 0) {
        have.push_back(now[static_cast<std::size_t>(rank)]);
      }
    }
    if (have.front() != self) {
      continue;  // another rank sends it
    }
    for (const int rank : store_.ring().holders(row.id)) {
      if (std::ranges::find(have, rank) == have.end()) {
        rows[static_cast<std::size_t>(rank)].push_back(row);
      }
    }
  }
  return rows;
}

void RowMove::send(std::span<const Shard::Row> rows, std::size_t& next, std::uint64_t bytes, wire::Bytes& out) const {
  const std::uint64_t most = std::max<std::uint64_t>(1, bytes / codec_.row_bytes());
  const auto part = rows.subspan(next, std::min<std::uint64_t>(most, rows.size() - next));
  std::vector<std::uint64_t> ids;
  std::ranges::transform(part, std::back_inserter(ids), &Shard::Row::id);
  std::vector<float> floats;
  const auto floats_of = [&](std::size_t i) {
    floats.assign(part[i].values.begin(), part[i].values.end());
    floats.insert(floats.end(), part[i].accumulators.begin(), part[i].accumulators.end());
    return floats.data();
  };
  wire::put_varint(out, ids.size());
  table::put_rows(ids, codec_, floats_of, out);
  next += part.size();
}

void RowMove::stage(wire::ByteReader& in) {
  const auto count = in.varint();
  const table::RowBlock block = table::take_rows(in, count, store_.options().rows, codec_);
  const std::size_t before = floats_.size();
  ids_.insert(ids_.end(), block.ids.begin(), block.ids.end());
  floats_.resize(before + block.rows.size() / sizeof(float));
  std::ranges::copy(block.rows, std::as_writable_bytes(std::span(floats_).subspan(before)).begin());
}

void RowMove::install() {
  std::vector<Shard::Row> kept = store_.shard().sorted();
  if (std::erase_if(kept, [this](const Shard::Row& row) { return !store_.holds(row.id); }) > 0) {
    store_.replace(kept);
  }
  const std::size_t each = codec_.row_bytes() / sizeof(float);
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    const auto floats = std::span<const float>(floats_).subspan(i * each, each);
    store_.shard().restore({ids_[i], floats.first(store_.options().width), floats.subspan(store_.options().width)});
  }
}

}  // namespace gradwire::session
