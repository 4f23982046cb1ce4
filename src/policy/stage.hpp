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

/// Returns whether a policy names a codec that packs frames, which works over host memory alone.
[[nodiscard]] bool packs_frames(const Policy& policy);
/// Says why such a policy is refused over device memory.
inline constexpr std::string_view kPacksOnHosts =
    "exact+zstd packs frames on the cores of hosts, and frames on devices are not packed; over device memory write "
    "codec = \"exact\" or a codec that rounds";

/// Returns whether a policy keeps any residuals in another way than as f32 in memory, which works over host memory
/// alone.
[[nodiscard]] bool places_residuals(const Policy& policy);
/// Says why such a policy is refused over device memory.
inline constexpr std::string_view kResidualsOnHosts =
    "residuals = { ... } is for residuals in the memory of hosts; codecs on devices keep theirs there, as f32, so "
    "remove "
    "it";
/// Returns whether a policy keeps any residuals in a file.
[[nodiscard]] bool stores_residuals(const Policy& policy);

inline constexpr std::uint64_t kForever = std::numeric_limits<std::uint64_t>::max();

struct Stage {
  std::uint64_t until_step = kForever;  // exclusive
  CodecSpec codec;
  CodecSpec second_hop;
  std::optional<CodecSpec> intra = std::nullopt;  // hierarchical: inside nodes, where `codec` is the one between them
  bool error_feedback = false;
  friend bool operator==(const Stage&, const Stage&) = default;
};

/// Warm-up stages in order, then the one that stays; empty only for no policy at all. `parts`: how many encoded parts
/// an owner adds up, one a rank, or one a node under hierarchical; `intra`: the codec that the policy names for inside
/// nodes. `automatic` gives the stages of two_shot, with `intra` where the policy names it.
[[nodiscard]] std::vector<Stage> make_stages(const TensorPolicy& policy, int parts,
                                             const std::optional<CodecSpec>& intra = std::nullopt);
/// A stage with `exact` at every encoding that `like` has, without feedback.
[[nodiscard]] Stage exact_stage(const Stage& like);
/// One way to send a bucket whose codec is chosen at run time.
struct Level {
  Algorithm algorithm = Algorithm::two_shot;
  Stage stage;
};
/// The levels of a policy with codec = "auto", in order of quality: level 0 sends uncompressed (dense), level i uses
/// allow[i - 1]. Empty for other policies. A level has error feedback where a policy with its codec alone would have
/// it.
[[nodiscard]] std::vector<Level> make_levels(const TensorPolicy& policy, int parts,
                                             const std::optional<CodecSpec>& intra = std::nullopt);
/// The policy of small tensors; only where the policy has `small`.
[[nodiscard]] TensorPolicy policy_of_small(const Policy& policy);
/// "int8", "auto (bf16, int8)".
[[nodiscard]] std::string codec_text(const TensorPolicy& policy);
/// Throws Error(invalid_argument) unless a policy may allow these codecs: at least one, none exact, each with fewer
/// bits than the one before.
void check_allowed(const std::vector<CodecSpec>& allow);

[[nodiscard]] const Stage& stage_at(const std::vector<Stage>& stages, std::uint64_t step);

/// The meaning of error_feedback = "auto": on with topk, and with 4 bits an element or fewer.
[[nodiscard]] bool wants_feedback(const CodecSpec& codec);
/// A remark where topk keeps an odd number of elements: one of a tile, or all, as in "topk(1)" meant as 1%. Empty: no
/// remark.
[[nodiscard]] std::string selection_note(const CodecSpec& codec);
/// Whether training diverges without error feedback, as with one bit an element.
[[nodiscard]] bool requires_feedback(const CodecSpec& codec);

/// "int4", "int8, intra bf16", or "topk(41/4096)+int8, second hop topk(82/4096)+int8, error feedback, until step 100".
[[nodiscard]] std::string to_string(const Stage& stage);
/// How a bucket travels: its stages, "int8, error feedback, until step 100; then int4, error feedback", or the levels
/// of codec = "auto", "auto: dense; bf16; int8".
[[nodiscard]] std::string to_string(const std::vector<Stage>& stages, const std::vector<Level>& levels);
[[nodiscard]] std::string_view to_string(ErrorFeedback feedback) noexcept;
/// "gradients" or "all".
[[nodiscard]] std::string_view to_string(Roles roles) noexcept;

}  // namespace gradwire::policy
