// Bounds on what a message may claim, by what this process knows. A false claim within them is believed.
#include <algorithm>

#include "membership/membership.hpp"

namespace gradwire::membership {
namespace {

constexpr std::uint64_t kMostRounds =
    1U << 16;  // rounds by which a ballot may be ahead of those that this process has seen
constexpr std::uint32_t kMostMissed = 1U << 16;  // worlds of which this process may not have heard
constexpr std::uint32_t kMostEpoch = 1U << 31;   // so that the next epoch has a number
constexpr std::uint64_t kMostStep = 1ULL << 62;

bool holds(const std::vector<Id>& ids, Id who) { return std::ranges::binary_search(ids, who); }

}  // namespace

bool Membership::known(Id who) const {
  return known_.of(who).origin != ProcessRecord::Origin::stranger ||
         std::ranges::find(notified_of_wait_, who) != notified_of_wait_.end();
}

// Nobody delivers a step of this epoch before this process has said that it holds it.
std::uint64_t Membership::most_delivered() const { return std::max(entered_, known_.of(known_.self).here.ready); }

// Returns an empty text if nothing is wrong.
std::string Membership::find_fault(const MembershipMessage& message) const {
  if (message.from == known_.self) {
    return "it says that it is this process";
  }
  if (message.kind == MembershipMessage::Kind::decided) {
    if (!message.decision) {
      return "it says that something was decided, and not what";
    }
    return message.decision->world.epoch <= known_.world.epoch ? ""
                                                               : find_fault_of_decided(message.from, *message.decision);
  }
  if (expelled_ || message.epoch != known_.world.epoch || !known_.member(known_.self) || !known_.member(message.from)) {
    return "";  // only the epoch is read
  }
  switch (message.kind) {
    case MembershipMessage::Kind::beat:
    case MembershipMessage::Kind::confirm:
    case MembershipMessage::Kind::confirmed:
      return message.step <= most_delivered() ? "" : "it delivered a step that not all hold";
    case MembershipMessage::Kind::ready:
      return message.step <= most_delivered() + 1 ? "" : "it holds a step before the one before it counts";
    case MembershipMessage::Kind::prepare:
    case MembershipMessage::Kind::promise:
    case MembershipMessage::Kind::refuse:
    case MembershipMessage::Kind::accept:
    case MembershipMessage::Kind::accepted: return find_fault_of_ballot(message);
    default: return "";
  }
}

std::string Membership::find_fault_of_ballot(const MembershipMessage& message) const {
  const bool is_of_leader =
      message.kind == MembershipMessage::Kind::prepare || message.kind == MembershipMessage::Kind::accept;
  if (message.ballot.round == 0 || message.ballot.round > promised_.round + kMostRounds ||
      !known_.member(message.ballot.by) || (is_of_leader && message.ballot.by != message.from)) {
    return "it names a ballot that there cannot be";
  }
  if (message.kind == MembershipMessage::Kind::accept && !message.decision) {
    return "it wants nothing to be accepted";
  }
  if (message.kind == MembershipMessage::Kind::promise) {
    const auto too_far = [&](std::uint64_t step) { return step > most_delivered() + 1; };
    if (message.step > most_delivered() || message.ready.size() != known_.world.members.size() ||
        std::ranges::any_of(message.ready, too_far)) {
      return "it promises with steps that there cannot be";
    }
    if (message.decision.has_value() != (message.accepted.round > 0) || message.ballot < message.accepted) {
      return "it has accepted a decision in no ballot";
    }
  }
  return message.decision ? find_fault_of_next(*message.decision) : "";
}

// Checks the world after this process's own.
std::string Membership::find_fault_of_next(const Decision& next) const {
  const std::vector<Id>& ids = next.world.members;
  if (next.world.epoch != known_.world.epoch + 1) {
    return "its next world is " + std::to_string(next.world.epoch);
  }
  if (std::ranges::none_of(ids, [&](Id who) { return known_.member(who); }) ||
      !std::ranges::all_of(ids, [&](Id who) { return who == known_.self || known(who); })) {
    return "its next world has members that there cannot be";
  }
  if (next.delivered > most_delivered() || (holds(ids, known_.self) && next.delivered < delivered_)) {
    return "its next world has delivered step " + std::to_string(next.delivered);
  }
  return "";
}

// The sender took part in the decision, or is in its world, or was left out by it.
std::string Membership::find_fault_of_decided(Id from, const Decision& decision) const {
  const std::uint32_t epoch = decision.world.epoch;
  if (decision.world.members.empty() || decision.delivered > kMostStep || epoch > kMostEpoch) {
    return "it has decided on a world that there cannot be";
  }
  if (known_.world.members.empty() || expelled_) {
    return "";
  }
  if (!known_.member(from) && !holds(decision.world.members, from) && !known_.of(from).gone) {
    return "it tells of a world that it has no part in";
  }
  if (epoch == known_.world.epoch + 1) {
    return find_fault_of_next(decision);
  }
  // A process that is in two worlds in a row has answered in the first. But a process that waited may be taken for one
  // that still waits.
  const bool again = holds(decision.world.members, known_.self) && !waited_;
  return again || epoch - known_.world.epoch > kMostMissed ? "it has decided on a world that cannot be this process's"
                                                           : "";
}

}  // namespace gradwire::membership
