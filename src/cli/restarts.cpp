#include "cli/restarts.hpp"

#include <algorithm>
#include <cstring>

#include "base/units.hpp"
#include "cli/host_watch.hpp"
#include "cli/process.hpp"

namespace gradwire::cli {
namespace {

using Clock = std::chrono::steady_clock;

// The text of a time, rounded to a tenth of a second where it is that long.
std::string time_text(std::chrono::nanoseconds time) {
  constexpr std::chrono::milliseconds kTenth{100};
  return format_duration(time >= kTenth ? time / kTenth * kTenth : time);
}

std::string signal_name(int signal) { return ::strsignal(signal); }  // NOLINT(concurrency-mt-unsafe): one thread

std::string status_text(int status) {
  constexpr int kSignals = 32;  // real-time ones have no name
  const bool signalled = status > kSignalled && status < kSignalled + kSignals;
  return "status " + std::to_string(status) + (signalled ? " (" + signal_name(status - kSignalled) + ")" : "");
}

std::string asked_by(int signal) { return "a signal asked for the end (" + signal_name(signal) + ")"; }

// What to do after the end of a run.
struct Next {
  std::optional<std::chrono::seconds> wait;  // the pause before another run; none: no other run
  std::string why_not;
};

Next next_after(const Ended& ended, std::chrono::nanoseconds lasted, int restart, int most, RestartBackoff& backoff) {
  if (ended.signal != 0) {
    return {std::nullopt, asked_by(ended.signal)};
  }
  if (restart == most) {
    return {std::nullopt, "--restarts " + std::to_string(most) + (most == 1 ? " is" : " are") + " used up"};
  }
  if (const auto wait = backoff.after(lasted)) {
    return {wait, ""};
  }
  return {std::nullopt, "it ended within " + time_text(RestartBackoff::kSoon) + " of its start " +
                            std::to_string(RestartBackoff::kMostSoon) +
                            " times in a row, and would do so again; what it printed says why"};
}

Next next_after_wait(int signal, const Next& planned) {
  return signal == 0 ? planned : Next{std::nullopt, asked_by(signal)};
}

void tell_of_restarts(int restarts, std::chrono::nanoseconds took, std::ostream& out) {
  if (restarts > 0) {
    out << "gradwire: " << restarts << (restarts == 1 ? " restart" : " restarts") << ", which took " << time_text(took)
        << ": the runs that failed, and the waits after them\n";
  }
}

}  // namespace

std::optional<std::chrono::seconds> RestartBackoff::after(std::chrono::nanoseconds run) {
  soon_ = run < kSoon ? soon_ + 1 : 0;
  if (soon_ == kMostSoon) {
    return std::nullopt;
  }
  const std::chrono::seconds wait = run >= kWorked ? kFirst : next_;
  next_ = std::min(2 * wait, kLongest);
  return wait;
}

int run_restarting(const Restarting& job, std::ostream& out) {
  CommandRunner runner;
  if (job.most == 0) {
    const Launch launch = job.launch(job.command, 0);
    return job.judge(runner.run(launch.command, launch.environment).status);
  }
  HostWatch hosts(job.command, job.launcher, job.mpi);
  RestartBackoff backoff;
  const auto began = Clock::now();
  for (int restart = 0;; ++restart) {
    const Launch launch = job.launch(hosts.command(), restart);
    const auto started = Clock::now();
    Ended ended = runner.run(launch.command, launch.environment);
    ended.status = job.judge(ended.status);
    const auto lasted = Clock::now() - started;
    Next next;
    if (ended.status != 0) {
      const std::string end =
          "gradwire: the job ended with " + status_text(ended.status) + " after " + time_text(lasted);
      next = next_after(ended, lasted, restart, job.most, backoff);
      if (next.wait) {
        runner.end_orphans();
        const std::string did = job.between();
        out << end << "; restart " << restart + 1 << " of " << job.most << " in " << time_text(*next.wait)
            << hosts.look() << "; lost is what it did since its last saved state, at most " << time_text(lasted)
            << (did.empty() ? "" : "; " + did) << std::endl;
        next = next_after_wait(runner.pause(*next.wait), next);
      }
      if (!next.wait) {
        out << end << "; no restart, since " << next.why_not << '\n';
      }
    }
    if (!next.wait) {
      tell_of_restarts(restart, started - began, out);
      return ended.status;
    }
  }
}

}  // namespace gradwire::cli
