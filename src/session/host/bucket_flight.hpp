// One bucket of a session over host memory while it is reduced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "exchange/host/host_executor.hpp"
#include "exchange/residuals/bucket_residuals.hpp"
#include "memory/paged_vector.hpp"
#include "plan/plan.hpp"
#include "session/runner/runner.hpp"

namespace gradwire::session {

class BucketFlight {
 public:
  /// `results`: the gradients, to be read. Without residuals, the call has none.
  BucketFlight(const plan::Bucket& bucket, bool background, codec::TensorList results,
               std::unique_ptr<exchange::BucketResiduals> residuals, exchange::ResidualUse use)
      : ended_{.bucket = bucket.id, .nonfinite = false, .background = background},
        group_(bucket.group),
        results_(std::move(results)),
        residuals_(std::move(residuals)),
        use_(std::move(use)) {}

  [[nodiscard]] std::size_t group() const noexcept { return group_; }
  /// Sets what codecs dropped, and the norm of this rank's gradients, if some part asked for them.
  void set_sample(const choice::QualitySample& sample) { ended_.sample = sample; }
  [[nodiscard]] const std::optional<choice::QualitySample>& sample() const noexcept { return ended_.sample; }
  void set_norms(double local) { ended_.norms = choice::GradientNorms{.local = local}; }

  /// Starts the same reduction, without loss, over a copy of the inputs, so that errors can be measured.
  void start_exact(exchange::HostExecutor& executor, const plan::Plan& plan, const exchange::Task& task,
                   const exchange::RankGroup& ranks);
  void start(exchange::HostExecutor& executor, exchange::Schedule schedule, exchange::Task task) {
    execution_ = executor.start(std::move(schedule), std::move(task));
  }
  [[nodiscard]] bool done() const { return execution_->done() && (exact_ == nullptr || exact_->done()); }
  /// Once done(): keeps the residuals, and sets `statistics` to what the reduction counted.
  [[nodiscard]] Buckets::Ended end(Statistics& statistics);

 private:
  void measure_errors(Statistics& statistics) const;

  Buckets::Ended ended_;
  std::size_t group_;
  codec::TensorList results_;
  std::unique_ptr<exchange::BucketResiduals> residuals_;
  exchange::ResidualUse use_;
  std::shared_ptr<exchange::Execution> execution_;
  std::shared_ptr<exchange::Execution> exact_;
  memory::PagedVector<std::byte, memory::MemoryUse::copies> exact_values_;
};

}  // namespace gradwire::session
