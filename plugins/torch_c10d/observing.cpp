#include "plugins/torch_c10d/observing.hpp"

#include <algorithm>

#include "base/elapsed.hpp"
#include "base/units.hpp"
#include "choice/auto_call.hpp"
#include "drop_in/value_sample.hpp"

namespace gradwire::torch_c10d {
namespace {

drop_in::ObservedClass sized(drop_in::ObservedClass what, std::uint64_t bytes) {
  what.size = choice::size_class(bytes);
  return what;
}

}  // namespace

Observing::Observing(drop_in::Configuration configuration, Hosts hosts)
    : configuration_(std::move(configuration)), hosts_(std::move(hosts)), observation_(configuration_.planner) {}

// The sample counts as a running call of no kind, so that the time of another thread's call beside it is not used.
bool Observing::begin_sample() {
  const MutexLock lock(mutex_);
  if (running_ > 0) {
    return false;
  }
  ++running_;
  bunch_ = {};
  return true;
}

void Observing::begin(const std::optional<drop_in::ObservedClass>& what, ConstView input) {
  const std::uint64_t bytes = input.count * element_bytes(input.dtype);
  const drop_in::ObservedClass first = sized(what.value_or(drop_in::ObservedClass()), bytes);
  std::optional<drop_in::ObservedClass> expected;  // the bunch that this call most likely begins
  if (what && input.data != nullptr) {
    const MutexLock lock(mutex_);
    const auto found = bunches_.find(first);
    expected = found == bunches_.end() ? std::nullopt : std::optional(found->second);
  }
  if (expected && observation_.wants_sample(*expected) && begin_sample()) {
    input.count = std::min<std::uint64_t>(input.count, drop_in::kMostSampledBytes / element_bytes(input.dtype));
    observation_.sample(*expected, input);
    const MutexLock lock(mutex_);
    --running_;
  }
  const MutexLock lock(mutex_);
  const Clock::time_point now = Clock::now();
  if (running_++ == 0) {
    bunch_ = {.what = what ? std::optional(first) : std::nullopt, .first = first, .begin = now};
  } else if (bunch_.what && (!what || sized(first, 0) != sized(*bunch_.what, 0))) {
    bunch_.what.reset();
  }
  bunch_.bytes += bytes;
  bunch_.last_begin = now;
}

void Observing::end(bool failed) noexcept {
  try {
    Bunch ended;
    {
      const MutexLock lock(mutex_);
      if (failed) {
        bunch_.what.reset();
      }
      if (--running_ > 0) {
        return;
      }
      ended = bunch_;
    }
    note(ended, seconds_since(ended.begin));
  } catch (...) {  // NOLINT(bugprone-empty-catch): no memory to note it
  }
}

void Observing::note(Bunch bunch, double seconds) {
  const double spread = std::chrono::duration<double>(bunch.last_begin - bunch.begin).count();
  if (!bunch.what || spread > kMostSpread * seconds) {
    return;
  }
  const drop_in::ObservedClass what = sized(*bunch.what, bunch.bytes);
  observation_.note(what, bunch.bytes, seconds);
  const MutexLock lock(mutex_);
  if (bunches_.size() < kMostFirsts || bunches_.contains(bunch.first)) {
    bunches_.insert_or_assign(bunch.first, what);
  }
}

void Observing::begin_other_call() noexcept {
  const MutexLock lock(mutex_);
  bunch_.what.reset();
}

drop_in::Observed Observing::observed() const {
  drop_in::Observed observed = observation_.observed();
  observed.hosts = hosts_;
  return observed;
}

std::string forecast_text(const drop_in::Forecast& forecast) {
  constexpr int kFew = 3;
  double seconds = 0;
  for (const drop_in::ForecastClass& one : forecast.classes) {
    seconds += one.saved_seconds ? static_cast<double>(one.calls) * one.passed_seconds : 0;
  }
  if (!forecast.saved_seconds) {
    return "";
  }
  return "forecast for " + format_number(seconds, kFew) + " s of these: " +
         (*forecast.saved_seconds > 0
              ? "GRADWIRE_CODEC=auto would save " + format_number(*forecast.saved_seconds, kFew) + " s"
              : "no gain by GRADWIRE_CODEC=auto");
}

}  // namespace gradwire::torch_c10d
