#include "policy/policy_reader.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "codec/codec.hpp"
#include "gradwire/error.hpp"
#include "policy/bounds.hpp"
#include "policy/policy_values.hpp"
#include "policy/rule.hpp"
#include "policy/stage.hpp"
#include "policy/sync.hpp"

namespace gradwire::policy {
namespace {

constexpr std::uint64_t kMinBucketBytes = 1024;
constexpr std::uint64_t kMaxBucketBytes = 1ULL << 40;
constexpr std::uint64_t kMinChunkBytes = 1024;
constexpr std::uint64_t kMaxChunkBytes = 1ULL << 30;
constexpr std::uint32_t kMaxRanks = 1U << 24;

class PolicyReader : private PolicyValues {
 public:
  PolicyReader(std::string_view text, const std::string& source) : PolicyValues(source), text_(text), source_(source) {}

  Policy read() {
    policy_.source = source_;
    check_text(text_, kMaxPolicyBytes, "a policy");
    const toml::parse_result result = toml::parse(text_, source_);
    if (!result) {
      fail_toml(text_, result.error());
    }
    read_top(result.table());
    return std::move(policy_);
  }

 private:
  // The settings that [defaults] or a rule has itself, before they are completed.
  struct Request {
    std::optional<CodecSpec> codec;
    bool automatic = false;  // codec = "auto"
    std::string codec_text;
    SourceLocation codec_place;
    std::optional<Algorithm> algorithm;
    std::optional<ErrorFeedback> error_feedback;
    SourceLocation error_feedback_place;
    std::optional<double> decay;
    std::optional<double> max_error;
    std::optional<Roles> roles;
    std::optional<CodecSpec> second_hop;
    std::optional<std::vector<Warmup>> warmup;
    std::optional<Sync> sync;
    SourceLocation sync_place;
    std::optional<std::vector<CodecSpec>> allow;
    SourceLocation allow_place;
  };

  void read_top(const toml::table& top) {
    const toml::table* defaults = nullptr;
    const toml::array* rules = nullptr;
    std::optional<std::uint64_t> floor;
    read_table(
        top, "at the top of the file",
        {{"version", [this](const toml::node& node) { read_version(node); }},
         {"strict", [this](const toml::node& node) { policy_.strict = read_bool(node, "strict"); }},
         {"deterministic",
          [this](const toml::node& node) { policy_.deterministic = read_bool(node, "deterministic"); }},
         {"floor", [&](const toml::node& node) { floor = read_bytes(node, "floor", 0, kMaxBucketBytes); }},
         {"defaults", [&](const toml::node& node) { defaults = &read_section(node, "defaults"); }},
         {"bucket", [this](const toml::node& node) { read_bucket(read_section(node, "bucket")); }},
         {"rule", [&](const toml::node& node) { rules = &read_rule_array(node); }},
         {"tier", [this](const toml::node& node) { read_tier(read_section(node, "tier")); }},
         {"link", [this](const toml::node& node) { read_link(read_section(node, "link")); }},
         {"auto", [this](const toml::node& node) { read_auto(read_section(node, "auto")); }},
         {"device", [this](const toml::node& node) { policy_.device = read_device(read_section(node, "device")); }},
         {"elastic", [this](const toml::node& node) { policy_.elastic = read_elastic(read_section(node, "elastic")); }},
         {"memory", [this](const toml::node& node) { policy_.memory = read_memory(read_section(node, "memory")); }},
         {"security",
          [this](const toml::node& node) { policy_.security = read_job_security(read_section(node, "security")); }},
         {"batch", [this](const toml::node& node) {
            batch_ = place_of(node.source());
            policy_.batch = read_batch(read_section(node, "batch"));
          }}});
    // The defaults are read first wherever they stand, since rules build on them.
    read_defaults(defaults);
    policy_.floor = floor.value_or(policy_.defaults.is_auto() ? Policy::kAutomaticFloor : Policy::kFloor);
    if (rules != nullptr) {
      for (const toml::node& rule : *rules) {
        read_rule(*rule.as_table());
      }
    }
    if (policy_.deterministic && automatic_) {
      fail(*automatic_, "codec \"auto\" chooses by measurement, which deterministic = true forbids; name a codec");
    }
    if (automatic_buckets_ && !policy_.link) {
      fail(*automatic_buckets_, std::string(kBucketsNeedALink));
    }
    if (policy_.deterministic && batch_) {
      fail(*batch_, "[batch] advises by measurement, which deterministic = true forbids; remove one of the two");
    }
  }

