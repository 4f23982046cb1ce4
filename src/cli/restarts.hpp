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

/// How long to wait after each run that failed. Without a clock.
class Backoff {
 public:
  static constexpr std::chrono::seconds kFirst{1};  // then twice as long each time
  static constexpr std::chrono::seconds kLongest{60};
  static constexpr std::chrono::seconds kSoon{5};     // a run that ends sooner has hardly begun
  static constexpr int kMostSoon = 3;                 // in a row: then another would end likewise
  static constexpr std::chrono::seconds kWorked{60};  // after such a run the waits begin anew

  /// Nothing: the command ended too soon, again and again.
  [[nodiscard]] std::optional<std::chrono::seconds> after(std::chrono::nanoseconds run);

 private:
  std::chrono::seconds next_{kFirst};
  int soon_ = 0;
};

struct Restarting {
  int most = 0;  // restarts
  std::vector<std::string> command;
  std::optional<std::size_t> launcher = std::nullopt;  // mpirun's index, of this MPI; none: hosts are not looked at
  std::optional<Library> mpi = std::nullopt;
  /// What to start, of the command for the hosts that are left; the first time with 0.
  std::function<Launch(const std::vector<std::string>& command, int restart)> launch;
  /// Called after each run that is followed by another: a sentence about what it did, or nothing.
  std::function<std::string()> between = {};
  /// The status that counts, of a run whose command ended with `status`.
  std::function<int(int status)> judge = [](int status) { return status; };
};

/// Runs the command until it succeeds, a signal asks for an end, its restarts are used up, or it ends too soon again
/// and again. Returns the status of the last run. Says of each end what follows, and at last what restarts took.
[[nodiscard]] int run_restarting(const Restarting& job, std::ostream& out);

}  // namespace gradwire::cli
