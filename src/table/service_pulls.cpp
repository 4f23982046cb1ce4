// Pulls of this rank: what it takes from the cache, which ranks it asks, and what it makes of their answers.
#include <algorithm>
#include <utility>

#include "table/id_codec.hpp"
#include "table/service.hpp"

namespace gradwire::table {

bool Service::fresh(const RowCache::Entry& entry, const Pull& pull) const noexcept {
  const bool lacks_write = entry.written && options_.read_own_writes && pull.purpose != Pull::Purpose::relay;
  return options_.staleness != TableOptions::kUnbounded && entry.complete >= pull.needed &&
         entry.generation >= pull.generation && !lacks_write;
}

std::shared_ptr<Pull> Service::start_pull(std::vector<std::uint64_t> ids, bool prefetch) {
  if (guess_.on() && !prefetch) {
    guess_.add(ids);
  }
  return begin_pull(std::move(ids), prefetch ? Pull::Purpose::prefetch : Pull::Purpose::read,
                    needed_at(clock(), options_.staleness), cache_.generation());
}

std::shared_ptr<Pull> Service::begin_pull(std::vector<std::uint64_t> ids, Pull::Purpose purpose, std::uint64_t needed,
                                          std::uint32_t generation) {
  auto pull = std::make_shared<Pull>();
  pull->clock = clock();
  pull->needed = needed;
  pull->generation = generation;
  pull->purpose = purpose;
  pull->ids = std::move(ids);
  pull->rows.resize(pull->ids.size() * options_.width);
  pull->written.resize(pull->ids.size());
  std::map<int, std::vector<std::uint32_t>> places;                   // by owner
  std::map<std::pair<int, int>, std::vector<std::uint32_t>> relayed;  // by relay and owner
  for (std::uint32_t i = 0; i < pull->ids.size(); ++i) {
    const std::uint64_t id = pull->ids[i];
    const int owner = store_.owner(id);
    if (owner == rank_) {
      pull->own.push_back(i);
      continue;
    }
    if (purpose == Pull::Purpose::prefetch && cache_.capacity() == 0) {
      continue;
    }
    RowCache::Entry* entry = cache_.find(id);
    if (entry != nullptr) {
      cache_.touch(*entry);
      std::copy_n(cache_.values(*entry), options_.width, pull->rows.data() + std::size_t{i} * options_.width);
      if (fresh(*entry, *pull)) {
        pull->note_age(entry->complete, entry->sequence);
        count_age(*pull, entry->complete);
        statistics_.rows_cached += pull->reads() ? 1 : 0;
        continue;
      }
    }
    const int peer = rank_to_ask(owner, id, *pull);
    (peer == owner ? places[owner] : relayed[{peer, owner}]).push_back(i);
  }
  statistics_.rows_pulled += pull->reads() ? pull->ids.size() : 0;
  if (purpose == Pull::Purpose::prefetch && store_.shard().tier() == nullptr) {
    pull->own.clear();
  }
  read_own(pull);
  const std::uint64_t number = next_.pull++;
  for (const auto& [peer, wanted] : places) {
    ask(pull, {number, peer}, false, wanted);
  }
  for (const auto& [ranks, wanted] : relayed) {
    ask(pull, {next_.pull++, ranks.first}, true, wanted);
  }
  if (!pull->done()) {
    pulls_[number] = pull;
  }
  return pull;
}

void Service::ask(const std::shared_ptr<Pull>& pull, Pull::Asked asked, bool relayed,
                  const std::vector<std::uint32_t>& places) {
  PullRequest request{.number = asked.number, .clock = pull->needed, .ids = {}, .known = {}};
  for (const std::uint32_t place : places) {
    const RowCache::Entry* entry = cache_.find(pull->ids[place]);
    request.ids.push_back(pull->ids[place]);
    request.known.push_back(entry == nullptr ? 0 : entry->sequence + 1);
  }
  if (relayed) {
    request.generation = pull->generation;
  }
  send(asked.peer, encode_pull(request));
  pull->asked[asked] = places;
  pulls_[asked.number] = pull;
}

void Service::take_reply(int from, const TableMessage& message) {
  const MessageHead& head = message.head;
  const auto at = pulls_.find(head.number);
  if (at == pulls_.end() || !at->second->asked.contains({head.number, from})) {
    throw Error(ErrorCode::corrupt, describe_unexpected(from));
  }
  const std::shared_ptr<Pull> pull = at->second;
  const std::vector<std::uint32_t> places = std::move(pull->asked.extract({head.number, from}).mapped());
  pull->note_age(head.clock, head.sequence);
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
  if (pull->reads()) {
    statistics_.rows_unchanged += places.size() - head.count;
  }
  statistics_.rows_received += head.count;
  end_if_done(*pull);
}

void Service::end_if_done(const Pull& pull) {
  if (pull.done()) {
    std::erase_if(pulls_, [&](const auto& entry) { return entry.second.get() == &pull; });
  }
}

/// Notes an owner's answer about a row in the cache.
void Service::keep(const Pull& pull, std::uint32_t place, bool changed, const MessageHead& head) {
  const std::uint64_t id = pull.ids[place];
  RowCache::Entry* entry = cache_.find(id);
  if (entry != nullptr && entry->sequence > head.sequence) {
    return;  // a later answer has overtaken this one
  }
  if (changed || entry != nullptr) {  // an entry that has come back meanwhile may have older values
    entry = cache_.put(id, pull.rows.data() + std::size_t{place} * options_.width);
  }
  if (entry != nullptr) {
    entry->sequence = head.sequence;
    entry->complete = head.clock;
    entry->written = pull.written[place];
    entry->generation = pull.generation;
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
  if (!pull.reads()) {
    return;
  }
  const std::uint64_t age = pull.clock > complete ? pull.clock - complete : 0;
  statistics_.maximum_age = std::max(statistics_.maximum_age, age);
  age_sum_ += age;
}

bool Service::prefetching(std::span<const std::uint64_t> ids) const {
  return std::any_of(pulls_.begin(), pulls_.end(), [&](const auto& entry) {
    const Pull& pull = *entry.second;
    return pull.purpose == Pull::Purpose::prefetch && std::any_of(ids.begin(), ids.end(), [&](std::uint64_t id) {
             return std::binary_search(pull.ids.begin(), pull.ids.end(), id);
           });
  });
}

std::string Service::describe_wait(const Pull& pull) const {
  std::string text;
  for (const auto& [asked, places] : pull.asked) {
    text += (text.empty() ? "for rows of rank " : ", ") + std::to_string(asked.peer);
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

}  // namespace gradwire::table
