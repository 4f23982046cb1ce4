#include "session/parts/tables/step_pushes.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string>

#include "codec/codec.hpp"
#include "table/merge.hpp"
#include "table/row_block.hpp"

namespace gradwire::session {
namespace {

void check_encodes(const table::RowStore& store, std::span<const std::uint64_t> ids, const table::Floats& sums) {
  const table::RowCodec& codec = store.gradient_codec();
  const std::uint32_t width = store.options().width;
  std::vector<std::byte> encoded(codec.row_bytes());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const float* row = sums.data() + i * width;
    bool fits = codec::all_finite(codec::Working::f32, row, width);
    if (fits) {
      codec.encode(row, encoded.data());
      fits = codec.finite(encoded.data());
    }
    if (!fits) {
      throw Error(ErrorCode::invalid_argument, store.said("push") + ": the gradient for id " + std::to_string(ids[i]) +
                                                   " has NaN or Inf, or has as " + codec.name() +
                                                   "; nothing of this call was kept: leave this step out");
    }
  }
}

}  // namespace

// The time of a call depends on its own rows only. The gradients of a row add up in the order of calls, and within a
// call in the order given.
std::uint64_t StepPushes::push(const table::RowStore& store, std::span<const std::uint64_t> ids,
                               std::span<const float> gradients) {
  const std::uint32_t width = store.options().width;
  table::check_elements(store.said("push"), ids.size(), gradients.size(), width);
  const table::MergedIds merged = table::merge_ids(ids, store.options().rows, store.said("push").c_str());
  table::Floats sums(merged.ids.size() * width);
  std::vector<std::uint32_t> places;
  for (std::size_t i = 0; i < merged.ids.size(); ++i) {
    places.push_back(place_in_own_.find(merged.ids[i]));
    if (places[i] != table::FlatIndex::kNone) {
      std::copy_n(own_.values.data() + std::size_t{places[i]} * width, width, sums.data() + i * width);
    }
  }
  table::add_rows(merged, gradients, width, sums);
  check_encodes(store, merged.ids, sums);
  std::uint64_t fresh = 0;
  for (std::size_t i = 0; i < merged.ids.size(); ++i) {
    const float* sum = sums.data() + i * width;
    if (places[i] != table::FlatIndex::kNone) {
      std::copy_n(sum, width, own_.values.data() + std::size_t{places[i]} * width);
    } else {
      place_in_own_.insert(merged.ids[i], static_cast<std::uint32_t>(own_.ids.size()));
      own_.ids.push_back(merged.ids[i]);
      own_.values.insert(own_.values.end(), sum, sum + width);
      ++fresh;
    }
  }
  return fresh;
}

void StepPushes::send(const table::RowStore& store, std::uint32_t number, std::vector<wire::Bytes>& to) const {
  std::vector<std::size_t> ascending(own_.ids.size());
  std::iota(ascending.begin(), ascending.end(), 0U);
  std::ranges::sort(ascending, {}, [this](std::size_t i) { return own_.ids[i]; });
  std::vector<std::vector<std::size_t>> for_rank(to.size());
  for (const std::size_t i : ascending) {
    for (const int rank : store.ring().holders(own_.ids[i])) {
      for_rank[static_cast<std::size_t>(rank)].push_back(i);
    }
  }
  std::vector<std::uint64_t> ids;
  for (std::size_t rank = 0; rank < to.size(); ++rank) {
    const std::vector<std::size_t>& places = for_rank[rank];
    if (places.empty()) {
      continue;
    }
    ids.clear();
    std::ranges::transform(places, std::back_inserter(ids), [this](std::size_t i) { return own_.ids[i]; });
    wire::put_varint(to[rank], number);
    wire::put_varint(to[rank], ids.size());
    const auto row_of = [&](std::size_t i) { return own_.values.data() + places[i] * store.options().width; };
    table::put_rows(ids, store.gradient_codec(), row_of, to[rank]);
  }
}

void StepPushes::take(const table::RowStore& store, wire::ByteReader& in, double weight) {
  const auto count = in.varint();
  const table::RowBlock block = table::take_rows(in, count, store.options().rows, store.gradient_codec());
  if (const auto id = store.first_not_held(block.ids)) {
    in.fail("row " + std::to_string(*id) + " is not held here");
  }
  sent_.push_back({ids_sent_.size(), block.ids.size(), block.rows.data(), weight});
  ids_sent_.insert(ids_sent_.end(), block.ids.begin(), block.ids.end());
}

void StepPushes::add_up(const table::RowStore& store, bool weighted, std::optional<double> divisor) {
  const table::MergedIds merged = table::merge_ids(ids_sent_, store.options().rows, store.said("push").c_str());
  const table::RowCodec& codec = store.gradient_codec();
  const std::size_t width = store.options().width;
  sums_.ids = merged.ids;
  sums_.values.assign(merged.ids.size() * width, 0.0F);
  table::Floats row(width);
  for (const Sent& sent : sent_) {
    for (std::size_t i = 0; i < sent.count; ++i) {
      codec.decode(sent.rows + i * codec.row_bytes(), row.data());
      if (weighted) {
        codec::multiply(codec::Working::f32, row.data(), sent.weight, row.data(), width);
      }
      float* sum = sums_.values.data() + merged.place_of(sent.first + i) * width;
      for (std::size_t j = 0; j < width; ++j) {
        sum[j] += row[j];
      }
    }
  }
  if (divisor) {
    codec::divide(codec::Working::f32, sums_.values.data(), *divisor, sums_.values.size());
  }
  ids_sent_.clear();
  sent_.clear();
}

void StepPushes::apply(table::Shard& rows) {
  rows.apply(sums_.ids, sums_.values.data());
  *this = {};
}

}  // namespace gradwire::session
