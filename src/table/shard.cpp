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

Shard::Shard(Settings settings) : settings_(std::move(settings)), index_(std::make_shared<FlatIndex>()) {}

Shard Shard::copy() {
  Shard other(*this);
  other.writer_ = new_writer();
  writer_ = new_writer();  // from here on neither shard may write to the pages so far
  return other;
}

std::uint64_t Shard::version(std::uint64_t id) const noexcept {
  const std::uint32_t place = index_->find(id);
  return place == FlatIndex::kNone ? unchanged_ : pages_[place / kPageRows]->versions[place % kPageRows];
}

std::span<const float> Shard::find(std::uint64_t id) const noexcept {
  const std::uint32_t place = index_->find(id);
  if (place == FlatIndex::kNone) {
    return {};
  }
  const std::uint32_t width = settings_.width;
  return pages_[place / kPageRows]->values.values().subspan(std::size_t{place % kPageRows} * width, width);
}

void Shard::read(std::uint64_t id, float* values) const {
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

Shard::Slot Shard::writable(std::uint64_t id) {
  std::uint32_t place = index_->find(id);
  if (place == FlatIndex::kNone) {
    place = add_row(id);
  }
  Page& page = own_page(place / kPageRows);
  const std::size_t row = place % kPageRows;
  return {page, row, page.values.data() + row * settings_.width,
          page.accumulators.empty() ? nullptr : page.accumulators.data() + row * settings_.width};
}

void Shard::note_change(const Slot& slot) noexcept {
  slot.page.versions[slot.row] = sequence_;
  const bool finite = all_finite(slot.values, settings_.width) &&
                      (slot.accumulators == nullptr || all_finite(slot.accumulators, settings_.width));
  const std::uint64_t bit = std::uint64_t{1} << slot.row;
  const bool was_finite = (slot.page.nonfinite & bit) == 0;
  if (finite != was_finite) {
    slot.page.nonfinite ^= bit;
    finite ? --nonfinite_rows_ : ++nonfinite_rows_;
  }
}

void Shard::apply(std::span<const std::uint64_t> ids, const float* gradients) {
  ++sequence_;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const Slot row = writable(ids[i]);
    const float* gradient = gradients + i * settings_.width;
    if (row.accumulators == nullptr) {
      apply_sgd(settings_.learning_rate, settings_.width, gradient, row.values);
    } else {
      apply_adagrad(settings_.learning_rate, settings_.epsilon, settings_.width, gradient, row.values,
                    row.accumulators);
    }
    note_change(row);
  }
}

void Shard::assign(std::span<const std::uint64_t> ids, const float* values) {
  ++sequence_;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const Slot row = writable(ids[i]);
    std::copy_n(values + i * settings_.width, settings_.width, row.values);
    note_change(row);
  }
}

void Shard::restore(const Row& row) {
  ++sequence_;
  const Slot slot = writable(row.id);
  std::copy(row.values.begin(), row.values.end(), slot.values);
  if (slot.accumulators != nullptr) {
    std::copy(row.accumulators.begin(), row.accumulators.end(), slot.accumulators);
  }
  note_change(slot);
}

std::vector<Shard::Row> Shard::sorted() const {
  std::vector<Row> rows;
  rows.reserve(this->rows());
  const std::size_t width = settings_.width;
  for (std::size_t place = 0; place < this->rows(); ++place) {
    const Page& page = *pages_[place / kPageRows];
    const std::size_t row = place % kPageRows;
    rows.push_back({page.ids[row], std::span(page.values).subspan(row * width, width),
                    page.accumulators.empty() ? std::span<const float>()
                                              : std::span(page.accumulators).subspan(row * width, width)});
  }
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.id < b.id; });
  return rows;
}

}  // namespace gradwire::table
