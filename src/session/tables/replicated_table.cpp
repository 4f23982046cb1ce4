#include "session/tables/replicated_table.hpp"

#include <algorithm>
#include <memory>
#include <numeric>

#include "base/units.hpp"
#include "codec/codec.hpp"
#include "table/id_codec.hpp"
#include "table/options.hpp"

namespace gradwire::session {
namespace {

using table::Shard;

TableOptions checked(TableOptions options) {
  table::check_options(options);
  const TableOptions plain;
  const char* other = options.staleness != plain.staleness               ? "staleness"
                      : options.cache_bytes != plain.cache_bytes         ? "cache_bytes"
                      : options.read_own_writes != plain.read_own_writes ? "read_own_writes"
                                                                         : nullptr;
  if (other != nullptr) {
    throw Error(ErrorCode::invalid_argument,
                "table \"" + options.name + "\": " + other +
                    " is for a Table of its own: rows of a session's table are those behind the last step, on every "
                    "rank; leave it out, or make a gradwire::Table");
  }
  return options;
}

bool finite(const float* row, std::uint32_t width) { return codec::all_finite(codec::Working::f32, row, width); }

}  // namespace

ReplicatedTable::ReplicatedTable(TableOptions options)
    : options_(checked(std::move(options))),
      codec_(options_.codec, options_.width),
      gradient_codec_(options_.gradient_codec, options_.width),
      shard_(table::shard_settings(options_)) {}

TableStatistics ReplicatedTable::statistics() const {
  TableStatistics statistics = counts_;
  statistics.rows_held = shard_.rows();
  statistics.rows_nonfinite = shard_.nonfinite_rows();
  return statistics;
}

void ReplicatedTable::enter(const TableWorld& world, int rank) {
  world_ = world;
  rank_ = rank;
  ring_ = table::ReplicaRing(world.members, world.nodes, options_.copies);
  staged_ = {};
  forget_pushes();
}

bool ReplicatedTable::holds(std::uint64_t id) const {
  const std::span<const int> holders = ring_.holders(id);
  return std::ranges::find(holders, rank_) != holders.end();
}

void ReplicatedTable::check(const char* call, std::span<const std::uint64_t> ids, std::size_t elements) const {
  if (elements != ids.size() * options_.width) {
    throw Error(ErrorCode::invalid_argument, said(call) + ": " + std::to_string(ids.size()) + " ids of width " +
                                                 std::to_string(options_.width) + " need " +
                                                 std::to_string(ids.size() * options_.width) + " elements, not " +
                                                 std::to_string(elements));
  }
  if (std::ranges::any_of(ids, [this](std::uint64_t id) { return id >= options_.rows; })) {
    static_cast<void>(table::merge_ids(ids, options_.rows, said(call).c_str()));  // names it
  }
}

ReplicatedTable::Pull ReplicatedTable::begin_pull(std::span<const std::uint64_t> ids) {
  Pull pull{.merged = table::merge_ids(ids, options_.rows, said("pull").c_str()), .rows = {}, .asked = {}};
  pull.rows.resize(pull.merged.ids.size() * options_.width);
  pull.asked.resize(world_.members.size());
  for (std::uint32_t i = 0; i < pull.merged.ids.size(); ++i) {
    const std::uint64_t id = pull.merged.ids[i];
    if (holds(id)) {
      shard_.read(id, pull.rows.data() + std::size_t{i} * options_.width);
      ++counts_.rows_own;
    } else {
      pull.asked[static_cast<std::size_t>(ring_.holders(id)[0])].push_back(i);
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
  const std::vector<std::uint64_t> ids = table::decode_ids(in, in.varint(), options_.rows);
  in.expect_end();
  out.resize(ids.size() * codec_.row_bytes());
  std::vector<float> row(options_.width);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!holds(ids[i])) {
      in.fail("row " + std::to_string(ids[i]) + " is not held here");
    }
    shard_.read(ids[i], row.data());
    codec_.encode(row.data(), out.data() + i * codec_.row_bytes());
  }
  return out;
}

void ReplicatedTable::take(Pull& pull, std::size_t from, const wire::Bytes& answer) {
  const std::vector<std::uint32_t>& asked = pull.asked[from];
  for (std::size_t i = 0; i < asked.size(); ++i) {
    codec_.decode(answer.data() + i * codec_.row_bytes(), pull.rows.data() + std::size_t{asked[i]} * options_.width);
  }
  counts_.rows_received += asked.size();
}

void ReplicatedTable::give(const Pull& pull, std::size_t ids, std::span<float> rows) const {
  const std::size_t width = options_.width;
  for (std::size_t i = 0; i < ids; ++i) {
    std::copy_n(pull.rows.data() + pull.merged.place_of(i) * width, width, rows.data() + i * width);
  }
}

void ReplicatedTable::check_encodes(std::span<const std::uint64_t> ids, const std::vector<float>& sums) const {
  std::vector<std::byte> encoded(gradient_codec_.row_bytes());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const float* row = sums.data() + i * options_.width;
    bool fits = finite(row, options_.width);
    if (fits) {
      gradient_codec_.encode(row, encoded.data());
      fits = gradient_codec_.finite(encoded.data());
    }
    if (!fits) {
      throw Error(ErrorCode::invalid_argument, said("push") + ": the gradient for id " + std::to_string(ids[i]) +
                                                   " has NaN or Inf, or has as " + gradient_codec_.name() +
                                                   "; nothing of this call was kept: leave this step out");
    }
  }
}

