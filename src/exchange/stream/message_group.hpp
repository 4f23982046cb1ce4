// Opens a group of messages, and closes it whatever happens.
#pragma once

#include <utility>

#include "exchange/stream/stream_backend.hpp"

namespace gradwire::exchange {

/// A group of messages that also ends when something throws; otherwise the library would keep it open for the thread.
class MessageGroup {
 public:
  explicit MessageGroup(StreamBackend& backend) : backend_(backend) { backend_.begin_group(); }
  ~MessageGroup() {
    try {
      end();
    } catch (...) {  // NOLINT(bugprone-empty-catch): the first error is the one to report
    }
  }
  MessageGroup(const MessageGroup&) = delete;
  MessageGroup& operator=(const MessageGroup&) = delete;
  void end() {
    if (std::exchange(open_, false)) {
      backend_.end_group();
    }
  }

 private:
  StreamBackend& backend_;
  bool open_ = true;
};

}  // namespace gradwire::exchange
