#include "session/parts/tables/row_move.hpp"

#include <algorithm>

#include "base/units.hpp"
#include "table/id_codec.hpp"
#include "table/replica_ring.hpp"
#include "table/row_block.hpp"

namespace gradwire::session {

using table::Shard;

RowMove::RowMove(table::RowStore& store)
    : store_(store),
      codec_("exact", static_cast<std::uint32_t>(table::row_floats(store.options().optimizer, store.options().width))) {
}

RowMove::IdsByRank RowMove::rows_for(const TableWorld& from, const TableWorld& to, int self) const {
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
  IdsByRank rows(to.members.size());
  std::vector<int> have;
  for (const std::uint64_t id : store_.shard().ids()) {
    have.clear();
    for (const int rank : before.holders(id)) {
      if (now[static_cast<std::size_t>(rank)] >= 0) {
        have.push_back(now[static_cast<std::size_t>(rank)]);
      }
    }
    if (have.front() != self) {
      continue;  // another rank sends it
    }
    for (const int rank : store_.ring().holders(id)) {
      if (std::ranges::find(have, rank) == have.end()) {
        rows[static_cast<std::size_t>(rank)].push_back(id);
      }
    }
  }
  return rows;
}

void RowMove::send(std::span<const std::uint64_t> ids, std::size_t& next, std::uint64_t bytes, wire::Bytes& out) const {
  const std::uint64_t most = std::max<std::uint64_t>(1, bytes / codec_.row_bytes());
  const auto part = ids.subspan(next, std::min<std::uint64_t>(most, ids.size() - next));
  wire::put_varint(out, part.size());
  table::encode_ids(part, out);
  out.reserve(out.size() + part.size() * codec_.row_bytes());
  store_.shard().visit(part, [&](const Shard::Row& row) {
    wire::put(out, row.values.data(), row.values.size_bytes());
    wire::put(out, row.accumulators.data(), row.accumulators.size_bytes());
  });
  next += part.size();
}

void RowMove::stage(wire::ByteReader& in) {
  const auto count = in.varint();
  const table::RowBlock block = table::take_rows(in, count, store_.options().rows, codec_);
  if (!staged_) {
    store_.shard().give_back();
    staged_ = store_.empty_shard();
  }
  std::vector<float> floats(codec_.row_bytes() / sizeof(float));
  for (std::size_t i = 0; i < block.ids.size(); ++i) {
    codec_.decode(block.rows.data() + i * codec_.row_bytes(), floats.data());
    const std::span<const float> row(floats);
    staged_->restore({block.ids[i], row.first(store_.options().width), row.subspan(store_.options().width)});
  }
}

void RowMove::install() {
  std::vector<std::uint64_t> kept = store_.shard().ids();
  const auto restore_in = [](Shard& to) { return [&to](const Shard::Row& row) { to.restore(row); }; };
  if (std::erase_if(kept, [this](std::uint64_t id) { return !store_.holds(id); }) > 0) {
    Shard rest = store_.empty_shard();
    store_.shard().give_back();
    store_.shard().visit(kept, restore_in(rest));
    store_.replace(std::move(rest));
  }
  if (staged_) {
    staged_->give_back();
    staged_->visit(staged_->ids(), restore_in(store_.shard()));
    staged_.reset();
  }
}

}  // namespace gradwire::session
