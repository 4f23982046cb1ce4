// Links of a simulation: messages take their time and stay in order; links break and are mended.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <variant>
#include <vector>

#include "tests/membership/simulated_process.hpp"

namespace gradwire::membership {

class SimulatedLinks {
 public:
  using Arrivals = std::vector<std::pair<Id, Packet>>;  // to whom
  static constexpr int kForEver = 1'000'000;

  explicit SimulatedLinks(std::mt19937& random) : random_(random) {}

  void cut(Id a, Id b, int now, int length, bool one_way = false) {
    links_[{a, b}].broken_until = std::max(links_[{a, b}].broken_until, now + length);
    if (one_way) {
      return;
    }
    links_[{b, a}].broken_until = std::max(links_[{b, a}].broken_until, now + length);
  }

  void send(Id from, Id to, std::variant<Message, Part> what, int now) {
    Link& link = links_[{from, to}];
    if (link.broken_until == kForEver) {
      return;
    }
    if (auto* message = std::get_if<Message>(&what)) {
      *message = decode(encode(*message));
    }
    link.free_at = std::max({link.free_at, now + (draw(1, 20) == 1 ? draw(20, 300) : draw(1, 20)),
                             link.broken_until});  // sent again when it is mended
    packets_[link.free_at].push_back({to, {from, std::move(what)}});
  }

  Arrivals arrivals(int now) {
    const auto due = packets_.extract(now);
    return due.empty() ? Arrivals() : std::move(due.mapped());
  }

  /// What a process that ended has sent is lost where it arrives after `last`, by receiver; 0 for those that ended,
  /// too.
  void lose(Id from, std::map<Id, int> last) {
    for (auto& [at, packets] : packets_) {
      std::erase_if(packets, [&](const auto& packet) { return packet.second.from == from && at > last[packet.first]; });
    }
  }

 private:
  struct Link {
    int free_at = 0;  // messages of a link stay in order
    int broken_until = 0;
  };

  int draw(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  std::mt19937& random_;
  std::map<std::pair<Id, Id>, Link> links_;
  std::map<int, Arrivals> packets_;
};

}  // namespace gradwire::membership
