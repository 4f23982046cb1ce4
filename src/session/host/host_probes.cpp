#include "session/host/host_probes.hpp"

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "base/elapsed.hpp"
#include "choice/link_measurement.hpp"
#include "exchange/control.hpp"
#include "session/host/small_sums.hpp"

namespace gradwire::session {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPatience{1};

}  // namespace

bool HostProbes::has_native(DType dtype) const { return exchange::native_sum(transport_).has(dtype); }

double HostProbes::time_exchange(int to, int from, std::uint64_t bytes) {
  return peers_.time_exchange(to, from, bytes);
}

// It looks without sleeping at first, as finish() does.
void HostProbes::advance_eagerly() {
  const Clock::time_point polite = Clock::now() + kEager;
  for (unsigned looked = 1; buckets_.advance(Clock::now() > polite ? kPatience : std::chrono::microseconds(0)).empty();
       ++looked) {
    if (looked % kLooksToYield == 0) {
      std::this_thread::yield();
    }
  }
}

// Sets residuals and statistics aside for the time of a trial.
class HostProbes::RestoreOnExit {
 public:
  explicit RestoreOnExit(HostProbes& probes)
      : probes_(probes),
        residuals_(std::exchange(probes.residuals_.store(),
                                 probes.residuals_.store().empty_beside(probes.residuals_.store().form()))),
        statistics_(probes.statistics_.groups()) {}
  ~RestoreOnExit() {
    probes_.residuals_.store() = std::move(residuals_);
    probes_.statistics_.change([this](std::vector<Statistics>& groups) { groups = std::move(statistics_); });
  }
  RestoreOnExit(const RestoreOnExit&) = delete;
  RestoreOnExit& operator=(const RestoreOnExit&) = delete;

 private:
  HostProbes& probes_;
  exchange::ResidualStore residuals_;
  std::vector<Statistics> statistics_;
};

double HostProbes::time_reduction(const plan::Plan& trial, const TensorMemory& memory, const TrialStep& step) {
  using By = TrialStep::By;
  const BucketChoice choice{.level = 0, .native = step.by != By::frames, .chunk_bytes = trial.host_chunk_bytes()};
  const StepInfo info{.weighted = step.weighted,
                      .choices = std::span(&choice, 1),
                      .in_call = step.by == By::in_call ? StepInfo::InCall::waits : StepInfo::InCall::no};
  const RestoreOnExit kept(*this);  // also if another rank ends meanwhile
  peers_.barrier();
  const Clock::time_point start = Clock::now();
  if (step.by == By::at_once) {
    SmallSums(transport_, options_.reduction, options_.timeout, {.crowded = info_.crowded})
        .reduce(trial, std::span(&memory, 1), info);
    executors_.steps().skip(1);
  } else {
    buckets_.start(trial, trial.buckets[0], std::span(&memory, 1), info);
    advance_eagerly();
  }
  return seconds_since(start);
}

bool HostProbes::ends_in_call(const plan::Plan& plan, std::span<const BucketChoice> choices) const {
  if (plan.buckets.empty() || plan.has_modes() || options_.measure_error) {
    return false;
  }
  const plan::Bucket& last = plan.buckets.back();
  return exchange::dense_in_call(transport_, last.dtype, last.count, *plan.tiers) &&
         BucketCalls(transport_).sums_natively(plan, last, {.choices = choices, .in_call = StepInfo::InCall::waits});
}

}  // namespace gradwire::session
