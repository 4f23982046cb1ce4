// What a process tells others of itself: where it listens, and a number that nobody else knows.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "transport/tcp/tcp_greeting.hpp"
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
  /// Nothing where it is not exactly that, with numeric addresses. A card may have no places.
  [[nodiscard]] static std::optional<Card> from_text(std::string_view text);

  /// A connection on which whoever has this card, and says `theirs` for a rank, has answered the greeting `mine`, to
  /// which the number is added. Each address is tried once: those that lead nowhere, or to another host of the same
  /// address, are passed over. Not valid: `why` says it for each.
  [[nodiscard]] Socket reach(Clock::time_point deadline, Greeting mine, std::uint32_t theirs, std::string& why) const;
  /// Whether somebody answers so, or takes the connection and says nothing in time, as where the process is stopped.
  [[nodiscard]] bool may_be_there(Clock::time_point deadline, Greeting mine, std::uint32_t theirs,
                                  std::string& why) const;
};

struct Listening {
  std::vector<Listener> listeners;
  Card card;
};
/// On those of the addresses where that is possible, with a new number. Error(transport) where none is: it begins with
/// `who`.
[[nodiscard]] Listening listen_on(const std::vector<std::string>& addresses, const std::string& who);

[[nodiscard]] std::uint64_t random_number();

/// Up to the next space, which goes, too.
[[nodiscard]] std::string_view next_word(std::string_view& text);
/// False where the word is not a number of that type, and nothing else.
template <typename Number>
[[nodiscard]] bool read_number(std::string_view word, Number& number) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size();
}

}  // namespace gradwire::transport::tcp
