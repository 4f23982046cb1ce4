// The first messages between a process that joins a job and the processes of the job. A joiner asks each process, in
// ascending order of ids, for its turn; it alone has the turn there until it is admitted or 5 s are over. Once it has
// the turns of all processes no one else can join, so it knows all processes. It takes the next id, and each process
// admits it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/processes.hpp"
#include "transport/tcp/tcp_card.hpp"

namespace gradwire::transport::tcp {

/// A joiner's greetings have a token from here on instead of a rank, the same on both lanes; no process has such an id.
inline constexpr std::uint32_t kFirstToken = 1U << 30U;
inline constexpr std::uint32_t kEndOfTokens = 1U << 31U;
/// How long a joiner has its turn at one process.
inline constexpr std::chrono::seconds kTurn{5};

/// The name of this process: "process 4711 on host node7".
[[nodiscard]] std::string process_name();

/// What other processes know about one process.
struct Acquaintance {
  enum class State : std::uint8_t { alive, ended, unreachable };
  Processes::Id id = 0;
  State state = State::alive;
  Card card = {};
  std::string name = {};
  std::string host = {};     // host_identity(); empty: it has no witness
  std::string witness = {};  // the name under which processes of that host announce themselves to it

  /// One line, without its end.
  [[nodiscard]] std::string to_text() const;
  /// The inverse of to_text(); nothing where the text is anything else. The card has no places where no one can join.
  [[nodiscard]] static std::optional<Acquaintance> from_text(const std::string& text);
};

/// The message of a process to a joiner whose turn it is.
struct Turn {
  Processes::Id start = 0;          // number of processes at the beginning, whose ids are below it
  Processes::Id highest = 0;        // highest id that was ever given, as far as is known
  std::vector<Acquaintance> known;  // all processes that it knows, with itself

  [[nodiscard]] std::string to_text() const;
  [[nodiscard]] static std::optional<Turn> from_text(const std::string& text);
};

/// The answer to the joiner's own Acquaintance, once the process can be reached.
inline constexpr std::string_view kAdmitted = "admitted";

/// Write and read texts framed like the messages of a Channel. False, or nothing, where that did not work in time, or
/// `woken` can be read.
[[nodiscard]] bool write_message(const Socket& socket, const std::string& text, Clock::time_point deadline);
[[nodiscard]] std::optional<std::string> read_message(const Socket& socket, Clock::time_point deadline,
                                                      const Socket& woken = {});

}  // namespace gradwire::transport::tcp
