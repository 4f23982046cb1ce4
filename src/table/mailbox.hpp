// Messages of any size over a transport whose receives must know the size: a head of fixed size, then the payload.
// Messages of one peer come in the order in which it sent them. Used by one thread at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "gradwire/transport.hpp"
#include "table/table_message.hpp"

namespace gradwire::table {

class Mailbox {
 public:
  using Take = std::function<void(int peer, TableMessage message)>;

  Mailbox(std::shared_ptr<Transport> transport, const MessageLimits& limits);
  /// Cancels running sends and receives.
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  /// Queues the message; post_waiting() sends it.
  void send(int peer, TableMessage message);
  /// Sends queued messages, in order for each peer. A peer with `most` bytes of unfinished writes gets no further ones,
  /// nor messages behind them. Replies overtake them: a peer waits for replies, and they do not depend on this rank's
  /// writes.
  void post_waiting(std::uint64_t most);
  /// Waits up to `wait` for a message to come or leave; calls `take` for each message that came.
  void progress(std::chrono::microseconds wait, const Take& take);
  /// The number of messages, from the first one given to send() on, that have left without a gap. Any thread may call.
  [[nodiscard]] std::uint64_t completed_in_order() const noexcept { return completed_in_order_; }
  /// The number and bytes of all messages that have left, in any order. Any thread may call.
  [[nodiscard]] std::uint64_t completed_messages() const noexcept { return completed_messages_; }
  [[nodiscard]] std::uint64_t completed_bytes() const noexcept { return completed_bytes_; }

 private:
  struct Outgoing {
    std::uint64_t number = 0;  // from 0
    TableMessage message;
    Operation head, payload;
    int peer = -1;
    bool posted = false;
    [[nodiscard]] bool unsent() const { return !posted || head.pending() || payload.pending(); }
    [[nodiscard]] bool is_write() const {
      return message.head.kind == MessageKind::push || message.head.kind == MessageKind::assign;
    }
  };
  struct Incoming {
    int peer = -1;
    TableMessage message;
    Operation head, payload;
    bool payload_posted = false;
  };

  void post(Outgoing& outgoing);
  void expect_head(Incoming& incoming);
  bool advance(Incoming& incoming, const Take& take);
  bool give_up(Operation& head, Operation& payload) noexcept;

  std::shared_ptr<Transport> transport_;
  MessageLimits limits_;
  bool checksum_;
  std::list<std::unique_ptr<Outgoing>> outgoing_;
  std::vector<std::unique_ptr<Incoming>> incoming_;
  std::uint64_t sent_ = 0;  // messages that send() was given
  std::atomic<std::uint64_t> completed_in_order_ = 0, completed_messages_ = 0, completed_bytes_ = 0;
};

}  // namespace gradwire::table
