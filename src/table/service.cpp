#include "table/service.hpp"

#include <algorithm>
#include <utility>

#include "table/id_codec.hpp"
#include "table/options.hpp"

namespace gradwire::table {
namespace {

// A write is sent in messages of about this size: bytes on a link cannot be called back when a step has something to
// send, and from 64 KiB on Open MPI's TCP first asks the receiver, with the link idle meanwhile.
constexpr std::uint64_t kWriteBytes = 56 << 10;
constexpr std::uint64_t kMostIdBytes = 10;  // of a row

std::string damaged(int from) {
  return "rank " + std::to_string(from) + " sent this table a message that nobody asked for";
}

}  // namespace

Service::Service(int rank, int world_size, const TableOptions& options)
    : rank_(rank),
      world_size_(world_size),
      options_(options),
      store_(row_options(options)),
      exact_codec_("exact", options.width),
      clocks_(world_size),
      cache_(options.cache_bytes, options.width) {
  store_.enter(ReplicaRing(world_size), rank);
}

void Service::send(int peer, TableMessage message) {
  outgoing_.bytes += bytes_of(message);
  ++outgoing_.messages;
  outbox_.push_back({peer, std::move(message)});
}

void Service::send_all(const TableMessage& message) {
  for (int peer = 0; peer < world_size_; ++peer) {
    if (peer != rank_) {
      send(peer, message);
    }
  }
}

std::vector<Service::Envelope> Service::take_outbox() { return std::exchange(outbox_, {}); }

void Service::take(int from, const TableMessage& message) {
  const MessageHead& head = message.head;
  switch (head.kind) {
    case MessageKind::pull: {
      PullRequest request = decode_pull(message, options_.rows, from);
      require_own(from, request.ids);
      if (clocks_.complete() >= request.clock) {
        serve(from, std::move(request));
      } else {
        if (store_.shard().tier() != nullptr) {
          begin_reading({.what = Reading::For::later, .peer = from, .rows = RowBatch(request.ids)});
        }
        parked_.push_back({from, std::move(request)});
      }
      break;
    }
    case MessageKind::reply: take_reply(from, message); break;
    case MessageKind::push:
    case MessageKind::assign: {
      const RowCodec& codec = head.kind == MessageKind::push ? store_.gradient_codec() : exact_codec_;
      const Rows rows = decode_rows(message, options_.rows, options_.width, codec, from);
      require_own(from, rows.ids);
      write_own(head.kind, from, rows.ids, rows.values.data());
      break;
    }
    case MessageKind::tick:
      clocks_.tick(from);
      serve_waiting();
      break;
    case MessageKind::cut: mark_cut(head.number, from); break;
    case MessageKind::text: {
      auto& texts = exchanges_[{head.count, head.number}];
      texts.resize(static_cast<std::size_t>(world_size_));
      texts[static_cast<std::size_t>(from)] = wire::as_text(message.payload);
      break;
    }
  }
}

void Service::require_own(int from, std::span<const std::uint64_t> ids) const {
  if (const auto id = store_.first_not_held(ids)) {
    throw Error(ErrorCode::corrupt, damaged(from) + ": row " + std::to_string(*id) + " is not held here");
  }
}

// Reading.

bool Service::fresh(const RowCache::Entry& entry, std::uint64_t needed) const noexcept {
  return options_.staleness != TableOptions::kUnbounded && entry.complete >= needed && !entry.distrusted &&
         !(entry.written && options_.read_own_writes);
}

std::shared_ptr<Pull> Service::start_pull(std::vector<std::uint64_t> ids, bool prefetch) {
  auto pull = std::make_shared<Pull>();
  pull->clock = clock();
  pull->needed = needed_at(pull->clock, options_.staleness);
  pull->prefetch = prefetch;
  pull->ids = std::move(ids);
  pull->rows.resize(pull->ids.size() * options_.width);
  pull->written.resize(pull->ids.size());
  std::map<int, std::vector<std::uint32_t>> places;
  for (std::uint32_t i = 0; i < pull->ids.size(); ++i) {
    const std::uint64_t id = pull->ids[i];
    const int owner = store_.owner(id);
    if (owner == rank_) {
      pull->own.push_back(i);
      continue;
    }
    if (prefetch && cache_.capacity() == 0) {
      continue;
    }
    RowCache::Entry* entry = cache_.find(id);
    if (entry != nullptr) {
      cache_.touch(*entry);
      std::copy_n(cache_.values(*entry), options_.width, pull->rows.data() + std::size_t{i} * options_.width);
      if (fresh(*entry, pull->needed)) {
        count_age(*pull, entry->complete);
        statistics_.rows_cached += prefetch ? 0 : 1;
        continue;
      }
    }
    places[owner].push_back(i);
  }
  statistics_.rows_pulled += prefetch ? 0 : pull->ids.size();
  if (prefetch && store_.shard().tier() == nullptr) {
    pull->own.clear();
  }
  read_own(pull);
  const std::uint64_t number = next_.pull++;
  for (const auto& [peer, wanted] : places) {
    ask(*pull, peer, wanted, number);
  }
  if (!pull->done()) {
    pulls_[number] = pull;
  }
  return pull;
}

void Service::ask(Pull& pull, int peer, const std::vector<std::uint32_t>& places, std::uint64_t number) {
  PullRequest request{.number = number, .clock = pull.needed, .ids = {}, .known = {}};
  for (const std::uint32_t place : places) {
    const RowCache::Entry* entry = cache_.find(pull.ids[place]);
    request.ids.push_back(pull.ids[place]);
    request.known.push_back(entry == nullptr ? 0 : entry->sequence + 1);
  }
  send(peer, encode_pull(request));
  pull.asked[peer] = places;
}

void Service::take_reply(int from, const TableMessage& message) {
  const MessageHead& head = message.head;
  const auto at = pulls_.find(head.number);
  if (at == pulls_.end() || !at->second->asked.contains(from)) {
    throw Error(ErrorCode::corrupt, damaged(from));
  }
  const std::shared_ptr<Pull> pull = at->second;
  const std::vector<std::uint32_t> places = std::move(pull->asked.extract(from).mapped());
  wire::ByteReader in(message.payload, "the answer of rank " + std::to_string(from) + " to a pull");
  const RowCodec& codec = store_.codec();
  std::vector<bool> changed(places.size(), head.count == places.size());
  if (head.count != places.size()) {
    for (const std::uint64_t i : decode_ids(in, head.count, places.size())) {
      changed[i] = true;
    }
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (changed[i]) {
      codec.decode(in.take(codec.row_bytes()).data(), pull->rows.data() + std::size_t{places[i]} * options_.width);
    }
    keep(*pull, places[i], changed[i], head);
    count_age(*pull, head.clock);
  }
  in.expect_end();
  if (!pull->prefetch) {
    statistics_.rows_unchanged += places.size() - head.count;
  }
  statistics_.rows_received += head.count;
  if (pull->done()) {
    pulls_.erase(head.number);
  }
}

/// Notes an owner's answer about a row in the cache.
void Service::keep(const Pull& pull, std::uint32_t place, bool changed, const MessageHead& head) {
  const std::uint64_t id = pull.ids[place];
  RowCache::Entry* entry =
      changed ? cache_.put(id, pull.rows.data() + std::size_t{place} * options_.width) : cache_.find(id);
  if (entry != nullptr && entry->sequence <= head.sequence) {
    entry->sequence = head.sequence;
    entry->complete = head.clock;
    entry->written = pull.written[place];
    entry->distrusted = false;
  }
}

/// To be called after a clock has advanced.
void Service::serve_waiting() {
  const std::uint64_t complete = clocks_.complete();
  std::vector<Parked> waiting = std::exchange(parked_, {});
  for (Parked& parked : waiting) {
    if (complete >= parked.request.clock) {
      serve(parked.peer, std::move(parked.request));
    } else {
      parked_.push_back(std::move(parked));
    }
  }
  std::vector<std::shared_ptr<Pull>> pulls;  // read_own() may end some
  for (const auto& [number, pull] : pulls_) {
    pulls.push_back(pull);
  }
  for (const std::shared_ptr<Pull>& pull : pulls) {
    read_own(pull);
  }
}

void Service::count_age(const Pull& pull, std::uint64_t complete) {
  if (pull.prefetch) {
    return;
  }
  const std::uint64_t age = pull.clock > complete ? pull.clock - complete : 0;
  statistics_.maximum_age = std::max(statistics_.maximum_age, age);
  age_sum_ += age;
}

bool Service::prefetching(std::span<const std::uint64_t> ids) const {
  return std::any_of(pulls_.begin(), pulls_.end(), [&](const auto& entry) {
    const Pull& pull = *entry.second;
    return pull.prefetch && std::any_of(ids.begin(), ids.end(), [&](std::uint64_t id) {
             return std::binary_search(pull.ids.begin(), pull.ids.end(), id);
           });
  });
}

std::string Service::describe_wait(const Pull& pull) const {
  std::string text;
  for (const auto& [peer, places] : pull.asked) {
    text += (text.empty() ? "for rows of rank " : ", ") + std::to_string(peer);
  }
  std::string behind;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (clocks_.of(rank) < pull.needed) {
      behind += (behind.empty() ? "" : ", ") + std::to_string(rank) + " (at " + std::to_string(clocks_.of(rank)) + ")";
    }
  }
  if (pull.reads_own) {
    text += (text.empty() ? "" : ", and ") + std::string("for rows in the store");
  }
  if (!behind.empty()) {
    text += (text.empty() ? "" : ", and ") + std::string("for clock ") + std::to_string(pull.needed) + " of rank " +
            behind + ", which a read at clock " + std::to_string(pull.clock) + " needs";
  }
  return text;
}

