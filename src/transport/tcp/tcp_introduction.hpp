// What a process that joins a job, and those of the job, tell each other first. A joiner asks each process in ascending
// order of their ids for its turn, which it has there alone until it is admitted or 5 s are over. Once it has them all
// nobody else can join, so that it knows all processes. It gives itself the next id, and each process admits it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/processes.hpp"
#include "transport/tcp/tcp_card.hpp"

namespace gradwire::transport::tcp {

/// A joiner says one of these for a rank in its greetings, the same on both lanes; no process has such an id.
inline constexpr std::uint32_t kFirstToken = 1U << 30U;
inline constexpr std::uint32_t kEndOfTokens = 1U << 31U;
/// Of a joiner at one process.
inline constexpr std::chrono::seconds kTurn{5};

/// "process 4711 on host node7": this one.
[[nodiscard]] std::string process_name();

/// A process as others know it.
struct Acquaintance {
  enum class State : std::uint8_t { alive, ended, unreachable };
  Processes::Id id = 0;
  State state = State::alive;
  Card card = {};
  std::string name = {};
  std::string host = {};     // host_identity(); empty: it has no witness
  std::string witness = {};  // where others of that host announce themselves

  /// Without a line's end.
  [[nodiscard]] std::string to_text() const;
  /// Nothing where it is not exactly that. The card may have no places, as where nobody can join.
  [[nodiscard]] static std::optional<Acquaintance> from_text(const std::string& text);
};

/// What a process tells a joiner whose turn it is.
struct Turn {
  Processes::Id start = 0;          // how many processes there were; their ids are those below
  Processes::Id highest = 0;        // id that was ever given, as far as is known
  std::vector<Acquaintance> known;  // itself, too

  [[nodiscard]] std::string to_text() const;
  [[nodiscard]] static std::optional<Turn> from_text(const std::string& text);
};

/// What it answers to the joiner's own Acquaintance, once it can be reached.
inline constexpr std::string_view kAdmitted = "admitted";

/// Framed as messages of a Channel. False, or nothing, where that did not work in time, or `woken` can be read.
[[nodiscard]] bool write_message(const Socket& socket, const std::string& text, Clock::time_point deadline);
[[nodiscard]] std::optional<std::string> read_message(const Socket& socket, Clock::time_point deadline,
                                                      const Socket& woken = {});

}  // namespace gradwire::transport::tcp
