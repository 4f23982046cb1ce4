#include "policy/stage.hpp"

#include <algorithm>

#include "codec/codec.hpp"
#include "exchange/collectives.hpp"
#include "exchange/default_codecs.hpp"
#include "gradwire/error.hpp"

namespace gradwire::policy {
namespace {

constexpr double kFeedbackBits = 5;       // 4-bit codecs have 4.06
constexpr double kRequiredBelowBits = 2;  // sign has 1.06

template <class Has>
bool any_policy(const Policy& policy, Has has) {
  return has(policy.defaults) || std::any_of(policy.rules.begin(), policy.rules.end(),
                                             [&](const Policy::Rule& rule) { return has(rule.policy); });
}

bool lossy(const CodecSpec& codec) { return codec::Codec(codec, DType::f32).lossy(); }

Stage make_stage(const CodecSpec& codec, const TensorPolicy& policy, int parts, const std::optional<CodecSpec>& intra,
                 std::uint64_t until) {
  Stage stage{.until_step = until, .codec = codec, .second_hop = codec, .error_feedback = false};
  const bool open = policy.algorithm == Algorithm::automatic;  // each call then chooses
  if (open || exchange::encodes_at_owner(policy.algorithm)) {
    const bool last = until == kForever;  // second_hop belongs to the codec beside it, not to warm-up stages
    stage.second_hop = last && policy.second_hop ? *policy.second_hop : exchange::default_second_hop(codec, parts);
  }
  if (policy.algorithm == Algorithm::hierarchical || (open && intra)) {
    stage.intra = exchange::intra_codec(codec, intra);
  }
  stage.error_feedback = lossy(codec) || lossy(stage.second_hop);
  return stage;
}

}  // namespace

std::vector<Stage> make_stages(const TensorPolicy& policy, int parts, const std::optional<CodecSpec>& intra) {
  std::vector<Stage> stages;
  for (const Warmup& warmup : policy.warmup) {
    stages.push_back(make_stage(warmup.codec, policy, parts, intra, warmup.until_step));
  }
  stages.push_back(make_stage(policy.codec, policy, parts, intra, kForever));
  // Error feedback is on in all stages or in none: a stage without it would lose the residuals of another one.
  const bool wanted = std::any_of(stages.begin(), stages.end(), [](const Stage& stage) {
    return wants_feedback(stage.codec) || wants_feedback(stage.second_hop) ||
           (stage.intra && wants_feedback(*stage.intra));
  });
  const bool on =
      policy.error_feedback == ErrorFeedback::on || (policy.error_feedback == ErrorFeedback::automatic && wanted);
  for (Stage& stage : stages) {
    stage.error_feedback = stage.error_feedback && on;
  }
  return stages;
}

std::vector<Level> make_levels(const TensorPolicy& policy, int parts, const std::optional<CodecSpec>& intra) {
  std::vector<Level> levels;
  if (!policy.is_auto()) {
    return levels;
  }
  const CodecSpec exact = CodecSpec::exact();
  levels.push_back({Algorithm::dense, Stage{.codec = exact, .second_hop = exact}});
  // Each level is made as if it were the only one: a level that wants no error feedback must not pay for one that does.
  // Residuals that another level left are folded in.
  for (const CodecSpec& codec : policy.allow) {
    TensorPolicy one = policy;
    one.codec = codec;
    levels.push_back({policy.algorithm, make_stages(one, parts, intra).back()});
  }
  return levels;
}

bool packs_frames(const Policy& policy) {
  const auto packs = [](const CodecSpec& codec) { return codec.values == codec::kPackedId; };
  const auto any_packs = [&](const TensorPolicy& one) {
    return packs(one.codec) || packs(one.second_hop.value_or(one.codec)) ||
           std::any_of(one.allow.begin(), one.allow.end(), packs) ||
           std::any_of(one.warmup.begin(), one.warmup.end(), [&](const Warmup& stage) { return packs(stage.codec); });
  };
  return any_policy(policy, any_packs) || (policy.small && packs(policy.small->codec)) ||
         packs(policy.tiers.intra_codec.value_or(CodecSpec::exact()));
}

bool places_residuals(const Policy& policy) {
  return any_policy(policy, [](const TensorPolicy& one) { return one.residuals != Residuals{}; });
}

bool stores_residuals(const Policy& policy) {
  return any_policy(policy, [](const TensorPolicy& one) { return !one.residuals.store.empty(); });
}

TensorPolicy policy_of_small(const Policy& policy) {
  TensorPolicy small = policy.defaults;
  small.codec = policy.small->codec;
  small.allow.clear();
  if (policy.defaults.is_auto() && lossy(small.codec)) {
    small.allow = {small.codec};
  }
  small.second_hop.reset();
  small.warmup.clear();
  if (small.error_feedback != ErrorFeedback::on && !wants_feedback(small.codec)) {
    small.decay = 1;  // there are no residuals
  }
  return small;
}

std::string codec_text(const TensorPolicy& policy) {
  if (!policy.is_auto()) {
    return policy.codec.to_string();
  }
  std::string text;
  for (const CodecSpec& codec : policy.allow) {
    text += (text.empty() ? "auto (" : ", ") + codec.to_string();
  }
  return text + ")";
}

void check_allowed(const std::vector<CodecSpec>& allow) {
  const auto fail = [](const std::string& what) { throw Error(ErrorCode::invalid_argument, "allow: " + what); };
  if (allow.empty()) {
    fail("no codec is left to choose; name some, such as [\"bf16\", \"int8\"], or write codec = \"exact\"");
  }
  for (std::size_t i = 0; i < allow.size(); ++i) {
    if (const codec::Codec codec(allow[i], DType::f32); !codec.lossy() && !codec.packed()) {
      fail(allow[i].to_string() + " is a candidate always; name only what compresses");
    }
    if (i > 0 && exchange::bits_per_element(allow[i]) >= exchange::bits_per_element(allow[i - 1])) {
      fail(allow[i].to_string() + " after " + allow[i - 1].to_string() +
           " takes no fewer bits; order codecs from the best quality to the fewest bits, each once");
    }
  }
}

const Stage& stage_at(const std::vector<Stage>& stages, std::uint64_t step) {
  return *std::find_if(stages.begin(), stages.end() - 1, [=](const Stage& stage) { return step < stage.until_step; });
}

Stage exact_stage(const Stage& like) {
  const CodecSpec exact = CodecSpec::exact();
  Stage stage{.codec = exact, .second_hop = exact};
  if (like.intra) {
    stage.intra = exact;
  }
  return stage;
}

bool wants_feedback(const CodecSpec& codec) {
  return codec.k != 0 || exchange::bits_per_element(codec) < kFeedbackBits;
}

std::string selection_note(const CodecSpec& codec) {
  constexpr unsigned kTile = 4096;
  if (codec.k == 1) {
    return codec.to_string() + " keeps one element of each tile of 4096, the least there is (0.024%)";
  }
  if (codec.k == kTile) {
    CodecSpec all = codec;
    all.k = 0;
    return codec.to_string() + " keeps every element and sends their places, too; write " + all.to_string() +
           ", or a share such as topk(1%)+" + all.to_string();
  }
  return "";
}

bool requires_feedback(const CodecSpec& codec) {
  return codec.k == 0 && exchange::bits_per_element(codec) < kRequiredBelowBits;
}

std::string to_string(const Stage& stage) {
  std::string text = stage.codec.to_string();
  if (stage.intra) {
    text += ", intra " + stage.intra->to_string();
  }
  if (stage.second_hop != stage.codec) {
    text += ", second hop " + stage.second_hop.to_string();
  }
  text += stage.error_feedback ? ", error feedback" : "";
  return text + (stage.until_step == kForever ? "" : ", until step " + std::to_string(stage.until_step));
}

std::string to_string(const std::vector<Stage>& stages, const std::vector<Level>& levels) {
  std::string text;
  if (levels.empty()) {
    for (const Stage& stage : stages) {
      text += (text.empty() ? "" : "; then ") + to_string(stage);
    }
    return text;
  }
  for (const Level& level : levels) {
    text += (text.empty() ? "auto: " : "; ") +
            (level.algorithm == Algorithm::dense ? std::string("dense") : to_string(level.stage));
  }
  return text;
}

std::string_view to_string(Roles roles) noexcept { return roles == Roles::all ? "all" : "gradients"; }

std::string_view to_string(ErrorFeedback feedback) noexcept {
  switch (feedback) {
    case ErrorFeedback::automatic: return "auto";
    case ErrorFeedback::on: return "on";
    case ErrorFeedback::off: return "off";
  }
  return "unknown";
}

}  // namespace gradwire::policy
