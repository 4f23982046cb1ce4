#include "table/tiered_rows.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/units.hpp"
#include "table/options.hpp"

namespace gradwire::table {
namespace {

constexpr std::size_t kLeastChunks = 2;
constexpr std::size_t kChunksOfCopies = 8;     // which take only pushes that come late
constexpr std::size_t kMostCleanedAtOnce = 2;  // segments

}  // namespace

TieredRows::TieredRows(const RowOptions& options)
    : floats_(row_floats(options.optimizer, options.width)),
      memory_(options.memory),
      log_(std::make_shared<RowLog>(RowLog::Options{.table = options.name,
                                                    .folder = store_folder(options.store),
                                                    .floats = static_cast<std::uint32_t>(floats_),
                                                    .memory = options.memory})),
      records_(options.rows),
      hot_(floats_, options.rows) {
  log_->add_user();
  const std::uint64_t least = log_->buffer_bytes() + kLeastChunks * hot_.chunk_bytes();
  if (memory_ < least) {
    throw Error(ErrorCode::invalid_argument, "table \"" + options.name + "\": memory = " + format_bytes(memory_) +
                                                 " is too little: buffers of \"" + options.store +
                                                 "\" and a few rows take " + format_bytes(least) + "; give more");
  }
}

TieredRows::TieredRows(TieredRows& from, std::size_t most_chunks)
    : floats_(from.floats_),
      memory_(from.memory_),
      fixed_chunks_(most_chunks),
      log_(from.log_),
      records_(from.records_.copy()),
      hot_(floats_, ~std::uint64_t{0}) {
  log_->add_user();
}

TieredRows::~TieredRows() { log_->remove_user(); }

std::unique_ptr<TieredRows> TieredRows::copy() {
  for (HotRows::Place place = 0; place < hot_.chunks() * HotRows::kChunkRows; ++place) {
    if (hot_.row(place).taken) {
      write_back(place);
    }
  }
  std::unique_ptr<TieredRows> copy(new TieredRows(*this, kChunksOfCopies));
  tend();  // the index may now come to take twice the memory
  return copy;
}

std::vector<std::uint64_t> TieredRows::ids() const {
  std::vector<std::uint64_t> ids;
  ids.reserve(rows());
  records_.for_each([&](std::uint64_t id, RecordIndex::Number /*record*/) { ids.push_back(id); });
  std::sort(ids.begin(), ids.end());
  return ids;
}

// Reading.

TieredRows::Begun TieredRows::begin(std::span<const std::uint64_t> ids) const {
  // Rows that are in memory now may leave when the others come, unless these are few.
  const std::size_t most = std::max<std::size_t>(log_->batch(), hot_.count() / 16);
  std::vector<RowLog::Record> records;
  std::size_t count = 0;
  for (; count < std::min(most, ids.size()) && records.size() < log_->batch(); ++count) {
    if (hot_.find(ids[count]) != HotRows::kNone) {
      continue;
    }
    if (const RecordIndex::Number record = records_.find(ids[count]); record != RecordIndex::kNone) {
      records.push_back(record);
    }
  }
  return {records.empty() ? nullptr : log_->fetch(records), count};
}

RecordView TieredRows::find(std::uint64_t id, RowLog::Record record, const RowFetch* fetch,
                            std::unique_ptr<RowFetch>& own) const {
  RecordView view;
  if (fetch != nullptr && fetch->is_of(*log_)) {
    view = fetch->find(record);
  }
  if (view.head == nullptr || view.head->id != id) {  // the row has moved within the file since
    own = log_->fetch(std::span(&record, 1));
    own->wait();
    view = own->find(record);
  }
  if (view.head->id != id) {
    throw Error(ErrorCode::internal, "table \"" + log_->table() + "\": its file has row " +
                                         std::to_string(view.head->id) + " in the place of row " + std::to_string(id));
  }
  return view;
}

TieredRows::Row TieredRows::bring(std::uint64_t id, const RowFetch* fetch) {
  if (const HotRows::Place place = hot_.find(id); place != HotRows::kNone) {
    hot_.use(place);
    ++counts_.hits;
    return {&hot_.row(place), hot_.floats(place)};
  }
  const RecordIndex::Number record = records_.find(id);
  if (record == RecordIndex::kNone) {
    return {};
  }
  std::unique_ptr<RowFetch> own;
  const RecordView view = find(id, record, fetch, own);
  make_room();
  const HotRows::Place place = hot_.add(id, view.head->version);
  hot_.row(place).nonfinite = view.head->nonfinite;
  std::memcpy(hot_.floats(place), view.floats, floats_ * sizeof(float));
  ++counts_.reads;
  return {&hot_.row(place), hot_.floats(place)};
}

// Writing.

TieredRows::Row TieredRows::create(std::uint64_t id) {
  make_room();
  const HotRows::Place place = hot_.add(id, 0);
  records_.set(id, kInMemory);
  hot_.row(place).changed = true;
  std::memset(hot_.floats(place), 0, floats_ * sizeof(float));
  return {&hot_.row(place), hot_.floats(place)};
}

void TieredRows::note_change(const Row& row) {
  if (!row.head->changed) {
    const RecordIndex::Number record = records_.find(row.head->id);
    records_.set(row.head->id, kInMemory);
    log_->release(record);
    row.head->changed = true;
  }
}

void TieredRows::write_back(HotRows::Place place) {
  HotRow& row = hot_.row(place);
  if (row.changed) {
    const RowLog::Record record =
        log_->append({.id = row.id, .version = row.version, .nonfinite = row.nonfinite}, hot_.floats(place));
    records_.set(row.id, record);
    row.changed = false;
  }
}

void TieredRows::leave(HotRows::Place place) {
  write_back(place);
  hot_.remove(place);
}

void TieredRows::make_room() {
  if (!hot_.full()) {
    return;
  }
  if (hot_.chunks() < most_chunks()) {
    hot_.add_chunk();
  } else {
    leave(hot_.coldest());
  }
}

// Bounds.

std::size_t TieredRows::most_chunks() const noexcept {
  if (fixed_chunks_ > 0) {
    return fixed_chunks_;
  }
  const std::uint64_t users = log_->users();
  const std::uint64_t others = log_->buffer_bytes() + records_.bytes() * users + hot_.index_bytes() +
                               (users - 1) * kChunksOfCopies * hot_.chunk_bytes();
  return std::max<std::uint64_t>(kLeastChunks, memory_ > others ? (memory_ - others) / hot_.chunk_bytes() : 0);
}

void TieredRows::tend() {
  if (log_->wants_recount()) {
    log_->recount([this](auto count) {
      records_.for_each([&](std::uint64_t /*id*/, RecordIndex::Number record) {
        if (record != kInMemory) {
          count(record);
        }
      });
    });
  }
  while (hot_.chunks() > most_chunks()) {
    give_back_chunk();
  }
  const std::uint64_t needed = log_->buffer_bytes() + records_.bytes() + kLeastChunks * hot_.chunk_bytes();
  if (fixed_chunks_ == 0 && needed > memory_) {
    throw Error(ErrorCode::out_of_memory, "table \"" + log_->table() + "\": memory = " + format_bytes(memory_) +
                                              " does not hold the index of " + std::to_string(rows()) +
                                              " rows, which needs " + format_bytes(needed) +
                                              " with buffers; give more, or use more ranks");
  }
  for (std::size_t i = 0; i < kMostCleanedAtOnce && log_->wants_cleaning(); ++i) {
    clean();
  }
}

/// Moves the rows of a segment that is mostly garbage to the end of the file.
void TieredRows::clean() {
  const std::vector<RowLog::Record> records = log_->most_garbage();
  if (records.empty()) {
    return;
  }
  const std::unique_ptr<RowFetch> fetch = log_->fetch(records);
  fetch->wait();
  for (const RowLog::Record record : records) {
    const RecordView view = fetch->find(record);
    if (records_.find(view.head->id) == record) {
      records_.set(view.head->id, log_->append(*view.head, view.floats));
      log_->release(record);
    }
  }
}

void TieredRows::give_back_chunk() {
  const auto first = static_cast<HotRows::Place>((hot_.chunks() - 1) * HotRows::kChunkRows);
  for (HotRows::Place place = first; place < first + HotRows::kChunkRows; ++place) {
    if (hot_.row(place).taken) {
      leave(place);
    }
  }
  hot_.remove_chunk();
}

void TieredRows::give_back() {
  while (hot_.chunks() > 0) {
    give_back_chunk();
  }
}

}  // namespace gradwire::table
