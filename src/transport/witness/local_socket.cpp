#include "transport/witness/local_socket.hpp"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace gradwire::transport::witness {
namespace {

std::optional<System::Peer> real_peer(const tcp::Socket& socket) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (::getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return std::nullopt;
  }
  return System::Peer{.process = credentials.pid, .user = credentials.uid};
}

tcp::Socket real_watch(pid_t process) {
  constexpr long kPidfdOpen = 434;  // on all architectures; headers may be older
  return tcp::Socket(process > 0 ? static_cast<int>(::syscall(kPidfdOpen, process, 0)) : -1);  // NOLINT(*-vararg)
}

}  // namespace

System System::real() { return {.peer = real_peer, .watch = real_watch}; }

bool send_with(const tcp::Socket& socket, std::span<const std::byte> bytes, int descriptor) noexcept {
  iovec part{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};  // NOLINT(*-const-cast)
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(head), &descriptor, sizeof(descriptor));
  }
  ssize_t count = 0;
  do {
    count = ::sendmsg(socket.fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (count < 0 && errno == EINTR);
  return count == static_cast<ssize_t>(bytes.size());
}

Received receive_with(const tcp::Socket& socket, std::span<std::byte> bytes, tcp::Socket& descriptor) noexcept {
  return receive_with(socket.fd(), bytes, descriptor);
}

Received receive_with(int socket, std::span<std::byte> bytes, tcp::Socket& descriptor) noexcept {
  iovec part{.iov_base = bytes.data(), .iov_len = bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t count = 0;
  do {
    count = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  if (count < 0) {
    return errno == EAGAIN ? Received::nothing : Received::ended;
  }
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    for (std::size_t at = 0; CMSG_LEN(at + sizeof(int)) <= head->cmsg_len; at += sizeof(int)) {
      int received = -1;
      std::memcpy(&received, CMSG_DATA(head) + at, sizeof(received));
      descriptor = tcp::Socket(received);  // of several the last one stays
    }
  }
  return count == static_cast<ssize_t>(bytes.size()) ? Received::all : Received::ended;
}

}  // namespace gradwire::transport::witness
