#include "plan/policy_reader.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "codec/codec.hpp"
#include "gradwire/error.hpp"
#include "plan/rule.hpp"
#include "plan/stage.hpp"
#include "plan/toml.hpp"
#include "plan/unknown_key.hpp"

namespace gradwire::plan {
namespace {

constexpr std::uint64_t kMinBucketBytes = 1024;
constexpr std::uint64_t kMaxBucketBytes = 1ULL << 40;
constexpr std::uint64_t kMinChunkBytes = 1024;
constexpr std::uint64_t kMaxChunkBytes = 1ULL << 30;
constexpr int kMaxDotsPerLine = 120;  // bounds how deep dotted keys nest, and so the recursion of the TOML library

struct Place {
  int line = 1;
  int column = 1;
};

Place place_of(const toml::source_region& region) {
  return {std::max(1, static_cast<int>(region.begin.line)), std::max(1, static_cast<int>(region.begin.column))};
}

std::string_view type_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table: return "a table";
    case toml::node_type::array: return "an array";
    case toml::node_type::string: return "a string";
    case toml::node_type::integer: return "an integer";
    case toml::node_type::floating_point: return "a float";
    case toml::node_type::boolean: return "a boolean";
    default: return "a date or time";
  }
}

class Reader {
 public:
  Reader(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  Policy read() {
    policy_.source = source_;
    check_text();
    const toml::parse_result result = toml::parse(text_, source_);
    if (!result) {
      fail(place_of(result.error().source()), "not valid TOML: " + std::string(result.error().description()));
    }
    read_top(result.table());
    return std::move(policy_);
  }

 private:
  using Handler = std::function<void(const toml::node& value)>;
  using Handlers = std::vector<std::pair<std::string_view, Handler>>;

  // What [defaults] or a rule says itself, before it is completed.
  struct Request {
    std::optional<CodecSpec> codec;
    std::string codec_text;
    Place codec_place;
    std::optional<Algorithm> algorithm;
    std::optional<ErrorFeedback> error_feedback;
    Place error_feedback_place;
    std::optional<CodecSpec> second_hop;
    std::optional<std::vector<Warmup>> warmup;
  };

  [[noreturn]] void fail(Place place, const std::string& what, ErrorCode code = ErrorCode::invalid_argument) const {
    throw Error(code, source_ + ":" + std::to_string(place.line) + ":" + std::to_string(place.column) + ": " + what);
  }
  [[noreturn]] void fail(const toml::node& node, const std::string& what) const { fail(place_of(node.source()), what); }
  [[noreturn]] void fail_later(const toml::node& node, const std::string& what, const std::string& fix) const {
    fail(place_of(node.source()), what + " is not in this version; " + fix, ErrorCode::unsupported);
  }
  [[noreturn]] void fail_type(const toml::node& node, std::string_view key, std::string_view wanted) const {
    fail(node, std::string(key) + " must be " + std::string(wanted) + ", not " + std::string(type_name(node)));
  }

  void check_text() const {
    if (text_.size() > kMaxPolicyBytes) {
      fail(Place{}, "a policy may have " + format_bytes(kMaxPolicyBytes) + " at most; is this a policy file?");
    }
    Place place;
    int dots = 0;
    for (const char c : text_) {
      dots = c == '\n' ? 0 : dots + (c == '.' ? 1 : 0);
      place.line += c == '\n' ? 1 : 0;
      if (dots > kMaxDotsPerLine) {
        fail(place, "more than " + std::to_string(kMaxDotsPerLine) + " dots in one line; break it up");
      }
    }
  }

  // Calls the handler of each key, in the order of the file, so that the first mistake is the one that is told.
  void read_table(const toml::table& table, std::string_view where, const Handlers& handlers) const {
    struct Entry {
      Place place;
      std::string_view key;
      const toml::node* value;
    };
    std::vector<Entry> entries;
    for (auto&& [key, value] : table) {
      entries.push_back({place_of(key.source()), key.str(), &value});
    }
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.place.line, a.place.column) < std::pair(b.place.line, b.place.column);
    });
    for (const Entry& entry : entries) {
      const auto handler =
          std::find_if(handlers.begin(), handlers.end(), [&](const auto& h) { return h.first == entry.key; });
      if (handler == handlers.end()) {
        std::vector<std::string_view> known;
        for (const auto& [name, call] : handlers) {
          known.push_back(name);
        }
        fail(entry.place, unknown_key(entry.key, where, known));
      }
      handler->second(*entry.value);
    }
  }

  void read_top(const toml::table& top) {
    const toml::table* defaults = nullptr;
    const toml::array* rules = nullptr;
    read_table(
        top, "at the top of the file",
        {{"version", [this](const toml::node& node) { read_version(node); }},
         {"strict", [this](const toml::node& node) { policy_.strict = read_bool(node, "strict"); }},
         {"deterministic",
          [this](const toml::node& node) { policy_.deterministic = read_bool(node, "deterministic"); }},
         {"defaults", [&](const toml::node& node) { defaults = &read_section(node, "defaults"); }},
         {"bucket", [this](const toml::node& node) { read_bucket(read_section(node, "bucket")); }},
         {"rule", [&](const toml::node& node) { rules = &read_rule_array(node); }},
         {"tier",
          [this](const toml::node& node) { fail_later(node, "[tier]", "remove it: all links get the same codec"); }},
         {"batch", [this](const toml::node& node) { fail_later(node, "[batch]", "remove it"); }}});
    // Rules build on the defaults, wherever these stand.
    read_defaults(defaults);
    if (rules != nullptr) {
      for (const toml::node& rule : *rules) {
        read_rule(*rule.as_table());
      }
    }
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
                   policy_.bucket_bytes = read_bytes(node, "bytes", kMinBucketBytes, kMaxBucketBytes);
                 }},
                {"chunk", [this](const toml::node& node) {
                   policy_.chunk_bytes = read_bytes(node, "chunk", kMinChunkBytes, kMaxChunkBytes);
                 }}});
  }

  // The keys that [defaults] and rules have in common.
  Handlers request_handlers(Request& request) const {
    const auto later = [this](const char* what) {
      return [this, what](const toml::node& node) { fail_later(node, what, "remove it"); };
    };
    return {{"codec", [&](const toml::node& node) { read_request_codec(request, node); }},
            {"collective", [&](const toml::node& node) { request.algorithm = read_algorithm(node); }},
            {"error_feedback",
             [&](const toml::node& node) {
               request.error_feedback = read_error_feedback(node);
               request.error_feedback_place = place_of(node.source());
             }},
            {"sync", [this](const toml::node& node) { read_sync(node); }},
            {"warmup", [&](const toml::node& node) { request.warmup = read_warmup(node); }},
            {"second_hop", [&](const toml::node& node) { request.second_hop = read_codec(node, "second_hop"); }},
            {"allow", later("allow")}};
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
    read_small(small);
  }

  void read_small(const toml::node* node) {
    // Who asks for exact, or for dense, wants no tensor rounded because it is small.
    if (policy_.defaults.codec == CodecSpec::parse("exact")) {
      policy_.small->codec = policy_.defaults.codec;
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
                   read_request_codec(request, n);
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
    handlers.emplace_back("ndim", [&](const toml::node& n) { rule.match.ndim = read_ndim(n); });
    handlers.emplace_back("dtype", [&](const toml::node& n) { rule.match.dtype = read_dtype(n); });
    read_table(table, "in a [[rule]]", handlers);
    rule.policy = complete(request, policy_.defaults);
    const Place place = place_of(table.source());
    rule.line = place.line;
    add_rule(rule, place);
  }

  // Refuses a rule that an earlier one leaves nothing for.
  void add_rule(const Policy::Rule& rule, Place place) {
    try {
      matchers_.emplace_back(rule.match);
    } catch (const Error& error) {
      fail(place, error.what());
    }
    for (std::size_t earlier = 0; earlier + 1 < matchers_.size(); ++earlier) {
      if (matchers_[earlier].covers(matchers_.back())) {
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
    // What the defaults say of their codec does not hold for another one.
    policy.second_hop = request.second_hop || request.codec ? request.second_hop : defaults.second_hop;
    if (request.warmup || !request.codec) {
      policy.warmup = request.warmup.value_or(defaults.warmup);
    }
    if (policy.algorithm == Algorithm::dense) {
      const CodecSpec exact = CodecSpec::parse("exact");
      if (request.codec && *request.codec != exact) {
        fail(request.codec_place,
             "codec \"" + request.codec_text +
                 "\" has no effect with collective = \"dense\", which sends uncompressed; write codec = "
                 "\"exact\" or another collective, such as \"two_shot\"");
      }
      policy.codec = exact;
    }
    check_feedback(request, policy);
    return policy;
  }

  void check_feedback(const Request& request, const TensorPolicy& policy) const {
    if (policy.error_feedback != ErrorFeedback::off) {
      return;
    }
    std::vector<CodecSpec> codecs{policy.codec, policy.second_hop.value_or(policy.codec)};
    for (const Warmup& stage : policy.warmup) {
      codecs.push_back(stage.codec);
    }
    for (const CodecSpec& codec : codecs) {
      if (requires_feedback(codec)) {
        fail(request.error_feedback ? request.error_feedback_place : request.codec_place,
             codec.to_string() + " diverges without error feedback; write \"auto\", or another codec");
      }
    }
  }

  std::string read_string(const toml::node& node, std::string_view key, std::string_view wanted) const {
    if (!node.is_string()) {
      fail_type(node, key, wanted);
    }
    return node.as_string()->get();
  }

  bool read_bool(const toml::node& node, std::string_view key) const {
    if (!node.is_boolean()) {
      fail_type(node, key, "true or false");
    }
    return node.as_boolean()->get();
  }

  // Runs a parser of the layers below; its error gets this place.
  template <typename Parse>
  auto read_parsed(const toml::node& node, const Parse& parse) const {
    try {
      return parse();
    } catch (const Error& error) {
      fail(place_of(node.source()), error.what(), error.code());
    }
  }

  void read_request_codec(Request& request, const toml::node& node) const {
    request.codec = read_codec(node, "codec");
    request.codec_text = node.value_or(std::string());
    request.codec_place = place_of(node.source());
  }

  CodecSpec read_codec(const toml::node& node, std::string_view key) const {
    const std::string text = read_string(node, key, "a string such as \"int8\"");
    if (text == "auto") {
      fail_later(node, "codec \"auto\"", "name a codec, such as \"int8\"");
    }
    // Made once for its errors: does this build have it?
    return read_parsed(node, [&] { return codec::Codec(CodecSpec::parse(text), DType::f32).spec(); });
  }

  std::vector<Warmup> read_warmup(const toml::node& node) const {
    constexpr std::string_view kWanted = R"(an array such as [ { until_step = 100, codec = "int8" } ])";
    if (!node.is_array() || !(node.as_array()->empty() || node.is_array_of_tables())) {
      fail_type(node, "warmup", kWanted);
    }
    std::vector<Warmup> stages;
    for (const toml::node& stage : *node.as_array()) {
      std::optional<CodecSpec> codec;
      std::uint64_t until = 0;
      read_table(*stage.as_table(), "in warmup",
                 {{"until_step", [&](const toml::node& n) { until = read_step(n); }},
                  {"codec", [&](const toml::node& n) { codec = read_codec(n, "codec"); }}});
      if (!codec || until == 0) {
        fail(stage, std::string("a warm-up stage needs ") + (codec ? "until_step" : "codec") + "; write " +
                        std::string(kWanted));
      }
      if (!stages.empty() && until <= stages.back().until_step) {
        fail(stage, "until_step " + std::to_string(until) + " is not after " +
                        std::to_string(stages.back().until_step) + " of the stage before; order stages by step");
      }
      stages.push_back({until, *codec});
    }
    return stages;
  }

  std::uint64_t read_step(const toml::node& node) const {
    if (!node.is_integer()) {
      fail_type(node, "until_step", "an integer such as 100");
    }
    const std::int64_t step = node.as_integer()->get();
    if (step <= 0) {
      fail(node, "until_step is " + std::to_string(step) + "; write the first step, from 1 on, that is no warm-up");
    }
    return static_cast<std::uint64_t>(step);
  }

  Algorithm read_algorithm(const toml::node& node) const {
    const std::string text = read_string(node, "collective", "a string such as \"two_shot\"");
    if (text == "hierarchical") {
      fail_later(node, "collective \"hierarchical\"", "write two_shot");
    }
    return read_parsed(node, [&] { return parse_algorithm(text); });
  }

  ErrorFeedback read_error_feedback(const toml::node& node) const {
    const std::string text = read_string(node, "error_feedback", R"("auto", "on" or "off")");
    if (text != "auto" && text != "on" && text != "off") {
      fail(node, "unknown error_feedback \"" + text + R"("; write "auto", "on" or "off")");
    }
    return text == "auto" ? ErrorFeedback::automatic : (text == "on" ? ErrorFeedback::on : ErrorFeedback::off);
  }

  void read_sync(const toml::node& node) const {
    if (node.value_or(std::string_view()) != "step") {
      fail_later(node, "any sync other than \"step\"", "write sync = \"step\" or remove it");
    }
  }

  std::string read_glob(const toml::node& node) const {
    const std::string text = read_string(node, "match", "a string: a glob over tensor names, such as \"*.bias\"");
    return read_parsed(node, [&] { return Glob(text).text(); });
  }

  DType read_dtype(const toml::node& node) const {
    const std::string text = read_string(node, "dtype", "a string such as \"f32\"");
    return read_parsed(node, [&] { return parse_dtype(text); });
  }

  std::uint32_t read_ndim(const toml::node& node) const {
    if (!node.is_integer()) {
      fail_type(node, "ndim", "an integer such as 2");
    }
    const std::int64_t value = node.as_integer()->get();
    if (value < 0 || value > 255) {
      fail(node, "ndim is " + std::to_string(value) + "; write the number of dimensions, 0 to 255");
    }
    return static_cast<std::uint32_t>(value);
  }

  std::uint64_t read_bytes(const toml::node& node, std::string_view key, std::uint64_t low = 0,
                           std::uint64_t high = std::numeric_limits<std::int64_t>::max()) const {
    std::uint64_t bytes = 0;
    if (node.is_integer()) {
      const std::int64_t value = node.as_integer()->get();
      if (value < 0) {
        fail(node, std::string(key) + " is negative; write a size such as \"64KiB\"");
      }
      bytes = static_cast<std::uint64_t>(value);
    } else {
      const std::string text = read_string(node, key, "a size such as \"64KiB\" or a number of bytes");
      bytes = read_parsed(node, [&] { return parse_bytes(text); });
    }
    if (bytes < low || bytes > high) {
      fail(node, std::string(key) + " is " + format_bytes(bytes) + "; write a size from " + format_bytes(low) + " to " +
                     format_bytes(high));
    }
    return bytes;
  }

  std::string_view text_;
  const std::string& source_;
  Policy policy_;
  std::vector<RuleMatcher> matchers_;  // of policy_.rules
};

}  // namespace

Policy read_policy(std::string_view text, const std::string& source) { return Reader(text, source).read(); }

}  // namespace gradwire::plan
