// Measures exchanges and reductions of a session over host memory, for the choice of codecs.
#pragma once

#include <memory>

#include "gradwire/session.hpp"
#include "session/host/bucket_calls.hpp"
#include "session/host/executor_pair.hpp"
#include "session/host/host_residuals.hpp"
#include "session/runner/group_statistics.hpp"
#include "session/runner/runner.hpp"

namespace gradwire::session {

class HostProbes final : public Probes {
 public:
  /// All references must outlive this. `buckets` reduces the trials.
  HostProbes(Transport& transport, const SessionOptions& options, const RunnerInfo& info, Buckets& buckets,
             exchange::TransportPeers& peers, ExecutorPair& executors, HostResiduals& residuals,
             GroupStatistics& statistics)
      : transport_(transport),
        options_(options),
        info_(info),
        buckets_(buckets),
        peers_(peers),
        executors_(executors),
        residuals_(residuals),
        statistics_(statistics) {}

  [[nodiscard]] bool has_native(DType dtype) const override;
  [[nodiscard]] bool ends_in_call(const plan::Plan& plan, std::span<const BucketChoice> choices) const override;
  void know_link(const exchange::Cluster& cluster) override { executors_.know_link(cluster); }
  double time_exchange(int to, int from, std::uint64_t bytes) override;
  double time_reduction(const plan::Plan& trial, const TensorMemory& memory, const TrialStep& step) override;

 private:
  class RestoreOnExit;

  void advance_eagerly();  // returns when a bucket has ended

  Transport& transport_;
  const SessionOptions& options_;
  const RunnerInfo& info_;
  Buckets& buckets_;
  exchange::TransportPeers& peers_;
  ExecutorPair& executors_;
  HostResiduals& residuals_;
  GroupStatistics& statistics_;
};

}  // namespace gradwire::session
