#include "table/service.hpp"

#include <algorithm>
#include <utility>

#include "table/options.hpp"

namespace gradwire::table {
namespace {

// A write is sent in messages of about this size: bytes on a link cannot be called back when a step has something to
// send, and from 64 KiB on Open MPI's TCP first asks the receiver, with the link idle meanwhile.
constexpr std::uint64_t kWriteBytes = 56 << 10;
constexpr std::uint64_t kMostIdBytes = 10;  // of a row

}  // namespace

Service::Service(int rank, int world_size, const TableOptions& options)
    : rank_(rank),
      world_size_(world_size),
      options_(options),
      store_(row_options(options)),
      exact_codec_("exact", options.width),
      clocks_(world_size),
      cache_(options.cache_bytes, options.width),
      relayed_rows_(rank, world_size, options.relayed_rows, options.seed),
      guess_(options.guess_bytes) {
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
      relayed_rows_.count_asked(from, request.ids);
      statistics_.rows_answered += request.ids.size();
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
    case MessageKind::reply:
      take_reply(from, message);
      advance_relays();
      break;
    case MessageKind::push:
    case MessageKind::assign: {
      const RowCodec& codec = head.kind == MessageKind::push ? store_.gradient_codec() : exact_codec_;
      const Rows rows = decode_rows(message, options_.rows, options_.width, codec, from);
      require_own(from, rows.ids);
      write_own(head.kind, from, rows.ids, rows.values.data());
      break;
    }
    case MessageKind::tick:
      relayed_rows_.take(from, decode_tick(message, options_.rows, from), clock());
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
    case MessageKind::relayed_pull: relay(from, decode_pull(message, options_.rows, from)); break;
  }
}

void Service::require_own(int from, std::span<const std::uint64_t> ids) const {
  if (const auto id = store_.first_not_held(ids)) {
    throw Error(ErrorCode::corrupt, describe_unexpected(from) + ": row " + std::to_string(*id) + " is not held here");
  }
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
  on_rows([&] {
    if (kind == MessageKind::push) {
      store_.shard().apply_behind(ids, values);
    } else {
      store_.shard().assign(ids, values);
    }
    for (auto& [number, cut] : cuts_) {
      if (!cut.marked[static_cast<std::size_t>(from)]) {
        kind == MessageKind::push ? cut.shard.apply(ids, values) : cut.shard.assign(ids, values);
      }
    }
  });
}

void Service::mark_written(std::span<const std::uint64_t> ids) {
  note_writes(ids);
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
  send_all(encode_tick(relayed_rows_.end_clock()));
  clocks_.tick(rank_);
  serve_waiting();
  if (guess_.on()) {
    if (std::vector<std::uint64_t> ids = guess_.end_step(); !ids.empty()) {
      static_cast<void>(start_pull(std::move(ids), true));
    }
  }
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
  statistics.rows_guessed = guess_.hits();
  statistics.rows_guessed_in_vain = guess_.misses();
  return statistics;
}

}  // namespace gradwire::table
