// The arguments with which a bucket of one step is reduced: its tensors' memory and the settings of the step.
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

/// The settings that the coming buckets have in common.
struct StepInfo {
  std::uint32_t step = 0;
  bool weighted = false;
  double weight = 1;
  bool flush = false;                          // reduce exactly, so that no residual is left
  std::span<const BucketChoice> choices = {};  // by bucket; empty if no codec is chosen at run time
  bool sample = false;                         // sample the error of encoding
  bool norms = false;                          // take norms of gradients and results
  bool background = false;                     // behind all other buckets; needs RunnerInfo::background
  bool again = false;                          // not the bucket's first reduction since StepUndo::commit()
  /// Whether the bucket is summed by the transport's blocking call if a caller waits for it on every rank, and whether
  /// one waits on this rank.
  enum class InCall : std::uint8_t { no, waits, does_not_wait };
  InCall in_call = InCall::no;
  bool plain = false;  // the values are no gradients: they are averaged exactly, without residuals
};

}  // namespace gradwire::session
