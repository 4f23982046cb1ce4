#include "plan/plan.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "base/units.hpp"
#include "codec/codec.hpp"
#include "exchange/default_codecs.hpp"
#include "exchange/model/sizes.hpp"
#include "gradwire/error.hpp"
#include "memory/store_folder.hpp"
#include "plan/plan_algorithms.hpp"
#include "plan/plan_checks.hpp"
#include "plan/plan_scale.hpp"
#include "plan/plan_sync.hpp"
#include "policy/bounds.hpp"
#include "policy/rule.hpp"
#include "policy/sync.hpp"

namespace gradwire::plan {
namespace {

constexpr std::uint64_t kUncompressedBytes = 4;  // bytes of an element in bucket sizes

class Planner {
 public:
  Planner(const Policy& policy, const std::vector<TensorInfo>& tensors, const PlanOptions& options)
      : policy_(policy), tensors_(tensors) {
    plan_.options = options;
    plan_.chunk_bytes = policy.chunk_bytes;
    plan_.join_bytes = policy.device.join_bytes;
    plan_.in_flight_bytes = policy.in_flight_bytes;
    plan_.elastic = policy.elastic.value_or(Policy::Elastic());
    plan_.deterministic = policy.deterministic;
    plan_.auto_options = policy.auto_options;
    plan_.link = policy.link;
    plan_.batch = policy.batch;
  }

  Plan make() {
    check_policy(policy_, plan_.options);
    compile();
    resolve_tensors();
    make_groups();
    fill_buckets();
    check_rules();
    return std::move(plan_);
  }

 private:
  // Places of groups, before the empty ones are dropped: one for each rule, then default, then small.
  [[nodiscard]] std::size_t default_slot() const { return matchers_.size(); }
  [[nodiscard]] std::size_t small_slot() const { return matchers_.size() + 1; }

  void find_tiers() {
    const std::optional<std::uint32_t>& ranks = policy_.tiers.ranks_per_node;
    const int world = plan_.options.world_size;
    try {
      plan_.tiers = std::make_shared<const exchange::Tiers>(ranks ? exchange::Tiers::in_rows(*ranks, world)
                                                                  : exchange::Tiers(plan_.options.nodes, world));
    } catch (const Error& error) {
      throw Error(error.code(), "policy " + policy_.source + ", [tier]: " + error.what());
    }
  }

  // Uses only values that all ranks know before the first byte travels: the policy's link, and bytes on the wire.
  void find_bucket_bytes() {
    plan_.bucket_bytes = policy_.bucket_bytes;
    if (policy_.bucket_bytes != 0) {
      return;
    }
    if (!policy_.link) {
      throw Error(ErrorCode::invalid_argument,
                  "policy " + policy_.source + ": " + std::string(policy::kBucketsNeedALink));
    }
    const TensorPolicy& defaults = policy_.defaults;
    const CodecSpec& codec = defaults.is_auto() ? defaults.allow.front() : defaults.codec;
    const Algorithm algorithm = typical(defaults, plan_).algorithm;
    exchange::Way way{.algorithm = algorithm == Algorithm::dense ? Algorithm::two_shot : algorithm};
    way.first.bytes = way.second.bytes = way.intra.bytes = exchange::bits_per_element(codec) / 8;
    double elements = 0;
    for (const TensorInfo& tensor : tensors_) {
      elements += static_cast<double>(tensor.count);
    }
    plan_.bucket_bytes =
        exchange::best_bucket_bytes(exchange::given_cluster(*policy_.link, *plan_.tiers), way, elements);
    plan_.notes.push_back("buckets of " + format_bytes(plan_.bucket_bytes) + ", by the cost model");
  }

  void find_window() {
    if (!policy_.link) {
      return;
    }
    exchange::Cluster cluster = exchange::given_cluster(*policy_.link, *plan_.tiers);
    cluster.in_flight_bytes = static_cast<double>(policy_.in_flight_bytes);
    plan_.fitting_chunk_bytes = exchange::least_chunk_bytes(cluster);
    const std::uint64_t needed = exchange::window_memory(cluster);
    if (plan_.options.world_size > 1 && needed > policy_.in_flight_bytes) {
      plan_.warnings.push_back("a link of " + policy_.link->to_string() + " stays full with frames of " +
                               format_bytes(needed) + " in flight, and in_flight in [bucket] allows " +
                               format_bytes(policy_.in_flight_bytes) + "; allow more, or it carries less");
    }
  }

  void compile() {
    find_tiers();
    find_bucket_bytes();
    find_window();
    matchers_ = policy::compile_rules(policy_);
    fitting_.resize(matchers_.size());
    slots_.resize(matchers_.size() + 2);
  }

