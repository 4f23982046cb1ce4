// What two ranks say first on a new connection: who connects greets, the other answers, and who connects says that the
// answer came in time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gradwire::transport::tcp {

inline constexpr std::uint64_t kGreetingMagic = 0x3170637465726967;  // "giretcp1"
inline constexpr std::chrono::seconds kGreetingLimit{5};             // whoever connected says at once who it is

/// What a connection is for.
enum class Purpose : std::uint32_t {
  messages,
  control,
  agent,  // on which the agent of a process tells of its end
};

struct Greeting {
  std::uint64_t magic = kGreetingMagic;
  std::uint64_t nonce = 0;    // of who is connected to
  std::uint32_t rank = 0;     // of who sends it
  std::uint32_t purpose = 0;  // a Purpose

  friend bool operator==(const Greeting&, const Greeting&) = default;
};
static_assert(sizeof(Greeting) == 24, "no padding: it travels as bytes");

[[nodiscard]] inline std::span<std::byte> bytes_of(Greeting& greeting) {
  return std::as_writable_bytes(std::span(&greeting, 1));
}

/// Whether `answer` is what `rank` says to who greeted it with `mine`.
[[nodiscard]] inline bool is_answer(const Greeting& answer, const Greeting& mine, std::uint32_t rank) {
  return answer.magic == kGreetingMagic && answer.nonce == mine.nonce && answer.rank == rank;
}

}  // namespace gradwire::transport::tcp
