// Records what the sums of an unchanged job begin with on one rank: the buffers of the calls of some steps
// (GRADWIRE_RECORD_GRADIENTS). Steps are found from the sequence of calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/mutex.hpp"
#include "base/record_target.hpp"
#include "drop_in/calls.hpp"
#include "drop_in/step_tracker.hpp"
#include "gradwire/dtype.hpp"
#include "record/recorder.hpp"

namespace gradwire::drop_in {

class GradientRecording {
 public:
  /// Throws Error(invalid_argument) that names a folder in which nothing can be recorded.
  GradientRecording(const RecordTarget& target, int rank, int ranks);

  /// The job is about to sum `input`, which is in host memory; `name` is that of the buffer, if it has one. Records it
  /// if its step is known and to be recorded. Steps are known once they have been seen twice, and 16 calls at least;
  /// after kMostCalls calls without steps, the next calls are recorded as if they were one step. Any thread may call
  /// this. Returns whether more is to be recorded; after an error nothing is.
  bool call(Function function, ConstView input, std::string_view name) noexcept;
  /// The job makes a reduction that is not recorded, such as that of the loss: a hint at where steps end. Any thread
  /// may call this.
  void other_call() noexcept;
  /// The job ends: writes the index, and returns a line about what was recorded. Empty: the line was returned before.
  [[nodiscard]] std::string end() noexcept;

  static constexpr std::uint64_t kMostCalls = 1024;

 private:
  enum class State : std::uint8_t { going_on, complete, failed };

  /// Where a call stands among the steps that are recorded; nothing where it is in none of them.
  [[nodiscard]] std::optional<StepTracker::Place> place_of(const Signature& call, const Hint& hint) REQUIRES(mutex_);
  void record(const StepTracker::Place& place, ConstView input, std::string_view name) REQUIRES(mutex_);
  [[nodiscard]] std::string summary() const REQUIRES(mutex_);

  const RecordTarget target_;
  Mutex mutex_;
  record::Recorder recorder_ GUARDED_BY(mutex_);
  StepTracker tracker_ GUARDED_BY(mutex_){false};
  State state_ GUARDED_BY(mutex_) = State::going_on;
  std::string why_ GUARDED_BY(mutex_);  // of an error
  std::uint64_t calls_ GUARDED_BY(mutex_) = 0;
  std::uint64_t steps_ GUARDED_BY(mutex_) = 0;  // that were begun
  bool in_step_ GUARDED_BY(mutex_) = false;     // its first call was seen: steps may become known in the middle of one
  std::uint64_t alone_ GUARDED_BY(mutex_) = 0;  // calls that were recorded because no step was found
  bool fence_ GUARDED_BY(mutex_) = false;       // other_call() since the latest call()
  bool told_ GUARDED_BY(mutex_) = false;
};

}  // namespace gradwire::drop_in
