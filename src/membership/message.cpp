#include "membership/message.hpp"

#include <algorithm>

namespace gradwire::membership {
namespace {

constexpr std::uint32_t kMostIds = 1U << 16;

void put_ids(wire::Bytes& out, const std::vector<Id>& ids) {
  wire::put_number(out, static_cast<std::uint32_t>(ids.size()));
  wire::put(out, ids.data(), ids.size() * sizeof(Id));
}

std::vector<Id> take_ids(wire::ByteReader& reader) {
  const auto count = reader.number<std::uint32_t>();
  if (count > kMostIds) {
    reader.fail("it names " + std::to_string(count) + " processes");
  }
  std::vector<Id> ids(count);
  const auto bytes = reader.take(std::uint64_t{count} * sizeof(Id));
  if (count > 0) {
    std::memcpy(ids.data(), bytes.data(), bytes.size());
  }
  if (!std::is_sorted(ids.begin(), ids.end()) || std::adjacent_find(ids.begin(), ids.end()) != ids.end()) {
    reader.fail("it names processes out of order");
  }
  return ids;
}

std::vector<std::uint64_t> take_steps(wire::ByteReader& reader) {
  const auto count = reader.number<std::uint32_t>();
  if (count > kMostIds) {
    reader.fail("it names steps of " + std::to_string(count) + " processes");
  }
  std::vector<std::uint64_t> steps(count);
  const auto bytes = reader.take(std::uint64_t{count} * sizeof(std::uint64_t));
  if (count > 0) {
    std::memcpy(steps.data(), bytes.data(), bytes.size());
  }
  return steps;
}

void put_ballot(wire::Bytes& out, const Ballot& ballot) {
  wire::put_number(out, ballot.round);
  wire::put_number(out, ballot.by);
}

Ballot take_ballot(wire::ByteReader& reader) {
  const auto round = reader.number<std::uint32_t>();
  return {round, reader.number<Id>()};
}

}  // namespace

wire::Bytes encode(const Message& message) {
  wire::Bytes out;
  wire::put_number(out, static_cast<std::uint8_t>(message.kind));
  wire::put_number(out, message.from);
  wire::put_number(out, message.epoch);
  put_ballot(out, message.ballot);
  wire::put_number(out, message.step);
  put_ids(out, message.dead);
  put_ids(out, message.silent);
  put_ids(out, message.known);
  wire::put_number(out, static_cast<std::uint32_t>(message.ready.size()));
  wire::put(out, message.ready.data(), message.ready.size() * sizeof(std::uint64_t));
  put_ballot(out, message.accepted);
  wire::put_number(out, static_cast<std::uint8_t>(message.decision.has_value() ? 1 : 0));
  if (message.decision) {
    wire::put_number(out, message.decision->world.epoch);
    put_ids(out, message.decision->world.members);
    wire::put_number(out, message.decision->delivered);
  }
  return out;
}

Message decode(std::span<const std::byte> bytes) {
  wire::ByteReader reader(bytes, "a message about the world");
  Message message;
  const auto kind = reader.number<std::uint8_t>();
  if (kind > static_cast<std::uint8_t>(Message::Kind::knows)) {
    reader.fail("its kind is " + std::to_string(kind));
  }
  message.kind = static_cast<Message::Kind>(kind);
  message.from = reader.number<Id>();
  message.epoch = reader.number<std::uint32_t>();
  message.ballot = take_ballot(reader);
  message.step = reader.number<std::uint64_t>();
  message.dead = take_ids(reader);
  message.silent = take_ids(reader);
  message.known = take_ids(reader);
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
