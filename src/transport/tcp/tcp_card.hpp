// A process's card for others: the addresses where it listens, and a secret number.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "transport/tcp/tcp_greeting.hpp"
#include "transport/tcp/tcp_keys.hpp"
#include "transport/tcp/tcp_socket.hpp"

namespace gradwire::transport::tcp {

struct Card {
  struct Place {
    std::string address;
    std::uint16_t port = 0;
  };
  std::uint64_t nonce = 0;
  std::vector<Place> places;

  /// "NONCE ADDRESS PORT ADDRESS PORT ..."
  [[nodiscard]] std::string to_text() const;
  /// The inverse of to_text(); nothing where the text is anything else. Addresses are numeric. A card may have no
  /// places.
  [[nodiscard]] static std::optional<Card> from_text(std::string_view text);

  /// Makes a connection on which the owner of this card, as rank `theirs`, has answered the greeting `mine`, to which
  /// the card's number is added. Each address is tried once; those that lead nowhere, or to another host with the same
  /// address, are skipped. If the result is not valid, `why` has the reason for each.
  /// `keys` encrypt it, unless null.
  [[nodiscard]] Socket reach(Clock::time_point deadline, Greeting mine, std::uint32_t theirs, std::string& why,
                             const ConnectionKeys* keys = nullptr) const;
  /// Whether the process answers so, or accepts the connection and sends nothing in time, as a stopped process does, or
  /// ends it, as one with another key does.
  [[nodiscard]] bool may_be_running(Clock::time_point deadline, Greeting mine, std::uint32_t theirs, std::string& why,
                                    const ConnectionKeys* keys = nullptr) const;
};

struct Listening {
  std::vector<Listener> listeners;
  Card card;
};
/// Listens on those of the addresses where that is possible, with a new number. Error(transport), which begins with
/// `who`, where it is possible on none.
[[nodiscard]] Listening listen_on(const std::vector<std::string>& addresses, const std::string& who);

/// Says in the log where this process listens, and whether what it sends is encrypted.
void tell_where(const Listening& listening, bool encrypted);

[[nodiscard]] std::uint64_t random_number();

/// Takes the text up to the next space, and removes that space.
[[nodiscard]] std::string_view next_word(std::string_view& text);
/// Reads a number; false unless the word is exactly a number of that type.
template <typename Number>
[[nodiscard]] bool read_number(std::string_view word, Number& number) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size();
}

}  // namespace gradwire::transport::tcp
