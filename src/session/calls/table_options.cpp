// Derives the options of a table from a policy. This layer may include both.
#include <limits>
#include <utility>

#include "gradwire/policy.hpp"
#include "gradwire/table.hpp"
#include "policy/rule.hpp"
#include "policy/sync.hpp"
#include "table/options.hpp"
#include "table/row_codec.hpp"

namespace gradwire {
namespace {

std::uint64_t elements_of(std::uint64_t rows, std::uint32_t width) noexcept {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  return width != 0 && rows > kMost / width ? kMost : rows * width;
}

/// Says what is wrong with a rule for a table; empty if nothing is.
std::string problem_of(const TensorPolicy& rule) {
  if (rule.is_auto()) {
    return std::string(policy::kSyncNeedsACodec);
  }
  if (!rule.warmup.empty()) {
    return "tables have no warmup; remove it";
  }
  if (rule.error_feedback == ErrorFeedback::on) {
    return "rows have no error feedback; remove it";
  }
  if (rule.decay != 1) {
    return "rows have no error feedback, and so no decay; remove it";
  }
  return policy::problem_of(rule.sync);
}

/// Sets the codecs and the store of `options` as the rule for this tensor says, and returns the rule's staleness.
template <class Options>
std::uint64_t follow_rule(const Policy& policy, std::string_view tensor_name, Options& options) {
  const TensorInfo tensor{.name = std::string(tensor_name),
                          .count = elements_of(options.rows, options.width),
                          .dtype = DType::f32,
                          .ndim = 2};
  const std::vector<policy::RuleMatcher> matchers = policy::compile_rules(policy);
  std::size_t first = 0;
  while (first < matchers.size() && !matchers[first].matches(tensor)) {
    ++first;
  }
  const bool any = first < matchers.size();
  const TensorPolicy& rule = any ? policy.rules[first].policy : policy.defaults;
  const std::string place = any ? policy::rule_place(policy, first) : "no rule";
  const auto fail = [&](const std::string& what, ErrorCode code) {
    throw Error(code, "policy " + policy.source + ": table \"" + tensor.name + "\": " + what);
  };
  if (rule.sync.mode != Sync::Mode::rows) {
    fail((any ? place + " matches it first, with sync " + policy::to_string(rule.sync) : place + " matches it") +
             "; write a [[rule]] with match = \"" + tensor.name +
             "\" and sync = { rows = true, staleness = N } before it",
         ErrorCode::invalid_argument);
  }
  if (const std::string problem = problem_of(rule); !problem.empty()) {
    fail(place + ": " + problem, ErrorCode::unsupported);
  }
  options.gradient_codec = rule.codec;
  options.codec = rule.second_hop.value_or(rule.codec);
  try {
    static_cast<void>(table::RowCodec(options.gradient_codec, 1));
    static_cast<void>(table::RowCodec(options.codec, 1));
  } catch (const Error& error) {
    fail(place + ": " + error.what(), error.code());
  }
  if (!rule.sync.store.empty()) {
    options.store = rule.sync.store;
    options.memory = rule.sync.memory;
  }
  return rule.sync.staleness;
}

}  // namespace

TableOptions table_options(const Policy& policy, std::string_view tensor_name, TableOptions base) {
  base.staleness = follow_rule(policy, tensor_name, base);
  base.save_packed = base.save_packed || policy.save_packed;
  return base;
}

SessionTableOptions session_table_options(const Policy& policy, std::string_view tensor_name,
                                          SessionTableOptions base) {
  if (follow_rule(policy, tensor_name, base) != 0) {
    table::refuse_for_session(base.name, "staleness");
  }
  return base;
}

}  // namespace gradwire
