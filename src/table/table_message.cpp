#include "table/table_message.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "table/id_codec.hpp"
#include "table/row_block.hpp"
#include "wire/crc32c.hpp"

namespace gradwire::table {
namespace {

std::string source(int peer) { return "a message of rank " + std::to_string(peer) + " to this table"; }

std::uint32_t checksum_of(MessageHead head) {
  head.crc32c = 0;
  return wire::crc32c(std::as_bytes(std::span(&head, 1)));
}

}  // namespace

std::uint64_t largest_payload(const MessageHead& head, const MessageLimits& limits) noexcept {
  constexpr std::uint64_t kVarint = 10;  // bytes, at most
  const auto rows = [&](std::uint64_t row_bytes) {
    const std::uint64_t count = std::min(head.count, limits.rows);
    constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
    return count > kMost / row_bytes ? kMost : count * row_bytes;
  };
  switch (head.kind) {
    case MessageKind::pull: return rows(3 * kVarint);  // an id; a run's length and value
    case MessageKind::relayed_pull: return rows(3 * kVarint + sizeof(std::uint32_t));  // the last once
    case MessageKind::reply:
    case MessageKind::push:
    case MessageKind::assign: return rows(kVarint + sizeof(float) * std::uint64_t{limits.width} + sizeof(float));
    case MessageKind::text: return MessageLimits::kText;
    case MessageKind::tick: return std::min(head.count, RelayedRows::kMost) * kVarint;
    case MessageKind::cut: break;
  }
  return 0;
}

void seal(TableMessage& message, bool checksum) {
  message.head.payload_bytes = message.payload.size();
  message.head.payload_crc32c = checksum ? wire::crc32c(message.payload) : 0;
  message.head.crc32c = checksum_of(message.head);
}

void check_head(const MessageHead& head, const MessageLimits& limits, int peer) {
  constexpr const char* kQuestion = "; does its transport belong to the table alone?";
  if (head.magic != MessageHead::kMagic) {
    throw Error(ErrorCode::corrupt, source(peer) + " is damaged" + kQuestion);
  }
  if (head.version != MessageHead::kVersion) {
    throw Error(ErrorCode::mismatch, source(peer) + " is of version " + std::to_string(head.version) +
                                         ", this build's is " + std::to_string(MessageHead::kVersion) +
                                         "; use one build on all ranks");
  }
  if (head.crc32c != checksum_of(head)) {
    throw Error(ErrorCode::corrupt, source(peer) + " is damaged: the checksum of its head is wrong" + kQuestion);
  }
  const bool bad_topic = head.kind == MessageKind::text && head.count > static_cast<std::uint64_t>(Topic::save);
  if (head.zero != 0 || head.kind > MessageKind::relayed_pull || bad_topic ||
      head.payload_bytes > largest_payload(head, limits)) {
    throw Error(ErrorCode::corrupt, source(peer) + " makes no sense: " + std::to_string(head.payload_bytes) +
                                        " bytes for " + std::to_string(head.count) + " rows" + kQuestion);
  }
}

void check_payload(const TableMessage& message, bool checksum, int peer) {
  if (checksum && wire::crc32c(message.payload) != message.head.payload_crc32c) {
    throw Error(ErrorCode::corrupt, source(peer) + " was damaged on its way: its checksum is wrong");
  }
}

std::string describe_unexpected(int peer) {
  return "rank " + std::to_string(peer) + " sent this table a message that nobody asked for";
}

TableMessage encode_pull(const PullRequest& request) {
  TableMessage message;
  message.head.kind = request.generation ? MessageKind::relayed_pull : MessageKind::pull;
  message.head.number = request.number;
  message.head.clock = request.clock;
  message.head.count = request.ids.size();
  message.head.sequence = *std::max_element(request.known.begin(), request.known.end());
  encode_ids(request.ids, message.payload);
  std::vector<std::uint64_t> back = request.known;
  for (std::uint64_t& known : back) {
    known = known == 0 ? 0 : 1 + (message.head.sequence - known);
  }
  encode_runs(back, message.payload);
  if (request.generation) {
    wire::put_number(message.payload, *request.generation);
  }
  return message;
}

PullRequest decode_pull(const TableMessage& message, std::uint64_t rows, int peer) {
  wire::ByteReader in(message.payload, source(peer));
  PullRequest request{.number = message.head.number, .clock = message.head.clock, .ids = {}, .known = {}};
  request.ids = decode_ids(in, message.head.count, rows);
  request.known = decode_runs(in, message.head.count);
  if (message.head.kind == MessageKind::relayed_pull) {
    request.generation = in.number<std::uint32_t>();
  }
  in.expect_end();
  for (std::uint64_t& known : request.known) {
    if (known > message.head.sequence) {
      in.fail("it knows a row from before the table was made");
    }
    known = known == 0 ? 0 : message.head.sequence - (known - 1);
  }
  return request;
}

TableMessage encode_tick(const RelayedRows::Note& note) {
  TableMessage message;
  message.head.kind = MessageKind::tick;
  message.head.number = note.answered;
  if (note.announced) {
    message.head.sequence = 1;
    message.head.count = note.announced->size();
    encode_ids(*note.announced, message.payload);
  }
  return message;
}

RelayedRows::Note decode_tick(const TableMessage& message, std::uint64_t rows, int peer) {
  RelayedRows::Note note{.answered = message.head.number};
  if (message.head.sequence != 0) {
    wire::ByteReader in(message.payload, source(peer));
    note.announced = decode_ids(in, message.head.count, rows);
    in.expect_end();
  }
  return note;
}

TableMessage encode_rows(MessageKind kind, std::span<const std::uint64_t> ids, const float* values, std::uint32_t width,
                         const RowCodec& codec) {
  TableMessage message;
  message.head.kind = kind;
  message.head.count = ids.size();
  put_rows(
      ids, codec, [&](std::size_t i) { return values + i * width; }, message.payload);
  const std::byte* row = message.payload.data() + message.payload.size() - ids.size() * codec.row_bytes();
  for (std::size_t i = 0; i < ids.size(); ++i, row += codec.row_bytes()) {
    if (!codec.finite(row)) {
      throw Error(ErrorCode::invalid_argument, "the row for id " + std::to_string(ids[i]) + " is too large for " +
                                                   codec.name() +
                                                   ", which makes Inf of it; nothing was sent: leave this step out, "
                                                   "or use gradient_codec = \"exact\"");
    }
  }
  return message;
}

Rows decode_rows(const TableMessage& message, std::uint64_t rows, std::uint32_t width, const RowCodec& codec,
                 int peer) {
  wire::ByteReader in(message.payload, source(peer));
  RowBlock block = take_rows(in, message.head.count, rows, codec);
  in.expect_end();
  Rows result{.ids = std::move(block.ids), .values = {}};
  result.values.resize(result.ids.size() * width);
  for (std::size_t i = 0; i < result.ids.size(); ++i) {
    codec.decode(block.rows.data() + i * codec.row_bytes(), result.values.data() + i * width);
  }
  return result;
}

}  // namespace gradwire::table
