// Makes the names on char_lm's command line into policies.
//
//   dense                        uncompressed
//   dense+frozen                 control: the second moment frozen as in the rows below, nothing compressed
//   int8, topk(1%)+int8          a codec for every gradient; coarse ones begin with int8, and freeze the second moment
//   every(30)                    local steps: every 30th, parameters are averaged
//   every(30)+topk(64/4096)+int2 local steps: every 30th, their change travels by a codec to an outer optimizer
//   auto, x.toml                 codecs that gradwire chooses; a policy file
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gradwire/policy.hpp"

namespace char_lm {

struct PolicyOptions {
  double warm_up = 0.1;          // share of the steps before coarse codecs begin
  bool adam_guard = true;        // the second moment is frozen then
  double local_from = 0;         // share of the steps, by int8, before local steps begin
  std::uint64_t small = 65'536;  // tensors of fewer bytes are sent as bf16
  std::string second_hop = {};   // codec of the owner's encoding; empty: the codec's default
  std::uint64_t chunk = 0;       // bytes of a frame; 0: the default
  double decay = 1;              // of residuals
  gradwire::Sync::Outer outer = {.learning_rate = 0.7, .momentum = 0.5};
};

struct NamedPolicy {
  std::string name;
  gradwire::Policy policy;
  int freeze_second_moment_at = 0;  // step; 0: never
  int settled_at = 0;               // step from which on every tensor has its last codec
  bool local_steps = false;         // ranks exchange parameters or their changes, not gradients
};

/// Returns the policy in a file, with the file's name.
[[nodiscard]] NamedPolicy policy_of_file(const std::filesystem::path& file);

/// Returns the policy for a run of `steps`. Throws Error(invalid_argument) that quotes the wrong part.
[[nodiscard]] NamedPolicy policy_named(const std::string& name, const PolicyOptions& options, int steps);

}  // namespace char_lm
