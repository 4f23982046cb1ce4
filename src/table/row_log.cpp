#include "table/row_log.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/current_error.hpp"

namespace gradwire::table {
namespace {

constexpr std::size_t kMostPageBytes = 64 << 10;
constexpr std::uint64_t kLeastFree = 16;  // segments; cleaning less would be no gain

std::size_t rounded_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

/// Returns the smallest pages of which records leave at most a quarter unused; otherwise those that fit one record.
std::size_t page_bytes_of(std::size_t record) {
  for (std::size_t page = memory::kFileUnit; page <= kMostPageBytes; page += memory::kFileUnit) {
    if (page % record * 4 <= page && page >= record) {
      return page;
    }
  }
  return rounded_up(record, memory::kFileUnit);
}

/// The exception that is being thrown, with `code` in place of invalid_argument, which says of a table that it goes on.
Error file_error(ErrorCode code) {
  Error error = current_error();
  return error.code() == ErrorCode::invalid_argument ? Error(code, error.what()) : error;
}

}  // namespace

RecordLayout::RecordLayout(std::uint32_t row_floats, std::uint64_t memory) noexcept
    : floats(row_floats),
      record_bytes(rounded_up(sizeof(RecordHead) + floats * sizeof(float), sizeof(RecordHead))),
      page_bytes(page_bytes_of(record_bytes)),
      page_records(page_bytes / record_bytes),
      segment_pages(
          std::max<std::size_t>(1, std::clamp<std::uint64_t>(memory / 128, 32 << 10, 256 << 10) / page_bytes)),
      segment_records(segment_pages * page_records),
      batch(std::max<std::size_t>(8, std::clamp<std::uint64_t>(memory / 128, 64 << 10, 512 << 10) / page_bytes)) {}

// Reading.

RowFetch::~RowFetch() {
  try {
    wait();
  } catch (...) {  // NOLINT(bugprone-empty-catch): nobody wants these records any more
  }
  log_->end_reads(pages_);
}

bool RowFetch::done() {
  while (ended_ < tickets_.size() && log_->file_.done(tickets_[ended_])) {
    ++ended_;
  }
  return ended_ == tickets_.size();
}

void RowFetch::wait() {
  std::optional<Error> first;
  for (const memory::PageFile::Ticket& ticket : std::exchange(tickets_, {})) {
    try {
      log_->file_.wait(ticket);
    } catch (...) {
      first = first ? first : file_error(ErrorCode::corrupt);
    }
  }
  ended_ = 0;
  if (first) {
    throw Error(*first);
  }
}

RecordView RowFetch::find(std::uint32_t record) const noexcept {
  const std::uint64_t page = log_->layout_.page_of(record);
  const auto at = std::lower_bound(pages_.begin(), pages_.end(), page);
  if (at == pages_.end() || *at != page) {
    return {};
  }
  const std::byte* memory = memory_.data() + static_cast<std::size_t>(at - pages_.begin()) * log_->layout_.page_bytes +
                            log_->layout_.offset_of(record);
  return {reinterpret_cast<const RecordHead*>(memory), reinterpret_cast<const float*>(memory + sizeof(RecordHead))};
}

// A record that is appended later would otherwise be found in a copy that has what was there before.
void RowLog::clear_unwritten(std::byte* copy, std::uint64_t page) const {
  const std::size_t first = page % layout_.segment_pages * layout_.page_records;
  for (std::size_t i = next_ > first ? next_ - first : 0; i < layout_.page_records; ++i) {
    constexpr RecordHead kNone{.id = RecordHead::kNoRow, .version = 0, .nonfinite = 0};
    std::memcpy(copy + i * layout_.record_bytes, &kNone, sizeof kNone);
  }
}

std::unique_ptr<RowFetch> RowLog::fetch(std::span<const Record> records) {
  std::unique_ptr<RowFetch> fetch(new RowFetch(shared_from_this()));
  std::vector<std::uint64_t> pages;
  pages.reserve(records.size());
  for (const Record record : records) {
    pages.push_back(layout_.page_of(record));
  }
  std::sort(pages.begin(), pages.end());
  pages.erase(std::unique(pages.begin(), pages.end()), pages.end());
  const std::size_t bytes = layout_.page_bytes;
  fetch->memory_ = memory::Block(pages.size() * bytes, memory::MemoryUse::tables);
  std::vector<bool> here(pages.size());  // a segment that is not written yet
  {
    const MutexLock lock(mutex_);
    for (std::size_t i = 0; i < pages.size(); ++i) {
      Segment& segment = segments_[pages[i] / layout_.segment_pages];
      ++segment.readers;
      if (segment.state == Segment::State::buffered) {
        std::memcpy(fetch->memory_.data() + i * bytes,
                    buffers_[segment.buffer].memory.data() + pages[i] % layout_.segment_pages * bytes, bytes);
        here[i] = true;
        if (segment.buffer == open_) {
          clear_unwritten(fetch->memory_.data() + i * bytes, pages[i]);
        }
      }
    }
    fetch->pages_ = std::move(pages);
  }
  for (std::size_t i = 0; i < fetch->pages_.size();) {
    std::size_t end = i + 1;
    while (!here[i] && end < fetch->pages_.size() && !here[end] && fetch->pages_[end] == fetch->pages_[end - 1] + 1) {
      ++end;
    }
    if (!here[i]) {
      fetch->tickets_.push_back(
          file_.read(fetch->pages_[i], std::span(fetch->memory_.data() + i * bytes, (end - i) * bytes)));
    }
    i = end;
  }
  return fetch;
}

void RowLog::end_reads(const std::vector<std::uint64_t>& pages) noexcept {
  const MutexLock lock(mutex_);
  for (const std::uint64_t page : pages) {
    const auto segment = static_cast<std::uint32_t>(page / layout_.segment_pages);
    --segments_[segment].readers;
    free_if_empty(segment);
  }
}

// Writing.

RowLog::RowLog(Options options)
    : table_(std::move(options.table)),
      layout_(options.floats, options.memory),
      file_({.folder = std::move(options.folder),
             .holds = "table \"" + table_ + "\"",
             .page_bytes = layout_.page_bytes,
             .in_flight = static_cast<std::uint32_t>(kMostFetches * layout_.batch + kBuffers)},
            options.requests) {
  const MutexLock lock(mutex_);
  buffers_.resize(kBuffers);
}

RowLog::~RowLog() {
  if (home_.is_elsewhere()) {
    return;
  }
  const MutexLock lock(mutex_);
  for (const std::uint8_t buffer : writing_) {
    try {
      file_.wait(buffers_[buffer].ticket);
    } catch (...) {  // NOLINT(bugprone-empty-catch): nobody needs the records any more
    }
  }
}

std::uint64_t RowLog::buffer_bytes() const noexcept {
  return kBuffers * layout_.segment_bytes() + kMostFetches * layout_.batch * layout_.page_bytes;
}

void RowLog::end_write(Buffer& buffer) {
  Segment& segment = segments_[buffer.segment];
  try {
    file_.wait(std::exchange(buffer.ticket, {}));
  } catch (...) {
    failure_ = file_error(ErrorCode::out_of_memory);
    throw Error(*failure_);
  }
  segment.state = Segment::State::written;
  buffer.in_use = false;
  free_if_empty(buffer.segment);
}

void RowLog::open_segment() {
  while (!writing_.empty() && (writing_.size() >= kBuffers || file_.done(buffers_[writing_.front()].ticket))) {
    const std::uint8_t oldest = writing_.front();
    writing_.pop_front();
    end_write(buffers_[oldest]);
  }
  const auto buffer = std::find_if(buffers_.begin(), buffers_.end(), [](const Buffer& each) { return !each.in_use; });
  if (free_.empty()) {
    if ((segments_.size() + 1) * layout_.segment_records > kMostRecords) {
      throw Error(ErrorCode::out_of_memory, "table \"" + table_ + "\": its file in " + file_.folder().string() +
                                                " holds " + std::to_string(segments_.size() * layout_.segment_records) +
                                                " rows, and can hold no more; use more ranks");
    }
    segments_.emplace_back();
    free_.push_back(static_cast<std::uint32_t>(segments_.size() - 1));
  }
  if (buffer->memory.empty()) {
    buffer->memory = memory::Block(layout_.segment_bytes(), memory::MemoryUse::tables);
    std::memset(buffer->memory.data(), 0, buffer->memory.bytes());
  }
  buffer->segment = free_.back();
  free_.pop_back();
  buffer->in_use = true;
  const auto number = static_cast<std::uint8_t>(buffer - buffers_.begin());
  segments_[buffer->segment] = {.live = 0, .readers = 0, .state = Segment::State::buffered, .buffer = number};
  open_ = number;
  next_ = 0;
}

void RowLog::close_segment() {
  const std::uint8_t closed = *std::exchange(open_, std::nullopt);
  Buffer& buffer = buffers_[closed];
  try {
    buffer.ticket = file_.write(std::uint64_t{buffer.segment} * layout_.segment_pages,
                                std::span<const std::byte>(buffer.memory.data(), layout_.segment_bytes()));
  } catch (...) {
    failure_ = file_error(ErrorCode::out_of_memory);
    throw Error(*failure_);
  }
  writing_.push_back(closed);
}

RowLog::Record RowLog::append(const RecordHead& head, const float* floats) {
  const MutexLock lock(mutex_);
  if (failure_) {
    throw Error(*failure_);
  }
  if (!open_) {
    open_segment();
  }
  Buffer& buffer = buffers_[*open_];
  const auto record = static_cast<Record>(buffer.segment * layout_.segment_records + next_);
  std::byte* memory = buffer.memory.data() + layout_.page_of(next_) * layout_.page_bytes + layout_.offset_of(next_);
  std::memcpy(memory, &head, sizeof head);
  std::memcpy(memory + sizeof head, floats, layout_.floats * sizeof(float));
  ++segments_[buffer.segment].live;
  ++live_;
  if (++next_ == layout_.segment_records) {
    close_segment();
  }
  return record;
}

void RowLog::free_if_empty(std::uint32_t number) noexcept {
  Segment& segment = segments_[number];
  if (segment.state == Segment::State::written && segment.live == 0 && segment.readers == 0 && users_ <= 1 &&
      !recount_) {
    segment.state = Segment::State::free;
    free_.push_back(number);
  }
}

void RowLog::release(Record record) noexcept {
  const MutexLock lock(mutex_);
  if (users_ > 1 || recount_) {
    recount_ = true;  // another user may need the record
    return;
  }
  const auto segment = static_cast<std::uint32_t>(record / layout_.segment_records);
  --segments_[segment].live;
  --live_;
  free_if_empty(segment);
}

// Garbage.

void RowLog::add_user() noexcept {
  const MutexLock lock(mutex_);
  ++users_;
}

void RowLog::remove_user() noexcept {
  if (home_.is_elsewhere()) {
    return;  // a thread of the parent may have had the lock when this process was made
  }
  const MutexLock lock(mutex_);
  --users_;
  recount_ = true;  // records that it appended may be garbage now
}

std::uint64_t RowLog::users() const noexcept {
  const MutexLock lock(mutex_);
  return users_;
}

bool RowLog::wants_recount() const noexcept {
  const MutexLock lock(mutex_);
  return recount_ && users_ == 1;
}

void RowLog::begin_recount() {
  for (Segment& segment : segments_) {
    segment.live = 0;
  }
}

void RowLog::end_recount() {
  recount_ = false;
  live_ = 0;
  for (std::uint32_t segment = 0; segment < segments_.size(); ++segment) {
    live_ += segments_[segment].live;
    free_if_empty(segment);
  }
}

bool RowLog::wants_cleaning() const noexcept {
  const MutexLock lock(mutex_);
  const std::uint64_t in_file = segments_.size() - free_.size();
  return users_ == 1 && !recount_ && !failure_ && in_file > kLeastFree &&
         (in_file - kLeastFree) * layout_.segment_records > live_ + live_ / 2;
}

std::vector<RowLog::Record> RowLog::most_garbage() {
  const MutexLock lock(mutex_);
  const Segment* victim = nullptr;
  for (const Segment& segment : segments_) {
    if (segment.state == Segment::State::written && segment.readers == 0 &&
        (victim == nullptr || segment.live < victim->live)) {
      victim = &segment;
    }
  }
  std::vector<Record> records(victim == nullptr ? 0 : layout_.segment_records);
  for (std::size_t i = 0; i < records.size(); ++i) {
    records[i] = static_cast<Record>(static_cast<std::size_t>(victim - segments_.data()) * layout_.segment_records + i);
  }
  return records;
}

}  // namespace gradwire::table
