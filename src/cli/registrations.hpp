// The side of `gradwire run` that hears which ranks have the drop-in, and says so to all of them
// (drop_in/registration.hpp, docs/clusters.md).
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "cli/registration_worlds.hpp"

namespace gradwire::cli {

/// Listens in a thread of its own as long as it lives: on a Unix socket for processes of this host, by TCP for those of
/// others. Nobody who connects can hold up another: what does not begin with the token is dropped, who says nothing is
/// dropped after 2 s, and of too many the oldest that has said nothing goes first.
class Registrations {
 public:
  struct Options {
    std::string interface = {};  // whose addresses are used; empty: all of this host but the loopback's
    RegistrationWorlds::Patience patience = {};
    std::chrono::milliseconds to_speak = std::chrono::seconds(2);  // of one who has connected
    std::size_t most_connections = 0;                              // 0: as the limit on open files allows
    bool on_loopback = false;                                      // by TCP on its addresses instead, for tests
  };

  /// Error(transport) where nothing can be listened on.
  explicit Registrations(const Options& options);
  ~Registrations();
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;

  /// GRADWIRE_REGISTER of the ranks.
  [[nodiscard]] std::string variable() const;
  /// Why ranks on other hosts cannot register; empty: they can.
  [[nodiscard]] const std::string& without_other_hosts() const noexcept;
  /// Before the job starts again: what was left of the last one is not listened to any more. variable() is another one.
  void start_anew();
  /// Since the last start.
  [[nodiscard]] SeenRanks seen() const;

 private:
  class Server;
  std::unique_ptr<Server> server_;
};

}  // namespace gradwire::cli
