#include "session/parts/rank_comparison/rank_comparison.hpp"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/units.hpp"

namespace gradwire::session {
namespace {

using Clock = std::chrono::steady_clock;

// Visits each number of a record. Both directions, record to numbers and back, use this one list of members.
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
  std::size_t other = 0;  // a rank whose value differs from rank 0's
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
    : judge_(runner.info().rank, share),
      ended_(Clock::now()),
      gaps_(waits, ended_),
      own_(runner, waits, steps, ended_) {}

void RankComparison::end_odd_step(Time::duration step, double exposed, bool counts) {
  own_.leave_out(step, exposed);
  if (counts && !begun_) {
    // Ranks meet in their first step, so its waits say nothing about other ranks.
    begun_ = true;
    own_.begin(excused_);
  }
}

// All ranks must know the same cost, so it is made of gathered numbers: the CPU time of this append() and of the
// previous take().
void RankComparison::append(std::vector<double>& numbers) {
  const double start = thread_cpu_seconds();
  const std::size_t cost = numbers.size();
  numbers.push_back(own_seconds_);
  observe::RankSeen mine = own_.take(ended_, excused_, gaps_.take());
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
  judge_.judge(compared.step, ranks, own + compared.gather_seconds);
  pace_.compared(ranks[0].steps, ranks[0].step_seconds, own + compared.gather_seconds);
  const Time now = Clock::now();
  gaps_.restart(now, excused_);
  own_.skip(now - ended_);
  ended_ = now;
  own_seconds_ = thread_cpu_seconds() - start;
}

}  // namespace gradwire::session
