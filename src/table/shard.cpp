#include "table/shard.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>

#include "kernels/philox.hpp"

namespace gradwire::table {
namespace {

void apply_sgd(float rate, std::uint32_t width, const float* gradient, float* values) {
  for (std::uint32_t i = 0; i < width; ++i) {
    values[i] -= rate * gradient[i];
  }
}

void apply_adagrad(float rate, float epsilon, std::uint32_t width, const float* gradient, float* values, float* sums) {
  for (std::uint32_t i = 0; i < width; ++i) {
    sums[i] += gradient[i] * gradient[i];
    values[i] -= rate * gradient[i] / (std::sqrt(sums[i]) + epsilon);
  }
}

bool all_finite(const float* values, std::uint32_t width) {
  constexpr std::uint32_t kExponent = 0x7F800000;
  std::uint32_t others = 0;  // not bool, for which g++ 12 does not vectorize the loop
  for (std::uint32_t i = 0; i < width; ++i) {
    others |= (std::bit_cast<std::uint32_t>(values[i]) & kExponent) == kExponent ? 1U : 0U;
  }
  return others == 0;
}

}  // namespace

std::uint64_t Shard::new_writer() noexcept {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

Shard::Shard(Settings settings)
    : settings_(std::move(settings)),
      index_(std::make_shared<FlatIndex>()),
      tier_(settings_.store.empty() ? nullptr : std::make_unique<TieredRows>(settings_)) {}

Shard::Shard(Shard& from, std::unique_ptr<TieredRows> tier)
    : settings_(from.settings_),
      index_writer_(from.index_writer_),
      sequence_(from.sequence_),
      nonfinite_rows_(from.nonfinite_rows_),
      unchanged_(from.unchanged_),
      index_(from.index_),
      pages_(from.pages_),
      tier_(std::move(tier)) {}

Shard Shard::copy() {
  Shard other(*this, tier_ ? tier_->copy() : nullptr);
  writer_ = new_writer();  // from here on neither shard may write to the pages so far
  return other;
}

bool Shard::contains(std::uint64_t id) const noexcept {
  return tier_ ? tier_->contains(id) : index_->find(id) != FlatIndex::kNone;
}

std::uint64_t Shard::version(std::uint64_t id) const {
  if (tier_) {
    std::uint64_t version = unchanged_;
    tier_->look(id, nullptr, [&](const RecordHead& head, const float* /*floats*/) { version = head.version; });
    return std::max(version, unchanged_);
  }
  const std::uint32_t place = index_->find(id);
  return place == FlatIndex::kNone ? unchanged_
                                   : std::max(unchanged_, pages_[place / kPageRows]->versions[place % kPageRows]);
}

std::span<const float> Shard::find(std::uint64_t id) const {
  if (tier_) {
    thread_local std::vector<float> values;
    const bool here = tier_->look(id, nullptr, [&](const RecordHead& /*head*/, const float* floats) {
      values.assign(floats, floats + settings_.width);
    });
    return here ? std::span<const float>(values) : std::span<const float>();
  }
  const std::uint32_t place = index_->find(id);
  if (place == FlatIndex::kNone) {
    return {};
  }
  const std::uint32_t width = settings_.width;
  return pages_[place / kPageRows]->values.values().subspan(std::size_t{place % kPageRows} * width, width);
}

void Shard::read(std::uint64_t id, float* values) const {
  if (tier_) {
    if (!tier_->look(id, nullptr, [&](const RecordHead& /*head*/, const float* floats) {
          std::copy_n(floats, settings_.width, values);
        })) {
      initialize(id, values);
    }
    return;
  }
  const std::span<const float> row = find(id);
  if (row.empty()) {
    initialize(id, values);
  } else {
    std::copy(row.begin(), row.end(), values);
  }
}

/// Values are uniform in [-scale, scale). They depend on seed, id and column, and not on the rank.
void Shard::initialize(std::uint64_t id, float* values) const {
  if (settings_.initial_scale == 0) {
    std::fill_n(values, settings_.width, 0.0F);
    return;
  }
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32U); };
  for (std::uint32_t i = 0; i < settings_.width; i += 4) {
    const kernels::Philox random =
        kernels::philox({{low(id), high(id), i / 4, 0}}, low(settings_.seed), high(settings_.seed));
    for (std::uint32_t j = 0; j < std::min(4U, settings_.width - i); ++j) {
      constexpr float kUnit = 1.0F / (1U << 23U);
      values[i + j] = settings_.initial_scale * (static_cast<float>(random.word[j] >> 8U) * kUnit - 1.0F);
    }
  }
}

Shard::Page& Shard::own_page(std::uint32_t number) {
  std::shared_ptr<Page>& page = pages_[number];
  if (page->writer != writer_) {
    page = std::make_shared<Page>(*page);
    page->writer = writer_;
  }
  return *page;
}

std::uint32_t Shard::add_row(std::uint64_t id) {
  const auto place = static_cast<std::uint32_t>(index_->count());
  if (place == FlatIndex::kNone) {
    throw Error(ErrorCode::out_of_memory, "a shard holds at most 2^32 - 1 rows; use more ranks");
  }
  const std::size_t elements = std::size_t{kPageRows} * settings_.width;
  if (place % kPageRows == 0) {
    auto page = std::make_shared<Page>();
    page->writer = writer_;
    page->ids.resize(kPageRows);
    page->versions.resize(kPageRows);
    page->values.resize(elements);
    page->accumulators.resize(settings_.optimizer == RowOptimizer::adagrad ? elements : 0);
    pages_.push_back(std::move(page));
  }
  Page& page = own_page(place / kPageRows);
  page.ids[place % kPageRows] = id;
  initialize(id, page.values.data() + std::size_t{place % kPageRows} * settings_.width);
  if (index_writer_ != writer_) {
    index_ = std::make_shared<FlatIndex>(*index_);
    index_writer_ = writer_;
  }
  index_->insert(id, place);
  return place;
}

