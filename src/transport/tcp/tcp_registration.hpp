// How ranks reach the `gradwire run` that started them: its address in the environment, and the letters in both
// directions. docs/decisions/drop-in.md, D153.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/tcp/tcp_card.hpp"
#include "transport/tcp/tcp_socket.hpp"

namespace gradwire::transport::tcp {

/// The value of GRADWIRE_REGISTER.
struct RegistrationAddress {
  std::string token;                // every letter begins with it
  std::string proof;                // every answer begins with it
  std::string local;                // name of the Unix socket, which is in no folder; empty: there is none
  std::vector<Card::Place> places;  // for ranks on other hosts

  /// An address with a new token, proof and name.
  [[nodiscard]] static RegistrationAddress random();
  /// "TOKEN@PROOF@LOCAL@ADDRESS/PORT,ADDRESS/PORT", in which neither a shell nor a launcher's list gives any character
  /// a meaning of its own.
  [[nodiscard]] std::string to_text() const;
  /// The inverse of to_text(); nothing where the text is anything else.
  [[nodiscard]] static std::optional<RegistrationAddress> from_text(std::string_view text);
};

inline constexpr std::uint32_t kRegistrationVersion = 1;
inline constexpr std::int32_t kNoPlace = -1;  // the process waited to become a rank until the job ended
inline constexpr std::size_t kTokenDigits = 32;
inline constexpr std::size_t kProofDigits = 16;

/// A letter of a process, as bytes.
struct RegistrationLetter {
  enum class Kind : std::uint32_t {
    begins,  // it is about to call MPI_Init; answered by "welcome"
    asks,    // it has called MPI_Init, and is this rank; answered by "all", "missing" or "again"
    runs,    // its job goes on when ranks end, and it will say how it ends; answered by "welcome"
    ends,    // the process of such a job ends with `status`; answered by "welcome"
  };
  std::array<char, kTokenDigits> token{};
  std::uint32_t version = kRegistrationVersion;
  Kind kind = Kind::begins;
  std::uint64_t process = 0;  // a random number
  std::int32_t rank = -1;     // in MPI_COMM_WORLD; before MPI_Init the launcher's number, or -1
  union {
    std::int32_t world_size = 0;  // for `asks`; 0: not yet known
    std::int32_t status;          // for `ends`: the exit status, or kNoPlace
  };
  std::array<char, 192> job{};  // the launcher's name of the job, ended by a zero
  std::array<char, 64> host{};  // name of its host, ended by a zero
};
static_assert(sizeof(RegistrationLetter) == kTokenDigits + 24 + 192 + 64, "no padding: it travels as bytes");

/// The beginning of an answer; the numbers of `named` ranks follow, 4 bytes each.
struct RegistrationReply {
  enum class Kind : std::uint32_t {
    welcome,
    all,
    missing,
    again,    // there are too many connections at once: ask again a little later
    version,  // the process has another version of gradwire
  };
  static constexpr std::uint32_t kMostNamed = 4096;

  std::array<char, kProofDigits> proof{};
  Kind kind = Kind::welcome;
  std::uint32_t named = 0;
};
static_assert(sizeof(RegistrationReply) == kProofDigits + 8, "no padding: it travels as bytes");

/// Listens on a Unix socket of this name, in no folder. If it cannot be made, the result is not valid, and `why` says
/// why.
[[nodiscard]] Socket listen_locally(const std::string& name, std::string& why);
/// Begins to connect without waiting: the socket can be written to once it is connected. If connecting fails at once,
/// the result is not valid, and `code` (errno) is the reason.
[[nodiscard]] Socket begin_connecting_locally(const std::string& name, int& code);
[[nodiscard]] Socket begin_connecting(const Card::Place& place, int& code);

/// The name of this host, cut to the field of a letter.
[[nodiscard]] std::string host_name();

}  // namespace gradwire::transport::tcp