  void read_auto(const toml::table& table) {
    constexpr std::int64_t kMostDwell = 1'000'000;
    constexpr std::uint32_t kMostWindow = 1000;
    read_table(
        table, "in [auto]",
        {{"gain", [this](const toml::node& node) { policy_.auto_options.gain = read_share(node, "gain", "5%"); }},
         {"cost", [this](const toml::node& node) { policy_.auto_options.cost = read_share(node, "cost", "0.05%"); }},
         {"dwell",
          [this](const toml::node& node) {
            policy_.auto_options.dwell = static_cast<std::uint64_t>(
                read_integer(node, "dwell", "an integer such as 20", 0, kMostDwell, "steps between two changes"));
          }},
         {"window", [this](const toml::node& node) {
            policy_.auto_options.window = read_uint32(node, "window", "an integer such as 15", 1, kMostWindow,
                                                      "the steps whose median counts, 1 to 1000");
          }}});
  }

  void read_link(const toml::table& table) {
    Link link;
    const auto read = [this](const toml::node& node, std::string_view key, std::string_view example) {
      return read_string(node, key, "a string such as \"" + std::string(example) + "\"");
    };
    read_table(table, "in [link]",
               {{"bandwidth",
                 [&](const toml::node& node) {
                   const std::string text = read(node, "bandwidth", "10Gbit/s");
                   link.bytes_per_second = read_parsed(node, [&] { return parse_rate(text); });
                 }},
                {"latency", [&](const toml::node& node) {
                   const std::string text = read(node, "latency", "30us");
                   link.latency = read_parsed(node, [&] { return parse_duration(text); });
                 }}});
    if (link.bytes_per_second == 0) {
      fail(place_of(table.source()),
           "[link] without bandwidth; write bandwidth = \"10Gbit/s\", or remove [link] and "
           "the link is measured");
    }
    policy_.link = link;
  }

  void read_version(const toml::node& node) const {
    if (!node.is_integer()) {
      fail_type(node, "version", "the integer 1");
    }
    if (node.value_or(std::int64_t{0}) != 1) {
      fail(node, "this build reads version 1 of the policy format; write version = 1");
    }
  }

  const toml::table& read_section(const toml::node& node, std::string_view name) const {
    if (!node.is_table()) {
      fail_type(node, name, "a table; write [" + std::string(name) + "] on a line of its own");
    }
    return *node.as_table();
  }

  const toml::array& read_rule_array(const toml::node& node) const {
    if (!node.is_array() || !(node.as_array()->empty() || node.is_array_of_tables())) {
      fail(node, "rules are tables; write [[rule]], with two brackets, above each of them");
    }
    if (node.as_array()->size() > kMaxRules) {
      fail(node, "more than " + std::to_string(kMaxRules) + " rules; join some of them by globs");
    }
    return *node.as_array();
  }

  void read_bucket(const toml::table& table) {
    read_table(table, "in [bucket]",
               {{"bytes",
                 [this](const toml::node& node) {
                   const bool by_model = node.value_or(std::string()) == "auto";
                   automatic_buckets_ = by_model ? std::optional(place_of(node.source())) : std::nullopt;
                   policy_.bucket_bytes = by_model ? 0 : read_bytes(node, "bytes", kMinBucketBytes, kMaxBucketBytes);
                 }},
                {"chunk",
                 [this](const toml::node& node) {
                   policy_.chunk_bytes = read_bytes(node, "chunk", kMinChunkBytes, kMaxChunkBytes);
                 }},
                {"in_flight", [this](const toml::node& node) {
                   policy_.in_flight_bytes = read_bytes(node, "in_flight", 0, kMaxBucketBytes);
                 }}});
  }

  void read_tier(const toml::table& table) {
    read_table(
        table, "in [tier]",
        {{"ranks_per_node",
          [this](const toml::node& node) {
            policy_.tiers.ranks_per_node = read_uint32(node, "ranks_per_node", "an integer such as 8", 1, kMaxRanks,
                                                       "how many ranks in a row share a node, from 1 on");
          }},
         {"intra", [this](const toml::node& node) {
            if (!node.is_table()) {
              fail_type(node, "intra", "a table; write [tier.intra] on a line of its own");
            }
            read_table(
                *node.as_table(), "in [tier.intra]",
                {{"codec", [this](const toml::node& n) { policy_.tiers.intra_codec = read_codec(n, "codec"); }}});
          }}});
  }

