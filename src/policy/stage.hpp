// How a tensor's gradients travel during some steps: codecs of both encodings, and whether error feedback is on.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/codec_spec.hpp"
#include "gradwire/policy.hpp"

namespace gradwire::policy {

inline constexpr std::uint64_t kForever = std::numeric_limits<std::uint64_t>::max();

struct Stage {
  std::uint64_t until_step = kForever;  // exclusive
  CodecSpec codec;
  CodecSpec second_hop;
  std::optional<CodecSpec> intra = std::nullopt;  // inside nodes; hierarchical, where `codec` is that between them
  bool error_feedback = false;
  friend bool operator==(const Stage&, const Stage&) = default;
};

/// Warm-up stages in order, then the one that stays; empty only for no policy at all. `parts`: how many encoded ones an
/// owner adds up, one a rank, or one a node under hierarchical; `intra`: the codec asked for inside nodes. `automatic`:
/// as two_shot, and `intra` where it is asked for.
[[nodiscard]] std::vector<Stage> make_stages(const TensorPolicy& policy, int parts,
                                             const std::optional<CodecSpec>& intra = std::nullopt);
/// No feedback: `exact` at every encoding that `like` has.
[[nodiscard]] Stage exact_stage(const Stage& like);
/// What one bucket may do at a step whose codec is chosen at run time.
struct Level {
  Algorithm algorithm = Algorithm::two_shot;
  Stage stage;
};
/// Of a policy with codec = "auto", in order of quality: level 0 sends uncompressed (dense), level i uses allow[i - 1].
/// Empty for other policies. Error feedback is on where a policy with that codec alone has it on.
[[nodiscard]] std::vector<Level> make_levels(const TensorPolicy& policy, int parts,
                                             const std::optional<CodecSpec>& intra = std::nullopt);
/// Of tensors that are small; only where the policy has `small`.
[[nodiscard]] TensorPolicy policy_of_small(const Policy& policy);
/// "int8", "auto (bf16, int8)".
[[nodiscard]] std::string codec_text(const TensorPolicy& policy);
/// Error(invalid_argument) unless a policy may allow these: some, none exact, each with fewer bits than the one before.
void check_allowed(const std::vector<CodecSpec>& allow);

[[nodiscard]] const Stage& stage_at(const std::vector<Stage>& stages, std::uint64_t step);

/// What error_feedback = "auto" means: on with topk, and from 4 bits an element down.
[[nodiscard]] bool wants_feedback(const CodecSpec& codec);
/// What is odd in how many elements topk keeps: one of a tile, or all, as "topk(1)" for 1% does. Empty: nothing.
[[nodiscard]] std::string selection_note(const CodecSpec& codec);
/// Training diverges without it: one bit an element.
[[nodiscard]] bool requires_feedback(const CodecSpec& codec);

/// "int4", "int8, intra bf16", or "topk(41/4096)+int8, second hop topk(82/4096)+int8, error feedback, until step 100".
[[nodiscard]] std::string to_string(const Stage& stage);
/// How a bucket travels: its stages, "int8, error feedback, until step 100; then int4, error feedback", or what
/// codec = "auto" may choose, "auto: dense; bf16; int8".
[[nodiscard]] std::string to_string(const std::vector<Stage>& stages, const std::vector<Level>& levels);
[[nodiscard]] std::string_view to_string(ErrorFeedback feedback) noexcept;

}  // namespace gradwire::policy
