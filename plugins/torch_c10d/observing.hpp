// Measures, in a job that only observes, how long the library's sums take and how a codec would change their values.
// Sends nothing, changes nothing and does not use Torch.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/mutex.hpp"
#include "drop_in/configuration.hpp"
#include "drop_in/forecast.hpp"
#include "drop_in/observation.hpp"

namespace gradwire::torch_c10d {

/// Observes the sums of all process groups of this process. Any thread may call it.
///
/// Sums that overlap, like those of DDP's buckets, share the link, and each takes about as long as all of them. So they
/// count as one sum of their total bytes, from the first one's begin to the last one's end. They do not count if they
/// began long after one another, since then they may have waited for the job, and not for the link; nor if some are of
/// another kind.
class Observing {
 public:
  using Clock = std::chrono::steady_clock;
  using Hosts = std::map<std::string, drop_in::Observed::Host>;

  /// `hosts` are those of all ranks of the job.
  Observing(drop_in::Configuration configuration, Hosts hosts);
  Observing(const Observing&) = delete;
  Observing& operator=(const Observing&) = delete;

  /// To be called before the library makes a call; end() is called when it has ended. If no call is running, sometimes
  /// samples `input` first, which is in host memory; its `data` is null if it cannot be read. `what` is empty for a
  /// call that codecs do not support; its size does not matter.
  void begin(const std::optional<drop_in::ObservedClass>& what, ConstView input);
  void end(bool failed) noexcept;
  /// To be called before a call for which end() will not be called.
  void begin_other_call() noexcept;

  [[nodiscard]] drop_in::Observed observed() const;

  /// Overlapping sums must all begin within this fraction of their total time.
  static constexpr double kMostSpread = 0.25;
  static constexpr std::size_t kMostFirsts = 256;

 private:
  // Calls that overlap, from one moment without a running call to the next.
  struct Bunch {
    std::optional<drop_in::ObservedClass> what = {};  // no value: not observed
    drop_in::ObservedClass first = {};                // class of its first call
    std::uint64_t bytes = 0;
    Clock::time_point begin = {};
    Clock::time_point last_begin = {};
  };
  [[nodiscard]] bool begin_sample();
  void note(Bunch bunch, double seconds);

  drop_in::Configuration configuration_;  // its planner chooses the codec to sample
  Hosts hosts_;
  drop_in::Observation observation_;
  Mutex mutex_;
  std::uint64_t running_ GUARDED_BY(mutex_) = 0;  // running calls and samples
  Bunch bunch_ GUARDED_BY(mutex_);
  // The latest bunches, by the class of their first call.
  std::map<drop_in::ObservedClass, drop_in::ObservedClass> bunches_ GUARDED_BY(mutex_);
};

/// "forecast for 12 s of these: GRADWIRE_CODEC=auto would save 3.2 s", "no gain" if it promises none; empty if nothing
/// is known.
[[nodiscard]] std::string forecast_text(const drop_in::Forecast& forecast);

}  // namespace gradwire::torch_c10d