// Only rows of this call are touched. A row's gradients add up in the order of calls, and in each as given.
void ReplicatedTable::push(std::span<const std::uint64_t> ids, std::span<const float> gradients) {
  check("push", ids, gradients.size());
  const table::MergedIds merged = table::merge_ids(ids, options_.rows, said("push").c_str());
  const std::size_t width = options_.width;
  std::vector<float> sums(merged.ids.size() * width);
  std::vector<std::uint32_t> places;
  for (std::size_t i = 0; i < merged.ids.size(); ++i) {
    places.push_back(place_in_pending_.find(merged.ids[i]));
    if (places[i] != table::FlatIndex::kNone) {
      std::copy_n(pending_.values.data() + places[i] * width, width, sums.data() + i * width);
    }
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    float* sum = sums.data() + merged.place_of(i) * width;
    for (std::size_t j = 0; j < width; ++j) {
      sum[j] += gradients[i * width + j];
    }
  }
  check_encodes(merged.ids, sums);
  for (std::size_t i = 0; i < merged.ids.size(); ++i) {
    const float* sum = sums.data() + i * width;
    if (places[i] != table::FlatIndex::kNone) {
      std::copy_n(sum, width, pending_.values.data() + places[i] * width);
    } else {
      place_in_pending_.insert(merged.ids[i], static_cast<std::uint32_t>(pending_.ids.size()));
      pending_.ids.push_back(merged.ids[i]);
      pending_.values.insert(pending_.values.end(), sum, sum + width);
      ++counts_.rows_pushed;
    }
  }
}

void ReplicatedTable::send_pushes(std::uint32_t number, std::vector<wire::Bytes>& to) const {
  std::vector<std::size_t> ascending(pending_.ids.size());
  std::iota(ascending.begin(), ascending.end(), 0U);
  std::ranges::sort(ascending, {}, [this](std::size_t i) { return pending_.ids[i]; });
  std::vector<std::vector<std::size_t>> for_rank(to.size());
  for (const std::size_t i : ascending) {
    for (const int rank : ring_.holders(pending_.ids[i])) {
      for_rank[static_cast<std::size_t>(rank)].push_back(i);
    }
  }
  std::vector<std::uint64_t> ids;
  for (std::size_t rank = 0; rank < to.size(); ++rank) {
    if (for_rank[rank].empty()) {
      continue;
    }
    ids.clear();
    std::ranges::transform(for_rank[rank], std::back_inserter(ids), [&](std::size_t i) { return pending_.ids[i]; });
    wire::Bytes& out = to[rank];
    wire::put_varint(out, number);
    wire::put_varint(out, ids.size());
    table::encode_ids(ids, out);
    std::size_t at = out.size();
    out.resize(at + ids.size() * gradient_codec_.row_bytes());
    for (const std::size_t i : for_rank[rank]) {
      gradient_codec_.encode(pending_.values.data() + i * options_.width, out.data() + at);
      at += gradient_codec_.row_bytes();
    }
  }
}

void ReplicatedTable::take_pushes(wire::ByteReader& in, double weight) {
  const std::vector<std::uint64_t> ids = table::decode_ids(in, in.varint(), options_.rows);
  for (const std::uint64_t id : ids) {
    if (!holds(id)) {
      in.fail("row " + std::to_string(id) + " is not held here");
    }
  }
  const auto rows = in.take(ids.size() * gradient_codec_.row_bytes());
  parts_.push_back({pushed_ids_.size(), ids.size(), rows.data(), weight});
  pushed_ids_.insert(pushed_ids_.end(), ids.begin(), ids.end());
}