// Writing.

void Service::write(MessageKind kind, std::span<const std::uint64_t> ids, const float* values) {
  const std::uint32_t width = options_.width;
  std::map<int, std::pair<std::vector<std::uint64_t>, Floats>> parts;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    auto& [part_ids, part_values] = parts[store_.owner(ids[i])];
    part_ids.push_back(ids[i]);
    part_values.insert(part_values.end(), values + i * width, values + (i + 1) * width);
  }
  const RowCodec& codec = kind == MessageKind::push ? store_.gradient_codec() : exact_codec_;
  std::vector<Envelope> messages;
  for (const auto& [owner, part] : parts) {
    if (owner != rank_) {
      const std::span<const std::uint64_t> all(part.first);
      const std::size_t most = std::max<std::size_t>(1, kWriteBytes / (codec.row_bytes() + kMostIdBytes));
      for (std::size_t first = 0; first < all.size(); first += most) {
        const auto some = all.subspan(first, std::min(most, all.size() - first));
        messages.push_back({owner, encode_rows(kind, some, part.second.data() + first * width, width, codec)});
      }
    }
  }
  if (const auto own = parts.find(rank_); own != parts.end()) {
    write_own(kind, rank_, own->second.first, own->second.second.data());
  }
  for (Envelope& envelope : messages) {
    send(envelope.peer, std::move(envelope.message));
  }
  mark_written(ids);
  statistics_.rows_pushed += ids.size();
}

