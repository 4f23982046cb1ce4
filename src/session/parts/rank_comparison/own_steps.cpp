#include "session/parts/rank_comparison/own_steps.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace gradwire::session {
namespace {

constexpr double kLong = 50e-3;  // seconds; shorter gaps are ignored

double seconds_of(clockid_t clock) {
  timespec used{};
  ::clock_gettime(clock, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

// Returns how long threads of this process were ready to run without a core; 0 if the kernel does not say. C++ streams
// would take five times as long for each thread.
double delayed_seconds() {
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(::opendir("/proc/self/task"), &::closedir);
  std::uint64_t sum = 0;  // nanoseconds
  for (const dirent* task = tasks ? ::readdir(tasks.get()) : nullptr; task != nullptr; task = ::readdir(tasks.get())) {
    const int file =
        ::openat(::dirfd(tasks.get()), (std::string(task->d_name) + "/schedstat").c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) {
      continue;  // a thread that ended meanwhile, or no thread
    }
    std::array<char, 64> text;  // "on a core, delayed, turns"
    const ssize_t size = ::read(file, text.data(), text.size());
    ::close(file);
    const char* end = text.data() + std::max<ssize_t>(0, size);
    const char* second = std::find(static_cast<const char*>(text.data()), end, ' ');
    std::uint64_t delayed = 0;
    if (second != end && std::from_chars(second + 1, end, delayed).ec == std::errc()) {
      sum += delayed;
    }
  }
  return static_cast<double>(sum) * 1e-9;
}

}  // namespace

double process_cpu_seconds() { return seconds_of(CLOCK_PROCESS_CPUTIME_ID); }
double thread_cpu_seconds() { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }

// Measures how long a step waited for no rank, outside of finish() and inside. As far as the process used no CPU time
// meanwhile, it did nothing.
void GapWatch::note(Time now, double step, double exposed, double excused) {
  const double waited = waits_.total() + excused;
  const double outside = step - exposed;
  const double inside = exposed - (waited - std::exchange(waited_, waited));
  const double cpu = process_cpu_seconds();
  const double used = cpu - std::exchange(cpu_, cpu);
  asked_ = now;
  const double longest = std::max(outside, inside);
  if (longest >= kLong) {
    sums_.longest_gap = std::max(sums_.longest_gap, longest - used);
    sums_.wait_seconds -= inside >= kLong ? std::max(0.0, inside - used) : 0;
  }
}

OwnSteps::OwnSteps(Runner& runner, observe::PeerWaits& waits, const StepWatch& steps, Time now)
    : runner_(runner),
      waits_(waits),
      watch_(steps),
      steps_before_(steps.steps_ever()),
      exposed_before_(steps.exposed_ever()),
      since_(now) {
  const std::optional<observe::Source> source = observe::source_of(runner.info().source);
  ranks_in_process_ = source && source->shares_process ? runner.info().world_size : 1;
}

OwnSteps::Process OwnSteps::look_at_process() {
  return {.cpu_seconds = process_cpu_seconds(), .delayed_seconds = session::delayed_seconds()};
}

void OwnSteps::begin(double excused) {
  observe::RankSeen none;
  waits_.take(1, none);
  excused_before_ = excused;
  totals_ = runner_.totals();
  process_ = look_at_process();
}

observe::RankSeen OwnSteps::take(Time ended, double excused, observe::RankSeen seen) {
  const Statistics totals = runner_.totals();
  const auto steps = static_cast<double>(count());
  steps_before_ = watch_.steps_ever();
  const Process process = look_at_process();
  seen.steps = steps;
  seen.step_seconds = std::chrono::duration<double>(ended - std::exchange(since_, ended)).count() / steps;
  const double exposed = watch_.exposed_ever();
  seen.wait_seconds = (seen.wait_seconds + exposed - std::exchange(exposed_before_, exposed)) / steps;
  seen.compute_seconds = seen.step_seconds - seen.wait_seconds;
  const auto bytes = static_cast<double>(totals.bytes_in - totals_.bytes_in);
  const double codec = totals.encode_seconds + totals.decode_seconds - totals_.encode_seconds - totals_.decode_seconds;
  seen.bytes_in = bytes / steps;
  seen.codec_seconds_per_byte = bytes > 0 ? codec / bytes : 0;
  seen.bytes_sent = static_cast<double>(totals.bytes_sent - totals_.bytes_sent) / steps;
  seen.delayed_seconds = (process.delayed_seconds - process_.delayed_seconds) / (steps * ranks_in_process_);
  seen.cpu_seconds = (process.cpu_seconds - process_.cpu_seconds) / steps;
  waits_.take(steps, seen);
  seen.idle_seconds += (excused - std::exchange(excused_before_, excused)) / steps;
  if (ranks_in_process_ > 1) {  // it is unknown which rank lacked a core: count the time as spent looking for frames
    seen.delayed_seconds = std::min(seen.delayed_seconds, seen.idle_seconds);
  }
  totals_ = totals;
  process_ = process;
  return seen;
}

}  // namespace gradwire::session
