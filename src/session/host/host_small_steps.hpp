// Makes the steps of small buckets over host memory.
#pragma once

#include "session/host/bucket_calls.hpp"
#include "session/host/executor_pair.hpp"
#include "session/host/host_residuals.hpp"
#include "session/host/small_sums.hpp"
#include "session/runner/group_statistics.hpp"
#include "session/runner/runner.hpp"

namespace gradwire::session {

class HostSmallSteps final : public SmallSteps {
 public:
  /// All references must outlive this.
  HostSmallSteps(Transport& transport, const SessionOptions& options, const RunnerInfo& info, ExecutorPair& executors,
                 const HostResiduals& residuals, GroupStatistics& statistics)
      : calls_(transport),
        sums_(transport, options.reduction, options.timeout, {.crowded = info.crowded, .source = info.source}),
        executors_(executors),
        residuals_(residuals),
        statistics_(statistics) {}

  [[nodiscard]] SmallSums& sums() noexcept { return sums_; }
  [[nodiscard]] bool takes(const plan::Plan& plan, std::span<const BucketChoice> choices) const override;
  [[nodiscard]] bool has_to_add() const override { return !residuals_.store().empty(); }
  bool reduce(const plan::Plan& plan, std::span<const TensorMemory> memory, const StepInfo& step) override;

 private:
  BucketCalls calls_;
  SmallSums sums_;
  ExecutorPair& executors_;
  const HostResiduals& residuals_;
  GroupStatistics& statistics_;
};

}  // namespace gradwire::session
