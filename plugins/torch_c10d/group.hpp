// The backend "gradwire" as Torch sees it: sums of floating-point tensors on the CPU go to the core, everything else to
// the library's own backends.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/forked.hpp"
#include "plugins/torch_c10d/core.hpp"
#include "plugins/torch_c10d/torch_version.hpp"

namespace gradwire::torch_c10d {

/// The library's own backends over the same ranks.
struct Inner {
  BasePointer cpu;     // for calls that are passed when they are made
  BasePointer beside;  // the same, for those that are passed by the core's thread
  BasePointer cuda;    // null where there is none
};

class Group final : public Base {
 public:
  Group(const StorePointer& store, int rank, int size, const CoreOptions& options, Inner inner);
  ~Group() override;

  const std::string getBackendName() const override { return "gradwire"; }  // NOLINT: as declared there

  /// allreduce() of a buffer that the policy's rules may match by its name and its order in the step.
  WorkPointer sum_named(Tensors& tensors, const std::string& name, std::uint64_t order);
  [[nodiscard]] const Core& core() const noexcept { return *core_; }

  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPointer reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                             const c10d::ReduceScatterOptions& opts) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& opts) override;

  // Passed on.
  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPointer allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPointer allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPointer allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                  const c10d::AllgatherOptions& opts) override;
  WorkPointer gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPointer scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& opts) override;
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                            std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& opts) override;
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPointer send(Tensors& tensors, int to, int tag) override;
  WorkPointer recv(Tensors& tensors, int from, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;
  WorkPointer barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_for_all) override;
  void setSequenceNumberForGroup() override;
  std::uint64_t getSequenceNumberForGroup() override;
#if TORCH_VERSION_MAJOR >= 2
  WorkPointer allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& opts) override;
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions& opts) override;
#endif

 private:
  [[nodiscard]] Base& inner_of(const at::Tensor& tensor);
  [[nodiscard]] Base& pass(const at::Tensor& tensor);
  [[nodiscard]] Base& pass(const Tensors& tensors);
  WorkPointer all_reduce(Tensors& tensors, const std::string& name, std::optional<std::uint64_t> order,
                         const c10d::AllreduceOptions& opts);
  WorkPointer pass_view(const at::Tensor& tensor, const c10d::AllreduceOptions& opts);
  WorkPointer scatter_flat(const at::Tensor& output, at::Tensor input, std::vector<std::uint64_t> counts,
                           const c10d::ReduceScatterOptions& opts);

  Home home_;
  Inner inner_;
  std::unique_ptr<Core> core_;
};

/// Before the process ends: for groups that a callback of theirs has ended.
void wait_for_ending_groups();

}  // namespace gradwire::torch_c10d