  // The keys that [defaults] and rules have in common.
  Handlers request_handlers(Request& request) {
    return {{"codec", [&](const toml::node& node) { read_request_codec(request, node); }},
            {"algorithm", [&](const toml::node& node) { request.algorithm = read_algorithm(node); }},
            {"error_feedback",
             [&](const toml::node& node) {
               request.error_feedback = read_error_feedback(node);
               request.error_feedback_place = place_of(node.source());
             }},
            {"decay", [&](const toml::node& node) { request.decay = read_decay(node); }},
            {"max_error", [&](const toml::node& node) { request.max_error = read_max_error(node); }},
            {"roles", [&](const toml::node& node) { request.roles = read_roles(node); }},
            {"sync",
             [&](const toml::node& node) {
               request.sync = read_sync(node);
               request.sync_place = place_of(node.source());
             }},
            {"warmup", [&](const toml::node& node) { request.warmup = read_warmup(node); }},
            {"second_hop", [&](const toml::node& node) { request.second_hop = read_codec(node, "second_hop"); }},
            {"allow", [&](const toml::node& node) {
               request.allow = read_allow(node);
               request.allow_place = place_of(node.source());
             }}};
  }

  void read_defaults(const toml::table* table) {
    Request request;
    const toml::node* small = nullptr;
    if (table != nullptr) {
      Handlers handlers = request_handlers(request);
      handlers.emplace_back("small", [&](const toml::node& node) { small = &node; });
      read_table(*table, "in [defaults]", handlers);
    }
    policy_.defaults = complete(request, policy_.defaults);
    if (policy_.defaults.roles == Roles::gradients) {
      policy_.defaults.roles.reset();  // as without the key, so that rules which name calls keep their own default
    }
    if (policy_.defaults.sync.mode == Sync::Mode::rows) {
      fail(request.sync_place,
           "rows in [defaults] would make every tensor a table; write it in a [[rule]] that names the tables");
    }
    read_small(small);
  }

  void read_small(const toml::node* node) {
    // A user who asks for exact or dense wants no tensor rounded just because it is small.
    const CodecSpec all = policy_.defaults.codec;
    if (all == CodecSpec::exact() || all.values == codec::kPackedId) {
      policy_.small->codec = CodecSpec::exact();  // small tensors are not worth packing
    }
    if (node == nullptr) {
      return;
    }
    if (node->value_or(std::string_view()) == "off") {
      policy_.small.reset();
      return;
    }
    if (!node->is_table()) {
      fail_type(*node, "small", R"("off" or a table such as { below = "64KiB", codec = "bf16" })");
    }
    Policy::Small& small = *policy_.small;
    read_table(*node->as_table(), "in small",
               {{"below", [&](const toml::node& n) { small.below = read_bytes(n, "below", 0, kMaxBucketBytes); }},
                {"codec", [&](const toml::node& n) {
                   Request request;
                   request.codec = read_codec(n, "codec");
                   request.codec_text = n.value_or(std::string());
                   request.codec_place = place_of(n.source());
                   small.codec = complete(request, policy_.defaults).codec;
                 }}});
  }

  void read_rule(const toml::table& table) {
    Policy::Rule rule;
    Request request;
    Handlers handlers = request_handlers(request);
    handlers.emplace_back("match", [&](const toml::node& n) { rule.match.glob = read_glob(n); });
    handlers.emplace_back("min_bytes", [&](const toml::node& n) { rule.match.min_bytes = read_bytes(n, "min_bytes"); });
    handlers.emplace_back("max_bytes", [&](const toml::node& n) { rule.match.max_bytes = read_bytes(n, "max_bytes"); });
    handlers.emplace_back("ndim", [&](const toml::node& n) {
      rule.match.ndim = read_uint32(n, "ndim", "an integer such as 2", 0, 255, "the number of dimensions, 0 to 255");
    });
    handlers.emplace_back("dtype", [&](const toml::node& n) { rule.match.dtype = read_dtype(n); });
    handlers.emplace_back("order", [&](const toml::node& n) { rule.match.order = read_order(n); });
    handlers.emplace_back("communicator_size", [&](const toml::node& n) {
      rule.match.communicator_size = read_uint32(n, "communicator_size", "an integer such as 4", 1, kMaxRanks,
                                                 "the number of ranks of the communicator, from 1 on");
    });
    handlers.emplace_back("communicator_name", [&](const toml::node& n) {
      rule.match.communicator_name =
          read_glob(n, "communicator_name", "a string: a glob over names of NCCL's communicators, such as \"dp*\"");
    });
    read_table(table, "in a [[rule]]", handlers);
    rule.policy = complete(request, policy_.defaults);
    const SourceLocation place = place_of(table.source());
    rule.line = place.line;
    add_rule(rule, place);
  }

  // Adds a rule; refuses it if an earlier one matches all its tensors.
  void add_rule(const Policy::Rule& rule, SourceLocation place) {
    try {
      matchers_.emplace_back(rule.match);
    } catch (const Error& error) {
      fail(place, error.what());
    }
    for (std::size_t earlier = 0; earlier + 1 < matchers_.size(); ++earlier) {
      if (matchers_[earlier].covers(matchers_.back(), effort_)) {
        fail(place, "rule " + std::to_string(matchers_.size()) + " (" + matchers_.back().describe() +
                        ") can never apply: rule " + std::to_string(earlier + 1) + " at line " +
                        std::to_string(policy_.rules[earlier].line) + " (" + matchers_[earlier].describe() +
                        ") matches all its tensors first; put it above that rule or remove it");
      }
    }
    policy_.rules.push_back(rule);
  }

