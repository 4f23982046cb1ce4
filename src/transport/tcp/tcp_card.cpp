#include "transport/tcp/tcp_card.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <random>
#include <utility>

#include "base/log.hpp"
#include "gradwire/error.hpp"

namespace gradwire::transport::tcp {
namespace {

constexpr std::chrono::seconds kOneTry{5};  // for one address; an unreachable one may not answer at all
constexpr std::string_view kNoAnswer = "no answer";

// Greets the other side. Returns an empty text where it answers as expected, otherwise the reason. `stranger`: it has
// given an answer, and a process of this job would have given another one.
std::string greet(const Socket& socket, Greeting mine, std::uint32_t rank, Clock::time_point deadline, bool& stranger) {
  const auto until = std::min(deadline, Clock::now() + kGreetingLimit);
  Greeting theirs;
  stranger = false;
  if (!shakes_hands(socket, until)) {
    return Clock::now() < until
               ? "it has another key, or none, or is no process of this job (" + text_of_error(socket, errno) + ")"
               : std::string(kNoAnswer);
  }
  if (!write_until(socket, bytes_of(mine), until) || !read_until(socket, bytes_of(theirs), until)) {
    return Clock::now() < until ? "it ended the connection: it has a key, or is no process of this job"
                                : std::string(kNoAnswer);
  }
  if (!is_answer(theirs, mine, rank)) {
    stranger = true;
    return "somebody else answers";
  }
  return write_until(socket, bytes_of(mine), until) ? "" : std::string(kNoAnswer);  // the answer came in time
}

// `perhaps`: something accepted a connection, and may be the process.
Socket try_all(const Card& card, Clock::time_point deadline, Greeting mine, std::uint32_t theirs, std::string& why,
               bool& perhaps, const ConnectionKeys* keys) {
  why.clear();
  mine.nonce = card.nonce;
  for (const auto& [address, port] : card.places) {
    std::string reason;
    Socket socket = connect_until(address, port, std::min(deadline, Clock::now() + kOneTry), reason);
    if (socket.valid()) {
      if (keys != nullptr) {
        keys->encrypt(socket, mine, theirs);
      }
      bool stranger = false;
      reason = greet(socket, mine, theirs, deadline, stranger);
      if (reason.empty()) {
        return socket;
      }
      perhaps = perhaps || !stranger;
    }
    why += (why.empty() ? "" : ", ") + address + " port " + std::to_string(port) + ": " + reason;
  }
  return {};
}

bool is_address(const std::string& text) {
  in6_addr any{};
  return inet_pton(AF_INET, text.c_str(), &any) == 1 || inet_pton(AF_INET6, text.c_str(), &any) == 1;
}

}  // namespace

std::string_view next_word(std::string_view& text) {
  const std::size_t space = text.find(' ');
  const std::string_view word = text.substr(0, space);
  text.remove_prefix(space == std::string_view::npos ? text.size() : space + 1);
  return word;
}

std::string Card::to_text() const {
  std::string text = std::to_string(nonce);
  for (const Place& place : places) {
    text += " " + place.address + " " + std::to_string(place.port);
  }
  return text;
}

std::optional<Card> Card::from_text(std::string_view text) {
  Card card;
  if (!read_number(next_word(text), card.nonce)) {
    return std::nullopt;
  }
  while (!text.empty()) {
    Place place{.address = std::string(next_word(text))};
    if (!is_address(place.address) || !read_number(next_word(text), place.port) || place.port == 0) {
      return std::nullopt;
    }
    card.places.push_back(std::move(place));
  }
  return card;
}

Socket Card::reach(Clock::time_point deadline, Greeting mine, std::uint32_t theirs, std::string& why,
                   const ConnectionKeys* keys) const {
  bool perhaps = false;
  return try_all(*this, deadline, mine, theirs, why, perhaps, keys);
}

bool Card::may_be_running(Clock::time_point deadline, Greeting mine, std::uint32_t theirs, std::string& why,
                          const ConnectionKeys* keys) const {
  bool perhaps = false;
  return try_all(*this, deadline, mine, theirs, why, perhaps, keys).valid() || perhaps;
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

void tell_where(const Listening& listening, bool encrypted) {
  std::string places;
  for (const Card::Place& place : listening.card.places) {
    places += (places.empty() ? "" : ", ") + place.address + " port " + std::to_string(place.port);
  }
  log(LogLevel::info, "listening for processes of the job at " + places + "; connections are " +
                          (encrypted ? "encrypted (TLS 1.3 by the key of the job)" : "not encrypted"));
}

std::uint64_t random_number() {
  std::random_device random;
  return std::uint64_t{random()} << 32U | random();
}

}  // namespace gradwire::transport::tcp