Shard::Slot Shard::writable(std::uint64_t id, const RowFetch* fetch) {
  if (tier_) {
    TieredRows::Row row = tier_->bring(id, fetch);
    if (row.head == nullptr) {
      row = tier_->create(id);
      initialize(id, row.floats);
    }
    tier_->note_change(row);
    return {nullptr, 0, row.head, row.floats,
            settings_.optimizer == RowOptimizer::adagrad ? row.floats + settings_.width : nullptr};
  }
  std::uint32_t place = index_->find(id);
  if (place == FlatIndex::kNone) {
    place = add_row(id);
  }
  Page& page = own_page(place / kPageRows);
  const std::size_t row = place % kPageRows;
  return {&page, row, nullptr, page.values.data() + row * settings_.width,
          page.accumulators.empty() ? nullptr : page.accumulators.data() + row * settings_.width};
}

void Shard::note_change(const Slot& slot) noexcept {
  const bool finite = all_finite(slot.values, settings_.width) &&
                      (slot.accumulators == nullptr || all_finite(slot.accumulators, settings_.width));
  bool was_finite = false;
  if (slot.hot != nullptr) {
    was_finite = !slot.hot->nonfinite;
    slot.hot->version = sequence_;
    slot.hot->nonfinite = !finite;
  } else {
    const std::uint64_t bit = std::uint64_t{1} << slot.row;
    was_finite = (slot.page->nonfinite & bit) == 0;
    slot.page->versions[slot.row] = sequence_;
    slot.page->nonfinite ^= finite != was_finite ? bit : 0;
  }
  if (finite != was_finite) {
    finite ? --nonfinite_rows_ : ++nonfinite_rows_;
  }
}

template <class Take>
void Shard::for_each_batch(std::span<const std::uint64_t> ids, Take take) const {
  TieredRows::Begun next = begin(ids);
  for (std::size_t first = 0; first < ids.size();) {
    const TieredRows::Begun now = std::move(next);
    const std::size_t end = first + now.count;
    next = begin(ids.subspan(end));
    if (now.fetch != nullptr) {
      now.fetch->wait();
    }
    take(first, end, now.fetch.get());
    first = end;
  }
}

template <class Write>
void Shard::write_each(std::span<const std::uint64_t> ids, Write write) {
  for_each_batch(ids, [&](std::size_t first, std::size_t end, const RowFetch* fetch) {
    for (std::size_t i = first; i < end; ++i) {
      const Slot slot = writable(ids[i], fetch);
      write(i, slot);
      note_change(slot);
    }
    tend();
  });
}

void Shard::apply(std::span<const std::uint64_t> ids, const float* gradients) {
  ++sequence_;
  write_each(ids, [&](std::size_t i, const Slot& row) {
    const float* gradient = gradients + i * settings_.width;
    if (row.accumulators == nullptr) {
      apply_sgd(settings_.learning_rate, settings_.width, gradient, row.values);
    } else {
      apply_adagrad(settings_.learning_rate, settings_.epsilon, settings_.width, gradient, row.values,
                    row.accumulators);
    }
  });
}

void Shard::assign(std::span<const std::uint64_t> ids, const float* values) {
  ++sequence_;
  write_each(ids, [&](std::size_t i, const Slot& row) {
    std::copy_n(values + i * settings_.width, settings_.width, row.values);
  });
}

void Shard::restore(const Row& row) {
  ++sequence_;
  write_each(std::span(&row.id, 1), [&](std::size_t /*i*/, const Slot& slot) {
    std::copy(row.values.begin(), row.values.end(), slot.values);
    if (slot.accumulators != nullptr) {
      std::copy(row.accumulators.begin(), row.accumulators.end(), slot.accumulators);
    }
  });
}

std::vector<std::uint64_t> Shard::ids() const {
  if (tier_) {
    return tier_->ids();
  }
  std::vector<std::uint64_t> ids;
  ids.reserve(rows());
  for (std::size_t place = 0; place < rows(); ++place) {
    ids.push_back(pages_[place / kPageRows]->ids[place % kPageRows]);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

void Shard::add_blocks(std::vector<memory::Block*>& blocks) {
  if (tier_) {
    tier_->add_blocks(blocks);
    return;
  }
  blocks.push_back(&index_->block());
  for (const std::shared_ptr<Page>& page : pages_) {
    blocks.push_back(&page->values.block());
    blocks.push_back(&page->accumulators.block());
  }
}

Shard::Row Shard::row_at(std::uint64_t id, const float* values, const float* accumulators) const noexcept {
  const std::size_t width = settings_.width;
  const bool with_state = settings_.optimizer == RowOptimizer::adagrad;
  return {id, {values, width}, {accumulators, with_state ? width : 0}};
}

void Shard::visit(std::span<const std::uint64_t> ids, const std::function<void(const Row&)>& take) const {
  if (!tier_) {
    for (const std::uint64_t id : ids) {
      const std::uint32_t place = index_->find(id);
      const Page& page = *pages_[place / kPageRows];
      const std::size_t at = std::size_t{place % kPageRows} * settings_.width;
      take(row_at(id, page.values.data() + at, page.accumulators.data() + (page.accumulators.empty() ? 0 : at)));
    }
    return;
  }
  for_each_batch(ids, [&](std::size_t first, std::size_t end, const RowFetch* fetch) {
    for (const std::uint64_t id : ids.subspan(first, end - first)) {
      tier_->look(id, fetch, [&](const RecordHead& /*head*/, const float* floats) {
        take(row_at(id, floats, floats + settings_.width));
      });
    }
  });
}

}  // namespace gradwire::table
