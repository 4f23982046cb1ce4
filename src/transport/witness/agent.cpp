#include "transport/witness/agent.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <span>
#include <utility>

#include "base/closed_in_children.hpp"
#include "transport/witness/agent_process.hpp"
#include "transport/witness/local_socket.hpp"

namespace gradwire::transport::witness {

std::shared_ptr<Agent> Agent::start() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
    return nullptr;
  }
  tcp::Socket own(ends[0]);
  const tcp::Socket agents(ends[1]);
  const tcp::Socket process = System::real().watch(::getpid());  // not valid: the end of the connection shows it
  AgentProcess::prepare();
  const pid_t child = ::fork();
  if (child == 0) {
    // A second fork gives the agent another parent at once, so that this program's waits for its own children do not
    // see it.
    if (::fork() == 0) {
      AgentProcess(agents.fd(), process.fd()).run();
    }
    ::_exit(0);
  }
  int status = 0;
  while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (child < 0 || !close_in_children(own.fd())) {
    return nullptr;
  }
  return std::make_shared<Agent>(std::move(own));
}

bool Agent::say(std::uint32_t kind, std::uint32_t who, int descriptor) {
  const AgentOrder order{.kind = kind, .who = who};
  const MutexLock lock(mutex_);
  return send_with(socket_, std::as_bytes(std::span(&order, 1)), descriptor);  // callers try again after a failure
}

bool Agent::begin(std::uint32_t self, const WitnessPage& page) { return say(AgentOrder::kBegin, self, page.memory()); }

bool Agent::give(std::uint32_t who, tcp::Socket connection) {
  return say(AgentOrder::kConnection, who, connection.fd());
}

bool Agent::forget(std::uint32_t who) { return say(AgentOrder::kForget, who, -1); }

bool Agent::next_broken(std::uint32_t& who) {
  AgentOrder said;
  tcp::Socket none;
  if (receive_with(socket_, std::as_writable_bytes(std::span(&said, 1)), none) != Received::all) {
    return false;
  }
  who = said.who;
  return true;
}

}  // namespace gradwire::transport::witness
