#include "watch/timeline/messages.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

namespace gradwire::watch::timeline {
namespace {

struct End {
  std::array<std::uint64_t, 2> key{};
  std::int64_t time = 0;  // by its rank's clock, only for the order
  Place place;
};

struct Ends {
  std::vector<End> sends;
  std::vector<End> receives;
};

Ends collect(const Recording& recording, std::uint64_t& foreign) {
  Ends ends;
  for (std::uint32_t rank = 0; rank < recording.ranks.size(); ++rank) {
    const RankLog& log = recording.ranks[rank];
    for (std::uint32_t i = 0; i < log.activities.size(); ++i) {
      const Activity& a = log.activities[i];
      const bool sends = a.kind == EventKind::send;
      if (!sends && a.kind != EventKind::receive) {
        continue;
      }
      if (a.stream < 0 || a.peer == observe::kNoPeer || !recording.streams[static_cast<std::size_t>(a.stream)].whole) {
        ++foreign;
        continue;
      }
      const auto self = static_cast<std::uint64_t>(log.rank) & 0xFFFF;
      const std::uint64_t from = sends ? self : a.peer;
      const std::uint64_t to = sends ? a.peer : self;
      const std::uint64_t where = static_cast<std::uint64_t>(a.step) << 32 | a.bucket << 4 | a.hop;
      const std::uint64_t who =
          static_cast<std::uint64_t>(a.stream) << 48 | static_cast<std::uint64_t>(a.lane) << 32 | from << 16 | to;
      (sends ? ends.sends : ends.receives).push_back({{where, who}, a.begin, {rank, i}});
    }
  }
  for (std::vector<End>* list : {&ends.sends, &ends.receives}) {
    std::sort(list->begin(), list->end(), [](const End& a, const End& b) {
      return std::tie(a.key, a.time, a.place.index) < std::tie(b.key, b.time, b.place.index);
    });
  }
  return ends;
}

}  // namespace

Matching match(const Recording& recording) {
  Matching matching;
  const Ends ends = collect(recording, matching.foreign);
  auto send = ends.sends.begin();
  auto receive = ends.receives.begin();
  const auto end_of = [](auto at, auto last) {
    const auto key = at->key;
    return std::find_if(at, last, [&](const End& end) { return end.key != key; });
  };
  while (send != ends.sends.end() && receive != ends.receives.end()) {
    if (send->key < receive->key) {
      ++send;
      ++matching.lonely;
      continue;
    }
    if (receive->key < send->key) {
      ++receive;
      ++matching.lonely;
      continue;
    }
    const auto sends_end = end_of(send, ends.sends.end());
    const auto receives_end = end_of(receive, ends.receives.end());
    if (sends_end - send == receives_end - receive) {
      for (; send != sends_end; ++send, ++receive) {
        matching.messages.push_back({send->place, receive->place});
      }
    } else {
      matching.lonely += static_cast<std::uint64_t>(sends_end - send + (receives_end - receive));
    }
    send = sends_end;
    receive = receives_end;
  }
  matching.lonely += static_cast<std::uint64_t>(ends.sends.end() - send + (ends.receives.end() - receive));
  return matching;
}

Alignment align(Recording& recording, const Matching& matching) {
  constexpr std::int64_t kLooks = 2000;  // ns: error from reading both clocks one after the other
  const auto activity = [&](Place place) -> const Activity& {
    return recording.ranks[place.rank].activities[place.index];
  };
  // Processes that should share a clock but do not, for example in containers, each get a clock of their own.
  for (const Message& message : matching.messages) {
    const int clock = recording.ranks[message.send.rank].clock;
    if (clock == recording.ranks[message.receive.rank].clock &&
        activity(message.receive).end + kLooks < activity(message.send).begin) {
      const Clock shared = recording.clocks[static_cast<std::size_t>(clock)];
      std::map<std::string, int> by_file;
      for (RankLog& log : recording.ranks) {
        if (log.clock == clock) {
          const auto [at, fresh] =
              by_file.try_emplace(log.file, by_file.empty() ? clock : static_cast<int>(recording.clocks.size()));
          if (fresh && at->second != clock) {
            recording.clocks.push_back(shared);
          }
          log.clock = at->second;
        }
      }
    }
  }
  std::vector<std::int64_t> dates;
  for (const Clock& clock : recording.clocks) {
    dates.push_back(clock.since_1970);
  }
  std::vector<Exchange> exchanges;
  for (const Message& message : matching.messages) {
    const int from = recording.ranks[message.send.rank].clock;
    const int to = recording.ranks[message.receive.rank].clock;
    if (from != to) {
      exchanges.push_back({from, to, activity(message.send).begin, activity(message.receive).end});
    }
  }
  Alignment alignment{fit_clocks(dates, exchanges)};
  for (RankLog& log : recording.ranks) {
    const ClockFit& fit = alignment.fits[static_cast<std::size_t>(log.clock)];
    for (Activity& each : log.activities) {
      each.begin = fit.common(each.begin);
      each.end = std::max(each.begin, fit.common(each.end));
    }
  }
  return alignment;
}

}  // namespace gradwire::watch::timeline
