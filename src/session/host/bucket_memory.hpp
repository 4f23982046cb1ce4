// The memory of a bucket's tensors in one step, each member as one sequence of elements.
#pragma once

#include <optional>
#include <span>

#include "codec/preconditioner.hpp"
#include "codec/tensor_list.hpp"
#include "exchange/resolved_call.hpp"
#include "plan/plan.hpp"
#include "session/step/step_info.hpp"

namespace gradwire::session {

struct BucketMemory {
  BucketMemory(const plan::Bucket& bucket, std::span<const TensorMemory> memory, const exchange::ResolvedCall& call);

  codec::TensorList tensors;                            // the gradients, reduced in place
  codec::TensorList results;                            // the same gradients, to be read
  std::optional<codec::Preconditioner> preconditioner;  // if the call is preconditioned
};

}  // namespace gradwire::session
