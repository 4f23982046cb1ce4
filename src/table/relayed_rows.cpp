#include "table/relayed_rows.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "table/hash_ring.hpp"

namespace gradwire::table {
namespace {

constexpr std::uint64_t kClocksPerChoice = 16;
constexpr std::uint64_t kLeastAsked = 64;   // rows, before anything is announced
constexpr std::uint64_t kLeastShare = 256;  // an announced row is one of at most so many that are asked for
constexpr std::size_t kMostCandidates = 4 * kLeastShare;

/// Returns the ranks of a group, one more than the square root of their number. The root alone would give the owner and
/// a relay of one row the same work, but the owner has other rows that are asked for often, and their relays differ.
int group_of(int world_size) {
  int root = 1;
  while (root * root < world_size - 1) {
    ++root;
  }
  return root + 1;
}

}  // namespace

RelayedRows::RelayedRows(int rank, int world_size, std::uint32_t most, std::uint64_t seed)
    : rank_(rank),
      world_size_(world_size),
      group_(group_of(world_size)),
      most_(world_size > 2 ? static_cast<std::uint32_t>(std::min<std::uint64_t>(most, kMost)) : 0),
      sketch_(seed),
      answered_(static_cast<std::size_t>(world_size)),
      known_(static_cast<std::size_t>(world_size)) {}

int RelayedRows::relay_of(int owner, std::uint64_t id, int reader) const noexcept {
  const int place = (reader - owner - 1 + world_size_) % world_size_;  // among the others
  const int first = place / group_ * group_;
  const int members = std::min(group_, world_size_ - 1 - first);
  const int relay = first + static_cast<int>(mix(id) % static_cast<std::uint64_t>(members));
  return (owner + 1 + relay) % world_size_;
}

bool RelayedRows::announced(std::uint64_t id) const noexcept {
  return std::binary_search(announced_.begin(), announced_.end(), id);
}

void RelayedRows::count_asked(int peer, std::span<const std::uint64_t> ids) {
  answered_now_ += ids.size();
  if (most_ == 0) {
    return;
  }
  for (const std::uint64_t id : ids) {
    // A relay asks for its whole group. Otherwise rows would be announced and taken back in turn.
    const bool relayed = announced(id) && relay_of(rank_, id, peer) == peer;
    const std::uint64_t asked = sketch_.add(id, relayed ? static_cast<std::uint64_t>(group_) : 1);
    if (asked >= kClocksPerChoice && asked * kLeastShare >= sketch_.total() && candidates_.size() < kMostCandidates) {
      candidates_.insert(id);
    }
  }
}

/// Returns the rows that are asked for most, until those left are this rank's share.
std::vector<std::uint64_t> RelayedRows::choose() {
  const std::uint64_t asked = sketch_.total();
  const std::uint64_t share =
      std::accumulate(answered_.begin(), answered_.end(), std::uint64_t{0}) / static_cast<std::uint64_t>(world_size_);
  // An eighth above the share is not worth a change.
  if (most_ == 0 || asked < kLeastAsked || asked <= share + share / 8) {
    return {};
  }
  std::vector<std::pair<std::uint64_t, std::uint64_t>> rows;  // times asked for, id
  for (const std::uint64_t id : candidates_) {
    const std::uint64_t times = sketch_.estimate(id);
    if (times >= kClocksPerChoice && times * kLeastShare >= asked) {
      rows.emplace_back(times, id);
    }
  }
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  std::vector<std::uint64_t> chosen;
  const auto group = static_cast<std::uint64_t>(group_);
  for (std::uint64_t excess = asked - share; const auto& [times, id] : rows) {
    if (chosen.size() == most_ || excess == 0) {
      break;
    }
    chosen.push_back(id);
    excess -= std::min(excess, times - times / group);
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

RelayedRows::Note RelayedRows::end_clock() {
  Note note{.answered = world_size_ > 2 ? std::exchange(answered_now_, 0) : 0};  // two ranks have no relays
  answered_[static_cast<std::size_t>(rank_)] += note.answered;
  if (++clocks_ % kClocksPerChoice == 0) {
    std::vector<std::uint64_t> chosen = choose();
    if (chosen != announced_) {
      note.announced = announced_ = std::move(chosen);
    }
    sketch_.halve();
    std::erase_if(candidates_, [this](std::uint64_t id) {
      return sketch_.estimate(id) < kClocksPerChoice / 2 || sketch_.estimate(id) * kLeastShare < sketch_.total();
    });
    for (std::uint64_t& rows : answered_) {
      rows /= 2;
    }
  }
  return note;
}

void RelayedRows::take(int owner, const Note& note, std::uint64_t clock) {
  answered_[static_cast<std::size_t>(owner)] += note.answered;
  if (!note.announced) {
    return;
  }
  Known now;
  Known& known = known_[static_cast<std::size_t>(owner)];
  for (const std::uint64_t id : *note.announced) {
    const auto before = known.find(id);
    now[id] = before == known.end() ? clock : before->second;
  }
  known_count_ += now.size();
  known_count_ -= known.size();
  known = std::move(now);
}

int RelayedRows::rank_to_ask(int owner, std::uint64_t id, std::uint64_t needed, bool own_writes) const noexcept {
  const Known& known = known_[static_cast<std::size_t>(owner)];
  const auto row = known.find(id);
  if (row == known.end() || (own_writes && row->second >= needed)) {
    return owner;
  }
  const int relay = relay_of(owner, id, rank_);
  return relay == rank_ ? owner : relay;
}

void RelayedRows::note_write(int owner, std::uint64_t id, std::uint64_t clock) noexcept {
  Known& known = known_[static_cast<std::size_t>(owner)];
  if (const auto row = known.find(id); row != known.end()) {
    row->second = clock;
  }
}

}  // namespace gradwire::table