// In the order of ranks, whoever holds the row: all its copies change alike.
void ReplicatedTable::add_up(bool weighted, std::optional<double> divisor) {
  const table::MergedIds merged = table::merge_ids(pushed_ids_, options_.rows, said("push").c_str());
  const std::size_t width = options_.width;
  sums_.ids = merged.ids;
  sums_.values.assign(merged.ids.size() * width, 0.0F);
  std::vector<float> row(width);
  for (const Part& part : parts_) {
    for (std::size_t i = 0; i < part.count; ++i) {
      gradient_codec_.decode(part.rows + i * gradient_codec_.row_bytes(), row.data());
      if (weighted) {
        codec::multiply(codec::Working::f32, row.data(), part.weight, row.data(), width);
      }
      float* sum = sums_.values.data() + merged.place_of(part.first + i) * width;
      for (std::size_t j = 0; j < width; ++j) {
        sum[j] += row[j];
      }
    }
  }
  if (divisor) {
    codec::divide(codec::Working::f32, sums_.values.data(), *divisor, sums_.values.size());
  }
  pushed_ids_.clear();
  parts_.clear();
}

void ReplicatedTable::count() {
  shard_.apply(sums_.ids, sums_.values.data());
  forget_pushes();
}

void ReplicatedTable::forget_pushes() {
  pending_ = {};
  place_in_pending_ = {};
  sums_ = {};
  pushed_ids_.clear();
  parts_.clear();
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
  const table::ReplicaRing before(from.members, from.nodes, options_.copies);
  if (const double lost = before.lost(left); lost > 0) {
    throw Error(ErrorCode::too_few,
                "table \"" + options_.name + "\": " + format_number(100 * lost, 2) + "% of its rows are gone: all " +
                    std::to_string(before.copies()) +
                    " ranks that held a copy of them have ended; start the job again from a checkpoint (gradwire run "
                    "--restarts), or ask for more copies");
  }
  RowsByRank to(world_.members.size());
  std::vector<int> have;
  for (const Shard::Row& row : shard_.sorted()) {
    have.clear();
    for (const int rank : before.holders(row.id)) {
      if (now[static_cast<std::size_t>(rank)] >= 0) {
        have.push_back(now[static_cast<std::size_t>(rank)]);
      }
    }
    if (have.front() != rank_) {
      continue;  // another rank sends it
    }
    for (const int rank : ring_.holders(row.id)) {
      if (std::ranges::find(have, rank) == have.end()) {
        to[static_cast<std::size_t>(rank)].push_back(row);
      }
    }
  }
  return to;
}

void ReplicatedTable::send_rows(std::span<const Shard::Row> rows, std::size_t& next, std::uint64_t bytes,
                                wire::Bytes& out) const {
  const std::uint64_t most = std::max<std::uint64_t>(1, bytes / (moved_floats() * sizeof(float)));
  const auto part = rows.subspan(next, std::min<std::uint64_t>(most, rows.size() - next));
  std::vector<std::uint64_t> ids;
  std::ranges::transform(part, std::back_inserter(ids), &Shard::Row::id);
  wire::put_varint(out, ids.size());
  table::encode_ids(ids, out);
  for (const Shard::Row& row : part) {
    wire::put(out, row.values.data(), row.values.size_bytes());
    wire::put(out, row.accumulators.data(), row.accumulators.size_bytes());
  }
  next += part.size();
}

void ReplicatedTable::stage_rows(wire::ByteReader& in) {
  const std::vector<std::uint64_t> ids = table::decode_ids(in, in.varint(), options_.rows);
  const std::size_t before = staged_.values.size();
  const auto rows = in.take(ids.size() * moved_floats() * sizeof(float));
  staged_.ids.insert(staged_.ids.end(), ids.begin(), ids.end());
  staged_.values.resize(before + ids.size() * moved_floats());
  std::copy(rows.begin(), rows.end(), std::as_writable_bytes(std::span(staged_.values).subspan(before)).begin());
}

void ReplicatedTable::install() {
  const std::vector<Shard::Row> held = shard_.sorted();
  if (!std::ranges::all_of(held, [this](const Shard::Row& row) { return holds(row.id); })) {
    Shard kept(table::shard_settings(options_));
    for (const Shard::Row& row : held) {
      if (holds(row.id)) {
        kept.restore(row);
      }
    }
    shard_ = std::move(kept);
  }
  for (std::size_t i = 0; i < staged_.ids.size(); ++i) {
    const auto floats = std::span<const float>(staged_.values).subspan(i * moved_floats(), moved_floats());
    shard_.restore({staged_.ids[i], floats.first(options_.width), floats.subspan(options_.width)});
  }
  staged_ = {};
}

void ReplicatedTable::save(SavedState::Table& to) {
  const auto copy = std::make_shared<const Shard>(shard_.copy());
  to.own = copy->sorted();
  std::erase_if(to.own, [this](const Shard::Row& row) { return ring_.holders(row.id)[0] != rank_; });
  to.shard = copy;
}

bool ReplicatedTable::restore(const Shard::Row& row) {
  if (!holds(row.id)) {
    return true;
  }
  if (!shard_.find(row.id).empty()) {
    return false;
  }
  shard_.restore(row);
  return true;
}

}  // namespace gradwire::session
