#include "transport/tcp/tcp_introduction.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <sstream>
#include <string_view>

namespace gradwire::transport::tcp {
namespace {

constexpr std::size_t kMostText = 16U << 20U;  // for the texts of all processes of a job
constexpr std::size_t kLongestName = 1000;     // a host's has up to 255 characters
constexpr std::array<std::string_view, 3> kStates{"alive", "ended", "unreachable"};

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

}  // namespace

std::string process_name() {
  std::array<char, 256> host{};
  static_cast<void>(gethostname(host.data(), host.size() - 1));
  return "process " + std::to_string(getpid()) + " on host " + host.data();
}

std::string Acquaintance::to_text() const {
  return std::string(kStates.at(static_cast<std::size_t>(state))) + " " + std::to_string(id) + " " + card.to_text() +
         "\t" + name + (host.empty() ? "" : "\t" + host + " " + witness);
}

std::optional<Acquaintance> Acquaintance::from_text(const std::string& text) {
  Acquaintance read;
  const std::size_t tab = std::min(text.find('\t'), text.size());
  std::string_view rest(text.data(), tab);
  const auto* const state = std::ranges::find(kStates, next_word(rest));
  if (tab == text.size() || state == kStates.end() || !read_number(next_word(rest), read.id) ||
      read.id >= kFirstToken) {
    return std::nullopt;
  }
  auto card = Card::from_text(rest);
  const std::size_t second = std::min(text.find('\t', tab + 1), text.size());
  read.name = text.substr(tab + 1, second - tab - 1);
  if (second < text.size()) {
    std::string_view place = std::string_view(text).substr(second + 1);
    read.host = next_word(place);
    read.witness = place;
    if (read.host.empty()) {
      return std::nullopt;
    }
  }
  for (const std::string* one : {&read.name, &read.host, &read.witness}) {
    if (one->size() > kLongestName || std::ranges::any_of(*one, is_control)) {
      return std::nullopt;
    }
  }
  if (!card) {
    return std::nullopt;
  }
  read.state = static_cast<State>(state - kStates.begin());
  read.card = std::move(*card);
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
  std::getline(stream, line);
  std::string_view rest(line);
  if (!read_number(next_word(rest), turn.start) || !read_number(rest, turn.highest) || turn.start == 0 ||
      turn.highest < turn.start - 1 || turn.highest >= kFirstToken - 1) {
    return std::nullopt;
  }
  while (std::getline(stream, line)) {
    auto one = Acquaintance::from_text(line);
    if (!one || one->card.places.empty() || one->id > turn.highest) {
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
