#include "transport/tcp/tcp_introduction.hpp"

#include <unistd.h>

#include <array>
#include <cstring>
#include <sstream>

namespace gradwire::transport::tcp {
namespace {

constexpr std::size_t kMostText = 16U << 20U;  // of all processes of a job
constexpr std::array kStates{"alive", "ended", "unreachable"};

}  // namespace

std::string process_name() {
  std::array<char, 256> host{};
  static_cast<void>(gethostname(host.data(), host.size() - 1));
  return "process " + std::to_string(getpid()) + " on host " + host.data();
}

std::string Acquaintance::to_text() const {
  return std::string(kStates.at(static_cast<std::size_t>(state))) + " " + std::to_string(id) + " " + card.to_text() +
         "\t" + name;
}

std::optional<Acquaintance> Acquaintance::from_text(const std::string& text) {
  Acquaintance read;
  const std::size_t tab = text.find('\t');
  std::istringstream stream(text.substr(0, tab));
  std::string state;
  if (tab == std::string::npos || !(stream >> state >> read.id)) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < kStates.size(); ++i) {
    if (state == kStates.at(i)) {
      read.state = static_cast<State>(i);
    }
  }
  std::string card;
  std::getline(stream, card);
  read.card = Card::from_text(card);
  read.name = text.substr(tab + 1);
  return read;
}

std::string Turn::to_text() const {
  std::string text = std::to_string(start) + " " + std::to_string(highest) + "\n";
  for (const Acquaintance& one : known) {
    text += one.to_text() + "\n";
  }
  return text;
}

std::optional<Turn> Turn::from_text(const std::string& text) {
  Turn turn;
  std::istringstream stream(text);
  std::string line;
  if (!(stream >> turn.start >> turn.highest) || !std::getline(stream, line)) {
    return std::nullopt;
  }
  while (std::getline(stream, line)) {
    auto one = Acquaintance::from_text(line);
    if (!one) {
      return std::nullopt;
    }
    turn.known.push_back(std::move(*one));
  }
  return turn;
}

bool write_message(const Socket& socket, const std::string& text, Clock::time_point deadline) {
  const auto length = static_cast<std::uint32_t>(text.size());
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  bytes += text;
  return write_until(socket, std::as_bytes(std::span(bytes)), deadline);
}

std::optional<std::string> read_message(const Socket& socket, Clock::time_point deadline, const Socket& woken) {
  std::uint32_t length = 0;
  if (!read_until(socket, std::as_writable_bytes(std::span(&length, 1)), deadline, woken) || length > kMostText) {
    return std::nullopt;
  }
  std::string text(length, '\0');
  if (!read_until(socket, std::as_writable_bytes(std::span(text)), deadline, woken)) {
    return std::nullopt;
  }
  return text;
}

}  // namespace gradwire::transport::tcp
