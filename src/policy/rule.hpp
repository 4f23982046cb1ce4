// One compiled rule of a policy: it tells whether it matches a tensor, and whether it leaves any for a later rule.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/policy.hpp"
#include "policy/glob.hpp"

namespace gradwire::policy {

/// Bytes of the tensor in its own dtype; the largest number in case of an overflow.
[[nodiscard]] std::uint64_t tensor_bytes(const TensorInfo& tensor) noexcept;

class RuleMatcher {
 public:
  /// Error(invalid_argument) for a bad glob, min_bytes above max_bytes and a range that is backwards.
  explicit RuleMatcher(const RuleMatch& match);

  [[nodiscard]] bool matches(const TensorInfo& tensor) const;
  /// Whether this rule matches every tensor that `later` matches; false where comparing the globs takes more than
  /// `effort`.
  [[nodiscard]] bool covers(const RuleMatcher& later, Glob::Effort& effort) const;
  [[nodiscard]] bool by_name() const noexcept { return glob_.has_value(); }
  [[nodiscard]] bool by_order() const noexcept { return match_.order.has_value(); }
  [[nodiscard]] bool by_ndim() const noexcept { return match_.ndim.has_value(); }
  [[nodiscard]] bool by_communicator_name() const noexcept { return communicator_.has_value(); }
  /// Whether it names a communicator, a size or a dtype, and so says what kind of calls it is for.
  [[nodiscard]] bool names_calls() const noexcept;
  /// The conditions in short: "*.bias", "embed.*, at least 1MiB, f32", "every tensor".
  [[nodiscard]] std::string describe() const;

 private:
  RuleMatch match_;
  std::optional<Glob> glob_;
  std::optional<Glob> communicator_;
};

/// One for each rule, in their order. Error(invalid_argument) names the rule.
[[nodiscard]] std::vector<RuleMatcher> compile_rules(const Policy& policy);
/// "rule 2 at policy.toml:14".
[[nodiscard]] std::string rule_place(const Policy& policy, std::size_t rule);

}  // namespace gradwire::policy
