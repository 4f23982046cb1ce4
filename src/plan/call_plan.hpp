// How one collective call of a job without a session is made under a policy: the counterpart of make_plan for drop-ins,
// which see calls, not tensors. It is a pure function of the policy and the call, so all ranks resolve alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/dtype.hpp"
#include "gradwire/policy.hpp"
#include "policy/rule.hpp"
#include "policy/stage.hpp"

namespace gradwire::plan {

/// Why the drop-in for NCCL refuses max_error.
inline constexpr std::string_view kBoundOfNccl =
    "max_error: the values of calls of NCCL are not compared yet, so remove it, or name a codec that rounds less";

/// The properties of a call that are known. All of them must be the same on every rank.
struct CallInfo {
  std::uint64_t count = 0;  // elements that are reduced
  DType dtype = DType::f32;
  std::uint64_t order = 0;  // number of calls before it in its step, on its communicator
  std::uint32_t communicator_size = 1;
  std::string_view name = {};  // empty: none
  std::string_view communicator_name = {};
};

/// Why a call is not compressed.
enum class Pass : std::uint8_t {
  no,             // it is compressed
  below_floor,    // fewer bytes than the policy's floor
  f64_not_asked,  // f64, and no rule with dtype = "f64" matched it
  exact,          // the policy asks for uncompressed values at every step
  codec_refused   // the codec does not support this dtype
};
/// "below the floor", "the policy asks for exact values": for reports.
[[nodiscard]] std::string_view to_string(Pass pass) noexcept;

struct CallPlan {
  Pass pass = Pass::no;
  TensorPolicy policy;  // resolved; codec `exact` where the algorithm is dense
  std::vector<policy::Stage>
      stages;                       // codecs of both hops and error feedback, by step; stage_at finds the one of a step
  std::vector<policy::Stage> ways;  // codec = "auto": the alternatives for compressing it; otherwise empty
  bool any_role = false;            // calls of NCCL are compressed whether they are known to be gradients or not
  std::optional<std::size_t> rule;  // index into Policy::rules; none: the defaults
  std::string why;                  // "rule 2 at policy.toml:14 matched at least 1MiB", "default"
  [[nodiscard]] bool compress() const noexcept { return pass == Pass::no; }
};

/// Whether codec = "auto" may choose codecs with error feedback. Their residuals are lost where a later call passes,
/// unless the caller folds them in by a call of its own.
enum class AutoFeedback : std::uint8_t { never, where_allowed };

/// Holds a copy of the policy with its rules compiled; immutable, so threads may share it. Resolving allocates memory:
/// keep the answer for each class of calls, and ask floor() first where a call must cost nothing.
class CallPlanner {
 public:
  /// Error(invalid_argument) for a bad rule, as from make_plan.
  explicit CallPlanner(Policy policy, AutoFeedback feedback = AutoFeedback::never);

  /// The first rule that matches decides, or [defaults] if none does. `small` is for tensors that are fused, and
  /// ignored here.
  [[nodiscard]] CallPlan resolve(const CallInfo& call) const;
  [[nodiscard]] std::uint64_t floor() const noexcept { return policy_.floor; }
  [[nodiscard]] const Policy& policy() const noexcept { return policy_; }
  /// Whether any call's codec is chosen by measurement.
  [[nodiscard]] bool is_auto() const noexcept;
  /// Whether any call has a bound on its error.
  [[nodiscard]] bool bounds_errors() const noexcept;
  /// Whether every call's codec is chosen by measurement, and none needs its name or its place in the step.
  [[nodiscard]] bool only_automatic() const noexcept;
  /// Whether all calls are exact.
  [[nodiscard]] bool only_exact() const;
  /// Parts of the policy that calls without a name, or calls at all, cannot use; to be logged once.
  [[nodiscard]] const std::vector<std::string>& notes() const noexcept { return notes_; }
  /// Canonical text of everything that ranks must agree on, one item a line, without the name of the file. Compare it
  /// by fingerprint_of(), or describe a difference by first_difference().
  [[nodiscard]] std::string describe() const;

 private:
  Policy policy_;
  AutoFeedback feedback_;
  std::vector<policy::RuleMatcher> matchers_;
  std::vector<std::string> notes_;
};

}  // namespace gradwire::plan
