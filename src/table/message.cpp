#include "table/message.hpp"

#include <algorithm>

#include "table/id_codec.hpp"
#include "wire/crc32c.hpp"

namespace gradwire::table {
namespace {

std::string source(int peer) { return "a message of rank " + std::to_string(peer) + " to this table"; }

std::uint32_t checksum_of(const Message& message) {
  MessageHead head = message.head;
  head.crc32c = 0;
  const std::uint32_t crc = wire::crc32c(std::as_bytes(std::span(&head, 1)));
  return wire::crc32c(message.payload, crc);
}

}  // namespace

void seal(Message& message, bool checksum) {
  message.head.payload_bytes = message.payload.size();
  message.head.crc32c = checksum ? checksum_of(message) : 0;
}

void check_head(const MessageHead& head, int peer) {
  constexpr std::uint64_t kMostBytes = 1ULL << 40;  // more means that the size itself is damaged
  if (head.magic != MessageHead::kMagic || head.zero != 0 || head.kind > MessageKind::text ||
      head.payload_bytes > kMostBytes) {
    throw Error(ErrorCode::corrupt, source(peer) + " is damaged; does its transport belong to the table alone?");
  }
  if (head.version != MessageHead::kVersion) {
    throw Error(ErrorCode::mismatch, source(peer) + " is of version " + std::to_string(head.version) +
                                         ", this build's is " + std::to_string(MessageHead::kVersion) +
                                         "; use one build on all ranks");
  }
}

void check_payload(const Message& message, bool checksum, int peer) {
  if (checksum && checksum_of(message) != message.head.crc32c) {
    throw Error(ErrorCode::corrupt, source(peer) + " was damaged on its way: its checksum is wrong");
  }
}

Message encode_pull(const PullRequest& request) {
  Message message;
  message.head.kind = MessageKind::pull;
  message.head.number = request.number;
  message.head.clock = request.clock;
  message.head.count = static_cast<std::uint32_t>(request.ids.size());
  message.head.sequence = *std::max_element(request.known.begin(), request.known.end());
  encode_ids(request.ids, message.payload);
  std::vector<std::uint64_t> back = request.known;
  for (std::uint64_t& known : back) {
    known = known == 0 ? 0 : 1 + (message.head.sequence - known);
  }
  encode_runs(back, message.payload);
  return message;
}

PullRequest decode_pull(const Message& message, std::uint64_t rows, int peer) {
  Reader in(message.payload, source(peer));
  PullRequest request{.number = message.head.number, .clock = message.head.clock, .ids = {}, .known = {}};
  request.ids = decode_ids(in, message.head.count, rows);
  request.known = decode_runs(in, message.head.count);
  in.expect_end();
  for (std::uint64_t& known : request.known) {
    if (known > message.head.sequence) {
      in.fail("it knows a row from before the table was made");
    }
    known = known == 0 ? 0 : message.head.sequence - (known - 1);
  }
  return request;
}

Message encode_rows(MessageKind kind, std::span<const std::uint64_t> ids, const float* values, std::uint32_t width,
                    const RowCodec& codec) {
  Message message;
  message.head.kind = kind;
  message.head.count = static_cast<std::uint32_t>(ids.size());
  message.payload.reserve(ids.size() * (codec.row_bytes() + 2));
  encode_ids(ids, message.payload);
  std::size_t at = message.payload.size();
  message.payload.resize(at + ids.size() * codec.row_bytes());
  for (std::size_t i = 0; i < ids.size(); ++i, at += codec.row_bytes()) {
    codec.encode(values + i * width, message.payload.data() + at);
  }
  return message;
}

Rows decode_rows(const Message& message, std::uint64_t rows, std::uint32_t width, const RowCodec& codec, int peer) {
  Reader in(message.payload, source(peer));
  Rows result{.ids = decode_ids(in, message.head.count, rows), .values = {}};
  const std::span<const std::byte> bytes = in.take(result.ids.size() * codec.row_bytes());
  in.expect_end();
  result.values.resize(result.ids.size() * width);
  for (std::size_t i = 0; i < result.ids.size(); ++i) {
    codec.decode(bytes.data() + i * codec.row_bytes(), result.values.data() + i * width);
  }
  return result;
}

}  // namespace gradwire::table
