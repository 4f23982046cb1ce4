// Defines processes whose messages a test carries by hand.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "membership/membership.hpp"

namespace gradwire::membership {

// Processes whose messages a test carries by hand, one after the other, to the processes that it names.
class Hands {
 public:
  explicit Hands(int processes, std::uint32_t epoch = 0) {
    World world{epoch, {}};
    for (int i = 0; i < processes; ++i) {
      world.members.push_back(static_cast<Id>(i));
    }
    for (const Id who : world.members) {
      all_.push_back(std::make_unique<Membership>(who, world, 0, MembershipSettings{}, now_));
    }
  }
  Membership& operator[](std::size_t who) { return *all_[who]; }
  /// Carries messages until no process of `among` has anything to say to another of them. Messages to others are lost.
  void talk(const std::set<Id>& among) {
    for (bool more = true; more;) {
      more = false;
      for (const Id who : among) {
        for (const Membership::Outgoing& out : all_[who]->take_messages()) {
          if (among.contains(out.to)) {
            all_[out.to]->receive(out.message, now_);
            more = true;
          }
        }
      }
    }
  }
  /// Lets `seconds` pass in which only the processes in `among` hear each other.
  void pass(int seconds, const std::set<Id>& among) {
    for (int i = 0; i < seconds * 20; ++i) {
      now_ += Time(50);
      for (const Id who : among) {
        all_[who]->tick(now_);
      }
      talk(among);
    }
  }
  /// Carries every message for which `arrives(to, message)` is true; the others are lost.
  void carry(const std::function<bool(Id, const MembershipMessage&)>& arrives) {
    for (bool more = true; more;) {
      more = false;
      for (const auto& process : all_) {
        for (const Membership::Outgoing& out : process->take_messages()) {
          if (arrives(out.to, out.message) && out.to < all_.size()) {
            all_[out.to]->receive(out.message, now_);
            more = true;
          }
        }
      }
    }
  }
  void tick(Time passed = Time(50)) {
    now_ += passed;
    for (const auto& process : all_) {
      process->tick(now_);
    }
  }
  [[nodiscard]] Time now() const { return now_; }

 private:
  Time now_{1000};
  std::vector<std::unique_ptr<Membership>> all_;
};

inline std::vector<Id> members(const Membership& membership) { return membership.world().members; }

}  // namespace gradwire::membership
