// The backend "gradwire" as Torch sees it: sums of floating-point tensors on the CPU go to the engine, everything else
// to the library's own backends.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/forked.hpp"
#include "plugins/torch_c10d/group_engine.hpp"
#include "plugins/torch_c10d/torch_version.hpp"
#include "plugins/torch_c10d/work.hpp"

namespace gradwire::torch_c10d {

/// The library's own backends over the same ranks.
struct Inner {
  BasePointer cpu;     // for calls that are passed at once
  BasePointer beside;  // the same, for calls that the engine's thread passes; null if it has no thread
  BasePointer cuda;    // null if there is none
};

class GradwireBackend final : public Base {
 public:
  GradwireBackend(const StorePointer& store, int rank, int size, const GroupEngineOptions& options, Inner inner);
  ~GradwireBackend() override;

  const std::string getBackendName() const override { return "gradwire"; }  // NOLINT: as the base declares it

  [[nodiscard]] const GroupEngine& engine() const noexcept { return *engine_; }
  /// If the engine has a thread, sets the library's backend for the calls that it passes. To be called before the first
  /// call.
  void set_beside(BasePointer beside) { inner_.beside = std::move(beside); }

  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPointer reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                             const c10d::ReduceScatterOptions& opts) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& opts) override;

  // These are passed on.
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
  WorkPointer pass(const Tensors& tensors, const std::function<WorkPointer(Base&)>& call);
  WorkPointer pass_as_it_is(Tensors& tensors, const Asked& asked, const c10d::AllreduceOptions& opts);
  void pass_elements(const c10::intrusive_ptr<ReductionWork>& work, const at::Tensor& tensor, const PassedCall& passed,
                     const c10d::AllreduceOptions& opts);
  WorkPointer scatter_flat(const at::Tensor& output, at::Tensor input, std::vector<std::uint64_t> counts,
                           const c10d::ReduceScatterOptions& opts);

  Home home_;
  Inner inner_;
  std::unique_ptr<GroupEngine> engine_;
};

/// A group's store for what ranks tell each other; keys begin with "gradwire/". get() polls, so it takes the store from
/// nobody.
[[nodiscard]] transport::Rendezvous rendezvous_of(const StorePointer& store);

/// To be called before the process ends: waits for groups that are destroyed because of a callback of their own.
void wait_for_ending_groups();

}  // namespace gradwire::torch_c10d
