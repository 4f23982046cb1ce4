#include "session/parts/rank_comparison/rank_comparison.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "base/elapsed.hpp"
#include "base/log.hpp"
#include "base/units.hpp"
#include "session/logging.hpp"

namespace gradwire::session {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLong = 50e-3;  // seconds in which a process may have done nothing

double seconds_of(clockid_t clock) {
  timespec used{};
  ::clock_gettime(clock, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

double process_cpu_seconds() { return seconds_of(CLOCK_PROCESS_CPUTIME_ID); }
double thread_cpu_seconds() { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }

// How long threads of this process were ready to run and had no core. 0 where the kernel does not say. Streams of the
// library would take five times as long for each thread.
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

// A record as numbers, and back: one list of members for both ways.
template <typename Record, typename Visit>
void each_number(Record& seen, Visit&& visit) {
  for (auto* number :
       {&seen.steps, &seen.step_seconds, &seen.wait_seconds, &seen.compute_seconds, &seen.bytes_in,
        &seen.codec_seconds_per_byte, &seen.bytes_sent, &seen.bytes_received, &seen.delayed_seconds, &seen.cpu_seconds,
        &seen.idle_seconds, &seen.longest_gap, &seen.typical_stream, &seen.typical_indirect}) {
    visit(*number);
  }
  for (auto& peer : seen.peers) {
    double rank = peer.rank;
    visit(rank);
    peer.rank = static_cast<int>(rank);
    for (auto* number : {&peer.direct, &peer.entry, &peer.indirect, &peer.last}) {
      visit(*number);
    }
  }
}

}  // namespace

std::string slow_text(std::optional<double> share) { return share ? format_number(*share) : "off"; }

std::optional<double> common_slow_share(const std::vector<std::string>& told, bool speaks) {
  std::optional<double> common = 0;
  std::size_t other = 0;  // a rank that says something else than rank 0
  for (std::size_t rank = 0; rank < told.size(); ++rank) {
    double share = 0;
    const char* end = told[rank].data() + told[rank].size();
    const bool off = std::from_chars(told[rank].data(), end, share).ptr != end || !(share > 0);
    common = off || !common ? std::nullopt : std::optional(std::max(*common, share));
    other = other == 0 && told[rank] != told[0] ? rank : other;
  }
  if (other != 0) {
    log(speaks ? LogLevel::warning : LogLevel::debug,
        "GRADWIRE_SLOW is " + told[0] + " on rank 0 and " + told[other] + " on rank " + std::to_string(other) + ": " +
            (common ? "slow is a rank that others wait for above " + slow_text(common) + " of a step"
                    : "slow ranks are not looked for") +
            "; give all ranks the same value, such as by mpirun -x GRADWIRE_SLOW");
  }
  return common;
}

RankComparison::RankComparison(Runner& runner, observe::PeerWaits& waits, const StepWatch& steps, double share)
    : runner_(runner),
      waits_(waits),
      share_(share),
      watch_(steps),
      slow_({.share = share}),
      steps_before_(steps.steps_ever()),
      exposed_before_(steps.exposed_ever()),
      since_(Clock::now()),
      ended_(since_),
      asked_(ended_),
      cpu_(process_cpu_seconds()) {
  const std::optional<observe::Source> source = observe::source_of(runner.info().source);
  ranks_here_ = source && source->shares_process ? runner.info().world_size : 1;
}

RankComparison::Process RankComparison::look_at_process() {
  return {.cpu_seconds = process_cpu_seconds(), .delayed_seconds = gradwire::session::delayed_seconds()};
}

void RankComparison::end_odd_step(Time::duration step, double exposed, bool counts) {
  ++steps_before_;
  exposed_before_ += exposed;
  since_ += step;
  if (!counts || begun_) {
    return;
  }
  // Ranks met in the step that has ended; what they waited for then says nothing of others.
  begun_ = true;
  observe::RankSeen none;
  waits_.take(1, none);
  excused_before_ = excused_;
  totals_ = runner_.totals();
  process_ = look_at_process();
}

// For how long a step waited for nobody, outside of finish() and inside. Where the process used no CPU time meanwhile,
// it did nothing.
void RankComparison::note_gap(Time now, double step, double exposed) {
  const double waited = waits_.total() + excused_;
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

observe::RankSeen RankComparison::seen() {
  const Statistics totals = runner_.totals();
  const auto steps = static_cast<double>(this->steps());
  steps_before_ = watch_.steps_ever();
  const Process process = look_at_process();
  observe::RankSeen seen = std::exchange(sums_, {});
  seen.steps = steps;
  seen.step_seconds = std::chrono::duration<double>(ended_ - std::exchange(since_, ended_)).count() / steps;
  const double exposed = watch_.exposed_ever();
  seen.wait_seconds = (seen.wait_seconds + exposed - std::exchange(exposed_before_, exposed)) / steps;
  seen.compute_seconds = seen.step_seconds - seen.wait_seconds;
  const auto bytes = static_cast<double>(totals.bytes_in - totals_.bytes_in);
  const double codec = totals.encode_seconds + totals.decode_seconds - totals_.encode_seconds - totals_.decode_seconds;
  seen.bytes_in = bytes / steps;
  seen.codec_seconds_per_byte = bytes > 0 ? codec / bytes : 0;
  seen.bytes_sent = static_cast<double>(totals.bytes_sent - totals_.bytes_sent) / steps;
  seen.delayed_seconds = (process.delayed_seconds - process_.delayed_seconds) / (steps * ranks_here_);
  seen.cpu_seconds = (process.cpu_seconds - process_.cpu_seconds) / steps;
  waits_.take(steps, seen);
  seen.idle_seconds += (excused_ - std::exchange(excused_before_, excused_)) / steps;
  if (ranks_here_ > 1) {  // nobody knows whose threads lacked a core: as if they had looked for frames
    seen.delayed_seconds = std::min(seen.delayed_seconds, seen.idle_seconds);
  }
  totals_ = totals;
  process_ = process;
  return seen;
}

// What ranks know of a cost they all know alike: of this comparison what comes before its gather, of the one before
// what came after.
void RankComparison::append(std::vector<double>& numbers) {
  const double start = thread_cpu_seconds();
  const std::size_t cost = numbers.size();
  numbers.push_back(own_seconds_);
  observe::RankSeen mine = seen();
  each_number(mine, [&](double number) { numbers.push_back(number); });
  numbers[cost] += thread_cpu_seconds() - start;
}

void RankComparison::take(const Compared& compared) {
  const double start = thread_cpu_seconds();
  std::vector<observe::RankSeen> ranks(compared.ranks.size());
  double own = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    auto next = compared.ranks[i].begin();
    own = std::max(own, *next++);
    each_number(ranks[i], [&](double& number) { number = *next++; });
  }
  judge(compared.step, ranks, own + compared.gather_seconds);
  pace_.compared(ranks[0].steps, ranks[0].step_seconds, own + compared.gather_seconds);
  waited_ = waits_.total() + excused_;
  cpu_ = process_cpu_seconds();
  const Time now = Clock::now();
  since_ += now - ended_;
  ended_ = asked_ = now;
  own_seconds_ = thread_cpu_seconds() - start;
}

void RankComparison::judge(std::uint64_t step, const std::vector<observe::RankSeen>& ranks, double cost) {
  const std::vector<observe::Diagnosis> found = observe::diagnose(ranks, share_);
  // The first ones are of a few quick steps, in which ranks find their pace.
  const bool long_enough = ranks[0].steps * ranks[0].step_seconds >= ComparisonPace::kLeastSeconds / 2;
  if (long_enough) {
    for (const observe::SlowChange& change : slow_.update(found)) {
      log(runner_.info().rank == 0 ? LogLevel::warning : LogLevel::debug,
          "after step " + std::to_string(step) + " of a session of " + std::to_string(ranks.size()) +
              " ranks: " + observe::to_text(change, ranks[0].step_seconds));
    }
  }
  if (runner_.info().rank == 0 && logs(LogLevel::debug)) {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      log(LogLevel::debug, "after step " + std::to_string(step) + ": rank " + std::to_string(i) + " " +
                               observe::to_text(ranks[i], found[i]));
    }
  }
  const int rank = runner_.info().rank;
  {
    const MutexLock lock(mutex_);
    state_ = {.cause = slow_.cause(rank),
              .latest = found[static_cast<std::size_t>(rank)],
              .comparisons = state_.comparisons + 1,
              .seconds = state_.seconds + cost};
  }
  if (long_enough) {
    expel_slow(found);
  }
}

// All ranks conclude the same of the same numbers, and the one that must go does so by itself.
void RankComparison::expel_slow(const std::vector<observe::Diagnosis>& found) {
  const int rank = expel_ ? expel_->update(found, slow_) : -1;
  if (rank < 0 || found.size() <= least_ || rank == told_) {
    return;
  }
  told_ = rank;
  const std::string text = "rank " + std::to_string(rank) + " must go, by [elastic] expel_slower_than: steps take " +
                           format_number(observe::slowdown(found[static_cast<std::size_t>(rank)]), 3) +
                           " times as long because of it (" + std::string(observe::to_string(slow_.cause(rank))) + ")";
  if (rank == runner_.info().rank) {
    throw Error(ErrorCode::expelled, text + "; the others go on without this process, which must end");
  }
  log(runner_.info().rank == (rank == 0 ? 1 : 0) ? LogLevel::warning : LogLevel::debug, text);
}

observe::SlowState RankComparison::state() const {
  const MutexLock lock(mutex_);
  return state_;
}

}  // namespace gradwire::session
