// Records this rank's gradients of some steps, as the caller gives them to ready() (Session::record_gradients). It is
// no part: parts see buckets and the ends of steps, and end with a world, which a recording outlives.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/mutex.hpp"
#include "gradwire/session.hpp"
#include "record/recorder.hpp"
#include "session/engine/engine.hpp"

namespace gradwire::session {

class GradientRecording {
 public:
  /// Throws Error(invalid_argument) that names a folder in which nothing can be recorded.
  GradientRecording(const std::filesystem::path& directory, std::uint64_t steps, const Engine& engine);

  /// The gradient is complete and not reduced yet; `given` is its address in this step, or null. Arguments that ready()
  /// refuses are not recorded. Any thread may call this. After an error, which is logged, nothing more is recorded.
  void ready(Engine& engine, TensorId id, const View* given) noexcept;
  /// A step is over. Returns whether it was the last one, or there was an error: this object is not needed any more.
  [[nodiscard]] bool step_over(bool counts) noexcept;

 private:
  void record(Engine& engine, std::uint32_t tensor, const View& gradient) REQUIRES(mutex_);
  void fail(const char* why) noexcept REQUIRES(mutex_);

  Mutex mutex_;
  record::Recorder recorder_ GUARDED_BY(mutex_);
  std::uint64_t left_ GUARDED_BY(mutex_);  // steps
  bool failed_ GUARDED_BY(mutex_) = false;
};

}  // namespace gradwire::session