  void resolve_tensors() {
    for (const TensorInfo& info : tensors_) {
      TensorPlan tensor;
      tensor.info = info;
      tensor.info.communicator_size = static_cast<std::uint32_t>(plan_.options.world_size);
      std::optional<std::size_t> rule;
      for (std::size_t i = 0; i < matchers_.size(); ++i) {
        if (matchers_[i].matches(tensor.info)) {
          ++fitting_[i];
          rule = rule ? rule : i;
        }
      }
      const std::uint64_t bytes = policy::tensor_bytes(info);
      if (rule) {
        tensor.group = *rule;
        tensor.why = policy::rule_place(policy_, *rule) + " matched " + matchers_[*rule].describe();
      } else if (policy_.small && bytes < policy_.small->below) {
        tensor.group = small_slot();
        tensor.why = "small: " + format_bytes(bytes) + " is below " + format_bytes(policy_.small->below);
      } else {
        tensor.group = default_slot();
        tensor.why = "default";
      }
      Group& slot = slots_[tensor.group];
      ++slot.tensors;
      slot.elements += info.count;
      plan_.tensors.push_back(std::move(tensor));
    }
  }

  void make_groups() {
    std::vector<std::size_t> index(slots_.size());
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      if (slots_[slot].tensors == 0) {
        continue;
      }
      Group group = slots_[slot];
      if (slot == small_slot()) {
        group.name = "small";
        group.policy = policy::policy_of_small(policy_);
      } else if (slot == default_slot()) {
        group.name = "default";
        group.policy = policy_.defaults;
      } else {
        group.name = "rule " + std::to_string(slot + 1) + " (" + matchers_[slot].describe() + ")";
        group.policy = policy_.rules[slot].policy;
      }
      check_sync(group, policy_.source, plan_.options.reduction);
      group.policy = effective_policy(group.policy, group.name, plan_, policy_);
      index[slot] = plan_.groups.size();
      plan_.groups.push_back(std::move(group));
    }
    for (TensorPlan& tensor : plan_.tensors) {
      tensor.group = index[tensor.group];
      tensor.policy = plan_.groups[tensor.group].policy;
    }
  }

  // Fills buckets in reverse order of add, in which gradients arrive. One bucket for each group and dtype is open at a
  // time, and one more for tensors with a scale: values in units of a scale must not share a tile with others.
  void fill_buckets() {
    std::map<std::tuple<std::size_t, DType, bool>, std::size_t> open;
    std::vector<Bucket>& buckets = plan_.buckets;
    for (std::size_t i = plan_.tensors.size(); i-- > 0;) {
      const TensorPlan& tensor = plan_.tensors[i];
      std::tuple key(tensor.group, tensor.info.dtype, is_preconditioned(tensor));
      if (const std::tuple other(tensor.group, tensor.info.dtype, true);
          tensor.info.count == 0 && !open.contains(key) && open.contains(other)) {
        key = other;  // a tensor without elements fits into any bucket
      }
      const auto found = open.find(key);
      if (found == open.end() || !fits(buckets[found->second], tensor.info.count)) {
        first_.push_back(found == open.end());
        open[key] = buckets.size();
        buckets.push_back(open_bucket(tensor));
      }
      Bucket& bucket = buckets[open[key]];
      if (bucket.sync.mode == Sync::Mode::every && !policy::is_step(bucket.sync)) {
        check_parameters(tensor, bucket.parameters);
      }
      bucket.parts.push_back({i, bucket.count, tensor.info.count});
      bucket.count += tensor.info.count;
    }
    for (Bucket& bucket : buckets) {
      settle(bucket, plan_, policy_, policy_.link);
    }
    // A bucket is complete when its tensor that was added first is ready; buckets start in that order.
    std::sort(buckets.begin(), buckets.end(),
              [](const Bucket& a, const Bucket& b) { return a.parts.back().tensor > b.parts.back().tensor; });
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      buckets[i].id = static_cast<std::uint32_t>(i);
      for (const Bucket::Part& part : buckets[i].parts) {
        plan_.tensors[part.tensor].bucket = i;
        plan_.tensors[part.tensor].offset = part.offset;
        plan_.tensors[part.tensor].policy.algorithm = buckets[i].algorithm;
      }
    }
    give_turns(plan_);
  }

  Bucket open_bucket(const TensorPlan& tensor) const {
    Bucket bucket;
    bucket.id = static_cast<std::uint32_t>(plan_.buckets.size());
    bucket.group = tensor.group;
    bucket.dtype = tensor.info.dtype;
    // Refuses a codec that does not support the dtype.
    bucket.codec = codec::Codec(tensor.policy.codec, tensor.info.dtype).spec();
    bucket.sync = tensor.policy.sync;
    bucket.parameters = tensor.info.parameters;
    bucket.decay = tensor.policy.decay;
    bucket.preconditioned = is_preconditioned(tensor);
    return bucket;
  }

