#include "transport/tcp/tcp_control.hpp"

#include <cerrno>
#include <cstring>

namespace gradwire::transport::tcp {
namespace {

struct NoteHeader {
  std::uint32_t kind = 0;
  std::uint32_t number = 0;
  std::uint32_t bytes = 0;
};

}  // namespace

void ControlConnection::send(const Note& note, std::chrono::milliseconds limit) noexcept {
  try {
    const std::string text = note.text.substr(0, kLongestText);
    const NoteHeader header{static_cast<std::uint32_t>(note.kind), note.number,
                            static_cast<std::uint32_t>(text.size())};
    std::vector<std::byte> bytes(sizeof(header) + text.size());
    std::memcpy(bytes.data(), &header, sizeof(header));
    std::memcpy(bytes.data() + sizeof(header), text.data(), text.size());
    const MutexLock lock(mutex_);
    broken_ = broken_ || !write_until(socket_, bytes, Clock::now() + limit);  // half a note breaks the connection
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory; the peer then runs into its timeout
  }
}

std::vector<Note> ControlConnection::take() {
  std::array<std::byte, 4096> buffer;
  while (!ended_) {
    const ssize_t count = receive_some(socket_, buffer);
    if (count > 0) {
      unread_.insert(unread_.end(), buffer.begin(), buffer.begin() + count);
    } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
      // A reset means the end of a process, which the connection for messages shows as well.
      if (count < 0 && (errno == ETIMEDOUT || errno == EHOSTUNREACH || errno == ENETUNREACH)) {
        unreachable_ = system_text(errno);
      }
      ended_ = true;
    } else if (errno == EAGAIN) {
      break;
    }
  }
  std::vector<Note> notes;
  std::size_t at = 0;
  for (NoteHeader header; unread_.size() - at >= sizeof(header);) {
    std::memcpy(&header, unread_.data() + at, sizeof(header));
    if (header.bytes > kLongestText) {
      ended_ = true;
      break;
    }
    if (unread_.size() - at - sizeof(header) < header.bytes) {
      break;
    }
    at += sizeof(header);
    notes.push_back({Note::Kind{header.kind}, header.number,
                     std::string(reinterpret_cast<const char*>(unread_.data() + at), header.bytes)});
    at += header.bytes;
  }
  unread_.erase(unread_.begin(), unread_.begin() + static_cast<std::ptrdiff_t>(at));
  return notes;
}

}  // namespace gradwire::transport::tcp
