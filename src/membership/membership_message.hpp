// The messages about their world that processes send each other.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "membership/world.hpp"
#include "wire/bytes.hpp"

namespace gradwire::membership {

/// Number of an attempt to agree; the larger one counts. 0: none.
struct Ballot {
  std::uint64_t round = 0;
  Id by = 0;

  [[nodiscard]] auto operator<=>(const Ballot&) const = default;  // NOLINT(modernize-use-nullptr): takes <=> for 0
};

struct MembershipMessage {
  enum class Kind : std::uint8_t {
    beat,      // I am here; I delivered `step`; `gone` were left out, and may not have ended
    ready,     // I hold all that I need of `step`
    suspect,   // `dead` have ended, `silent` do not answer me
    prepare,   // answer no ballot below this one
    promise,   // I answer none below it; I delivered `step`; what I accepted before, if anything
    refuse,    // I have promised `ballot` already
    accept,    // take `decision` in this ballot
    accepted,  // I have taken it
    decided,   // `decision` holds; `gone` as of a beat
    waits,     // I am in no world and could be in one; as far as I have heard, `dead` have ended, `known` know of me
    knows,     // I know that you wait: no others go on beside you without asking you; `gone` as of a beat
    confirm,   // I rely on `step`, which I delivered: have you, too?
    confirmed  // I have delivered it
  };

  Kind kind = Kind::beat;
  Id from = 0;
  std::uint32_t epoch = 0;  // of the world that the sender is in
  Ballot ballot;
  std::uint64_t step = 0;
  std::vector<ProcessEnd> dead;  // ascending
  std::vector<Id> silent;
  std::vector<Id> known;
  std::vector<Id> gone;
  std::vector<std::uint64_t> ready;  // in a promise: the step that each member said it holds, as far as was heard
  Ballot accepted;                   // in a promise: the ballot of `decision`
  std::optional<Decision> decision;  // in promise (the accepted one), accept, decided

  [[nodiscard]] bool operator==(const MembershipMessage&) const = default;
};

/// Returns `body` behind its length and its CRC, as all messages between the processes of a job are sent.
[[nodiscard]] wire::Bytes seal(std::span<const std::byte> body);
/// Returns the body, which is never empty. Error(corrupt) if the bytes were damaged on their way.
[[nodiscard]] std::span<const std::byte> unseal(std::span<const std::byte> bytes);

/// Returns the sealed message.
[[nodiscard]] wire::Bytes encode(const MembershipMessage& message);
/// Decodes a body that unseal() returned. Error(corrupt) for bytes that encode() did not make.
[[nodiscard]] MembershipMessage decode_body(std::span<const std::byte> body);
[[nodiscard]] inline MembershipMessage decode(std::span<const std::byte> bytes) { return decode_body(unseal(bytes)); }

}  // namespace gradwire::membership