  TensorPolicy complete(const Request& request, const TensorPolicy& defaults) const {
    TensorPolicy policy;
    policy.algorithm = request.algorithm.value_or(defaults.algorithm);
    policy.error_feedback = request.error_feedback.value_or(defaults.error_feedback);
    policy.codec = request.codec.value_or(defaults.codec);
    // The defaults' second hop belongs to their own codec, not to another one.
    policy.second_hop = request.second_hop || request.codec ? request.second_hop : defaults.second_hop;
    const bool rows = request.sync && request.sync->mode == Sync::Mode::rows;
    policy.decay = request.decay.value_or(request.codec || rows ? 1 : defaults.decay);
    if (request.warmup || !request.codec) {
      policy.warmup = request.warmup.value_or(defaults.warmup);
    }
    policy.max_error = request.max_error ? request.max_error : defaults.max_error;
    policy.roles = request.roles ? request.roles : defaults.roles;
    complete_allow(request, defaults, policy);
    policy.sync = request.sync.value_or(defaults.sync);
    if (policy.is_auto() && policy.sync.mode != Sync::Mode::step) {
      fail(request.sync ? request.sync_place : request.codec_place, std::string(kSyncNeedsACodec));
    }
    if (policy.algorithm == Algorithm::dense) {
      const CodecSpec exact = CodecSpec::exact();
      if (policy.is_auto() || (request.codec && *request.codec != exact)) {
        fail(request.codec_place,
             "codec \"" + (policy.is_auto() ? "auto" : request.codec_text) +
                 "\" has no effect with algorithm = \"dense\", which sends uncompressed; write codec = "
                 "\"exact\" or another algorithm, such as \"two_shot\"");
      }
      policy.codec = exact;
    }
    check_feedback(request, policy);
    return policy;
  }

  // Sets the codecs that codec = "auto" may choose: its own list, that of the defaults, or codecs that round little.
  void complete_allow(const Request& request, const TensorPolicy& defaults, TensorPolicy& policy) const {
    const bool automatic = request.automatic || (!request.codec && defaults.is_auto());
    if (!automatic) {
      if (request.allow) {
        fail(request.allow_place, "allow has no effect with codec \"" + policy.codec.to_string() +
                                      "\"; write codec = \"auto\" or remove it");
      }
      return;
    }
    policy.allow = defaults.is_auto() ? defaults.allow : Policy::automatic().defaults.allow;
    policy.allow = request.allow.value_or(policy.allow);
    policy.codec = policy.allow.front();
    if (policy.second_hop || !policy.warmup.empty()) {
      fail(request.codec_place, "codec \"auto\" with " + std::string(policy.second_hop ? "second_hop" : "warmup") +
                                    ", which belongs to one codec; remove one of the two");
    }
  }

  void check_feedback(const Request& request, const TensorPolicy& policy) const {
    if (policy.error_feedback != ErrorFeedback::off) {
      return;
    }
    std::vector<CodecSpec> codecs{policy.codec, policy.second_hop.value_or(policy.codec)};
    for (const Warmup& stage : policy.warmup) {
      codecs.push_back(stage.codec);
    }
    codecs.insert(codecs.end(), policy.allow.begin(), policy.allow.end());
    for (const CodecSpec& codec : codecs) {
      if (requires_feedback(codec)) {
        fail(request.error_feedback ? request.error_feedback_place : request.codec_place,
             codec.to_string() + " diverges without error feedback; write \"auto\", or another codec");
      }
    }
  }

  void read_request_codec(Request& request, const toml::node& node) {
    request.automatic = node.value_or(std::string_view()) == "auto";
    if (request.automatic) {
      automatic_ = automatic_.value_or(place_of(node.source()));
    } else {
      request.codec = read_codec(node, "codec");
    }
    request.codec_text = node.value_or(std::string());
    request.codec_place = place_of(node.source());
  }

  std::string_view text_;
  const std::string& source_;
  Policy policy_;
  std::vector<RuleMatcher> matchers_;                // one for each of policy_.rules
  Glob::Effort effort_{1ULL << 25};                  // for comparing them, which takes below a second
  std::optional<SourceLocation> automatic_;          // the first codec = "auto"
  std::optional<SourceLocation> batch_;              // [batch]
  std::optional<SourceLocation> automatic_buckets_;  // bytes = "auto"
};

}  // namespace

Policy read_policy(std::string_view text, const std::string& source) { return PolicyReader(text, source).read(); }

}  // namespace gradwire::policy
