// The messages of one connection, one after another, each with a header. A message without a posted receive waits in
// memory of its own, which grows as its bytes arrive; how much a sender may have on its way limits that memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "gradwire/transport.hpp"
#include "memory/block.hpp"
#include "transport/tcp/tcp_socket.hpp"

namespace gradwire::transport::tcp {

struct Request {
  enum class Status : std::uint8_t { queued, finished, failed };
  Operation* operation = nullptr;
  Status status = Status::queued;
  std::list<Request>::iterator self;
};

/// Is told when a request ends. Called inside the stream's own functions.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  virtual void finished(Request& request) = 0;
  virtual void failed(Request& request, const std::string& why) = 0;
};

class Stream {
 public:
  Stream(Socket socket, RequestSink& sink) : socket_(std::move(socket)), sink_(sink) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void send(Request& request);
  void receive(Request& request);
  /// Withdraws a request, whose buffer is not touched again. A message that is half sent or received goes on without
  /// it.
  void withdraw(Request& request);

  /// Sends as much as the connection takes. False: call it again when the connection takes more.
  bool flush();
  /// Receives what has arrived, up to some 4 MB, so that other connections have their turn. False: nothing was there.
  bool take();

  [[nodiscard]] const Socket& socket() const noexcept { return socket_; }
  /// The reason why the connection has ended; empty while it is open.
  [[nodiscard]] const std::string& ended() const noexcept { return ended_; }
  /// Whether a request waits for this connection.
  [[nodiscard]] bool waited_for() const noexcept;

 private:
  struct Header {
    std::uint64_t bytes = 0;
    Tag tag = 0;
    std::uint32_t magic = 0;
  };
  static_assert(sizeof(Header) == 16, "no padding: it travels as bytes");
  struct Outgoing {
    Request* request = nullptr;  // null: it was withdrawn
    Header header;
    const std::byte* data = nullptr;
    std::uint64_t sent = 0;  // bytes of header and data
    memory::Block own = {};
  };
  struct EarlyMessage {
    memory::Block data;
  };
  struct TagQueue {  // at most one of the two is not empty
    std::deque<Request*> receives;
    std::deque<EarlyMessage> messages;
  };
  // The message that is being received: it goes into a receive's buffer, into the newest message of its channel, or
  // nowhere.
  struct Incoming {
    Header header;
    std::uint64_t header_bytes = 0;
    std::uint64_t bytes = 0;  // received so far
    std::byte* target = nullptr;
    std::uint64_t room = 0;  // bytes of the target; fewer than those of the message only while it is kept
    Request* request = nullptr;
    bool kept = false;  // it is the last message of its channel
  };

  void begin_message();
  void end_message();
  void advance(std::uint64_t bytes);
  [[nodiscard]] bool in_payload() const noexcept {
    return incoming_.header_bytes == sizeof(Header) && incoming_.bytes < incoming_.header.bytes;
  }
  void give_to(Request& request);
  void grow();
  void forget_if_empty(Tag tag);
  void end(const std::string& why);

  Socket socket_;
  RequestSink& sink_;
  std::deque<Outgoing> outgoing_;
  std::unordered_map<Tag, TagQueue> channels_;
  std::uint64_t posted_receives_ = 0;  // number of receives in channels
  Incoming incoming_;
  std::string ended_;
};

}  // namespace gradwire::transport::tcp
