// The side of `gradwire run` that learns which ranks have the drop-in, and tells all of them (drop_in/registration.hpp,
// docs/how-to/clusters.md).
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "cli/registration_worlds.hpp"

namespace gradwire::cli {

/// Listens in a thread of its own as long as it lives: on a Unix socket for processes of this host, by TCP for those of
/// others. No connection can delay another: one that does not begin with the token is dropped, one that sends nothing
/// is dropped after 2 s, and of too many the oldest that has sent nothing is dropped first.
class RegistrationServer {
 public:
  struct Options {
    std::string interface = {};  // the interface to use; empty: all of this host except the loopback
    RegistrationWorlds::Patience patience = {};
    std::chrono::milliseconds to_speak = std::chrono::seconds(2);  // time for a connection to send its first letter
    std::size_t most_connections = 0;                              // 0: as many as the limit on open files allows
    bool on_loopback = false;                                      // uses TCP on the loopback instead, for tests
  };

  /// Error(transport) where it cannot listen on any address.
  explicit RegistrationServer(const Options& options);
  ~RegistrationServer();
  RegistrationServer(const RegistrationServer&) = delete;
  RegistrationServer& operator=(const RegistrationServer&) = delete;

  /// The value of GRADWIRE_REGISTER for the ranks.
  [[nodiscard]] std::string variable() const;
  /// The reason why ranks on other hosts cannot register; empty: they can.
  [[nodiscard]] const std::string& remote_problem() const noexcept;
  /// To be called before the job starts again: drops connections of the last run, and changes variable().
  void start_anew();
  /// The letters since the last start.
  [[nodiscard]] SeenRanks seen() const;

 private:
  class Listener;
  std::unique_ptr<Listener> listener_;
};

}  // namespace gradwire::cli
