// Sums behind topk or of codecs that differ: kernels with all codecs in them.
#include "kernels/device/operations/dispatch.hpp"
#include "kernels/device/reduce_mixed.hpp"

namespace gradwire::kernels {

void reduce_of_any(const ReduceJob& job, std::uint32_t blocks, const KernelQueue& queue) {
  const auto nothing = [](auto) {};
  job.call.codec.k != 0 ? with_any_selected(job.call.codec, nothing) : with_any_codec(job.call.codec, nothing);
  if (job.out != nullptr) {
    job.second.k != 0 ? with_any_selected(job.second, nothing) : with_any_codec(job.second, nothing);
  }
  const bool selected = job.call.codec.k != 0 && (job.out == nullptr || job.second.k != 0);
  const auto kernel = works_in_f64(job.call.codec)
                          ? (selected ? reduce_mixed<double, true> : reduce_mixed<double, false>)
                          : (selected ? reduce_mixed<float, true> : reduce_mixed<float, false>);
  simt::launch("reduce_mixed", kernel, blocks, queue.stream, job, input_list(job));
}

void load_kernels_of_any() {
  simt::load_kernel("reduce_mixed", reduce_mixed<float, false>);
  simt::load_kernel("reduce_mixed", reduce_mixed<float, true>);
  simt::load_kernel("reduce_mixed", reduce_mixed<double, false>);
  simt::load_kernel("reduce_mixed", reduce_mixed<double, true>);
}

}  // namespace gradwire::kernels
