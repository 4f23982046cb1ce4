// The first messages on a new connection between two ranks: the connecting rank greets, the other one answers, and the
// connecting rank confirms that the answer came in time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gradwire::transport::tcp {

inline constexpr std::uint64_t kGreetingMagic = 0x3170637465726967;  // "giretcp1"
inline constexpr std::chrono::seconds kGreetingLimit{5};             // a rank that connects greets at once

/// The purpose of a connection.
enum class Purpose : std::uint32_t {
  messages,
  control,
  agent,  // the agent of a process reports the process's end on it
};

struct Greeting {
  std::uint64_t magic = kGreetingMagic;
  std::uint64_t nonce = 0;    // secret of the accepting side
  std::uint32_t rank = 0;     // rank of the sender
  std::uint32_t purpose = 0;  // a Purpose

  friend bool operator==(const Greeting&, const Greeting&) = default;
};
static_assert(sizeof(Greeting) == 24, "no padding: it travels as bytes");

[[nodiscard]] inline std::span<std::byte> bytes_of(Greeting& greeting) {
  return std::as_writable_bytes(std::span(&greeting, 1));
}

/// Whether `answer` is the answer of `rank` to the greeting `mine`.
[[nodiscard]] inline bool is_answer(const Greeting& answer, const Greeting& mine, std::uint32_t rank) {
  return answer.magic == kGreetingMagic && answer.nonce == mine.nonce && answer.rank == rank;
}

}  // namespace gradwire::transport::tcp