void Service::write_own(MessageKind kind, int from, std::span<const std::uint64_t> ids, const float* values) {
  const auto write_to = [&](Shard& shard) {
    kind == MessageKind::push ? shard.apply(ids, values) : shard.assign(ids, values);
  };
  on_rows([&] {
    write_to(store_.shard());
    for (auto& [number, cut] : cuts_) {
      if (!cut.marked[static_cast<std::size_t>(from)]) {
        write_to(cut.shard);
      }
    }
  });
}

void Service::mark_written(std::span<const std::uint64_t> ids) {
  for (const std::uint64_t id : ids) {
    if (RowCache::Entry* entry = cache_.find(id)) {
      entry->written = true;
    }
  }
  for (auto& [number, pull] : pulls_) {
    for (const std::uint64_t id : ids) {
      const auto at = std::lower_bound(pull->ids.begin(), pull->ids.end(), id);
      if (at != pull->ids.end() && *at == id) {
        pull->written[static_cast<std::size_t>(at - pull->ids.begin())] = true;
      }
    }
  }
}

void Service::tick() {
  TableMessage message;
  message.head.kind = MessageKind::tick;
  send_all(message);
  clocks_.tick(rank_);
  serve_waiting();
}

Shard Service::begin_replacing() {
  on_rows([&] { store_.shard().give_back(); });
  return store_.empty_shard();
}

TableStatistics Service::statistics() const {
  TableStatistics statistics = store_.statistics(statistics_);
  statistics.mean_age =
      statistics.rows_pulled == 0 ? 0 : static_cast<double>(age_sum_) / static_cast<double>(statistics.rows_pulled);
  statistics.cache_bytes = cache_.bytes();
  return statistics;
}

}  // namespace gradwire::table
