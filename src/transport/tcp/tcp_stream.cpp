#include "transport/tcp/tcp_stream.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "transport/operations.hpp"

namespace gradwire::transport::tcp {
namespace {

constexpr std::uint32_t kMagic = 0x6d707467;           // "gtpm"
constexpr std::uint64_t kLongestMessage = 1ULL << 48;  // a longer one means damage
constexpr std::uint64_t kTurnBytes = 4 << 20;          // bytes that one connection takes before the next has its turn
constexpr std::uint64_t kFirstRoom = 4 << 20;          // for a message that nobody has posted a receive for
constexpr std::size_t kWrites = 16;                    // messages of one system call

template <class Header>
std::byte* raw(Header& header) {
  return reinterpret_cast<std::byte*>(&header);
}

}  // namespace

bool Stream::waited_for() const noexcept {
  return posted_receives_ > 0 || incoming_.request != nullptr ||
         std::any_of(outgoing_.begin(), outgoing_.end(), [](const Outgoing& each) { return each.request != nullptr; });
}

void Stream::end(const std::string& why) {
  if (ended_.empty()) {
    ended_ = why;
  }
}

void Stream::send(Request& request) {
  const Operation& operation = *request.operation;
  outgoing_.push_back({.request = &request,
                       .header = {.bytes = operation.bytes, .tag = operation.tag, .magic = kMagic},
                       .data = operation.data});
}

bool Stream::flush() {
  while (!outgoing_.empty() && ended_.empty()) {
    std::array<iovec, 2 * kWrites> parts{};
    std::size_t count = 0;
    for (std::size_t i = 0; i < std::min(outgoing_.size(), kWrites); ++i) {
      Outgoing& each = outgoing_[i];
      if (each.sent < sizeof(Header)) {
        parts[count++] = {raw(each.header) + each.sent, sizeof(Header) - each.sent};
      }
      const std::uint64_t done = each.sent < sizeof(Header) ? 0 : each.sent - sizeof(Header);
      if (done < each.header.bytes) {
        parts[count++] = {const_cast<std::byte*>(each.data) + done, each.header.bytes - done};
      }
    }
    const ssize_t written = send_some(socket_, std::span(parts).first(count));
    if (written < 0) {
      if (errno == EINTR) {
        continue;
      }
      if (errno == EAGAIN) {
        return false;
      }
      end(text_of_error(socket_, errno));
      return true;
    }
    for (auto left = static_cast<std::uint64_t>(written); !outgoing_.empty();) {
      Outgoing& first = outgoing_.front();
      const std::uint64_t step = std::min(left, sizeof(Header) + first.header.bytes - first.sent);
      first.sent += step;
      left -= step;
      if (first.sent < sizeof(Header) + first.header.bytes) {
        break;
      }
      Request* const request = first.request;
      outgoing_.pop_front();
      if (request != nullptr) {
        sink_.finished(*request);
      }
    }
  }
  return true;
}

bool Stream::take() {
  std::uint64_t taken = 0;
  std::array<std::byte, 16 << 10> nowhere;
  while (taken < kTurnBytes && ended_.empty()) {
    // The rest of a message and the header of the next in one call.
    std::array<iovec, 2> parts{};
    std::size_t count = 0;
    if (in_payload()) {
      const std::uint64_t left = incoming_.header.bytes - incoming_.bytes;
      if (incoming_.target == nullptr) {
        parts[count++] = {nowhere.data(), std::min<std::uint64_t>(left, nowhere.size())};
      } else {
        parts[count++] = {incoming_.target + incoming_.bytes, std::min(left, incoming_.room - incoming_.bytes)};
      }
    }
    Header next = incoming_.header;
    const bool reads_header = !in_payload() || parts[0].iov_len == incoming_.header.bytes - incoming_.bytes;
    const std::uint64_t known = in_payload() ? 0 : incoming_.header_bytes;
    if (reads_header) {
      parts[count++] = {raw(next) + known, sizeof(Header) - known};
    }
    const ssize_t got = receive_some(socket_, std::span(parts).first(count));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      if (got == 0 || errno != EAGAIN) {
        end(got == 0 ? "its connection was closed" : text_of_error(socket_, errno));
      }
      return taken > 0;
    }
    auto left = static_cast<std::uint64_t>(got);
    taken += left;
    if (in_payload()) {
      const auto step = std::min<std::uint64_t>(left, parts[0].iov_len);
      left -= step;
      advance(step);
    }
    if (left > 0) {
      incoming_.header = next;
      incoming_.header_bytes += left;
      if (incoming_.header_bytes == sizeof(Header)) {
        begin_message();
      }
    }
  }
  return true;
}

