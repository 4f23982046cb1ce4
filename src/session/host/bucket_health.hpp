// What a session over host memory tells observers of its codecs and its memory.
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
  /// Whether to look at the bucket: one bucket in turn is looked at each second.
  [[nodiscard]] bool due(const plan::Plan& plan, std::uint32_t bucket) const;
  /// Looks at a bucket that is due. `sampled`: the sample of this bucket, if there is one already.
  void look(const plan::Plan& plan, const exchange::Task& task, const std::optional<choice::QualitySample>& sampled,
            const observe::Knowledge::Memory& memory);
  /// Any thread may call this.
  [[nodiscard]] observe::Knowledge known(const plan::Plan& plan) const;

 private:
  std::uint32_t next_look_ = 0;  // the next bucket in turn
  std::optional<std::chrono::steady_clock::time_point> looked_;
  mutable Mutex mutex_;
  std::map<std::uint32_t, choice::QualitySample> health_ GUARDED_BY(mutex_);  // by bucket
  std::optional<observe::Knowledge::Memory> memory_ GUARDED_BY(mutex_);
};

/// Warns of values that a lossy codec without error feedback rounds to 0 beside larger ones, step after step.
class SmallValueWatch {
 public:
  /// Looks in some steps at some tiles that are about to be reduced. It logs once which tensor has such values and how
  /// to keep them. Only rank 0 calls it.
  void look(const plan::Plan& plan, const plan::Bucket& bucket, const exchange::Task& task);

 private:
  bool told_ = false;
};

}  // namespace gradwire::session
