// How a process of a job that goes on when ranks end tells the `gradwire run` that started it how it ended: launchers
// that let the others live say nothing of that, or say that all is well.
#pragma once

#include <optional>
#include <string>

#include "transport/tcp/tcp_registration.hpp"

namespace gradwire::transport::tcp {

/// One process's side. What cannot be told within two seconds is not.
class EndReport {
 public:
  /// `server`: as GRADWIRE_REGISTER says; nothing is told where it is none.
  explicit EndReport(const std::string& server);

  /// This process is one of the job's.
  void begin() noexcept;
  /// It exits with this status, or kNoPlace. The first one counts.
  void end(int status) noexcept;

 private:
  void tell(RegistrationLetter::Kind kind, int status) noexcept;

  std::optional<RegistrationAddress> server_;
  std::uint64_t process_ = 0;
  bool ended_ = false;
};

/// Of this process, by the environment: begins, and also tells of an exit() that nobody announced. A forked child tells
/// nothing.
void report_end_of_this_process() noexcept;
/// It is about to exit with this status.
void this_process_ends(int status) noexcept;
/// It has waited for a place as a rank, and the job has ended without it: that it exits with 0 says nothing of the job.
void this_process_had_no_place() noexcept;

}  // namespace gradwire::transport::tcp
