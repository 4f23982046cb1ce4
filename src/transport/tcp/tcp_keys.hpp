// The keys of a job's connections. Each connection has a pre-shared key of its own, derived from the key of the job,
// the two processes, the purpose, and the secret number of the accepting process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "security/cryptography.hpp"
#include "security/key.hpp"
#include "transport/tcp/tcp_greeting.hpp"
#include "transport/tcp/tcp_socket.hpp"

namespace gradwire::transport::tcp {

/// The ranks that may connect, as they name themselves, and the last purpose that their connections may have.
struct Callers {
  std::uint32_t first = 0;
  std::uint32_t end = 0;
  Purpose last = Purpose::control;
};

class ConnectionKeys : public std::enable_shared_from_this<ConnectionKeys> {
 public:
  ConnectionKeys(const security::Cryptography& cryptography, security::Key job)
      : cryptography_(cryptography), job_(std::move(job)) {}
  /// Those of GRADWIRE_KEY; null where it is not set: connections are not encrypted. Errors are those of key_setting(),
  /// read_key_file() and Cryptography::load().
  [[nodiscard]] static std::shared_ptr<const ConnectionKeys> of_job();

  /// Encrypts this new connection to rank `theirs`, which is to be greeted by `mine`. Error(internal) without memory.
  void encrypt(Socket& socket, const Greeting& mine, std::uint32_t theirs) const;
  /// Encrypts a connection that came to the process with the greeting `own`.
  void encrypt_accepted(Socket& socket, const Greeting& own, const Callers& callers) const;
  /// A text that differs for different keys, and tells nothing else of them.
  [[nodiscard]] std::string check_value() const;

 private:
  security::Cryptography cryptography_;
  security::Key job_;
};

}  // namespace gradwire::transport::tcp
