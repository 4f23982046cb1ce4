// What a session over host memory tells whoever observes of its codecs and its memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>

#include "base/mutex.hpp"
#include "choice/guard.hpp"
#include "exchange/host/host_executor.hpp"
#include "observe/sources.hpp"
#include "plan/plan.hpp"

namespace gradwire::session {

class BucketHealth {
 public:
  /// Whether the bucket is to be looked at: one in turn a second is.
  [[nodiscard]] bool due(const plan::Plan& plan, std::uint32_t bucket) const;
  /// Looks at a bucket that is due. `sampled`: what was measured of this one already.
  void look(const plan::Plan& plan, const exchange::Task& task, const std::optional<choice::QualitySample>& sampled,
            const observe::Knowledge::Memory& memory);
  /// Any thread.
  [[nodiscard]] observe::Knowledge known(const plan::Plan& plan) const;

 private:
  std::uint32_t next_look_ = 0;  // a bucket
  std::optional<std::chrono::steady_clock::time_point> looked_;
  mutable Mutex mutex_;
  std::map<std::uint32_t, choice::QualitySample> health_ GUARDED_BY(mutex_);  // by bucket
  std::optional<observe::Knowledge::Memory> memory_ GUARDED_BY(mutex_);
};

/// Values that a lossy codec without error feedback rounds to 0 beside larger ones, step after step.
class SmallValueWatch {
 public:
  /// Looks now and then at some tiles of what is about to be reduced, and says once which tensor has such values and
  /// what mends it. For rank 0.
  void look(const plan::Plan& plan, const plan::Bucket& bucket, const exchange::Task& task);

 private:
  bool told_ = false;
};

}  // namespace gradwire::session
