#include "membership/membership_message.hpp"

#include <algorithm>
#include <functional>

#include "wire/crc32c.hpp"

namespace gradwire::membership {
namespace {

constexpr std::uint32_t kMostIds = 1U << 16;
constexpr std::size_t kSeal = 2 * sizeof(std::uint32_t);

// Returns a count that is bounded by the bytes which follow in the message, so that a number alone takes no memory.
std::uint32_t take_count(wire::ByteReader& reader, std::size_t bytes_of_each, const char* noun) {
  const auto count = reader.number<std::uint32_t>();
  if (count > kMostIds || count > reader.left() / bytes_of_each) {
    reader.fail("it names " + std::to_string(count) + " " + noun);
  }
  return count;
}

// Checks that the ids ascend, each once.
void check_order(const wire::ByteReader& reader, const std::vector<Id>& ids) {
  if (std::adjacent_find(ids.begin(), ids.end(), std::greater_equal()) != ids.end()) {
    reader.fail("it names processes out of order");
  }
}

void put_ids(wire::Bytes& out, const std::vector<Id>& ids) {
  wire::put_number(out, static_cast<std::uint32_t>(ids.size()));
  wire::put(out, ids.data(), ids.size() * sizeof(Id));
}

std::vector<Id> take_ids(wire::ByteReader& reader) {
  std::vector<Id> ids(take_count(reader, sizeof(Id), "processes"));
  reader.numbers(std::span(ids));
  check_order(reader, ids);
  return ids;
}

void put_ended(wire::Bytes& out, const std::vector<ProcessEnd>& ended) {
  wire::put_number(out, static_cast<std::uint32_t>(ended.size()));
  for (const ProcessEnd& one : ended) {
    wire::put_number(out, one.who);
    wire::put_number(out, one.epoch);
    wire::put_number(out, one.step);
  }
}

std::vector<ProcessEnd> take_ended(wire::ByteReader& reader) {
  std::vector<ProcessEnd> ended(take_count(reader, sizeof(Id) + sizeof(std::uint32_t) + sizeof(std::uint64_t), "ends"));
  std::vector<Id> ids;
  for (ProcessEnd& one : ended) {
    one.who = ids.emplace_back(reader.number<Id>());
    one.epoch = reader.number<std::uint32_t>();
    one.step = reader.number<std::uint64_t>();
  }
  check_order(reader, ids);
  return ended;
}

void put_steps(wire::Bytes& out, const std::vector<std::uint64_t>& steps) {
  wire::put_number(out, static_cast<std::uint32_t>(steps.size()));
  wire::put(out, steps.data(), steps.size() * sizeof(std::uint64_t));
}

std::vector<std::uint64_t> take_steps(wire::ByteReader& reader) {
  std::vector<std::uint64_t> steps(take_count(reader, sizeof(std::uint64_t), "steps"));
  reader.numbers(std::span(steps));
  return steps;
}

void put_ballot(wire::Bytes& out, const Ballot& ballot) {
  wire::put_number(out, ballot.round);
  wire::put_number(out, ballot.by);
}

Ballot take_ballot(wire::ByteReader& reader) {
  const auto round = reader.number<std::uint64_t>();
  return {round, reader.number<Id>()};
}

}  // namespace

wire::Bytes seal(std::span<const std::byte> body) {
  wire::Bytes out;
  out.reserve(kSeal + body.size());
  wire::put_number(out, static_cast<std::uint32_t>(body.size()));
  wire::put_number(out, wire::crc32c(body));
  wire::put(out, body.data(), body.size());
  return out;
}

std::span<const std::byte> unseal(std::span<const std::byte> bytes) {
  wire::ByteReader reader(bytes, "a message of another process");
  const auto size = reader.number<std::uint32_t>();
  const auto crc = reader.number<std::uint32_t>();
  if (size != reader.left() || size == 0) {
    reader.fail("it has " + std::to_string(reader.left()) + " bytes, and says " + std::to_string(size));
  }
  const auto body = reader.take(size);
  if (wire::crc32c(body) != crc) {
    reader.fail("its checksum is wrong");
  }
  return body;
}

wire::Bytes encode(const MembershipMessage& message) {
  wire::Bytes out;
  wire::put_number(out, static_cast<std::uint8_t>(message.kind));
  wire::put_number(out, message.from);
  wire::put_number(out, message.epoch);
  put_ballot(out, message.ballot);
  wire::put_number(out, message.step);
  put_ended(out, message.dead);
  put_ids(out, message.silent);
  put_ids(out, message.known);
  put_ids(out, message.gone);
  put_steps(out, message.ready);
  put_ballot(out, message.accepted);
  wire::put_number(out, static_cast<std::uint8_t>(message.decision.has_value() ? 1 : 0));
  if (message.decision) {
    wire::put_number(out, message.decision->world.epoch);
    put_ids(out, message.decision->world.members);
    wire::put_number(out, message.decision->delivered);
  }
  return seal(out);
}

MembershipMessage decode_body(std::span<const std::byte> body) {
  wire::ByteReader reader(body, "a message about the world");
  MembershipMessage message;
  const auto kind = reader.number<std::uint8_t>();
  if (kind > static_cast<std::uint8_t>(MembershipMessage::Kind::confirmed)) {
    reader.fail("its kind is " + std::to_string(kind));
  }
  message.kind = static_cast<MembershipMessage::Kind>(kind);
  message.from = reader.number<Id>();
  message.epoch = reader.number<std::uint32_t>();
  message.ballot = take_ballot(reader);
  message.step = reader.number<std::uint64_t>();
  message.dead = take_ended(reader);
  message.silent = take_ids(reader);
  message.known = take_ids(reader);
  message.gone = take_ids(reader);
  message.ready = take_steps(reader);
  message.accepted = take_ballot(reader);
  const auto decided = reader.number<std::uint8_t>();
  if (decided > 1) {
    reader.fail("its decision is neither there nor not");
  }
  if (decided == 1) {
    Decision decision;
    decision.world.epoch = reader.number<std::uint32_t>();
    decision.world.members = take_ids(reader);
    decision.delivered = reader.number<std::uint64_t>();
    message.decision = std::move(decision);
  }
  if (reader.left() != 0) {
    reader.fail("there are " + std::to_string(reader.left()) + " bytes behind it");
  }
  return message;
}

}  // namespace gradwire::membership
