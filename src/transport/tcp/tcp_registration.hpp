// How ranks reach the `gradwire run` that started them: what the environment says of it, and the letters that go there
// and back. docs/decisions/drop-in.md, D153.
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
  std::string token;                // whoever connects begins with it
  std::string proof;                // the answer begins with it
  std::string local;                // name of the Unix socket, which is in no folder; empty: there is none
  std::vector<Card::Place> places;  // for ranks on other hosts

  /// With a new token, proof and name.
  [[nodiscard]] static RegistrationAddress random();
  /// "TOKEN@PROOF@LOCAL@ADDRESS/PORT,ADDRESS/PORT": neither a shell nor a launcher's list takes a part of it for its
  /// own.
  [[nodiscard]] std::string to_text() const;
  /// Nothing where it is not exactly that.
  [[nodiscard]] static std::optional<RegistrationAddress> from_text(std::string_view text);
};

inline constexpr std::uint32_t kRegistrationVersion = 1;
inline constexpr std::int32_t kNoPlace = -1;  // it waited for a place as a rank, and the job ended before
inline constexpr std::size_t kTokenDigits = 32;
inline constexpr std::size_t kProofDigits = 16;

/// What a process says, as bytes.
struct RegistrationLetter {
  enum class Kind : std::uint32_t {
    begins,  // is about to call MPI_Init; answered by "welcome"
    asks,    // has called it, and is this rank; answered by "all", "missing" or "again"
    runs,    // is of a job that goes on when ranks end, and will say how it ends; answered by "welcome"
    ends,    // such a one, with `status`; likewise
  };
  std::array<char, kTokenDigits> token{};
  std::uint32_t version = kRegistrationVersion;
  Kind kind = Kind::begins;
  std::uint64_t process = 0;  // a random number
  std::int32_t rank = -1;     // of MPI_COMM_WORLD; before MPI_Init what the launcher says, or -1
  union {
    std::int32_t world_size = 0;  // of who asks; 0: not yet known
    std::int32_t status;          // of who ends: what it exits with, or kNoPlace
  };
  std::array<char, 192> job{};  // what its launcher calls the job, ended by a zero
  std::array<char, 64> host{};  // likewise
};
static_assert(sizeof(RegistrationLetter) == kTokenDigits + 24 + 192 + 64, "no padding: it travels as bytes");

/// The beginning of an answer; the numbers of `named` ranks follow, 4 bytes each.
struct RegistrationReply {
  enum class Kind : std::uint32_t {
    welcome,
    all,
    missing,
    again,    // there are too many connections at once: ask again a little later
    version,  // of another gradwire
  };
  static constexpr std::uint32_t kMostNamed = 4096;

  std::array<char, kProofDigits> proof{};
  Kind kind = Kind::welcome;
  std::uint32_t named = 0;
};
static_assert(sizeof(RegistrationReply) == kProofDigits + 8, "no padding: it travels as bytes");

/// Of this name, in no folder. Not valid where it cannot be made: `why` says it.
[[nodiscard]] Socket listen_locally(const std::string& name, std::string& why);
/// Begins to connect, and waits for nothing: the socket can be written to once it is connected. Not valid where it is
/// known at once that it does not work, for the reason `code` (errno).
[[nodiscard]] Socket begin_connecting_locally(const std::string& name, int& code);
[[nodiscard]] Socket begin_connecting(const Card::Place& place, int& code);

/// The name of this host, cut to the field of a letter.
[[nodiscard]] std::string host_name();

}  // namespace gradwire::transport::tcp
