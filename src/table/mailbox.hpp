// Messages of any size over a transport whose receives must know them: a head of fixed size, then the payload. From one
// peer, in the order in which it sent them. Used by one thread at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "gradwire/transport.hpp"
#include "table/message.hpp"

namespace gradwire::table {

class Mailbox {
 public:
  using Take = std::function<void(int peer, Message message)>;

  explicit Mailbox(std::shared_ptr<Transport> transport);
  /// Takes back what is under way.
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  void send(int peer, Message message);
  /// Waits up to `wait` for something to happen; calls `take` for each message that came.
  void progress(std::chrono::microseconds wait, const Take& take);
  /// Of messages that have not left yet. Any thread.
  [[nodiscard]] std::uint64_t unsent_bytes() const noexcept { return unsent_bytes_; }
  [[nodiscard]] bool all_sent() const noexcept { return outgoing_.empty(); }

 private:
  struct Outgoing {
    Message message;
    Operation head, payload;
    [[nodiscard]] bool pending() const { return head.pending() || payload.pending(); }
  };
  struct Incoming {
    int peer = -1;
    Message message;
    Operation head, payload;
    bool payload_posted = false;
  };

  void expect_head(Incoming& incoming);
  bool advance(Incoming& incoming, const Take& take);
  bool give_up(Operation& head, Operation& payload) noexcept;

  std::shared_ptr<Transport> transport_;
  bool checksum_;
  std::list<std::unique_ptr<Outgoing>> outgoing_;
  std::vector<std::unique_ptr<Incoming>> incoming_;
  std::atomic<std::uint64_t> unsent_bytes_ = 0;
};

}  // namespace gradwire::table
