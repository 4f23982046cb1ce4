// What a bucket of one step is reduced with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "choice/bucket_choice.hpp"
#include "gradwire/codec_spec.hpp"
#include "gradwire/dtype.hpp"
#include "gradwire/policy.hpp"

namespace gradwire::session {

/// Memory of one tensor in one step.
struct TensorMemory {
  View gradient;
  bool zero = false;             // this rank contributes zeros
  const float* scale = nullptr;  // TensorOptions::scale
};

using choice::BucketChoice;

/// What the coming buckets have in common.
struct StepInfo {
  std::uint32_t step = 0;
  bool weighted = false;
  double weight = 1;
  bool flush = false;                          // exactly, so that no residual is left
  std::span<const BucketChoice> choices = {};  // by bucket; empty where no codec is chosen at run time
  bool sample = false;                         // look at what encoding drops
  bool norms = false;                          // take norms of gradients and results
  bool background = false;                     // behind the buckets that are not; where the runner has modes
  bool again = false;                          // not the bucket's first reduction since StepUndo::commit()
  /// The bucket is summed by the transport's blocking call if on every rank a caller waits for it.
  enum class InCall : std::uint8_t { no, waits, does_not_wait };
  InCall in_call = InCall::no;
  bool plain = false;  // values that are no gradients: averaged exactly, and residuals have nothing to do with it
};

}  // namespace gradwire::session
