// Rows that are asked for most: a rank may ask a relay in place of the owner, and a relay asks the owner.
#include <algorithm>
#include <utility>

#include "table/service.hpp"

namespace gradwire::table {
namespace {

// How often a relay waits for rows that are on their way from the owner, before it asks for them itself.
constexpr int kMostWaits = 2;

}  // namespace

// A relay keeps rows in its cache, and a rank without one is likely to be among relays without one.
int Service::rank_to_ask(int owner, std::uint64_t id, const Pull& pull) const noexcept {
  const bool asks_relays = pull.purpose != Pull::Purpose::relay && relayed_rows_.any() && cache_.capacity() > 0 &&
                           options_.staleness != TableOptions::kUnbounded;
  return asks_relays ? relayed_rows_.rank_to_ask(owner, id, pull.needed, options_.read_own_writes) : owner;
}

void Service::note_writes(std::span<const std::uint64_t> ids) {
  if (!relayed_rows_.any()) {
    return;
  }
  for (const std::uint64_t id : ids) {
    if (const int owner = store_.owner(id); owner != rank_) {
      relayed_rows_.note_write(owner, id, clock());
    }
  }
}

void Service::relay(int peer, PullRequest request) {
  for (const std::uint64_t id : request.ids) {
    if (store_.owns(id)) {
      throw Error(ErrorCode::corrupt,
                  describe_unexpected(peer) + ": row " + std::to_string(id) + " is held here, and needs no relay");
    }
  }
  relayed_rows_.count_relayed(request.ids.size());
  statistics_.rows_relayed += request.ids.size();
  relayings_.push_back({.peer = peer, .request = std::move(request)});
  advance_relays();
}

void Service::advance_relays() {
  std::erase_if(relayings_, [this](Relaying& relaying) { return advance(relaying); });
}

/// Returns whether the rows have been sent.
bool Service::advance(Relaying& relaying) {
  const PullRequest& request = relaying.request;
  if (relaying.pull == nullptr) {
    const std::uint32_t generation = std::max(cache_.generation(), *request.generation);
    if (await_asked(relaying, generation)) {
      return false;
    }
    relaying.pull = begin_pull(request.ids, Pull::Purpose::relay, request.clock, generation);
  }
  const Pull& pull = *relaying.pull;
  if (!pull.done()) {
    return false;
  }
  const RowCodec& codec = store_.codec();
  TableMessage reply;
  reply.head.kind = MessageKind::reply;
  reply.head.number = request.number;
  reply.head.count = pull.ids.size();
  reply.head.clock = pull.least_clock;
  reply.head.sequence = pull.least_sequence;
  reply.payload.resize(pull.ids.size() * codec.row_bytes());
  for (std::size_t i = 0; i < pull.ids.size(); ++i) {
    codec.encode(pull.rows.data() + i * options_.width, reply.payload.data() + i * codec.row_bytes());
  }
  send(relaying.peer, std::move(reply));
  return true;
}

/// Returns whether some of the rows are on their way from their owner, whose answer will be recent enough. It looks at
/// requests to owners alone, and at those that wait for the same clock: the rank that asked has reached it. A relay
/// that waited for another relay, or for a later clock, could wait for itself.
bool Service::await_asked(Relaying& relaying, std::uint32_t generation) {
  if (relaying.awaited != nullptr && relaying.awaited->asked.contains(relaying.asked)) {
    return true;
  }
  relaying.awaited = nullptr;
  if (relaying.waits == kMostWaits) {
    return false;
  }
  Pull wanted;
  wanted.needed = relaying.request.clock;
  wanted.generation = generation;
  wanted.purpose = Pull::Purpose::relay;
  for (const std::uint64_t id : relaying.request.ids) {
    const RowCache::Entry* entry = cache_.find(id);
    if (entry != nullptr && fresh(*entry, wanted)) {
      continue;
    }
    for (const auto& [number, pull] : pulls_) {
      const auto at = pull->asked.find({number, store_.owner(id)});
      if (at == pull->asked.end() || pull->needed != wanted.needed || pull->generation < generation) {
        continue;
      }
      const auto place =
          std::lower_bound(at->second.begin(), at->second.end(), id,
                           [&ids = pull->ids](std::uint32_t i, std::uint64_t value) { return ids[i] < value; });
      if (place != at->second.end() && pull->ids[*place] == id) {
        relaying.awaited = pull;
        relaying.asked = at->first;
        ++relaying.waits;
        return true;
      }
    }
  }
  return false;
}

}  // namespace gradwire::table
