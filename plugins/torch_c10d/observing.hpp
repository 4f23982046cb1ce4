// What a job that only observes sees of its sums: how long the library takes for them, and what a codec would make of
// their values. It sends nothing and changes nothing. Knows no Torch.
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
/// Sums that overlap, as those of DDP's buckets, share the link, and each is about as slow as all of them. So they
/// count as one sum of their joint bytes, from the first one's begin to the last one's end. They do not count where
/// they began long after one another, since then they may have waited for the job, and not for the link; nor where some
/// are of another kind.
class Observing {
 public:
  using Clock = std::chrono::steady_clock;
  using Hosts = std::map<std::string, drop_in::Observed::Host>;

  /// `hosts`: of all ranks of the job.
  Observing(drop_in::Configuration configuration, Hosts hosts);
  Observing(const Observing&) = delete;
  Observing& operator=(const Observing&) = delete;

  /// The library makes a call next; end() is called when it has ended. Now and then looks at `input` first, which is in
  /// host memory, where no call is under way; its `data` is null where it cannot be looked at. `what`: empty for a call
  /// that codecs do not know; its size does not matter.
  void begin(const std::optional<drop_in::ObservedClass>& what, ConstView input);
  void end(bool failed) noexcept;
  /// A call begins whose end nobody tells.
  void begin_other() noexcept;

  [[nodiscard]] drop_in::Observed observed() const;

  /// Sums that overlap may begin within this part of their time.
  static constexpr double kMostSpread = 0.25;
  static constexpr std::size_t kMostFirsts = 256;

 private:
  // The calls that overlap, from a moment without any.
  struct Bunch {
    std::optional<drop_in::ObservedClass> what = {};  // none: not observed
    drop_in::ObservedClass first = {};                // the call that it began with
    std::uint64_t bytes = 0;
    Clock::time_point begin = {};
    Clock::time_point last_begin = {};
  };
  [[nodiscard]] bool begin_sample();
  void note(Bunch bunch, double seconds);

  drop_in::Configuration configuration_;  // whose planner says which codec there would be
  Hosts hosts_;
  drop_in::Observation observation_;
  Mutex mutex_;
  std::uint64_t running_ GUARDED_BY(mutex_) = 0;  // calls and samples that are under way
  Bunch bunch_ GUARDED_BY(mutex_);
  // By the class of their first call: the latest.
  std::map<drop_in::ObservedClass, drop_in::ObservedClass> bunches_ GUARDED_BY(mutex_);
};

/// "forecast for 12 s of these: GRADWIRE_CODEC=auto would save 3.2 s", "no gain" where it promises none; empty where
/// nothing is known.
[[nodiscard]] std::string forecast_text(const drop_in::Forecast& forecast);

}  // namespace gradwire::torch_c10d
