// Simulates links: messages take time and stay in order; links break and are mended.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "tests/membership/simulated_process.hpp"

namespace gradwire::membership {

class SimulatedLinks {
 public:
  using Arrivals = std::vector<std::pair<Id, Packet>>;  // messages by receiver
  static constexpr int kForEver = 1'000'000;
  static constexpr int kFlipsEnd = 20'000;
  static constexpr int kMendedUnheard = 1000;  // ms within which a connection is restored unnoticed
  static constexpr int kSuspected = 2500;      // ms; `silent_after` minus the time that a sign of life takes

  /// `flips`: now and then bits of a message flip.
  SimulatedLinks(std::mt19937& random, bool flips) : random_(random), flips_(flips) {}

  /// Lets nothing pass for `length` ms; messages sent meanwhile arrive afterwards.
  void cut(Id a, Id b, int now, int length, bool one_way = false) {
    if (length > kSuspected) {
      may_lose_.insert({a, b});
    }
    links_[{a, b}].broken_until = std::max(links_[{a, b}].broken_until, now + length);
    if (one_way) {
      return;
    }
    links_[{b, a}].broken_until = std::max(links_[{b, a}].broken_until, now + length);
  }

  /// Cuts the link likewise, and tells both ends if the cut lasts long. With `one_way` only messages from `a` are cut,
  /// and only `a` is told. With `forgets` some messages between `a` and `b` are lost.
  void reset(Id a, Id b, int now, int length, bool one_way, bool forgets) {
    cut(a, b, now, length, one_way);
    if (forgets && length > kMendedUnheard) {
      may_lose_.insert({a, b});
    }
    const int first = kMendedUnheard + draw(0, 200);
    if (length <= first) {
      return;
    }
    apart_until_[std::minmax(a, b)] = std::max(apart_until_[std::minmax(a, b)], now + length);
    tell(now + first, a, {b, Lost{}});
    mend(now + length, a, b);
    if (!one_way) {
      tell(now + std::min(first + draw(0, 200), length - 1), b, {a, Lost{}});  // before it is mended
      mend(now + length, b, a);
    }
    if (forgets) {
      forget(a, b, now + length);
      if (!one_way) {
        forget(b, a, now + length);
      }
    }
  }

  /// Returns whether a link of `who` was down for about as long as makes it silent, or lost a part of a step: then one
  /// end of that link may have to go.
  [[nodiscard]] bool may_lose(Id who) const { return may_lose_.contains(who); }

  /// Returns whether the link of `a` and `b` was reset for so long that its ends are told, and an agreement may not
  /// have ended since it was mended.
  [[nodiscard]] bool were_apart(Id a, Id b, int now) const {
    constexpr int kAgreed = 1000;
    const auto found = apart_until_.find(std::minmax(a, b));
    return found != apart_until_.end() && now < found->second + kAgreed;
  }

  void tell(int at, Id to, Packet what) { packets_[at].emplace_back(to, std::move(what)); }

  void send(Id from, Id to, decltype(Packet::what) what, int now) {
    Link& link = links_[{from, to}];
    if (link.broken_until >= kForEver || (now < link.forgets_until && draw(0, 2) == 0)) {
      return;
    }
    if (auto* message = std::get_if<MembershipMessage>(&what)) {
      *message = decode(encode(*message));
      if (flips_ && now < kFlipsEnd && draw(1, 500) == 1) {
        what = Damaged{};
      }
    }
    link.free_at = std::max({link.free_at, now + (draw(1, 20) == 1 ? draw(20, 300) : draw(1, 20)),
                             link.broken_until});  // sent again once the link is mended
    packets_[link.free_at].push_back({to, {from, std::move(what)}});
  }

  Arrivals arrivals(int now) {
    const auto due = packets_.extract(now);
    Arrivals found = due.empty() ? Arrivals() : std::move(due.mapped());
    std::erase_if(found, [&](const auto& packet) {
      const int broken_until = links_[{packet.first, packet.second.from}].broken_until;
      const bool early = std::holds_alternative<Back>(packet.second.what) && broken_until > now;
      if (early && broken_until < kForEver) {  // the link was reset again
        mend(broken_until, packet.first, packet.second.from);
      }
      return early;
    });
    return found;
  }

  /// Loses messages of the ended process `from` that would arrive after `last`, which is given by receiver; 0 for
  /// receivers that have ended too.
  void lose(Id from, std::map<Id, int> last) {
    for (auto& [at, packets] : packets_) {
      std::erase_if(packets, [&, arrival = at](const auto& packet) {
        return packet.second.from == from && arrival > last[packet.first] && is_sent(packet.second);
      });
    }
  }

 private:
  struct Link {
    int free_at = 0;  // keeps messages of a link in order
    int broken_until = 0;
    int forgets_until = 0;
  };

  static bool is_sent(const Packet& packet) {
    return std::holds_alternative<MembershipMessage>(packet.what) || std::holds_alternative<Part>(packet.what) ||
           std::holds_alternative<Damaged>(packet.what);
  }
  void mend(int at, Id who, Id other) { tell(at, who, {other, Back{}}); }
  void forget(Id from, Id to, int until) {
    links_[{from, to}].forgets_until = until;
    for (auto& [at, packets] : packets_) {
      std::erase_if(packets, [&](const auto& packet) {
        return packet.first == to && packet.second.from == from && is_sent(packet.second) && draw(0, 1) == 0;
      });
    }
  }

  int draw(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  std::mt19937& random_;
  const bool flips_;
  std::map<std::pair<Id, Id>, Link> links_;
  std::map<int, Arrivals> packets_;
  std::map<std::pair<Id, Id>, int> apart_until_;  // the lower id comes first
  std::set<Id> may_lose_;
};

}  // namespace gradwire::membership
