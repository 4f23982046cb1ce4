// gradwire run --restarts: a command that failed is started again, on the hosts that are left.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "cli/launch.hpp"

namespace gradwire::cli {

/// Decides how long to wait after each run that failed. It uses no clock.
class RestartBackoff {
 public:
  static constexpr std::chrono::seconds kFirst{1};  // the first wait; each further one is twice as long
  static constexpr std::chrono::seconds kLongest{60};
  static constexpr std::chrono::seconds kSoon{5};     // a run that ends sooner has hardly begun
  static constexpr int kMostSoon = 3;                 // after so many in a row another would end the same way
  static constexpr std::chrono::seconds kWorked{60};  // after a run of that time the waits begin anew

  /// The wait after a run; nothing: the command ended too soon, again and again.
  [[nodiscard]] std::optional<std::chrono::seconds> after(std::chrono::nanoseconds run);

 private:
  std::chrono::seconds next_{kFirst};
  int soon_ = 0;
};

struct Restarting {
  int most = 0;  // most restarts
  std::vector<std::string> command;
  std::optional<std::size_t> launcher = std::nullopt;  // index of mpirun; none: hosts are not checked
  std::optional<Library> mpi = std::nullopt;
  /// Makes the launch from the command for the hosts that are left; `restart` is 0 the first time.
  std::function<Launch(const std::vector<std::string>& command, int restart)> launch;
  /// Called after each run that another one follows: returns a sentence about what it did, or nothing.
  std::function<std::string()> between = {};
  /// Returns the status that counts for a run whose command ended with `status`.
  std::function<int(int status)> judge = [](int status) { return status; };
};

/// Runs the command until it succeeds, a signal asks for an end, its restarts are used up, or it ends too soon again
/// and again. Returns the status of the last run. Prints after each end what follows, and at last the time for
/// restarts.
[[nodiscard]] int run_restarting(const Restarting& job, std::ostream& out);

}  // namespace gradwire::cli
