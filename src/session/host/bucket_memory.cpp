#include "session/host/bucket_memory.hpp"

namespace gradwire::session {

BucketMemory::BucketMemory(const plan::Bucket& bucket, std::span<const TensorMemory> memory,
                           const exchange::ResolvedCall& call)
    : tensors(bucket.dtype, call.codecs.first.working()), results(bucket.dtype, call.codecs.first.working()) {
  if (call.preconditioned) {
    preconditioner.emplace();
  }
  for (const plan::Bucket::Part& part : bucket.parts) {
    const TensorMemory& tensor = memory[part.tensor];
    results.append(tensor.gradient.data, nullptr, part.count);
    tensors.append(tensor.zero ? nullptr : tensor.gradient.data, tensor.gradient.data, part.count);
    if (preconditioner) {
      preconditioner->append(tensor.scale, part.count);
    }
  }
}

}  // namespace gradwire::session
