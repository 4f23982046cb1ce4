#include "table/mailbox.hpp"

#include <span>
#include <utility>

namespace gradwire::table {
namespace {

constexpr Tag kHeadTag = 0;
constexpr Tag kPayloadTag = 1;

}  // namespace

Mailbox::Mailbox(std::shared_ptr<Transport> transport, const MessageLimits& limits)
    : transport_(std::move(transport)), limits_(limits), checksum_(transport_->capabilities().checksum_by_default) {
  for (int peer = 0; peer < transport_->world_size(); ++peer) {
    if (peer != transport_->rank()) {
      incoming_.push_back(std::make_unique<Incoming>());
      incoming_.back()->peer = peer;
    }
  }
  for (const auto& incoming : incoming_) {
    expect_head(*incoming);
  }
}

Mailbox::~Mailbox() {
  // Buffers that the transport may still use are left to it.
  for (auto& incoming : incoming_) {
    if (!give_up(incoming->head, incoming->payload)) {
      static_cast<void>(incoming.release());
    }
  }
  for (auto& outgoing : outgoing_) {
    if (!give_up(outgoing->head, outgoing->payload)) {
      static_cast<void>(outgoing.release());
    }
  }
}

bool Mailbox::give_up(Operation& head, Operation& payload) noexcept {
  const bool over = transport_->cancel(head);
  return transport_->cancel(payload) && over;
}

void Mailbox::expect_head(Incoming& incoming) {
  incoming.payload_posted = false;
  transport_->post_receive(incoming.head, incoming.peer, kHeadTag,
                           std::as_writable_bytes(std::span(&incoming.message.head, 1)));
}

void Mailbox::send(int peer, TableMessage message) {
  seal(message, checksum_);
  outgoing_.push_back(std::make_unique<Outgoing>());
  Outgoing& outgoing = *outgoing_.back();
  outgoing.number = sent_++;
  outgoing.peer = peer;
  outgoing.message = std::move(message);
}

void Mailbox::post(Outgoing& outgoing) {
  outgoing.posted = true;
  transport_->post_send(outgoing.head, outgoing.peer, kHeadTag, std::as_bytes(std::span(&outgoing.message.head, 1)));
  if (!outgoing.message.payload.empty()) {
    transport_->post_send(outgoing.payload, outgoing.peer, kPayloadTag, outgoing.message.payload);
  }
}

void Mailbox::post_waiting(std::uint64_t most) {
  if (outgoing_.empty()) {
    return;
  }
  std::vector<std::uint64_t> under_way(static_cast<std::size_t>(transport_->world_size()));
  std::vector<bool> waits(under_way.size());
  for (const auto& outgoing : outgoing_) {
    const auto peer = static_cast<std::size_t>(outgoing->peer);
    if (!outgoing->posted && outgoing->message.head.kind != MessageKind::reply) {
      waits[peer] = waits[peer] || (outgoing->is_write() && under_way[peer] >= most);
      if (waits[peer]) {
        continue;
      }
    }
    if (!outgoing->posted) {
      post(*outgoing);
    }
    if (outgoing->is_write() && outgoing->unsent()) {
      under_way[peer] += bytes_of(outgoing->message);
    }
  }
}

void Mailbox::progress(std::chrono::microseconds wait, const Take& take) {
  transport_->progress(wait);
  for (const auto& incoming : incoming_) {
    while (advance(*incoming, take)) {
      transport_->progress(std::chrono::microseconds(0));  // the next messages may be here already
    }
  }
  std::erase_if(outgoing_, [&](const std::unique_ptr<Outgoing>& outgoing) {
    if (outgoing->unsent()) {
      return false;
    }
    ++completed_messages_;
    completed_bytes_ += bytes_of(outgoing->message);
    return true;
  });
  completed_in_order_ = outgoing_.empty() ? sent_ : outgoing_.front()->number;
}

/// Receives from this peer. Returns whether anything came.
bool Mailbox::advance(Incoming& incoming, const Take& take) {
  if (incoming.head.pending() || incoming.payload.pending()) {
    return false;
  }
  TableMessage& message = incoming.message;
  if (!incoming.payload_posted) {
    check_head(message.head, limits_, incoming.peer);
    message.payload.resize(message.head.payload_bytes);
    incoming.payload_posted = true;
    if (!message.payload.empty()) {
      transport_->post_receive(incoming.payload, incoming.peer, kPayloadTag, message.payload);
      return true;
    }
  }
  check_payload(message, checksum_, incoming.peer);
  take(incoming.peer, std::exchange(message, {}));
  expect_head(incoming);
  return true;
}

}  // namespace gradwire::table
