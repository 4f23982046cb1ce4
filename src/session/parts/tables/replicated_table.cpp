#include "session/parts/tables/replicated_table.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "base/units.hpp"
#include "table/id_codec.hpp"
#include "table/options.hpp"
#include "table/row_block.hpp"

namespace gradwire::session {
namespace {

using table::Shard;

SessionTableOptions checked(SessionTableOptions options) {
  table::check_rows(options);
  return options;
}

}  // namespace

ReplicatedTable::ReplicatedTable(SessionTableOptions options)
    : store_(checked(std::move(options))),
      state_codec_("exact",
                   static_cast<std::uint32_t>(table::row_floats(store_.options().optimizer, store_.options().width))) {}

void ReplicatedTable::enter(const TableWorld& world, int rank) {
  world_ = world;
  rank_ = rank;
  store_.enter(table::ReplicaRing(world.members, world.nodes, options().copies), rank);
  staged_ = {};
  forget_pushes();
}

void ReplicatedTable::check(const char* call, std::span<const std::uint64_t> ids, std::size_t elements) const {
  table::check_elements(said(call), ids.size(), elements, options().width);
  if (std::ranges::any_of(ids, [this](std::uint64_t id) { return id >= options().rows; })) {
    static_cast<void>(table::merge_ids(ids, options().rows, said(call).c_str()));  // it names the id
  }
}

ReplicatedTable::Pull ReplicatedTable::begin_pull(std::span<const std::uint64_t> ids) {
  Pull pull{.merged = table::merge_ids(ids, options().rows, said("pull").c_str()), .rows = {}, .asked = {}};
  pull.rows.resize(pull.merged.ids.size() * options().width);
  pull.asked.resize(world_.members.size());
  for (std::uint32_t i = 0; i < pull.merged.ids.size(); ++i) {
    const std::uint64_t id = pull.merged.ids[i];
    if (store_.holds(id)) {
      store_.shard().read(id, pull.rows.data() + std::size_t{i} * options().width);
      ++counts_.rows_own;
    } else {
      pull.asked[static_cast<std::size_t>(store_.owner(id))].push_back(i);
    }
  }
  counts_.rows_pulled += pull.merged.ids.size();
  return pull;
}

wire::Bytes ReplicatedTable::ask(const Pull& pull, std::size_t rank) const {
  std::vector<std::uint64_t> ids;
  for (const std::uint32_t i : pull.asked[rank]) {
    ids.push_back(pull.merged.ids[i]);
  }
  wire::Bytes out;
  if (!ids.empty()) {
    wire::put_varint(out, ids.size());
    table::encode_ids(ids, out);
  }
  return out;
}

wire::Bytes ReplicatedTable::answer(const wire::Bytes& asked, std::size_t from) const {
  wire::Bytes out;
  if (asked.empty()) {
    return out;
  }
  wire::ByteReader in(asked, said("pull") + ": what rank " + std::to_string(from) + " asks for");
  const std::vector<std::uint64_t> ids = table::decode_ids(in, in.varint(), options().rows);
  in.expect_end();
  if (const auto id = store_.first_not_held(ids)) {
    in.fail("row " + std::to_string(*id) + " is not held here");
  }
  store_.encode(ids, out);
  return out;
}

void ReplicatedTable::take(Pull& pull, std::size_t from, const wire::Bytes& answer) {
  const table::RowCodec& codec = store_.codec();
  const std::vector<std::uint32_t>& asked = pull.asked[from];
  for (std::size_t i = 0; i < asked.size(); ++i) {
    codec.decode(answer.data() + i * codec.row_bytes(), pull.rows.data() + std::size_t{asked[i]} * options().width);
  }
  counts_.rows_received += asked.size();
}

ReplicatedTable::RowsByRank ReplicatedTable::rows_to_move(const TableWorld& from) const {
  std::vector<int> now;  // by rank of that world; -1: it has ended
  std::vector<bool> left;
  for (const Processes::Id who : from.members) {
    const auto at = std::ranges::lower_bound(world_.members, who);
    const bool here = at != world_.members.end() && *at == who;
    left.push_back(here);
    now.push_back(here ? static_cast<int>(at - world_.members.begin()) : -1);
  }
  const table::ReplicaRing before(from.members, from.nodes, options().copies);
  if (const double lost = before.lost(left); lost > 0) {
    throw Error(ErrorCode::too_few,
                "table \"" + options().name + "\": " + format_number(100 * lost, 2) + "% of its rows are gone: all " +
                    std::to_string(before.copies()) +
                    " ranks that held a copy of them have ended; start the job again from a checkpoint (gradwire run "
                    "--restarts), or ask for more copies");
  }
  RowsByRank to(world_.members.size());
  std::vector<int> have;
  for (const Shard::Row& row : store_.shard().sorted()) {
    have.clear();
    for (const int rank : before.holders(row.id)) {
      if (now[static_cast<std::size_t>(rank)] >= 0) {
        have.push_back(now[static_cast<std::size_t>(rank)]);
      }
    }
    if (have.front() != rank_) {
      continue;  // another rank sends it
    }
    for (const int rank : store_.ring().holders(row.id)) {
      if (std::ranges::find(have, rank) == have.end()) {
        to[static_cast<std::size_t>(rank)].push_back(row);
      }
    }
  }
  return to;
}

void ReplicatedTable::send_rows(std::span<const Shard::Row> rows, std::size_t& next, std::uint64_t bytes,
                                wire::Bytes& out) const {
  const std::uint64_t most = std::max<std::uint64_t>(1, bytes / state_codec_.row_bytes());
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
  table::put_rows(ids, state_codec_, floats_of, out);
  next += part.size();
}

void ReplicatedTable::stage_rows(wire::ByteReader& in) {
  const auto count = in.varint();
  const table::RowBlock block = table::take_rows(in, count, options().rows, state_codec_);
  const std::size_t before = staged_.floats.size();
  staged_.ids.insert(staged_.ids.end(), block.ids.begin(), block.ids.end());
  staged_.floats.resize(before + block.rows.size() / sizeof(float));
  std::ranges::copy(block.rows, std::as_writable_bytes(std::span(staged_.floats).subspan(before)).begin());
}

void ReplicatedTable::install() {
  std::vector<Shard::Row> kept = store_.shard().sorted();
  if (std::erase_if(kept, [this](const Shard::Row& row) { return !store_.holds(row.id); }) > 0) {
    store_.replace(kept);
  }
  const std::size_t each = state_codec_.row_bytes() / sizeof(float);
  for (std::size_t i = 0; i < staged_.ids.size(); ++i) {
    const auto floats = std::span<const float>(staged_.floats).subspan(i * each, each);
    store_.shard().restore({staged_.ids[i], floats.first(options().width), floats.subspan(options().width)});
  }
  staged_ = {};
}

void ReplicatedTable::save(table::SavedTable& to) {
  const auto copy = std::make_shared<const Shard>(store_.shard().copy());
  to.own = copy->sorted();
  std::erase_if(to.own, [this](const Shard::Row& row) { return !store_.owns(row.id); });
  to.shard = copy;
}

bool ReplicatedTable::restore(const Shard::Row& row) {
  if (!store_.holds(row.id)) {
    return true;
  }
  if (!store_.shard().find(row.id).empty()) {
    return false;
  }
  store_.shard().restore(row);
  return true;
}

}  // namespace gradwire::session
