#include "transport/witness/agent_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "transport/tcp/tcp_packet.hpp"
#include "transport/witness/local_socket.hpp"
#include "transport/witness/witness_page.hpp"

namespace gradwire::transport::witness {
namespace {

constexpr std::size_t kMostConnections = 1U << 20U;  // reserves address space; memory is taken as it is used

void close_from(int first) noexcept {
#ifdef SYS_close_range
  if (::syscall(SYS_close_range, first, ~0U, 0) == 0) {  // NOLINT(*-vararg)
    return;
  }
#endif
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const int end = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1U << 20U));
  for (int descriptor = first; descriptor < end; ++descriptor) {
    ::close(descriptor);
  }
}

// Moves a descriptor to a fixed low number.
int move_to(int descriptor, int place) noexcept {
  if (descriptor < 0) {
    return -1;
  }
  return ::dup2(descriptor, place) == place ? place : -1;
}

}  // namespace

void AgentProcess::prepare() noexcept {
  static_cast<void>(
      tcp::make_head(tcp::PacketKind::word, 0, 0, {}));  // chooses the CRC routine for this processor before the fork
}

// The agent must not hold the launcher's pipes, whose end the launcher awaits, nor get signals to the job's process
// group, nor keep the job's working directory in use.
void AgentProcess::leave_the_job() noexcept {
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, nullptr);
  ::prctl(PR_SET_NAME, "gradwire-agent");  // NOLINT(*-vararg)
  ::prctl(PR_SET_PDEATHSIG, 0);            // NOLINT(*-vararg)
  constexpr int kFar = 64;
  int orders = ::fcntl(orders_, F_DUPFD, kFar);                        // NOLINT(*-vararg)
  int process = process_ < 0 ? -1 : ::fcntl(process_, F_DUPFD, kFar);  // NOLINT(*-vararg)
  const int nothing = ::open("/dev/null", O_RDWR);                     // NOLINT(*-vararg)
  for (const int standard : {0, 1, 2}) {
    if (nothing < 0 || ::dup2(nothing, standard) < 0) {
      ::close(standard);
    }
  }
  orders_ = move_to(orders, 3);
  process_ = move_to(process, 4);
  close_from(process_ < 0 ? 4 : 5);
  static_cast<void>(!::chdir("/"));
}

void AgentProcess::add(std::uint32_t who, int descriptor) noexcept {
  remove(who);
  epoll_event event{};
  event.events = EPOLLRDHUP;
  event.data.u32 = who;
  if (count_ == room_.size() || ::epoll_ctl(poll_, EPOLL_CTL_ADD, descriptor, &event) != 0) {
    ::close(descriptor);
    return;
  }
  room_[count_++] = {.who = who, .descriptor = descriptor};
}

void AgentProcess::remove(std::uint32_t who) noexcept {
  for (std::size_t i = 0; i < count_; ++i) {
    if (room_[i].who == who) {
      ::close(room_[i].descriptor);
      room_[i] = room_[--count_];
      return;
    }
  }
}

bool AgentProcess::take_orders() noexcept {
  for (;;) {
    AgentOrder order;
    tcp::Socket received;
    const Received what = receive_with(orders_, std::as_writable_bytes(std::span(&order, 1)), received);
    if (what != Received::all) {
      return what == Received::nothing;
    }
    const int descriptor = received.valid() ? ::fcntl(received.fd(), F_DUPFD, 5) : -1;  // NOLINT(*-vararg)
    if (order.kind == AgentOrder::kBegin && descriptor >= 0) {
      self_ = order.who;
      page_ = descriptor;
    } else if (order.kind == AgentOrder::kConnection && descriptor >= 0) {
      add(order.who, descriptor);
    } else if (order.kind == AgentOrder::kForget) {
      remove(order.who);
    }
  }
}

// A closed connection is useless. The process may open another one.
void AgentProcess::look_at_connections() noexcept {
  std::array<epoll_event, 16> events{};
  const int count = ::epoll_wait(poll_, events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const AgentOrder said{.kind = AgentOrder::kBroken, .who = events[static_cast<std::size_t>(i)].data.u32};
    remove(said.who);
    static_cast<void>(::send(orders_, &said, sizeof(said), MSG_DONTWAIT | MSG_NOSIGNAL));
  }
}

// Sends the word of the end. It always fits, since nothing else is in the socket's send buffer.
void AgentProcess::tell() noexcept {
  LastWord last;
  if (page_ < 0 || !WitnessPage::read_once(page_, last)) {
    return;
  }
  const tcp::EndOfProcess end{.who = self_, .epoch = last.epoch, .step = last.step};
  const tcp::PacketHead head = tcp::make_head(tcp::PacketKind::word, 0, 0, tcp::bytes_of_body(end));
  std::array<std::byte, sizeof(head) + sizeof(end)> packet{};
  std::memcpy(packet.data(), &head, sizeof(head));
  std::memcpy(packet.data() + sizeof(head), &end, sizeof(end));
  for (const Connection& connection : room_.first(count_)) {
    static_cast<void>(::send(connection.descriptor, packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
  }
}

void AgentProcess::run() noexcept {
  leave_the_job();
  poll_ = ::epoll_create1(EPOLL_CLOEXEC);
  void* const room = ::mmap(nullptr, kMostConnections * sizeof(Connection), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (orders_ < 0 || poll_ < 0 || room == MAP_FAILED) {
    ::_exit(1);
  }
  room_ = std::span(static_cast<Connection*>(room), kMostConnections);
  for (bool lives = true; lives;) {
    std::array<pollfd, 3> polled{{{orders_, POLLIN, 0}, {process_, POLLIN, 0}, {poll_, POLLIN, 0}}};
    if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) {
      break;
    }
    lives = polled[1].revents == 0;
    lives = take_orders() && lives;  // reads the process's last orders too
    if (lives) {
      look_at_connections();
    }
  }
  tell();
  ::_exit(0);
}

}  // namespace gradwire::transport::witness
