#include "session/step/step_buckets.hpp"

#include <algorithm>
#include <utility>

namespace gradwire::session {

void StepBuckets::set_plan(const plan::Plan& plan) {
  buckets_.assign(plan.buckets.size(), {});
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    tensors_[i].bucket = static_cast<std::uint32_t>(plan.tensors[i].bucket);
    ++buckets_[tensors_[i].bucket].tensors;
  }
}

void StepBuckets::reset() {
  for (Tensor& tensor : tensors_) {
    tensor.ready = false;
  }
  whole_ = 0;
  for (Bucket& bucket : buckets_) {
    bucket.missing = bucket.tensors;
    bucket.ended = false;
    whole_ += bucket.missing == 0 ? 1 : 0;
  }
  ready_ = next_ = ended_ = 0;
}

bool StepBuckets::ready(std::uint32_t tensor) {
  Tensor& entry = tensors_[tensor];
  entry.ready = true;
  ++ready_;
  const bool whole = --buckets_[entry.bucket].missing == 0;
  whole_ += whole ? 1 : 0;
  return whole;
}

std::uint32_t StepBuckets::take_micro_steps() {
  std::uint32_t most = 1;
  for (Tensor& tensor : tensors_) {
    most = std::max(most, std::exchange(tensor.micro_steps, 0) + 1);
  }
  return most;
}

void StepBuckets::end(std::uint32_t bucket) {
  buckets_[bucket].ended = true;
  ++ended_;
}

void StepBuckets::end_all() {
  for (Bucket& bucket : buckets_) {
    bucket.ended = true;
  }
  next_ = ended_ = buckets_.size();
}

}  // namespace gradwire::session
