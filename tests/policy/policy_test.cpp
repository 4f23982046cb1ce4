// Tests policy files: their meaning, and the error for each mistake, to the column.
#include "gradwire/policy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "bad_policy.hpp"
#include "gradwire/error.hpp"

namespace gradwire {
namespace {

using test::expect_bad;
using ::testing::HasSubstr;
using Bad = test::BadPolicy;

CodecSpec codec(const char* text) { return CodecSpec::parse(text); }

TEST(Policy, ReadsEveryKey) {
  const Policy policy = Policy::parse(R"(
version = 1
strict = true
deterministic = true
floor = "128KiB"
[defaults]
codec = "bf16"
algorithm = "one_shot"
error_feedback = "off"
sync = "step"
small = { below = "16KiB", codec = "fp16" }
[bucket]
bytes = "8MiB"
chunk = 131072
in_flight = "1GiB"
[[rule]]
match = "*.bias"
codec = "exact"
algorithm = "two_shot"
error_feedback = "auto"
decay = 0.95
[[rule]]
min_bytes = "1MiB"
max_bytes = 2097152
ndim = 2
dtype = "f16"
order = [3, 7]
communicator_size = 4
[[rule]]
order = 9
)",
                                      "p.toml");
  EXPECT_EQ(policy.source, "p.toml");
  EXPECT_TRUE(policy.strict);
  EXPECT_TRUE(policy.deterministic);
  EXPECT_EQ(policy.floor, 128U << 10);
  EXPECT_EQ(policy.bucket_bytes, 8U << 20);
  EXPECT_EQ(policy.chunk_bytes, 131072U);
  EXPECT_EQ(policy.in_flight_bytes, 1U << 30);
  EXPECT_EQ(
      policy.defaults,
      (TensorPolicy{.codec = codec("bf16"), .algorithm = Algorithm::one_shot, .error_feedback = ErrorFeedback::off}));
  EXPECT_EQ(policy.small, (Policy::Small{16384, codec("fp16")}));
  ASSERT_EQ(policy.rules.size(), 3U);
  EXPECT_EQ(policy.rules[0].match, (RuleMatch{.glob = "*.bias"}));
  EXPECT_EQ(policy.rules[0].policy,
            (TensorPolicy{.codec = codec("exact"), .algorithm = Algorithm::two_shot, .decay = 0.95}));
  EXPECT_EQ(policy.rules[0].line, 16);
  EXPECT_EQ(policy.rules[1].match, (RuleMatch{.min_bytes = 1U << 20,
                                              .max_bytes = 2U << 20,
                                              .ndim = 2,
                                              .dtype = DType::f16,
                                              .order = OrderRange{3, 7},
                                              .communicator_size = 4}));
  EXPECT_EQ(policy.rules[1].policy, policy.defaults) << "a rule takes the defaults for missing keys";
  EXPECT_EQ(policy.rules[1].line, 22);
  EXPECT_EQ(policy.rules[2].match, (RuleMatch{.order = OrderRange{9, 9}}));
}

TEST(Policy, ABoundOnErrorsIsTakenOverByRules) {
  const Policy policy = Policy::parse(
      "[defaults]\nmax_error = \"1%\"\n[[rule]]\nmatch = \"a\"\nmax_error = 0.25\n[[rule]]\nmatch = \"b\"\ncodec = "
      "\"bf16\"\n");
  EXPECT_EQ(policy.defaults.max_error, 0.01);
  EXPECT_EQ(policy.rules.at(0).policy.max_error, 0.25);
  EXPECT_EQ(policy.rules.at(1).policy.max_error, 0.01) << "a bound applies to every codec";
  EXPECT_EQ(Policy().defaults.max_error, std::nullopt);
}

TEST(Policy, SaysHowResidualsAreKept) {
  const Policy policy = Policy::parse(
      "[defaults]\nresiduals = { dtype = \"bf16\" }\n[[rule]]\nmatch = \"a\"\nresiduals = { dtype = \"f32\" }\n"
      "[[rule]]\nmatch = \"b\"\ncodec = \"int4\"\n[[rule]]\nmatch = \"c\"\nresiduals = { store = \"file:/tmp\", "
      "memory = \"1GiB\" }\n");
  EXPECT_EQ(Policy().defaults.residuals.dtype, ResidualDType::f32);
  EXPECT_EQ(policy.defaults.residuals, (Residuals{.dtype = ResidualDType::bf16}));
  EXPECT_EQ(policy.rules.at(0).policy.residuals, Residuals{}) << "a rule's table replaces the whole one";
  EXPECT_EQ(policy.rules.at(1).policy.residuals.dtype, ResidualDType::bf16);
  EXPECT_EQ(policy.rules.at(2).policy.residuals, (Residuals{.store = "file:/tmp", .memory = 1ULL << 30}));
}

TEST(Policy, AnEmptyFileIsTheDefault) {
  const Policy built_in;
  const Policy policy = Policy::parse("");
  EXPECT_EQ(policy.defaults, built_in.defaults);
  EXPECT_EQ(policy.small, built_in.small);
  EXPECT_EQ(policy.bucket_bytes, 32U << 20);
  EXPECT_EQ(policy.chunk_bytes, built_in.chunk_bytes);
  EXPECT_EQ(policy.in_flight_bytes, 64U << 20);
  EXPECT_EQ(built_in.defaults, (TensorPolicy{.codec = codec("int8")}));
  EXPECT_EQ(built_in.small, (Policy::Small{65536, codec("bf16")}));
  EXPECT_FALSE(policy.strict || policy.deterministic);
  EXPECT_TRUE(policy.rules.empty());
}

TEST(Policy, UniformHasNoExceptionForSmallTensors) {
  const Policy policy = Policy::uniform("fp16", Algorithm::one_shot);
  EXPECT_EQ(policy.defaults.codec, codec("fp16"));
  EXPECT_EQ(policy.defaults.algorithm, Algorithm::one_shot);
  EXPECT_FALSE(policy.small);
  EXPECT_THROW((void)Policy::uniform("int9"), Error);
}

TEST(Policy, ExactAndDenseLeaveSmallTensorsExactToo) {
  for (const char* defaults :
       {"codec = \"exact\"", "codec = \"fp32\"", "algorithm = \"dense\"", "algorithm = \"dense\"\ncodec = \"exact\""}) {
    const Policy policy = Policy::parse(std::string("[defaults]\n") + defaults);
    EXPECT_EQ(policy.defaults.codec, codec("exact")) << defaults;
    EXPECT_EQ(policy.small->codec, codec("exact")) << defaults;
  }
  EXPECT_EQ(Policy::parse("[defaults]\ncodec = \"exact+zstd\"").small->codec, codec("exact")) << "nothing to pack";
  EXPECT_EQ(Policy::parse("[defaults]\ncodec = \"exact\"\nsmall = { codec = \"bf16\" }").small->codec, codec("bf16"));
  EXPECT_FALSE(Policy::parse("[defaults]\nsmall = \"off\"").small);
  EXPECT_EQ(Policy::parse("[[rule]]\nalgorithm = \"dense\"").rules[0].policy.codec, codec("exact"));
}

TEST(Policy, DefaultsMayStandBehindTheRules) {
  const Policy policy = Policy::parse("[[rule]]\nmatch = \"a\"\n[defaults]\ncodec = \"fp16\"");
  EXPECT_EQ(policy.rules[0].policy.codec, codec("fp16"));
}

TEST(Policy, UnknownKeysAndWrongPlaces) {
  for (const Bad& bad : std::vector<Bad>{
           {"colour = 1", "1:1",
            "unknown key \"colour\" at the top of the file; known here: version, strict, deterministic, floor"},
           {"version = 1\n\n  stric = true", "3:3",
            "unknown key \"stric\" at the top of the file; did you mean \"strict\"?"},
           {"[defaults]\ncodek = \"int8\"", "2:1", "unknown key \"codek\" in [defaults]; did you mean \"codec\"?"},
           {"[defaults]\nzzz = 1\naaa = 1", "2:1", "unknown key \"zzz\""},
           {"[[rules]]\nmatch = \"a\"", "1:3", "unknown key \"rules\" at the top of the file; did you mean \"rule\"?"},
           {"[buckets]\nbytes = 1", "1:2", "unknown key \"buckets\" at the top of the file; did you mean \"bucket\"?"},
           {"[[rule]]\nfloor = 1", "2:1", "unknown key \"floor\" in a [[rule]]; write it at the top of the file"},
           {"order = 1", "1:1", "unknown key \"order\" at the top of the file; write it in a [[rule]]"},
           {"[[rule]]\ncommunicator = 4", "2:1", "unknown key \"communicator\" in a [[rule]]; known here: "},
           {"codec = \"int8\"", "1:1",
            "unknown key \"codec\" at the top of the file; write it in [defaults] or a [[rule]]"},
           {"[defaults]\nmatch = \"a\"", "2:1", "unknown key \"match\" in [defaults]; write it in a [[rule]]"},
           {"[[rule]]\nmatch = \"a\"\nsmall = \"off\"", "3:1",
            "unknown key \"small\" in a [[rule]]; write it in [defaults]"},
           {"[[rule]]\nmax_byte = 1", "2:1", "unknown key \"max_byte\" in a [[rule]]; did you mean \"max_bytes\"?"},
           {"[bucket]\nchunks = 1", "2:1", "unknown key \"chunks\" in [bucket]; did you mean \"chunk\"?"},
           {"[defaults]\nsmall = { belov = 1 }", "2:11", "unknown key \"belov\" in small; did you mean \"below\"?"},
           {"defaults.codecs = \"int8\"", "1:10", "unknown key \"codecs\" in [defaults]; did you mean \"codec\"?"}}) {
    expect_bad(bad, ErrorCode::invalid_argument);
  }
}

TEST(Policy, WrongTypes) {
  for (const Bad& bad : std::vector<Bad>{
           {"version = \"1\"", "1:11", "version must be the integer 1, not a string"},
           {"strict = 1", "1:10", "strict must be true or false, not an integer"},
           {"deterministic = \"yes\"", "1:17", "deterministic must be true or false, not a string"},
           {"defaults = 1", "1:12", "defaults must be a table; write [defaults] on a line of its own, not an integer"},
           {"bucket = []", "1:10", "bucket must be a table"},
           {"[rule]\nmatch = \"a\"", "1:1", "rules are tables; write [[rule]], with two brackets"},
           {"rule = [ 1, { match = \"a\" } ]", "1:8", "rules are tables"},
           {"[defaults]\ncodec = 8", "2:9", "codec must be a string such as \"int8\", not an integer"},
           {"[defaults]\nalgorithm = true", "2:13", "algorithm must be a string such as \"two_shot\", not a boolean"},
           {"[defaults]\nsmall = 65536", "2:9", "small must be \"off\" or a table such as { below = \"64KiB\""},
           {"[defaults]\nsmall = \"no\"", "2:9", "small must be \"off\" or a table"},
           {"[defaults]\nerror_feedback = false", "2:18",
            "error_feedback must be \"auto\", \"on\" or \"off\", not a boolean"},
           {"[bucket]\nbytes = 1.5", "2:9", "bytes must be a size such as \"64KiB\" or a number of bytes, not a float"},
           {"[bucket]\nbytes = 2024-01-01", "2:9",
            "bytes must be a size such as \"64KiB\" or a number of bytes, not a date"},
           {"[[rule]]\nmatch = [\"a\"]", "2:9",
            "match must be a string: a glob over tensor names, such as \"*.bias\", not an array"},
           {"[[rule]]\nndim = \"2\"", "2:8", "ndim must be an integer such as 2, not a string"},
           {"[[rule]]\norder = \"3\"", "2:9",
            "order must be an integer such as 3, or a range of two such as [0, 7], not a string"},
           {"[[rule]]\norder = [0, \"7\"]", "2:13", "order must be an integer such as 3"},
           {"[[rule]]\ncommunicator_size = [4]", "2:21",
            "communicator_size must be an integer such as 4, not an array"},
           {"floor = true", "1:9", "floor must be a size such as \"64KiB\" or a number of bytes, not a boolean"},
           {"[[rule]]\ndtype = 32", "2:9", "dtype must be a string such as \"f32\", not an integer"}}) {
    expect_bad(bad, ErrorCode::invalid_argument);
  }
}

TEST(Policy, BadValues) {
  for (const Bad& bad : std::vector<Bad>{
           {"version = 2", "1:11", "this build reads version 1 of the policy format; write version = 1"},
           {"[defaults]\ncodec = \"int9\"", "2:9", "codec \"int9\": write one of exact, "},
           {"[defaults]\ncodec = \"topk(0%)+int8\"", "2:9", "codec \"topk(0%)+int8\": bad share \"0%\""},
           {"[defaults]\nsmall = { codec = \"x\" }", "2:19", "codec \"x\": write one of"},
           {"[defaults]\nalgorithm = \"ring\"", "2:13", "unknown algorithm \"ring\": write one of auto, two_shot, "},
           {"[defaults]\nerror_feedback = \"yes\"", "2:18",
            "unknown error_feedback \"yes\"; write \"auto\", \"on\" or \"off\""},
           {"[defaults]\nresiduals = \"bf16\"", "2:13", "residuals must be a table such as { dtype = \"bf16\" }"},
           {"[defaults]\nresiduals = { dtype = \"f16\" }", "2:23",
            "unknown dtype \"f16\"; write \"f32\", \"bf16\" or \"int8\""},
           {"[defaults]\nresiduals = { store = \"/tmp\", memory = 1 }", "2:23", "store \"/tmp\"; write \"file:DIR\""},
           {"[defaults]\nresiduals = { memory = \"1GiB\" }", "2:13", "memory without store in residuals; write both"},
           {"[defaults]\nresiduals = { store = \"file:/tmp\" }", "2:13", "store without memory in residuals"},
           {"residuals = { dtype = \"bf16\" }", "1:1",
            "unknown key \"residuals\" at the top of the file; write it in [defaults] or a [[rule]]"},
           {"[defaults]\ndecay = 0", "2:9", "decay is 0; write a number above 0 and at most 1, such as 0.95"},
           {"[[rule]]\ndecay = 1.5", "2:9", "decay is 1.5; write a number"},
           {"[defaults]\ndecay = nan", "2:9", "decay is nan; write a number"},
           {"[defaults]\ndecay = \"5%\"", "2:9", "decay must be a number such as 0.95, not a string"},
           {"[bucket]\ndecay = 0.5", "2:1", "unknown key \"decay\" in [bucket]; write it in [defaults]"},
           {"[defaults]\nmax_error = 0", "2:13", "max_error is 0; write a share of the sum above 0 and below 1"},
           {"[[rule]]\nmax_error = 1.5", "2:13", "max_error is 1.5; write a share"},
           {"[defaults]\nmax_error = \"much\"", "2:13", "bad share \"much\""},
           {"[bucket]\nmax_error = 0.5", "2:1", "unknown key \"max_error\" in [bucket]; write it in [defaults]"},
           {"[defaults]\ncodec = \"topk(101%)+int8\"", "2:9", "codec \"topk(101%)+int8\": bad share \"101%\""},
           {"[defaults]\ncodec = \"sign\"\nerror_feedback = \"off\"", "3:18",
            "sign diverges without error feedback; write \"auto\", or another codec"},
           {"[defaults]\nwarmup = \"int8\"", "2:10",
            "warmup must be an array such as [ { until_step = 100, codec = \"int8\" } ]"},
           {"[defaults]\nwarmup = [ { until_step = 5 } ]", "2:12", "a warm-up stage needs codec"},
           {"[defaults]\nwarmup = [ { codec = \"int8\" } ]", "2:12", "a warm-up stage needs until_step"},
           {"[defaults]\nwarmup = [ { until_step = 0, codec = \"int8\" } ]", "2:27", "until_step is 0"},
           {"[defaults]\nwarmup = [ { until_step = 9, codec = \"int8\" }, { until_step = 9, codec = \"int4\" } ]",
            "2:48", "until_step 9 is not after 9"},
           {"[defaults]\nalgorithm = \"dense\"\ncodec = \"int8\"", "3:9",
            "codec \"int8\" has no effect with algorithm = \"dense\", which sends uncompressed; write codec = "
            "\"exact\""},
           {"[defaults]\nalgorithm = \"dense\"\n[[rule]]\nmatch = \"a\"\ncodec = \"bf16\"", "5:9",
            "codec \"bf16\" has no effect with algorithm = \"dense\""},
           {"[defaults]\nalgorithm = \"dense\"\nsmall = { codec = \"bf16\" }", "3:19", "codec \"bf16\" has no effect"},
           {"[bucket]\nbytes = \"32 MegaBytes\"", "2:9", "bad size \"32 MegaBytes\": write a number and B, KiB, MiB"},
           {"[bucket]\nbytes = 0", "2:9", "bytes is 0B; write a size from 1KiB to 1024GiB"},
           {"[bucket]\nbytes = -1", "2:9", "bytes is negative; write a size such as \"64KiB\""},
           {"[bucket]\nchunk = \"2GiB\"", "2:9", "chunk is 2GiB; write a size from 1KiB to 1GiB"},
           {"[bucket]\nin_flight = \"2048GiB\"", "2:13", "in_flight is 2048GiB; write a size from 0B to 1024GiB"},
           {"[bucket]\nbytes = \"99999999999999999999GiB\"", "2:9", "bad size \"99999999999999999999GiB\""},
           {"[[rule]]\nmin_bytes = \"8388608TiB\"", "2:13", "bad size"},
           {"[[rule]]\nmin_bytes = 9223372036854775808", "2:32", "not valid TOML"},
           {"[[rule]]\nmatch = \"\"", "2:9",
            "bad glob \"\": it is empty and matches nothing; write \"*\" for every name"},
           {"[[rule]]\nmatch = \"a[bc\"", "2:9",
            "bad glob \"a[bc\": the [ has no closing ]; write [[] for a literal bracket"},
           {"[[rule]]\nmatch = \"[z-a]\"", "2:9", "bad glob \"[z-a]\": the range z-a is backwards"},
           {"[[rule]]\nmin_bytes = \"2KiB\"\nmax_bytes = \"1KiB\"", "1:1",
            "min_bytes (2KiB) is above max_bytes (1KiB), so no tensor can match; swap them or remove one"},
           {"[[rule]]\nndim = -1", "2:8", "ndim is -1; write the number of dimensions, 0 to 255"},
           {"[[rule]]\nndim = 4294967298", "2:8", "ndim is 4294967298"},
           {"[[rule]]\norder = -1", "2:9", "order is -1; write the place of the call in its step, counted from 0"},
           {"[[rule]]\norder = [1]", "2:9", "order has 1 values; write an integer such as 3, or a range of two"},
           {"[[rule]]\norder = [0, -2]", "2:13", "order is -2"},
           {"[[rule]]\norder = [7, 0]", "2:9", "order runs from 7 down to 0; write the first call and then the last"},
           {"[[rule]]\ncommunicator_size = 0", "2:21",
            "communicator_size is 0; write the number of ranks of the communicator, from 1 on"},
           {"[tier]\nranks_per_node = 0", "2:18",
            "ranks_per_node is 0; write how many ranks in a row share a node, from 1 on"},
           {"[tier]\nranks_per_node = \"8\"", "2:18", "ranks_per_node must be an integer such as 8, not a string"},
           {"[tier]\nintra = \"bf16\"", "2:9", "intra must be a table; write [tier.intra] on a line of its own"},
           {"[tier.intra]\ncodec = \"int9\"", "2:9", "codec \"int9\": write one of exact, exact+zstd, bf16"},
           {"[tier.inter]\ncodec = \"int8\"", "1:7",
            "unknown key \"inter\" in [tier]; known here: ranks_per_node, intra"},
           {"[tier.intra]\nranks_per_node = 2", "2:1", "unknown key \"ranks_per_node\" in [tier.intra]"},
           {"floor = \"2048GiB\"", "1:9", "floor is 2048GiB; write a size from 0B to 1024GiB"},
           {"[[rule]]\ndtype = \"float\"", "2:9", "unknown dtype \"float\": write f32, f16, bf16 or f64"}}) {
    expect_bad(bad, ErrorCode::invalid_argument);
  }
}

TEST(Policy, Tiers) {
  EXPECT_EQ(Policy().tiers, Policy::Tiers{});
  const Policy policy = Policy::parse(
      "[defaults]\nalgorithm = \"hierarchical\"\n[tier]\nranks_per_node = 8\n[tier.intra]\ncodec = \"fp16\"\n");
  EXPECT_EQ(policy.defaults.algorithm, Algorithm::hierarchical);
  EXPECT_EQ(policy.tiers, (Policy::Tiers{.ranks_per_node = 8, .intra_codec = codec("fp16")}));
}

TEST(Policy, BrokenToml) {
  for (const Bad& bad : std::vector<Bad>{{"version = ", "1:11", "not valid TOML: "},
                                         {"[defaults\ncodec = \"int8\"", "1:10", "not valid TOML: "},
                                         {"strict = true\nstrict = false", "2:10", "not valid TOML: "},
                                         {"[defaults]\ncodec = \"int8", "2:14", "not valid TOML: "},
                                         {"a = \"\xff\"", "1:5", "not valid TOML: "},
                                         {"# \xc3\xa4\ngr\xc3\xb6sse = 1", "2:3", "not valid TOML: "},
                                         {"a = \"\xc3\xa4\\\"\" \xc3\xa4", "1:11", "not valid TOML: "},
                                         {"a = '''\nb", "2:2", "not valid TOML: "}}) {
    expect_bad(bad, ErrorCode::invalid_argument);
  }
  for (const Bad& bad : std::vector<Bad>{
           {"[defaults]\ncodec = int8", "2:11", "not valid TOML: text needs quotes; write \"int8\""},
           {"[defaults]\ncodec=bf16 # half", "2:7", "not valid TOML: text needs quotes; write \"bf16\""},
           {"[defaults]\ncodec = topk(1%)+int8\n", "2:10",
            "not valid TOML: text needs quotes; write \"topk(1%)+int8\""},
           {"[defaults]\nalgorithm = two_shot", "2:14", "not valid TOML: text needs quotes; write \"two_shot\""},
           {"floor = 64KiB\r\n", "1:11", "not valid TOML: text needs quotes; write \"64KiB\""},
           {"[auto]\ngain = 5%", "2:9", "not valid TOML: text needs quotes; write \"5%\""},
           {"[defaults]\nallow = [\"bf16\", int8]", "2:20", "not valid TOML: text needs quotes; write \"int8\""},
           {"[[rule]]\nmatch = \"\xc3\xa4\"\n[defaults]\nsmall = { below = \"64KiB\", codec = fp16 }", "4:37",
            "not valid TOML: text needs quotes; write \"fp16\""},
           {"[defaults", "1:10", "not valid TOML: Error"},
           {"[defaults]\nsmall = { below = 1, codec }", "2:28", "not valid TOML: Error"},
           {"version = 1x", "1:12", "not valid TOML: text needs quotes; write \"1x\""}}) {
    expect_bad(bad, ErrorCode::invalid_argument);
  }
  std::string deep = "version = 1\nx = ";
  deep += std::string(100000, '[');
  EXPECT_THROW((void)Policy::parse(deep), Error);
  std::string dotted = "version = 1\n[a";
  for (int i = 0; i < 100000; ++i) {
    dotted += ".a";
  }
  expect_bad({(dotted + "]").c_str(), "2:1", "more than 120 dots in one line; break it up"},
             ErrorCode::invalid_argument);
  EXPECT_THROW((void)Policy::parse(std::string(300000, '#')), Error);
}

TEST(Policy, LoadsFiles) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "gradwire_policy_test";
  std::filesystem::create_directories(folder);
  const auto expect_load_error = [](const std::filesystem::path& file, const std::string& what) {
    try {
      (void)Policy::load(file);
      ADD_FAILURE() << file << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr(what));
      EXPECT_THAT(error.what(), HasSubstr(file.string()));
    }
  };
  expect_load_error(folder / "missing.toml", "cannot be read (No such file or directory)");
  expect_load_error(folder, "it is a folder");
  const std::filesystem::path bad = folder / "bad.toml";
  std::ofstream(bad) << "version = 1\ncolour = 2\n";
  expect_load_error(bad, bad.string() + ":2:1: unknown key \"colour\"");
  std::ofstream(bad) << std::string(1 << 20, ' ');
  expect_load_error(bad, "is this a policy file?");
  std::filesystem::remove_all(folder);
}

TEST(Policy, ExamplesLoad) {
  int examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(GRADWIRE_SOURCE_DIR "/python-free-examples/policies")) {
    ++examples;
    EXPECT_NO_THROW({
      const Policy policy = Policy::load(entry.path());
      EXPECT_EQ(policy.source, entry.path().string());
    }) << entry.path();
  }
  EXPECT_GE(examples, 4);
  const Policy written = Policy::load(GRADWIRE_SOURCE_DIR "/python-free-examples/policies/default.toml");
  const Policy built_in;
  EXPECT_EQ(written.defaults, built_in.defaults);
  EXPECT_EQ(written.small, built_in.small);
  EXPECT_EQ(written.bucket_bytes, built_in.bucket_bytes);
  EXPECT_EQ(written.chunk_bytes, built_in.chunk_bytes);
}

}  // namespace
}  // namespace gradwire