  [[nodiscard]] bool fits(const Bucket& bucket, std::uint64_t count) const {
    const std::uint64_t limit_bytes =
        first_[bucket.id] ? std::min(plan_.bucket_bytes, kFirstBucketBytes) : plan_.bucket_bytes;
    const std::uint64_t limit = limit_bytes / kUncompressedBytes;
    return count == 0 || bucket.count == 0 || (bucket.count <= limit && count <= limit - bucket.count);
  }

  // Reports rules that had no effect: as warnings, or as errors under a strict policy.
  void check_rules() {
    if (tensors_.empty()) {
      return;
    }
    const auto unnamed = static_cast<std::size_t>(
        std::count_if(tensors_.begin(), tensors_.end(), [](const TensorInfo& tensor) { return tensor.name.empty(); }));
    const bool no_names = unnamed == tensors_.size();
    bool any_by_name = false;
    bool any_by_order = false;
    for (std::size_t rule = 0; rule < matchers_.size(); ++rule) {
      any_by_name |= matchers_[rule].by_name();
      any_by_order |= matchers_[rule].by_order();
      const bool of_table = policy_.rules[rule].policy.sync.mode == Sync::Mode::rows;  // tables are no tensors
      if (of_table || slots_[rule].tensors != 0) {
        continue;
      }
      if (matchers_[rule].by_order() || (no_names && matchers_[rule].by_name())) {
        refuse_ignored(rule);
        continue;
      }
      std::string what = policy::rule_place(policy_, rule) + " (" + matchers_[rule].describe() + ") matched no tensor";
      if (fitting_[rule] != 0) {
        what += ": earlier rules took all " + std::to_string(fitting_[rule]) + " that fit";
      }
      if (policy_.strict) {
        throw Error(ErrorCode::invalid_argument, what + "; correct or remove it, or write strict = false");
      }
      plan_.warnings.push_back(std::move(what));
    }
    if (any_by_name && unnamed != 0) {
      plan_.notes.push_back(no_names ? "no tensor has a name: rules with `match` are ignored"
                                     : std::to_string(unnamed) + " of " + std::to_string(tensors_.size()) +
                                           " tensors have no name: rules with `match` do not apply to them");
    }
    if (any_by_order) {
      plan_.notes.emplace_back("tensors of a session have no order of call: rules with `order` are ignored");
    }
  }

  // Refuses a rule that asks for what no tensor of a session has, if the policy is strict.
  void refuse_ignored(std::size_t rule) const {
    if (policy_.strict) {
      throw Error(
          ErrorCode::invalid_argument,
          policy::rule_place(policy_, rule) + " (" + matchers_[rule].describe() + ") is ignored: " +
              (matchers_[rule].by_order() ? "tensors of a session have no order of call; remove `order` or the rule"
                                          : "no tensor has a name; pass names to Session::add, or remove the rule") +
              ", or write strict = false");
    }
  }

  const Policy& policy_;
  const std::vector<TensorInfo>& tensors_;
  std::vector<policy::RuleMatcher> matchers_;  // of policy_.rules
  std::vector<std::uint64_t> fitting_;         // how many tensors each rule fits, also if an earlier one matched first
  std::vector<Group> slots_;
  std::vector<bool> first_;  // by bucket, in order of opening: the first of its group and dtype?
  Plan plan_;
};

}  // namespace

bool Plan::is_auto() const noexcept {
  return std::any_of(buckets.begin(), buckets.end(), [](const Bucket& bucket) { return !bucket.levels.empty(); });
}

std::optional<exchange::ResidualPlace> place_of(const Residuals& residuals) {
  if (residuals.store.empty()) {
    return std::nullopt;
  }
  return exchange::ResidualPlace{memory::store_folder(residuals.store).value(), residuals.memory};
}

exchange::ResidualForm Plan::residual_form(int rank) const {
  exchange::ResidualForm form{.rank = static_cast<std::uint32_t>(rank)};
  for (const TensorPlan& tensor : tensors) {
    form.dtypes.push_back(tensor.policy.residuals.dtype);
    form.places.push_back(place_of(tensor.policy.residuals));
  }
  if (std::none_of(form.places.begin(), form.places.end(), [](const auto& place) { return place.has_value(); })) {
    form.places.clear();
  }
  return form;
}

bool Plan::has_modes() const noexcept {
  return std::any_of(buckets.begin(), buckets.end(),
                     [](const Bucket& bucket) { return !policy::is_step(bucket.sync); });
}

Plan make_plan(const Policy& policy, const std::vector<TensorInfo>& tensors, const PlanOptions& options) {
  return Planner(policy, tensors, options).make();
}

}  // namespace gradwire::plan
