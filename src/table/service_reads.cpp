// Rows that pulls ask for: those in a file are on their way while the service goes on.
#include <algorithm>
#include <utility>

#include "table/id_codec.hpp"
#include "table/service.hpp"

namespace gradwire::table {
namespace {

// More readings than these wait, because pushes and a snapshot need fetches, too.
constexpr std::size_t kMostReadings = RowLog::kMostFetches / RowBatch::kAhead / 2;

}  // namespace

void Service::serve(int peer, PullRequest request) {
  Reading reading{.what = Reading::For::reply,
                  .peer = peer,
                  .rows = RowBatch(std::move(request.ids)),
                  .known = std::move(request.known)};
  // Clock and sequence as they are now: rows that come from a file later are at least as new.
  reading.reply.head.kind = MessageKind::reply;
  reading.reply.head.number = request.number;
  reading.reply.head.clock = clocks_.complete();
  reading.reply.head.sequence = store_.shard().sequence();
  begin_reading(std::move(reading));
}

// A reading whose rows are all in memory waits for no other.
void Service::begin_reading(Reading reading) {
  const bool waits = readings_.size() >= kMostReadings && !store_.shard().in_memory(reading.rows.ids());
  if (waits || !on_rows([&] { return advance(reading); })) {
    readings_.push_back(std::move(reading));
  }
}

void Service::advance_reads() {
  std::size_t under_way = 0;
  for (auto at = readings_.begin(); at != readings_.end() && under_way < kMostReadings;) {
    if (on_rows([&] { return advance(*at); })) {
      at = readings_.erase(at);
    } else {
      ++under_way;
      ++at;
    }
  }
}

/// Returns whether the reading is over.
bool Service::advance(Reading& reading) {
  const RowCodec& codec = store_.codec();
  const auto encode = [&](std::size_t i, const float* values, std::uint64_t version) {
    const std::uint64_t known = reading.known[i];
    if (known == 0 || version > known - 1) {
      reading.places.push_back(i);
      reading.encoded.resize(reading.encoded.size() + codec.row_bytes());
      codec.encode(values, reading.encoded.data() + reading.encoded.size() - codec.row_bytes());
    }
  };
  const auto copy = [&](std::size_t i, const float* values, std::uint64_t /*version*/) {
    std::copy_n(values, options_.width, reading.pull->rows.data() + std::size_t{reading.pull->own[i]} * options_.width);
  };
  if (reading.what == Reading::For::later) {
    return reading.rows.advance(store_.shard(), false, [](std::size_t, const float*, std::uint64_t) {});
  }
  if (reading.what == Reading::For::own) {
    if (!reading.rows.advance(store_.shard(), false, copy)) {
      return false;
    }
    end_own(*reading.pull, reading.reply.head.clock);
    return true;
  }
  if (!reading.rows.advance(store_.shard(), false, encode)) {
    return false;
  }
  TableMessage& reply = reading.reply;
  reply.head.count = reading.places.size();
  if (reading.places.size() != reading.rows.ids().size()) {
    encode_ids(reading.places, reply.payload);
    wire::put(reply.payload, reading.encoded.data(), reading.encoded.size());
  } else {
    reply.payload = std::move(reading.encoded);
  }
  send(reading.peer, std::move(reply));
  return true;
}

void Service::read_own(const std::shared_ptr<Pull>& pull) {
  if (pull->own.empty() || pull->reads_own || (clocks_.complete() < pull->needed && !pull->prefetch)) {
    return;
  }
  std::vector<std::uint64_t> ids;
  ids.reserve(pull->own.size());
  for (const std::uint32_t place : pull->own) {
    ids.push_back(pull->ids[place]);
  }
  pull->reads_own = true;
  Reading reading{.what = Reading::For::own, .peer = rank_, .rows = RowBatch(std::move(ids)), .pull = pull};
  reading.reply.head.clock = clocks_.complete();
  begin_reading(std::move(reading));
}

/// The own rows of a pull are here, as of a clock.
void Service::end_own(Pull& pull, std::uint64_t complete) {
  for (std::size_t i = 0; i < pull.own.size(); ++i) {
    count_age(pull, complete);
  }
  statistics_.rows_own += pull.prefetch ? 0 : pull.own.size();
  pull.own.clear();
  pull.reads_own = false;
  if (pull.done()) {
    std::erase_if(pulls_, [&](const auto& entry) { return entry.second.get() == &pull; });
  }
}

}  // namespace gradwire::table
