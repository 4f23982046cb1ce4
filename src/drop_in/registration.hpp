// Finds out which processes of an MPI job have the drop-in: each tells the `gradwire run` that started it, and asks
// about the others. Does not use MPI.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/tcp/tcp_registration.hpp"

namespace gradwire::drop_in {

/// The answer of `gradwire run` about which ranks have the drop-in.
struct RegistrationAnswer {
  enum class Kind : std::uint8_t {
    no_server,    ///< GRADWIRE_REGISTER is not set: nothing is known.
    all,          ///< Every rank of MPI_COMM_WORLD has it.
    missing,      ///< These do not have it, as far as `gradwire run` knows. Each rank that asks gets the same list.
    unreachable,  ///< This rank could not ask. The others get the answer that it is missing.
  };
  Kind kind = Kind::no_server;
  std::vector<int> missing;  // ranks of MPI_COMM_WORLD, at most 4096 of them
  std::string why;           // unreachable: host, port and the system's reason
};

/// The settings of a process from outside.
struct RegistrationSettings {
  std::optional<std::string> server;  // GRADWIRE_REGISTER
  std::string job;                    // see mpi_job.hpp
  int launched_rank = -1;             // likewise
  std::chrono::milliseconds to_connect = std::chrono::seconds(2);
  /// The wait for the answer, which comes within 60 s: longer than the server waits for a rank that is still in
  /// MPI_Init.
  std::chrono::milliseconds to_be_answered = std::chrono::seconds(75);

  [[nodiscard]] static RegistrationSettings of_environment();
};

/// The side of one process. Not thread-safe.
class Registration {
 public:
  Registration() = default;
  explicit Registration(RegistrationSettings settings) : settings_(std::move(settings)) {}

  /// To be called before MPI_Init. Connects and registers; returns within 2 s even if that fails.
  void begin() noexcept;
  /// To be called after the library's MPI_Init: waits until the server answers. It answers "all" as soon as all ranks
  /// of that world have asked. Otherwise it names the missing ranks 5 s after the first question, but waits longer for
  /// ranks that have begun and are still in MPI_Init. begin() may have been left out. Closes the connection.
  [[nodiscard]] RegistrationAnswer ask(int rank, int world_size) noexcept;

 private:
  [[nodiscard]] bool read_settings();
  [[nodiscard]] transport::tcp::RegistrationLetter letter(transport::tcp::RegistrationLetter::Kind kind) const;
  /// Connects, sends this process's first message, and waits for "welcome". Returns false if that fails; `why_` then
  /// says what was tried.
  [[nodiscard]] bool reach();
  [[nodiscard]] std::optional<RegistrationAnswer> hear(transport::tcp::Clock::time_point deadline);
  [[nodiscard]] RegistrationAnswer question(int rank, int world_size);

  std::optional<RegistrationSettings> settings_;  // none: read from the environment
  std::optional<transport::tcp::RegistrationAddress> server_;
  transport::tcp::Socket socket_;
  std::uint64_t process_ = 0;
  bool begun_ = false;
  std::string why_;
};

}  // namespace gradwire::drop_in
