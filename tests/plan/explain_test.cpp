#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.hpp"
#include "base/units.hpp"
#include "codec/codec.hpp"
#include "gradwire/error.hpp"
#include "plan/plan.hpp"

namespace gradwire::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Explain, ShowsEveryTensorBucketAndReason) {
  const Policy policy = Policy::parse(R"(version = 1
[[rule]]
match = "*.bias"
codec = "exact"
algorithm = "one_shot"
[[rule]]
match = "*.gone"
)",
                                      "p.toml");
  const Plan plan = make_plan(policy,
                              {{"embed", 100000, DType::f32, 2},
                               {"fc.weight", 65536, DType::f32, 2},
                               {"fc.bias", 256, DType::f32, 1},
                               {"scale", 8, DType::f32, 1},
                               {"", 16, DType::f32, 1}},
                              {});
  const std::string encoded = format_bytes(codec::Codec(CodecSpec::parse("int8"), DType::f32).payload_bytes(165536));
  EXPECT_EQ(plan.explain(),
            "tensor      count  dtype  codec  algorithm  bucket  why\n"
            "embed      100000  f32    int8   two_shot        2  default\n"
            "fc.weight   65536  f32    int8   two_shot        2  default\n"
            "fc.bias       256  f32    exact  one_shot        1  rule 1 at p.toml:2 matched *.bias\n"
            "scale           8  f32    bf16   two_shot        0  small: 32B is below 64KiB\n"
            "#4             16  f32    bf16   two_shot        0  small: 64B is below 64KiB\n"
            "\n"
            "bucket  group            dtype  travels as  algorithm  tensors     bytes   encoded  ratio\n"
            "     0  small            f32    bf16        two_shot         2       96B       48B      2\n"
            "     1  rule 1 (*.bias)  f32    exact       one_shot         1      1KiB      1KiB      1\n"
            "     2  default          f32    int8        two_shot         2  646.6KiB  " +
                encoded +
                "   3.97\n"
                "(buckets start in this order; encoded: payload without frame headers, of exact+zstd the most; ratio: "
                "bytes / encoded; all codecs but exact and exact+zstd are lossy)\n"
                "warning: rule 2 at p.toml:6 (*.gone) matched no tensor\n"
                "note: 1 of 5 tensors have no name: rules with `match` do not apply to them\n");
}

TEST(Explain, ShowsWarmUpFeedbackAndWhatAutoMayChoose) {
  const Policy policy = Policy::parse(R"([defaults]
codec = "int4"
small = "off"
warmup = [ { until_step = 100, codec = "int8" } ]
[[rule]]
match = "a"
codec = "auto"
allow = ["int8", "int4"]
warmup = []
)");
  const std::string text = make_plan(policy, {{"a", 5000, DType::f32, 1}, {"b", 5000, DType::f32, 1}}, {}).explain();
  EXPECT_THAT(text, HasSubstr("  int8, error feedback, until step 100; then int4, error feedback  two_shot "));
  EXPECT_THAT(text, HasSubstr("  auto: dense; int8; int4, error feedback "));
}

// The text states the bytes in flight that the link needs, and whether the memory suffices for them.
TEST(Explain, SaysWhatIsInFlight) {
  const std::vector<TensorInfo> tensors{{"a", 5000, DType::f32, 1}};
  const auto explain = [&](const std::string& policy) {
    return make_plan(Policy::parse(policy), tensors, {.world_size = 2}).explain();
  };
  EXPECT_THAT(explain(""),
              HasSubstr("in flight: 4 chunks of 56KiB a shard; more where that leaves the link idle; their "
                        "frames take at most 64MiB\n"));
  const std::string far = "[link]\nbandwidth = \"8Gbit/s\"\nlatency = \"4ms\"\n";
  EXPECT_THAT(explain(far), HasSubstr("; " + format_bytes(5'000'000) + " on the link of 8Gbit/s,4ms, where that is "));
  EXPECT_THAT(explain(far), Not(HasSubstr("warning")));
  EXPECT_THAT(explain(far + "[bucket]\nin_flight = \"16MiB\""),
              HasSubstr("warning: a link of 8Gbit/s,4ms stays full with frames of " + format_bytes(20'000'000) +
                        " in flight, and in_flight in [bucket] allows 16MiB; allow more, or it carries less\n"));
}

// Chunks are larger if a link needs very many, and ranks compare their size.
TEST(Explain, ChunksFollowTheLink) {
  const std::string far = "[link]\nbandwidth = \"100Gbit/s\"\nlatency = \"20ms\"\n[bucket]\nin_flight = \"4GiB\"\n";
  const Plan plan = make_plan(Policy::parse(far), {{"a", 5000, DType::f32, 1}}, {.world_size = 2});
  EXPECT_EQ(plan.host_chunk_bytes(), 1U << 20);
  EXPECT_THAT(plan.describe(), HasSubstr("chunk bytes: 1048576\n"));
  EXPECT_EQ(make_plan(Policy::parse(far + "chunk = \"8KiB\""), {}, {.world_size = 2}).host_chunk_bytes(), 8U << 10);
}

TEST(Explain, NothingToReduce) {
  const Plan plan = make_plan(Policy::parse("strict = true\n[[rule]]\nmatch = \"a\""), {}, {});
  EXPECT_TRUE(plan.buckets.empty() && plan.groups.empty() && plan.warnings.empty() && plan.notes.empty());
  EXPECT_THAT(plan.explain(), HasSubstr("tensor  count"));
  const Plan empty_tensor = make_plan(Policy(), {{"none", 0, DType::f32, 1}}, {});
  EXPECT_THAT(empty_tensor.explain(), HasSubstr("0B       0B      -\n"));
}

TEST(Text, TablesAlignAndDoNotTrail) {
  EXPECT_EQ(text::table({{"a", "b", "c"}, {"long", "1", "x"}, {"", "22", ""}}, "lrl"),
            "a      b  c\nlong   1  x\n      22\n");
  EXPECT_EQ(text::quote("a\"b\\c\n\x7f"), "\"a\\\"b\\\\c\\x0a\\x7f\"");
}

}  // namespace
}  // namespace gradwire::plan
