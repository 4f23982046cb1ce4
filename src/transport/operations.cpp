#include "transport/operations.hpp"

#include <span>

namespace gradwire {
namespace transport {
namespace {

[[noreturn]] void reject(const Transport& transport, const std::string& what) {
  throw Error(ErrorCode::invalid_argument,
              transport.name() + " rank " + std::to_string(transport.rank()) + ": " + what);
}

void begin(Operation& operation, Operation::Kind kind, const Transport& transport, std::byte* data,
           std::uint64_t bytes) {
  if (operation.pending()) {
    reject(transport, "the operation is still pending; finish or cancel it before posting it again");
  }
  if (data == nullptr && bytes != 0) {
    reject(transport, "null data for " + std::to_string(bytes) + " bytes");
  }
  operation = Operation{};
  operation.kind = kind;
  operation.state = Operation::State::pending;
  operation.data = data;
  operation.bytes = bytes;
}

void check_address(const Transport& transport, int peer, Tag tag) {
  if (peer < 0 || peer >= transport.world_size() || peer == transport.rank()) {
    reject(transport, "peer " + std::to_string(peer) + " is not another rank of this world of " +
                          std::to_string(transport.world_size()));
  }
  if (tag >= kTagLimit) {
    reject(transport, "tag " + std::to_string(tag) + " is not below 2^28");
  }
}

}  // namespace

}  // namespace transport

std::vector<PeerState> Transport::ask(std::chrono::milliseconds) { return {}; }

void Transport::post_receive_at_most(Operation& /*operation*/, int /*peer*/, Tag /*tag*/,
                                     std::span<std::byte> /*data*/) {
  throw Error(ErrorCode::unsupported, "transport " + name() + " receives only messages of a size that is known before");
}

void Transport::all_reduce(View /*data*/) {
  throw Error(ErrorCode::unsupported, "transport " + name() + " has no blocking all-reduce; use post_all_reduce");
}

namespace transport {

void begin_send(Operation& operation, const Transport& transport, int peer, Tag tag, std::span<const std::byte> data) {
  check_address(transport, peer, tag);
  // A send only reads the data, but shares the field with a receive.
  begin(operation, Operation::Kind::send, transport, const_cast<std::byte*>(data.data()), data.size());
  operation.peer = peer;
  operation.tag = tag;
}

void begin_receive(Operation& operation, const Transport& transport, int peer, Tag tag, std::span<std::byte> data,
                   bool at_most) {
  check_address(transport, peer, tag);
  begin(operation, Operation::Kind::receive, transport, data.data(), data.size());
  operation.at_most = at_most;
  operation.peer = peer;
  operation.tag = tag;
}

void begin_all_reduce(Operation& operation, const Transport& transport, View data) {
  const TransportCapabilities capabilities = transport.capabilities();
  const bool has = (data.dtype == DType::f32 && capabilities.native_all_reduce_f32) ||
                   (data.dtype == DType::f64 && capabilities.native_all_reduce_f64);
  if (!has) {
    throw Error(ErrorCode::unsupported, "transport " + transport.name() + " has no native all-reduce of " +
                                            std::string(to_string(data.dtype)) + "; use two_shot over exact values");
  }
  begin(operation, Operation::Kind::all_reduce, transport, static_cast<std::byte*>(data.data),
        data.count * element_bytes(data.dtype));
}

std::string describe_mismatch(const Operation& receive, const std::string& size) {
  return "receive from rank " + std::to_string(receive.peer) + ", tag " + std::to_string(receive.tag) +
         ": posted for " + (receive.at_most ? "at most " : "") + std::to_string(receive.bytes) +
         " bytes, but the message has " + size +
         "; do all ranks call the same collectives with the same counts and codec?";
}

std::uint64_t ring_bytes(std::uint64_t bytes, int world_size) noexcept {
  const auto ranks = static_cast<std::uint64_t>(world_size);
  return 2 * (ranks - 1) * bytes / ranks;
}

void Counters::count(Operation& operation, int world_size) noexcept {
  constexpr auto kOrder = std::memory_order_relaxed;
  switch (operation.kind) {
    case Operation::Kind::send:
      operation.bytes_counted = operation.bytes;
      bytes_sent_.fetch_add(operation.bytes, kOrder);
      messages_sent_.fetch_add(1, kOrder);
      break;
    case Operation::Kind::receive:
      bytes_received_.fetch_add(operation.bytes, kOrder);
      messages_received_.fetch_add(1, kOrder);
      break;
    case Operation::Kind::all_reduce:
      operation.bytes_counted = ring_bytes(operation.bytes, world_size);
      bytes_sent_.fetch_add(operation.bytes_counted, kOrder);
      bytes_received_.fetch_add(operation.bytes_counted, kOrder);
      native_all_reduces_.fetch_add(1, kOrder);
      break;
  }
}

TransportCounters Counters::read() const noexcept {
  constexpr auto kOrder = std::memory_order_relaxed;
  return {bytes_sent_.load(kOrder), bytes_received_.load(kOrder), messages_sent_.load(kOrder),
          messages_received_.load(kOrder), native_all_reduces_.load(kOrder)};
}

Error AbortReason::as_seen_by(int rank) const {
  if (rank == origin) {
    // Copies of an exception share their text, and this one may go to another thread.
    return {error.code(), error.what(), error.cause()};
  }
  return {ErrorCode::aborted,
          "rank " + std::to_string(origin) + " gave up (" + std::string(to_string(error.code())) + "): " + error.what(),
          ErrorCause::world};
}

bool AbortNote::set(AbortReason reason) noexcept {
  const MutexLock lock(mutex_);
  if (reason_) {
    return false;
  }
  reason_ = std::move(reason);
  raised_ = true;
  return true;
}

AbortReason AbortNote::reason() const {
  const MutexLock lock(mutex_);
  return *reason_;
}

}  // namespace transport
}  // namespace gradwire
