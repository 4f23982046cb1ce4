#include "transport/tcp/tcp_card.hpp"

#include <algorithm>
#include <random>
#include <sstream>
#include <utility>

#include "gradwire/error.hpp"

namespace gradwire::transport::tcp {
namespace {

constexpr std::chrono::seconds kOneTry{5};  // of one address; an unreachable one may say nothing

// Nothing where it does; else why not.
std::string greet(const Socket& socket, Greeting mine, std::uint32_t rank, Clock::time_point deadline) {
  const auto until = std::min(deadline, Clock::now() + kGreetingLimit);
  Greeting theirs;
  const bool answers = write_until(socket, bytes_of(mine), until) && read_until(socket, bytes_of(theirs), until) &&
                       theirs.magic == kGreetingMagic && theirs.nonce == mine.nonce && theirs.rank == rank &&
                       write_until(socket, bytes_of(mine), until);  // the answer came in time
  return answers ? "" : Clock::now() < until ? "somebody else answers" : "no answer";
}

}  // namespace

std::string Card::to_text() const {
  std::string text = std::to_string(nonce);
  for (const Place& place : places) {
    text += " " + place.address + " " + std::to_string(place.port);
  }
  return text;
}

Card Card::from_text(const std::string& text) {
  Card card;
  std::istringstream stream(text);
  stream >> card.nonce;
  for (Place place; stream >> place.address >> place.port;) {
    card.places.push_back(place);
  }
  return card;
}

Socket Card::reach(Clock::time_point deadline, Greeting mine, std::uint32_t theirs, std::string& why) const {
  why.clear();
  mine.nonce = nonce;
  for (const auto& [address, port] : places) {
    std::string reason;
    Socket socket = connect_until(address, port, std::min(deadline, Clock::now() + kOneTry), reason);
    if (socket.valid()) {
      reason = greet(socket, mine, theirs, deadline);
      if (reason.empty()) {
        return socket;
      }
    }
    why += (why.empty() ? "" : ", ") + address + " port " + std::to_string(port) + ": " + reason;
  }
  return {};
}

Listening listen_on(const std::vector<std::string>& addresses, const std::string& who) {
  Listening made{.listeners = {}, .card = {.nonce = random_number(), .places = {}}};
  std::string why;
  for (const std::string& address : addresses) {
    if (Listener listener = listen_at(address, why); listener.socket.valid()) {
      made.card.places.push_back({address, listener.port});
      made.listeners.push_back(std::move(listener));
    }
  }
  if (made.listeners.empty()) {
    throw Error(ErrorCode::transport, who + "none of this host's addresses can be listened on: " + why);
  }
  return made;
}

std::uint64_t random_number() {
  std::random_device random;
  return std::uint64_t{random()} << 32U | random();
}

}  // namespace gradwire::transport::tcp
