#include "watch/aggregate.hpp"

#include <algorithm>
#include <utility>

namespace gradwire::watch {
namespace {

using observe::Event;
using observe::EventKind;

constexpr std::size_t kMostGroups = 64;  // later groups are counted as one, "other"

void add_group(SessionStatistics& sum, const SessionStatistics::Group& group) {
  const auto same = [&](const SessionStatistics::Group& other) {
    return other.name == group.name && label_of_codec(other.codec) == label_of_codec(group.codec);
  };
  auto found = std::find_if(sum.groups.begin(), sum.groups.end(), same);
  if (found == sum.groups.end() && sum.groups.size() >= kMostGroups) {
    found = std::find_if(sum.groups.begin(), sum.groups.end(), [](const auto& each) { return each.name == "other"; });
    if (found == sum.groups.end()) {
      SessionStatistics::Group other;
      other.name = "other";
      other.codec = "several";
      sum.groups.push_back(other);
      found = sum.groups.end() - 1;
    }
  }
  if (found == sum.groups.end()) {
    sum.groups.push_back(group);
    return;
  }
  found->totals.add(group.totals);
  found->tensors += group.tensors;
  found->late.results += group.late.results;
  found->late.steps += group.late.steps;
  found->late.oldest = std::max(found->late.oldest, group.late.oldest);
}

void add_session(SessionStatistics& sum, const SessionStatistics& session) {
  sum.transport = sum.transport.empty() ? session.transport : sum.transport;
  sum.steps += session.steps;
  sum.exposed_seconds += session.exposed_seconds;
  for (const SessionStatistics::Group& group : session.groups) {
    add_group(sum, group);
  }
  sum.switches.insert(sum.switches.end(), session.switches.begin(), session.switches.end());
  if (session.device_memory) {
    DeviceMemory& memory = sum.device_memory ? *sum.device_memory : sum.device_memory.emplace();
    memory.bytes_in_use += session.device_memory->bytes_in_use;
    memory.peak_bytes += session.device_memory->peak_bytes;
    memory.held_bytes += session.device_memory->held_bytes;
    memory.pinned_bytes += session.device_memory->pinned_bytes;
  }
}

void add_known(RankTotals& totals, const observe::Snapshot& snapshot) {
  const observe::Knowledge& known = snapshot.knowledge;
  for (const SessionStatistics::Group& group : snapshot.statistics.groups) {
    totals.warm_ups.erase({group.name, label_of_codec(group.codec)});
  }
  for (const observe::Knowledge::WarmUp& each : known.warm_ups) {
    if (totals.warm_ups.size() < kMostGroups) {
      totals.warm_ups.insert_or_assign({each.group, label_of_codec(each.codec)}, each.in_use);
    }
  }
  if (known.link) {
    totals.link = known.link;
  }
  for (const observe::Knowledge::Health& health : known.health) {
    const std::pair key(health.group, label_of_codec(health.codec));
    if (totals.health.size() < kMostGroups || totals.health.contains(key)) {
      totals.health.insert_or_assign(key, health);
    }
  }
  for (const auto& [name, value] : known.notes) {
    if (totals.notes.size() < kMostGroups || totals.notes.contains(name)) {
      totals.notes[name] = value;
    }
  }
  if (known.memory) {
    totals.memory[snapshot.source] = *known.memory;
  }
  if (known.rows) {
    totals.rows[snapshot.source] = *known.rows;
  }
  if (snapshot.last) {
    totals.memory.erase(snapshot.source);
  }
}

bool is_message(EventKind kind) {
  return kind == EventKind::send || kind == EventKind::receive || kind == EventKind::all_reduce;
}

// Adds up the time with messages on their way; messages at the same time count once.
void add_sending(RankTotals& totals, const Event& event, const observe::TimeScale& scale) {
  const std::uint64_t end = event.begin + event.duration * observe::kTicksOfDuration;
  const std::uint64_t begin = std::max<std::uint64_t>(event.begin, totals.sending_until);
  if (end > begin) {
    totals.sending_seconds += scale.seconds(end - begin);
    totals.sending_until = end;
  }
}

}  // namespace

SessionStatistics RankTotals::sum() const {
  SessionStatistics all = gone;
  for (const auto& [source, session] : sessions) {
    add_session(all, session);
  }
  return all;
}

// The rank of the first source that has the process to itself.
std::optional<int> Aggregate::find_home(observe::SourceId id) const {
  for (observe::SourceId each = 1; each != 0 && each <= id; ++each) {
    if (const auto source = source_of_(each); source && !source->shares_process) {
      return source->rank;
    }
  }
  return std::nullopt;
}

RankTotals* Aggregate::rank_of(observe::SourceId id) {
  if (const auto known = known_.find(id); known != known_.end()) {
    return known->second;
  }
  const std::optional<observe::Source> source = id == 0 ? std::nullopt : source_of_(id);
  const bool alone = source && is_alone(*source);
  if (source && (alone || !source->shares_process) && !home_) {
    home_ = find_home(id);
  }
  const bool own = source && source->shares_process && !(alone && home_);
  const std::optional<int> rank = own ? std::optional(source->rank) : home_;
  if (!rank) {
    return nullptr;  // the event has no source, and no rank is known yet
  }
  RankTotals& totals = ranks_[*rank];
  if (source) {
    totals.world_size = std::max(totals.world_size, source->world_size);
  }
  if (!alone || home_) {
    known_[id] = &totals;
  }
  return &totals;
}

void Aggregate::add(std::span<const Event> events, const observe::TimeScale& scale) {
  RankTotals* totals = nullptr;
  std::optional<std::uint64_t> source;  // the source that `totals` belongs to
  for (const Event& event : events) {
    if (source != event.source) {
      source = event.source;
      totals = rank_of(static_cast<observe::SourceId>(event.source));
    }
    if (totals == nullptr) {
      continue;
    }
    if (static_cast<int>(event.kind) >= observe::kEventKinds) {
      continue;  // an unknown kind of event
    }
    ++totals->events[event.kind];
    totals->sum_of_bytes[event.kind] += event.bytes;
    if (is_message(event.kind)) {
      totals->bytes[event.kind].add(static_cast<double>(event.bytes));
      if (event.kind == EventKind::send) {
        add_sending(*totals, event, scale);
        SentMessages& sent = totals->sent[totals->bytes[event.kind].range_of(static_cast<double>(event.bytes))];
        ++sent.count;
        sent.bytes += event.bytes;
        sent.seconds += scale.seconds(event.duration * observe::kTicksOfDuration);
      }
      continue;
    }
    if (event.duration != 0) {
      totals->seconds[event.kind].add(scale.seconds(event.duration * observe::kTicksOfDuration));
    }
    if (event.kind == EventKind::bucket_end) {
      totals->bucket_byte_seconds +=
          static_cast<double>(event.bytes) * scale.seconds(event.duration * observe::kTicksOfDuration);
    }
    if (event.kind == EventKind::step_end) {
      const std::uint64_t end = event.begin + event.duration * observe::kTicksOfDuration;
      const auto [before, first] = totals->step_ended.try_emplace(static_cast<observe::SourceId>(event.source), end);
      if (!first && end > before->second) {
        totals->steps.add(scale.seconds(end - before->second));
      }
      before->second = end;
    }
  }
}

void Aggregate::add(const observe::Round& round, const std::function<std::optional<int>()>& home, int world_size) {
  if (home && !home_) {
    if (const auto rank = home()) {
      set_home(*rank);
      touch(*rank);
      ranks_[*rank].world_size = std::max(ranks_[*rank].world_size, world_size);
    }
  }
  for (const observe::Stretch& stretch : round.stretches) {
    add(stretch.events, round.scale);
  }
  for (const observe::Snapshot& snapshot : round.snapshots) {
    add(snapshot);
  }
}

void Aggregate::add(const observe::Snapshot& snapshot) {
  RankTotals* totals = rank_of(snapshot.source);
  if (totals == nullptr) {
    return;
  }
  totals->world_size = std::max(totals->world_size, snapshot.statistics.world_size);
  if (const auto source = source_of_(snapshot.source);
      !counts_communicators_ && source && source->kind == observe::Source::Kind::communicator) {
    return;
  }
  add_known(*totals, snapshot);
  if (!snapshot.last) {
    totals->sessions[snapshot.source] = snapshot.statistics;
    if (snapshot.slow) {
      totals->slow[snapshot.source] = *snapshot.slow;
    }
    return;
  }
  totals->sessions.erase(snapshot.source);
  totals->slow.erase(snapshot.source);
  totals->step_ended.erase(snapshot.source);
  add_session(totals->gone, snapshot.statistics);
}

}  // namespace gradwire::watch
