// Prints the rates of a link schedule when they change, for the lab, which then shapes its links.
//   link_player first SCHEDULE   prints the first rate, or the error in the schedule
//   link_player play SCHEDULE    prints each further rate when it begins; ends after the last one
// A rate is a line with bits per second, 0 for an unlimited link. The program dies with the process that started it.
#include <sys/prctl.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <thread>

#include "gradwire/emulation.hpp"
#include "gradwire/error.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using gradwire::LinkSchedule;
using std::chrono::nanoseconds;

LinkSchedule parse(const std::string& text) {
  LinkSchedule schedule = LinkSchedule::parse(text);
  for (const auto& phase : schedule.phases()) {
    if (phase.link.latency.count() > 0) {
      throw gradwire::Error(gradwire::ErrorCode::invalid_argument,
                            "the lab's links have no latency to set: write " +
                                gradwire::Link{phase.link.bytes_per_second, nanoseconds(0)}.to_string() +
                                " instead of " + phase.link.to_string());
    }
  }
  return schedule;
}

bool print_rate(double bytes_per_second) {
  return std::printf("%.0f\n", bytes_per_second * 8) > 0 && std::fflush(stdout) == 0;
}

void play(const LinkSchedule& schedule) {
  const Clock::time_point start = Clock::now();
  for (nanoseconds time(0);;) {
    time = schedule.next_change(time);
    if (time == gradwire::LinkPhase::kForEver) {
      return;
    }
    std::this_thread::sleep_until(start + time);
    if (!print_rate(schedule.rate_at(time))) {
      return;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc == 3 ? argv[1] : "";
  if (command != "first" && command != "play") {
    std::fprintf(stderr, "usage: link_player first|play SCHEDULE\n");
    return 2;
  }
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  try {
    const LinkSchedule schedule = parse(argv[2]);
    if (command == "first") {
      print_rate(schedule.rate_at(nanoseconds(0)));
    } else {
      play(schedule);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  return 0;
}
