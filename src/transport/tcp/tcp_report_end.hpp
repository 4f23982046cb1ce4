// Tells the `gradwire run` that started it how a process ended, in a job that goes on when ranks end: launchers that
// let the others live do not report that, or report success.
#pragma once

#include <optional>
#include <string>

#include "transport/tcp/tcp_registration.hpp"

namespace gradwire::transport::tcp {

/// One process's side. A report that cannot be sent within two seconds is dropped.
class EndReport {
 public:
  /// `server`: the value of GRADWIRE_REGISTER; nothing is reported where it is no address.
  explicit EndReport(const std::string& server);

  /// Reports that this process belongs to the job.
  void begin() noexcept;
  /// Reports that it exits with this status, or kNoPlace. The first call counts.
  void end(int status) noexcept;

 private:
  void tell(RegistrationLetter::Kind kind, int status) noexcept;

  std::optional<RegistrationAddress> server_;
  std::uint64_t process_ = 0;
  bool ended_ = false;
};

/// Begins to report for this process, if the environment asks for it; it then also reports an exit() that was not
/// announced. A forked child reports nothing.
void report_end_of_this_process() noexcept;
/// Says that this process is about to exit with this status.
void this_process_ends(int status) noexcept;
/// Says that this process waited to become a rank until the job ended: its exit status 0 says nothing about the job.
void this_process_had_no_place() noexcept;

}  // namespace gradwire::transport::tcp