void Stream::begin_message() {
  const Header& header = incoming_.header;
  if (header.magic != kMagic || header.tag >= kTagLimit || header.bytes > kLongestMessage) {
    return end("what comes from it is no message of gradwire");
  }
  TagQueue& channel = channels_[header.tag];
  if (channel.receives.empty()) {
    incoming_.room = std::min(header.bytes, kFirstRoom);
    channel.messages.push_back({memory::Block(incoming_.room, memory::MemoryUse::frames)});
    incoming_.target = channel.messages.back().data.data();
    incoming_.kept = true;
  } else {
    Request& request = *channel.receives.front();
    channel.receives.pop_front();
    --posted_receives_;
    give_to(request);
  }
  forget_if_empty(header.tag);
  advance(0);
}

// Gives the message that is being received to this request.
void Stream::give_to(Request& request) {
  Operation& operation = *request.operation;
  if (!takes(operation, incoming_.header.bytes)) {
    incoming_.target = nullptr;
    sink_.failed(request, describe_mismatch(operation, std::to_string(incoming_.header.bytes)));
    return;
  }
  incoming_.request = &request;
  incoming_.target = operation.data;
  incoming_.room = incoming_.header.bytes;
}

// Makes room for as much again of a message that nobody has posted a receive for. A header may claim any size, so room
// follows the bytes that have come.
void Stream::grow() {
  memory::Block& held = channels_[incoming_.header.tag].messages.back().data;
  const std::uint64_t room = std::min(incoming_.header.bytes, 2 * incoming_.room);
  memory::Block larger(room, memory::MemoryUse::frames);
  std::memcpy(larger.data(), held.data(), incoming_.bytes);
  held = std::move(larger);
  incoming_.target = held.data();
  incoming_.room = room;
}

void Stream::advance(std::uint64_t bytes) {
  incoming_.bytes += bytes;
  if (incoming_.bytes == incoming_.header.bytes) {
    end_message();
  } else if (incoming_.kept && incoming_.bytes == incoming_.room) {
    grow();
  }
}

void Stream::end_message() {
  Request* const request = incoming_.request;
  incoming_ = {};
  if (request != nullptr) {
    sink_.finished(*request);
  }
}

void Stream::receive(Request& request) {
  Operation& operation = *request.operation;
  TagQueue& channel = channels_[operation.tag];
  if (channel.messages.empty()) {
    channel.receives.push_back(&request);
    ++posted_receives_;
    return;
  }
  const bool coming = incoming_.kept && incoming_.header.tag == operation.tag && channel.messages.size() == 1;
  const EarlyMessage message = std::move(channel.messages.front());
  channel.messages.pop_front();
  forget_if_empty(operation.tag);
  if (coming) {
    incoming_.kept = false;
    give_to(request);
    if (incoming_.target != nullptr && incoming_.bytes > 0) {
      std::memcpy(incoming_.target, message.data.data(), incoming_.bytes);
    }
  } else if (!takes(operation, message.data.bytes())) {
    sink_.failed(request, describe_mismatch(operation, std::to_string(message.data.bytes())));
  } else {
    if (message.data.bytes() > 0) {
      std::memcpy(operation.data, message.data.data(), message.data.bytes());
    }
    sink_.finished(request);
  }
}

void Stream::withdraw(Request& request) {
  if (request.status != Request::Status::queued) {
    return;
  }
  const Operation& operation = *request.operation;
  if (operation.kind == Operation::Kind::send) {
    const auto found = std::find_if(outgoing_.begin(), outgoing_.end(),
                                    [&](const Outgoing& each) { return each.request == &request; });
    if (found == outgoing_.end()) {
      return;
    }
    if (found->sent == 0 && !holds_sent(socket_)) {
      outgoing_.erase(found);
      return;
    }
    found->own = memory::Block(operation.bytes, memory::MemoryUse::frames);
    std::memcpy(found->own.data(), operation.data, operation.bytes);
    found->data = found->own.data();
    found->request = nullptr;
    return;
  }
  if (incoming_.request != &request) {
    const auto found = channels_.find(operation.tag);
    if (found != channels_.end()) {
      posted_receives_ -= std::erase(found->second.receives, &request);
      forget_if_empty(operation.tag);
    }
    return;
  }
  // Keeps the rest of the message for the next receive of the tag, which may be posted now or later.
  EarlyMessage message{memory::Block(operation.bytes, memory::MemoryUse::frames)};
  std::memcpy(message.data.data(), operation.data, incoming_.bytes);
  incoming_.request = nullptr;
  incoming_.target = message.data.data();
  incoming_.room = message.data.bytes();
  TagQueue& channel = channels_[operation.tag];
  channel.messages.push_front(std::move(message));
  incoming_.kept = true;
  if (!channel.receives.empty()) {
    Request& next = *channel.receives.front();
    channel.receives.pop_front();
    --posted_receives_;
    receive(next);
  }
}

void Stream::forget_if_empty(Tag tag) {
  const auto found = channels_.find(tag);
  if (found != channels_.end() && found->second.messages.empty() && found->second.receives.empty()) {
    channels_.erase(found);
  }
}

}  // namespace gradwire::transport::tcp
