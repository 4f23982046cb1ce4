// The errors that the other C++ headers promise, except those of libraries, each with the call that gives it.
#include <array>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "gradwire/communicator.hpp"
#include "gradwire/emulation.hpp"
#include "gradwire/optimizer.hpp"
#include "gradwire/table.hpp"
#include "tests/support_matrix/feature_plays.hpp"
#include "tests/support_matrix/small_jobs.hpp"

namespace gradwire::support {
namespace {

void with_own_table(const std::function<void(Table&)>& body, TableOptions options = {}) {
  options.rows = 10;
  options.width = 2;
  options.gradient_codec = options.gradient_codec == CodecSpec::exact() ? CodecSpec("bf16") : options.gradient_codec;
  on_transports(
      [&](const std::shared_ptr<Transport>& transport) {
        Table table(transport, options);
        body(table);
      },
      1);
}

void push_what_rounds_to_infinity() {
  on_transports([](const std::shared_ptr<Transport>& transport) {
    Table table(transport, {.rows = 100, .width = 2, .gradient_codec = "bf16"});
    std::uint64_t id = 0;
    while (table.owner(id) == table.rank()) {
      ++id;
    }
    table.push({&id, 1}, std::array{kAlmostInfinite, 0.0F});
  });
}

// Reads the options of a table under a rule for rows with these additional lines.
void options_by_rule(const std::string& lines) {
  static_cast<void>(
      table_options(Policy::parse("[[rule]]\nmatch = \"w\"\nsync = { rows = true, staleness = 1 }\n" + lines), "w",
                    {.rows = 10, .width = 2}));
}

void options_by_changed_rule(void (*change)(TensorPolicy&)) {
  Policy policy = Policy::parse("[[rule]]\nmatch = \"w\"\nsync = { rows = true, staleness = 1 }\n");
  change(policy.rules.at(0).policy);
  static_cast<void>(table_options(policy, "w", {.rows = 10, .width = 2}));
}

constexpr std::string_view kOptimizer = "Everything that throws is Error(invalid_argument) unless said otherwise.";
constexpr std::string_view kRules =
    "Error(unsupported) where the rule wants what tables cannot do: another codec than exact, bf16 or int8, codec "
    "\"auto\", warmup, error feedback, decay.";
constexpr std::string_view kTable =
    "Error(invalid_argument) for options that make no sense, Error(unsupported) for codecs other than exact, bf16 and "
    "int8,";
constexpr std::string_view kPullOfTable =
    "Error(invalid_argument) for an id outside the table or a span of another size;";
constexpr std::string_view kPushOfTable =
    "Error(invalid_argument) for NaN or Inf, and in rows of other ranks for what gradient_codec rounds to that";
constexpr std::string_view kWorld = "Error(invalid_argument) for a world below 1, or nodes that are not one a rank.";

constexpr Promise kPromisesOfCpp[] = {
    {"communicator.hpp", "Communicator()", "Error(invalid_argument) where ranks_per_node does not divide the world.",
     kInvalid, "ranks_per_node is 3, which does not divide",
     [] {
       CommunicatorOptions options;
       options.ranks_per_node = 3;
       on_transports([&](const std::shared_ptr<Transport>& transport) { Communicator(transport, options); });
     }},

    {"optimizer.hpp", "Optimizer", kOptimizer, kInvalid, "\"w\" was added already; names must differ",
     [] {
       std::vector<float> w(3);
       Sgd sgd;
       sgd.add("w", w);
       sgd.add("w", w);
     }},
    {"optimizer.hpp", "Optimizer", kOptimizer, kInvalid, "\"w\" has no gradient; set_gradient()",
     [] {
       std::vector<float> w(3);
       Sgd sgd;
       sgd.add("w", w);
       sgd.step({});
     }},
    {"optimizer.hpp", "Optimizer", kOptimizer, kInvalid, "no parameter \"v\" was added",
     [] { static_cast<void>(AdamW().scale("v")); }},
    {"optimizer.hpp", "Optimizer", kOptimizer, kInvalid, "must be finite and above 0", [] { Sgd().set_loss_scale(0); }},
    {"optimizer.hpp", "AdamW::to_send()",
     "behind it step() is Error(invalid_argument) for a gradient that was not given to it.", kInvalid,
     "\"w\" was not given to to_send() in this step",
     [] {
       std::vector<float> w(3), gradient(3);
       AdamW adam;
       adam.add("w", w, gradient);
       adam.send_momentum();
       adam.step({});
     }},

    {"table.hpp", "table_options()", "Error(invalid_argument) that names the tensor where no rule asks for rows of it;",
     kInvalid, "table \"v\": no rule matches it",
     [] { static_cast<void>(table_options(Policy(), "v", {.rows = 10, .width = 2})); }},
    {"table.hpp", "session_table_options()", "the rule must have staleness 0, else Error(invalid_argument).", kInvalid,
     "staleness is for a Table of its own",
     [] {
       const std::string rule = "[[rule]]\nmatch = \"w\"\nsync = { rows = true, staleness = 1 }\n";
       static_cast<void>(session_table_options(Policy::parse(rule), "w", {.rows = 10, .width = 2}));
     }},
    {"table.hpp", "table_options()", kRules, kUnsupported, "rows have no codec \"int4\"",
     [] { options_by_rule("codec = \"int4\"\n"); }},
    {"table.hpp", "table_options()", kRules, kUnsupported, "codec \"auto\"",
     [] { options_by_changed_rule([](TensorPolicy& rule) { rule.allow = {"bf16"}; }); }},
    {"table.hpp", "table_options()", kRules, kUnsupported, "tables have no warmup",
     [] { options_by_rule("codec = \"int8\"\nwarmup = [{ until_step = 5, codec = \"exact\" }]\n"); }},
    {"table.hpp", "table_options()", kRules, kUnsupported, "rows have no error feedback; remove it",
     [] { options_by_rule("codec = \"int8\"\nerror_feedback = \"on\"\n"); }},
    {"table.hpp", "table_options()", kRules, kUnsupported, "and so no decay",
     [] { options_by_changed_rule([](TensorPolicy& rule) { rule.decay = 0.5; }); }},
    {"table.hpp", "Table()", kTable, kInvalid, "a name has 1 to 128 letters",
     [] { with_own_table([](Table&) {}, {.name = "a/b"}); }},
    {"table.hpp", "Table()", kTable, kUnsupported, "rows have no codec \"int4\"",
     [] { with_own_table([](Table&) {}, {.codec = "int4"}); }},
    {"table.hpp", "pull()", kPullOfTable, kInvalid, "id 10 (number 0 of 1) lies outside the table",
     [] {
       with_own_table([](Table& table) {
         std::array<float, 2> row{};
         table.pull(kOutside, row);
       });
     }},
    {"table.hpp", "pull()", kPullOfTable, kInvalid, "need 4 elements, not 2",
     [] {
       with_own_table([](Table& table) {
         std::array<float, 2> row{};
         table.pull(kIds, row);
       });
     }},
    {"table.hpp", "push()", kPushOfTable, kInvalid, "the row for id 1 has NaN or Inf; nothing was sent",
     [] {
       with_own_table([](Table& table) {
         table.push(kIds, std::array{std::numeric_limits<float>::infinity(), 0.0F, 0.0F, 0.0F});
       });
     }},
    {"table.hpp", "push()", kPushOfTable, kInvalid, "is too large for bf16, which makes Inf of it; nothing was sent",
     &push_what_rounds_to_infinity},
    {"table.hpp", "prefetch()", "Error(invalid_argument) without one.", kInvalid, "there is no cache; set cache_bytes",
     [] { with_own_table([](Table& table) { table.prefetch(kIds); }); }},

    {"transport.hpp", "post_receive_at_most()", "Error(unsupported) unless capabilities() says receives_at_most.",
     kUnsupported, "receives only messages of a size that is known before",
     [] {  // as a transport of a user that does not override it
       Operation operation;
       make_inproc_world(2)[0]->Transport::post_receive_at_most(operation, 1, 0, {});
     }},
    {"transport.hpp", "post_all_reduce()", "Error(unsupported) where capabilities() has no such dtype.", kUnsupported,
     "has no native all-reduce of f16",
     [] {
       std::array<std::uint16_t, 4> values{};
       Operation operation;
       make_inproc_world(1)[0]->post_all_reduce(operation, view(values.data(), values.size(), DType::f16));
     }},
    {"transport.hpp", "all_reduce()", "Error(unsupported) unless capabilities() says all_reduce_in_call.", kUnsupported,
     "has no blocking all-reduce; use post_all_reduce",
     [] {
       std::array<float, 4> values{};
       make_inproc_world(1)[0]->all_reduce(view(values.data(), values.size()));
     }},
    {"transport.hpp", "make_inproc_world()", kWorld, kInvalid, "a world has at least 1 rank, not 0",
     [] { static_cast<void>(make_inproc_world(0)); }},
    {"transport.hpp", "make_inproc_world()", kWorld, kInvalid, "1 nodes for 2 ranks; give one for each",
     [] { static_cast<void>(make_inproc_world(2, {0})); }},
    {"processes.hpp", "make_inproc_processes()", "Error(invalid_argument) for a count below 1.", kInvalid,
     "a job has at least 1 process, not 0", [] { static_cast<void>(make_inproc_processes(0)); }},

    {"dtype.hpp", "parse_dtype()", "The inverse of to_string; throws Error(invalid_argument).", kInvalid,
     "unknown dtype \"f8\"", [] { static_cast<void>(parse_dtype("f8")); }},
    {"codec_spec.hpp", "CodecSpec::parse()",
     "Throws Error(invalid_argument) that quotes the text and lists what is known.", kInvalid,
     "codec \"int9\": write one of", [] { static_cast<void>(CodecSpec::parse("int9")); }},
    {"reduction.hpp", "parse_algorithm()", "Throws Error(invalid_argument) that lists the names.", kInvalid,
     "unknown algorithm \"tree\": write one of", [] { static_cast<void>(parse_algorithm("tree")); }},
    {"policy.hpp", "Policy::automatic()", "Error(invalid_argument) for an empty list, or one out of order.", kInvalid,
     "allow: no codec is left to choose", [] { static_cast<void>(Policy::automatic({})); }},
    {"policy.hpp", "Policy::automatic()", "Error(invalid_argument) for an empty list, or one out of order.", kInvalid,
     "order codecs from the best quality",
     [] {
       static_cast<void>(Policy::automatic({"int8", "bf16"}));
     }},
    {"policy.hpp", "Policy::load()",
     "Error(invalid_argument) that says \"FILE:LINE:COLUMN: what is wrong; what to write instead\".", kInvalid,
     "job.toml:2:9:", [] { static_cast<void>(Policy::parse("[defaults]\ncodec = \"int9\"\n", "job.toml")); }},
    {"link.hpp", "Link::parse()", "Error(invalid_argument) names what is wrong.", kInvalid,
     "link \"fast\":", [] { static_cast<void>(Link::parse("fast")); }},
    {"emulation.hpp", "LinkSchedule()", "Error(invalid_argument) names the phase that is wrong.", kInvalid,
     "has no end, but others follow",
     [] {
       LinkSchedule({LinkPhase{}, LinkPhase{}});
     }},
    {"emulation.hpp", "LinkSchedule::parse()", "Error(invalid_argument) names the phase and what is wrong with it.",
     kInvalid, "link schedule \"1Gbit/s until soon, 1Gbit/s\":",
     [] { static_cast<void>(LinkSchedule::parse("1Gbit/s until soon, 1Gbit/s")); }},
};

}  // namespace

std::span<const Promise> promises_of_cpp() { return kPromisesOfCpp; }

}  // namespace gradwire::support
