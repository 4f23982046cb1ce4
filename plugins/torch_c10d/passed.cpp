// The operations that are passed on as they are.
#include "plugins/torch_c10d/backend.hpp"

namespace gradwire::torch_c10d {
WorkPointer GradwireBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  return pass(tensors, [&](Base& inner) { return inner.broadcast(tensors, opts); });
}

WorkPointer GradwireBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  return pass(tensors, [&](Base& inner) { return inner.allreduce_coalesced(tensors, opts); });
}

WorkPointer GradwireBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  return pass(tensors, [&](Base& inner) { return inner.reduce(tensors, opts); });
}

WorkPointer GradwireBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                       const c10d::AllgatherOptions& opts) {
  return pass(inputs, [&](Base& inner) { return inner.allgather(outputs, inputs, opts); });
}

WorkPointer GradwireBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                             const c10d::AllgatherOptions& opts) {
#if TORCH_VERSION_MAJOR < 2
  // Gloo of this version has no such operation.
  if (input.device().is_cpu()) {
    TORCH_CHECK(output.numel() == input.numel() * size_ && output.is_contiguous(),
                "gradwire: all_gather: an output of ", output.numel(), " elements for ", size_, " times ",
                input.numel());
    Tensors inputs{input.contiguous()};
    std::vector<Tensors> outputs{output.view({static_cast<std::int64_t>(size_), -1}).unbind(0)};
    for (at::Tensor& each : outputs[0]) {
      each = each.view(input.sizes());
    }
    return pass(inputs, [&](Base& inner) { return inner.allgather(outputs, inputs, opts); });
  }
#endif
  return pass({input}, [&](Base& inner) { return inner._allgather_base(output, input, opts); });
}

WorkPointer GradwireBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                 const c10d::AllgatherOptions& opts) {
  return pass(inputs, [&](Base& inner) { return inner.allgather_coalesced(outputs, inputs, opts); });
}

WorkPointer GradwireBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  return pass(inputs, [&](Base& inner) { return inner.gather(outputs, inputs, opts); });
}

WorkPointer GradwireBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& opts) {
  return pass(outputs, [&](Base& inner) { return inner.scatter(outputs, inputs, opts); });
}

WorkPointer GradwireBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                           std::vector<std::int64_t>& output_splits,
                                           std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& opts) {
  return pass({input},
              [&](Base& inner) { return inner.alltoall_base(output, input, output_splits, input_splits, opts); });
}

WorkPointer GradwireBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  return pass(inputs, [&](Base& inner) { return inner.alltoall(outputs, inputs, opts); });
}

WorkPointer GradwireBackend::send(Tensors& tensors, int to, int tag) {
  return inner_of(tensors.at(0)).send(tensors, to, tag);
}

WorkPointer GradwireBackend::recv(Tensors& tensors, int from, int tag) {
  return inner_of(tensors.at(0)).recv(tensors, from, tag);
}

WorkPointer GradwireBackend::recvAnysource(Tensors& tensors, int tag) {
  return inner_of(tensors.at(0)).recvAnysource(tensors, tag);
}

WorkPointer GradwireBackend::barrier(const c10d::BarrierOptions& opts) { return inner_.cpu->barrier(opts); }

void GradwireBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_for_all) {
  inner_.cpu->monitoredBarrier(opts, wait_for_all);
}

void GradwireBackend::setSequenceNumberForGroup() { inner_.cpu->setSequenceNumberForGroup(); }

std::uint64_t GradwireBackend::getSequenceNumberForGroup() { return inner_.cpu->getSequenceNumberForGroup(); }

#if TORCH_VERSION_MAJOR >= 2
WorkPointer GradwireBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  return pass(tensors, [&](Base& inner) { return inner.allreduce_sparse(tensors, opts); });
}

WorkPointer GradwireBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                             const c10d::AllgatherOptions& opts) {
  return pass(inputs, [&](Base& inner) { return inner.allgather_into_tensor_coalesced(outputs, inputs, opts); });
}

WorkPointer GradwireBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                             const c10d::ReduceScatterOptions& opts) {
  return pass(inputs, [&](Base& inner) { return inner.reduce_scatter_tensor_coalesced(outputs, inputs, opts); });
}
#endif

}  // namespace gradwire::torch_c10d
