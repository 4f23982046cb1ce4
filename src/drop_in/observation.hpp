// What an observing process learns from the job's own calls: how long the library takes, and what a codec would make of
// the values. It sends nothing and changes nothing.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/mutex.hpp"
#include "drop_in/forecast.hpp"
#include "drop_in/observed.hpp"
#include "gradwire/dtype.hpp"
#include "plan/call_plan.hpp"

namespace gradwire::drop_in {

/// Any thread may use it.
class Observation {
 public:
  using Clock = std::chrono::steady_clock;

  /// `planner` says which codec a class would be compressed with; it must outlive this object.
  explicit Observation(const plan::CallPlanner& planner);
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;

  /// Notes one of the library's own calls, and how long it took. If calls are so short that this would cost too much,
  /// one note stands for several calls. Calls that are too small to be compressed are welcome, too: they show the
  /// latency.
  void note(const ObservedClass& what, std::uint64_t bytes, double seconds);
  /// Does the same for a caller that leaves calls out itself, as next_look() says: the call stands for `calls`.
  void note_for(const ObservedClass& what, std::uint64_t bytes, double seconds, std::uint64_t calls);
  /// Returns how many calls like this one, the `call`th of its kind, may go without a look, if this look took `cost`
  /// seconds beside the `call_seconds` of such a call. After the first call none may. Ranks that look equally often
  /// look at the same calls, so that they do not wait for each other in turn; a rank that looks half as often looks at
  /// some of these.
  [[nodiscard]] std::uint64_t next_look(std::uint64_t call, double cost, double call_seconds) noexcept;

  /// Whether sample() is to be called for the next call of the class: now and then, as far as its cost allows. False if
  /// the class would not be compressed, or was not noted yet.
  [[nodiscard]] bool wants_sample(const ObservedClass& what) noexcept;
  /// Encodes and decodes the beginning of `input`, which is in host memory, in two buffers of at most 1 MiB. Samples
  /// nothing if there is no memory for them.
  void sample(const ObservedClass& what, ConstView input);

  /// A class whose messages are worth a measurement.
  struct Candidate {
    ObservedClass what;
    std::uint64_t bytes = 0;        // of one call
    std::uint64_t frame_bytes = 0;  // bytes of the frames that a rank would send for it
  };
  /// Returns at most `most` of the classes that would be compressed, those of most bytes first, as this rank saw them:
  /// another rank may answer otherwise.
  [[nodiscard]] std::vector<Candidate> largest(std::size_t most) const;
  /// Takes the times of real messages of such a call that were made while nothing else ran: the library's own of
  /// `dense_bytes`, and the exchange of frames, of which this rank sent `frame_bytes`.
  void measured_transfer(const ObservedClass& what, std::uint64_t dense_bytes, double dense_seconds,
                         std::uint64_t frame_bytes, double frame_seconds);

  /// All of this rank's numbers, for Ledger::add_observed().
  [[nodiscard]] Observed observed() const;
  /// Returns a forecast from this rank's numbers alone.
  [[nodiscard]] Forecast forecast() const { return forecast_of(observed()); }
  /// The time that observing took here.
  [[nodiscard]] double cost_seconds() const noexcept;

  static constexpr std::size_t kMostClasses = 256;  // calls of further classes are not observed

 private:
  struct Timed {
    std::uint64_t noted = 0;
    std::uint64_t calls = 0;  // noted calls, and those that they stand for
    double bytes = 0;
    double seconds = 0;
    std::uint64_t every = 1;       // one of so many calls is kept, evenly over the run
    std::vector<float> kept = {};  // seconds
  };
  struct Class {
    std::optional<CodecSpec> codec = {};
    std::array<Timed, 4> sizes = {};
    std::uint64_t calls = 0;
    std::uint64_t next_sample = 1;  // no sample before so many calls
    std::vector<SampledValues> samples = {};
    std::optional<ObservedTotals::Transfer> transfer = {};
  };

  [[nodiscard]] bool wants_note() noexcept;
  [[nodiscard]] Class* class_of(const ObservedClass& what, std::uint64_t bytes) REQUIRES(mutex_);
  void note_locked(const ObservedClass& what, std::uint64_t bytes, double seconds, std::uint64_t weight)
      REQUIRES(mutex_);
  [[nodiscard]] double note_seconds() const noexcept REQUIRES(mutex_);
  void choose_skips() REQUIRES(mutex_);
  [[nodiscard]] std::size_t affordable_bytes() const noexcept REQUIRES(mutex_);

  const plan::CallPlanner& planner_;
  const Clock::time_point begin_ = Clock::now();
  mutable Mutex mutex_;
  std::map<ObservedClass, Class> classes_ GUARDED_BY(mutex_);
  std::atomic<std::uint32_t> skip_ = 0;     // calls from here on that are not noted
  std::atomic<std::uint32_t> skipped_ = 0;  // calls that were not noted since the last note
  std::uint32_t mean_skip_ GUARDED_BY(mutex_) = 0;
  std::uint64_t notes_ GUARDED_BY(mutex_) = 0;
  double timed_notes_seconds_ GUARDED_BY(mutex_) = 0;  // of the notes that are timed, one in kNotesToOneTimed
  double looks_seconds_ GUARDED_BY(mutex_) = 0;
  std::uint64_t later_looks_ GUARDED_BY(mutex_) = 0;  // looks that were not the first of their kind
  double later_looks_seconds_ GUARDED_BY(mutex_) = 0;
  double sample_seconds_ GUARDED_BY(mutex_) = 0;
  double seconds_a_byte_ GUARDED_BY(mutex_);  // that a sample takes
  bool sampling_ GUARDED_BY(mutex_) = false;  // some thread is sampling
};

}  // namespace gradwire::drop_in
