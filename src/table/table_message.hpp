// The messages between the ranks of a table: a head of fixed size, and a payload whose size is in the head. A peer's
// message is checked before it is used, its head before memory is allocated for the payload.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "table/floats.hpp"
#include "table/relayed_rows.hpp"
#include "table/row_codec.hpp"
#include "wire/bytes.hpp"

namespace gradwire::table {

enum class MessageKind : std::uint8_t {
  pull,          // number: of the request; clock: the least of the owner; sequence: `known` counts back from it
                 // payload: ids, runs of known: 0 not here, else 1 + (sequence - the row's)
  reply,         // number: of the request; clock, sequence: the owner's; count: rows that changed
                 // payload, if any changed: their places in the request (unless all), rows
  push,          // payload: ids, rows by the codec of gradients
  assign,        // payload: ids, rows exactly
  tick,          // a step of the sender is over; number: rows that it answered in the step
                 // sequence: 1 if the payload has the ids of `count` rows that relays answer from here on
  cut,           // number: of the snapshot; later messages are not in it
  text,          // count: its topic; number: of the exchange; payload: the text
  relayed_pull,  // like pull, for a relay; payload: ends with u32, the least generation of its cache
};

/// Exchanges of one topic come in the same order on every rank; those of another may come between them.
enum class Topic : std::uint8_t { collective, save };

struct MessageHead {
  static constexpr std::uint32_t kMagic = 0x54577247;  // "GrWT"
  static constexpr std::uint8_t kVersion = 2;

  std::uint32_t magic = kMagic;
  std::uint8_t version = kVersion;
  MessageKind kind = MessageKind::text;
  std::uint16_t zero = 0;
  std::uint32_t crc32c = 0;          // of the head, this field zero
  std::uint32_t payload_crc32c = 0;  // 0 if the transport needs none
  std::uint64_t count = 0;           // rows
  std::uint64_t number = 0;
  std::uint64_t clock = 0;
  std::uint64_t sequence = 0;
  std::uint64_t payload_bytes = 0;
};
static_assert(sizeof(MessageHead) == 56);

struct TableMessage {
  MessageHead head;
  wire::Bytes payload;
};

/// The message's size on the wire.
[[nodiscard]] inline std::uint64_t bytes_of(const TableMessage& message) noexcept {
  return sizeof(MessageHead) + message.payload.size();
}

/// Counts of the messages since the table was made.
struct Traffic {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
};

/// Bounds of a message's content.
struct MessageLimits {
  static constexpr std::uint64_t kText = 1 << 20;  // bytes
  std::uint64_t rows = 0;                          // of the table
  std::uint32_t width = 0;
};
/// Bytes of the largest possible payload of this kind and count.
[[nodiscard]] std::uint64_t largest_payload(const MessageHead& head, const MessageLimits& limits) noexcept;

/// Sets the sizes and the checksum of the head, and with `checksum` that of the payload.
void seal(TableMessage& message, bool checksum);
/// Throw Error(corrupt) that names the peer. check_head() is for before the payload is received, check_payload() after.
void check_head(const MessageHead& head, const MessageLimits& limits, int peer);
void check_payload(const TableMessage& message, bool checksum, int peer);

/// The text of an error about a message of `peer` that answers no request, or for rows that are not here.
[[nodiscard]] std::string describe_unexpected(int peer);

/// A request as its owner reads it. known[i] is the sequence at which the caller last compared row i, plus 1; 0: never.
struct PullRequest {
  std::uint64_t number = 0;
  std::uint64_t clock = 0;
  std::vector<std::uint64_t> ids, known;
  std::optional<std::uint32_t> generation = {};  // for a relay
};
[[nodiscard]] TableMessage encode_pull(const PullRequest& request);
[[nodiscard]] PullRequest decode_pull(const TableMessage& message, std::uint64_t rows, int peer);

[[nodiscard]] TableMessage encode_tick(const RelayedRows::Note& note);
[[nodiscard]] RelayedRows::Note decode_tick(const TableMessage& message, std::uint64_t rows, int peer);

/// `kind` is push or assign; row i of `values` is that of ids[i], ids are ascending, values finite. Throws
/// Error(invalid_argument) that names the id and the codec if rounding makes a value infinite.
[[nodiscard]] TableMessage encode_rows(MessageKind kind, std::span<const std::uint64_t> ids, const float* values,
                                       std::uint32_t width, const RowCodec& codec);
struct Rows {
  std::vector<std::uint64_t> ids;
  Floats values;
};
[[nodiscard]] Rows decode_rows(const TableMessage& message, std::uint64_t rows, std::uint32_t width,
                               const RowCodec& codec, int peer);

}  // namespace gradwire::table
