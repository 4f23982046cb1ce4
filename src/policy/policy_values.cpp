#include "policy/policy_values.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/units.hpp"
#include "codec/codec.hpp"
#include "policy/bounds.hpp"
#include "policy/glob.hpp"
#include "policy/stage.hpp"
#include "policy/sync.hpp"
#include "policy/unknown_key.hpp"
#include "policy/unquoted_text.hpp"

namespace gradwire::policy {
namespace {

constexpr int kMaxDotsPerLine = 120;  // limits the nesting of dotted keys
constexpr std::int64_t kMaxInteger = std::numeric_limits<std::int64_t>::max();

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

}  // namespace

SourceLocation place_of(const toml::source_region& region) {
  return {std::max(1, static_cast<int>(region.begin.line)), std::max(1, static_cast<int>(region.begin.column))};
}

void PolicyValues::fail(SourceLocation place, const std::string& what, ErrorCode code) const {
  throw Error(code, source_ + ":" + std::to_string(place.line) + ":" + std::to_string(place.column) + ": " + what);
}

void PolicyValues::fail(const toml::node& node, const std::string& what) const { fail(place_of(node.source()), what); }

void PolicyValues::fail_type(const toml::node& node, std::string_view key, std::string_view wanted) const {
  fail(node, std::string(key) + " must be " + std::string(wanted) + ", not " + std::string(type_name(node)));
}

void PolicyValues::fail_toml(std::string_view text, const toml::parse_error& error) const {
  const SourceLocation place = place_of(error.source());
  const std::string_view bare = unquoted_text(text, place.line, place.column);
  fail(place, "not valid TOML: " + (bare.empty() ? std::string(error.description())
                                                 : "text needs quotes; write \"" + std::string(bare) + '"'));
}

void PolicyValues::check_text(std::string_view text, std::uint64_t max_bytes, std::string_view what) const {
  if (text.size() > max_bytes) {
    fail(SourceLocation{}, std::string(what) + " may have " + format_bytes(max_bytes) + " at most; is this " +
                               std::string(what) + " file?");
  }
  SourceLocation place;
  int dots = 0;
  for (const char c : text) {
    dots = c == '\n' ? 0 : dots + (c == '.' ? 1 : 0);
    place.line += c == '\n' ? 1 : 0;
    if (dots > kMaxDotsPerLine) {
      fail(place, "more than " + std::to_string(kMaxDotsPerLine) + " dots in one line; break it up");
    }
  }
}

void PolicyValues::read_table(const toml::table& table, std::string_view where, const Handlers& handlers) const {
  struct Entry {
    SourceLocation place;
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

std::string PolicyValues::read_string(const toml::node& node, std::string_view key, std::string_view wanted) const {
  if (!node.is_string()) {
    fail_type(node, key, wanted);
  }
  return node.as_string()->get();
}

std::size_t PolicyValues::read_choice(const toml::node& node, std::string_view key,
                                      std::initializer_list<std::string_view> words) const {
  std::string wanted;
  for (const std::string_view& word : words) {
    wanted += &word == words.begin() ? "" : &word + 1 == words.end() ? " or " : ", ";
    wanted += '"' + std::string(word) + '"';
  }
  const std::string text = read_string(node, key, wanted);
  const auto found = std::find(words.begin(), words.end(), text);
  if (found == words.end()) {
    fail(node, "unknown " + std::string(key) + " \"" + text + "\"; write " + wanted);
  }
  return static_cast<std::size_t>(found - words.begin());
}

bool PolicyValues::read_bool(const toml::node& node, std::string_view key) const {
  if (!node.is_boolean()) {
    fail_type(node, key, "true or false");
  }
  return node.as_boolean()->get();
}

std::int64_t PolicyValues::read_integer(const toml::node& node, std::string_view key, std::string_view wanted,
                                        std::int64_t low, std::int64_t high, std::string_view range) const {
  if (!node.is_integer()) {
    fail_type(node, key, wanted);
  }
  const std::int64_t value = node.as_integer()->get();
  if (value < low || value > high) {
    fail(node, std::string(key) + " is " + std::to_string(value) + "; write " + std::string(range));
  }
  return value;
}

std::uint64_t PolicyValues::read_bytes(const toml::node& node, std::string_view key, std::uint64_t low,
                                       std::uint64_t high) const {
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

double PolicyValues::read_share(const toml::node& node, std::string_view key, std::string_view example) const {
  double share = node.value_or(-1.0);
  if (!node.is_number()) {
    const std::string text = read_string(node, key, "a share such as \"" + std::string(example) + "\"");
    share = text == "0%" ? 0 : read_parsed(node, [&] { return parse_fraction(text); });
  }
  if (!(share >= 0 && share < 1)) {
    fail(node, std::string(key) + " is " + format_number(share, 3) + "; write a share from 0 to below 1, such as \"" +
                   std::string(example) + "\"");
  }
  return share;
}

CodecSpec PolicyValues::read_codec(const toml::node& node, std::string_view key) const {
  const std::string text = read_string(node, key, "a string such as \"int8\"");
  if (text == "auto") {
    fail(node, std::string(key) + " cannot be \"auto\"; name a codec, such as \"int8\"");
  }
  // The codec is made once for its errors, which tell whether this build has it.
  return read_parsed(node, [&] { return codec::Codec(CodecSpec::parse(text), DType::f32).spec(); });
}

std::vector<CodecSpec> PolicyValues::read_allow(const toml::node& node) const {
  constexpr std::string_view kWanted = R"(an array of codecs such as ["bf16", "int8"])";
  if (!node.is_array()) {
    fail_type(node, "allow", kWanted);
  }
  std::vector<CodecSpec> allow;
  for (const toml::node& codec : *node.as_array()) {
    allow.push_back(read_codec(codec, "allow"));
  }
  return read_parsed(node, [&] {
    check_allowed(allow);
    return allow;
  });
}

std::vector<Warmup> PolicyValues::read_warmup(const toml::node& node) const {
  constexpr std::string_view kWanted = R"(an array such as [ { until_step = 100, codec = "int8" } ])";
  if (!node.is_array() || !(node.as_array()->empty() || node.is_array_of_tables())) {
    fail_type(node, "warmup", kWanted);
  }
  std::vector<Warmup> stages;
  for (const toml::node& stage : *node.as_array()) {
    std::optional<CodecSpec> codec;
    std::uint64_t until = 0;
    read_table(
        *stage.as_table(), "in warmup",
        {{"until_step",
          [&](const toml::node& n) {
            until = static_cast<std::uint64_t>(read_integer(n, "until_step", "an integer such as 100", 1, kMaxInteger,
                                                            "the first step, from 1 on, that is no warm-up"));
          }},
         {"codec", [&](const toml::node& n) { codec = read_codec(n, "codec"); }}});
    if (!codec || until == 0) {
      fail(stage, std::string("a warm-up stage needs ") + (codec ? "until_step" : "codec") + "; write " +
                      std::string(kWanted));
    }
    if (!stages.empty() && until <= stages.back().until_step) {
      fail(stage, "until_step " + std::to_string(until) + " is not after " + std::to_string(stages.back().until_step) +
                      " of the stage before; order stages by step");
    }
    stages.push_back({until, *codec});
  }
  return stages;
}

Algorithm PolicyValues::read_algorithm(const toml::node& node) const {
  const std::string text = read_string(node, "algorithm", "a string such as \"two_shot\"");
  return read_parsed(node, [&] { return parse_algorithm(text); });
}

ErrorFeedback PolicyValues::read_error_feedback(const toml::node& node) const {
  const std::string text = read_string(node, "error_feedback", R"("auto", "on" or "off")");
  if (text != "auto" && text != "on" && text != "off") {
    fail(node, "unknown error_feedback \"" + text + R"("; write "auto", "on" or "off")");
  }
  return text == "auto" ? ErrorFeedback::automatic : (text == "on" ? ErrorFeedback::on : ErrorFeedback::off);
}

Roles PolicyValues::read_roles(const toml::node& node) const {
  const std::string text = read_string(node, "roles", R"("gradients" or "all")");
  if (text != "gradients" && text != "all") {
    fail(node, "unknown roles \"" + text + R"("; write "gradients" or "all")");
  }
  return text == "all" ? Roles::all : Roles::gradients;
}

double PolicyValues::read_decay(const toml::node& node) const {
  if (!node.is_number()) {
    fail_type(node, "decay", "a number such as 0.95");
  }
  const double decay = node.value_or(0.0);
  if (const std::string problem = decay_problem(decay); !problem.empty()) {
    fail(node, problem);
  }
  return decay;
}

double PolicyValues::read_max_error(const toml::node& node) const {
  const double bound = read_share(node, "max_error", "1%");
  if (const std::string problem = max_error_problem(bound); !problem.empty()) {
    fail(node, problem);
  }
  return bound;
}

Sync PolicyValues::read_sync(const toml::node& node) const {
  constexpr std::string_view kWanted = R"("step" or a table such as { every = 8 })";
  if (!node.is_table()) {
    const std::string text = read_string(node, "sync", kWanted);
    if (text != "step") {
      fail(node, "unknown sync \"" + text + "\"; write " + std::string(kWanted));
    }
    return {};
  }
  Sync sync;
  std::optional<std::string_view> mode;
  bool bounded = false;
  const auto enter = [&](const toml::node& n, std::string_view key, Sync::Mode entered) {
    if (mode) {
      fail(n, std::string(key) + " beside " + std::string(*mode) + "; a rule has one mode, so remove one of the two");
    }
    mode = key;
    sync.mode = entered;
  };
  const auto enter_if_true = [&](const toml::node& n, std::string_view key, Sync::Mode entered) {
    if (!read_bool(n, key)) {
      fail(n, std::string(key) + " is false; write true, or sync = \"step\"");
    }
    enter(n, key, entered);
  };
  read_table(
      *node.as_table(), "in sync",
      {{"every",
        [&](const toml::node& n) {
          sync.every =
              read_uint32(n, "every", "an integer such as 8", 1, kMostEvery, "the steps between two synchronisations");
          enter(n, "every", Sync::Mode::every);
        }},
       {"offset",
        [&](const toml::node& n) {
          sync.offset =
              read_uint32(n, "offset", "an integer such as 3", 0, kMostEvery, "a number of steps below every");
        }},
       {"stagger", [&](const toml::node& n) { sync.stagger = read_bool(n, "stagger"); }},
       {"outer", [&](const toml::node& n) { sync.outer = read_outer(n); }},
       {"async", [&](const toml::node& n) { enter_if_true(n, "async", Sync::Mode::async); }},
       {"rows", [&](const toml::node& n) { enter_if_true(n, "rows", Sync::Mode::rows); }},
       {"staleness",
        [&](const toml::node& n) {
          sync.staleness = read_uint32(n, "staleness", "an integer such as 4", 0, kMostRowStaleness,
                                       "the steps by which results may be late");
          bounded = true;
        }},
       {"store",
        [&](const toml::node& n) { sync.store = read_string(n, "store", "a string such as \"file:/scratch\""); }},
       {"memory", [&](const toml::node& n) { sync.memory = read_bytes(n, "memory"); }},
       {"from_step", [&](const toml::node& n) {
          sync.from_step = static_cast<std::uint64_t>(
              read_integer(n, "from_step", "an integer such as 100", 0, std::numeric_limits<std::int64_t>::max(),
                           "the first step that is not as \"step\", counted from 0"));
        }}});
  if (!mode) {
    fail(node, "sync has no mode; write every = N, async = true or rows = true");
  }
  if ((sync.mode == Sync::Mode::async || sync.mode == Sync::Mode::rows) && !bounded) {
    fail(node, std::string(*mode) + " without a bound; write staleness = 4, the steps by which results may be late");
  }
  if (const std::string problem = problem_of(sync); !problem.empty()) {
    fail(node, problem);
  }
  return sync;
}

Sync::Outer PolicyValues::read_outer(const toml::node& node) const {
  if (!node.is_table()) {
    fail_type(node, "outer", "a table such as { lr = 0.7, momentum = 0.9 }");
  }
  Sync::Outer outer;
  const auto read = [this](const toml::node& n, std::string_view key, std::string_view example) {
    if (!n.is_number()) {
      fail_type(n, key, "a number such as " + std::string(example));
    }
    return n.value_or(0.0);
  };
  read_table(*node.as_table(), "in outer",
             {{"lr", [&](const toml::node& n) { outer.learning_rate = read(n, "lr", "0.7"); }},
              {"momentum", [&](const toml::node& n) { outer.momentum = read(n, "momentum", "0.9"); }}});
  return outer;
}

std::string PolicyValues::read_glob(const toml::node& node) const {
  return read_glob(node, "match", "a string: a glob over tensor names, such as \"*.bias\"");
}

std::string PolicyValues::read_glob(const toml::node& node, std::string_view key, std::string_view wanted) const {
  const std::string text = read_string(node, key, wanted);
  return read_parsed(node, [&] { return Glob(text).text(); });
}

DType PolicyValues::read_dtype(const toml::node& node) const {
  const std::string text = read_string(node, "dtype", "a string such as \"f32\"");
  return read_parsed(node, [&] { return parse_dtype(text); });
}

OrderRange PolicyValues::read_order(const toml::node& node) const {
  constexpr std::string_view kWanted = "an integer such as 3, or a range of two such as [0, 7]";
  const auto read = [&](const toml::node& n) {
    return static_cast<std::uint64_t>(
        read_integer(n, "order", kWanted, 0, kMaxInteger, "the place of the call in its step, counted from 0"));
  };
  if (!node.is_array()) {
    const std::uint64_t only = read(node);
    return {only, only};
  }
  const toml::array& ends = *node.as_array();
  if (ends.size() != 2) {
    fail(node, "order has " + std::to_string(ends.size()) + " values; write " + std::string(kWanted));
  }
  const OrderRange range{read(ends[0]), read(ends[1])};
  if (range.first > range.last) {
    fail(node, "order runs from " + std::to_string(range.first) + " down to " + std::to_string(range.last) +
                   "; write the first call and then the last, both belong to it");
  }
  return range;
}

}  // namespace gradwire::policy
