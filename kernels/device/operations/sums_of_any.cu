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
  launch_over(job, has_pieces(job), [&]<class Job>(const Job& over) {
    const auto kernel = works_in_f64(job.call.codec)
                            ? (selected ? reduce_mixed<double, true, Job> : reduce_mixed<double, false, Job>)
                            : (selected ? reduce_mixed<float, true, Job> : reduce_mixed<float, false, Job>);
    simt::launch("reduce_mixed", kernel, blocks, queue.stream, over, input_list(job));
  });
}

void load_kernels_of_any() {
  const auto load = []<class Job>(Type<Job>) {
    simt::load_kernel("reduce_mixed", reduce_mixed<float, false, Job>);
    simt::load_kernel("reduce_mixed", reduce_mixed<float, true, Job>);
    simt::load_kernel("reduce_mixed", reduce_mixed<double, false, Job>);
    simt::load_kernel("reduce_mixed", reduce_mixed<double, true, Job>);
  };
  load(Type<ReduceJob>());
  load(Type<InPieces<ReduceJob>>());
}

}  // namespace gradwire::kernels
