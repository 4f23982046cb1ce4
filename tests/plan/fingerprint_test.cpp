// Tests that the fingerprint changes with everything that ranks must agree on, and that the message names the
// difference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>

#include "plan/plan.hpp"

namespace gradwire::plan {
namespace {

using ::testing::HasSubstr;

struct Inputs {
  Policy policy = Policy::uniform("int8");
  std::vector<TensorInfo> tensors{
      {"fc1.weight", 4096, DType::f32, 2}, {"fc1.bias", 64, DType::f32, 1}, {"fc2.weight", 640, DType::f32, 2}};
  PlanOptions options{.world_size = 4};

  Inputs() { policy.chunk_bytes = 256 << 10; }
  [[nodiscard]] Plan plan() const { return make_plan(policy, tensors, options); }
};

using Change = std::function<void(Inputs&)>;

std::string difference(const Change& change, int my_rank = 0, int their_rank = 2) {
  Inputs inputs;
  const std::string mine = inputs.plan().describe();
  change(inputs);
  return first_difference(mine, my_rank, inputs.plan().describe(), their_rank);
}

const std::string kSameTensors = "; add the same tensors in the same order on every rank";
const std::string kSamePolicy = "; give every rank the same policy and the same options";

TEST(Fingerprint, ChangesWithEveryIngredientAndTheMessageNamesIt) {
  const std::vector<std::pair<Change, std::string>> changes{
      {[](Inputs& i) { i.options.world_size = 5; }, "world size: rank 0 has 4, rank 2 has 5" + kSamePolicy},
      {[](Inputs& i) { i.options.reduction = Reduction::sum; },
       "reduction: rank 0 has mean, rank 2 has sum" + kSamePolicy},
      {[](Inputs& i) { i.options.checksum = false; }, "checksum: rank 0 has on, rank 2 has off" + kSamePolicy},
      {[](Inputs& i) { i.policy.bucket_bytes = 1 << 20; },
       "bucket bytes: rank 0 has 33554432, rank 2 has 1048576" + kSamePolicy},
      {[](Inputs& i) { i.policy.chunk_bytes = 4096; },
       "chunk bytes: rank 0 has 262144 as asked, rank 2 has 4096 as asked" + kSamePolicy},
      // No value differs from the same number given explicitly: small shards are cut up, and device memory has another
      // size.
      {[](Inputs& i) { i.policy.chunk_bytes.reset(); },
       "chunk bytes: rank 0 has 262144 as asked, rank 2 has 57344" + kSamePolicy},
      {[](Inputs& i) { i.policy.chunk_bytes = kDefaultChunkBytes; },
       "chunk bytes: rank 0 has 262144 as asked, rank 2 has 57344 as asked" + kSamePolicy},
      {[](Inputs& i) { i.policy.deterministic = true; },
       "deterministic: rank 0 has false, rank 2 has true" + kSamePolicy},
      {[](Inputs& i) { i.tensors[1].name = "fc1.b"; },
       "tensor 1: rank 0 has \"fc1.bias\" f32 x 64, ndim 1, rank 2 has \"fc1.b\" f32 x 64, ndim 1" + kSameTensors},
      {[](Inputs& i) { i.tensors[1].count = 65; },
       "tensor 1: rank 0 has \"fc1.bias\" f32 x 64, ndim 1, rank 2 has \"fc1.bias\" f32 x 65, ndim 1" + kSameTensors},
      {[](Inputs& i) { i.tensors[2].dtype = DType::f64; },
       "tensor 2: rank 0 has \"fc2.weight\" f32 x 640, ndim 2, rank 2 has \"fc2.weight\" f64 x 640, ndim 2" +
           kSameTensors},
      {[](Inputs& i) { i.tensors[0].ndim = 3; },
       "tensor 0: rank 0 has \"fc1.weight\" f32 x 4096, ndim 2, rank 2 has \"fc1.weight\" f32 x 4096, ndim 3" +
           kSameTensors},
      {[](Inputs& i) { std::swap(i.tensors[0], i.tensors[1]); },
       "tensor 0: rank 0 has \"fc1.weight\" f32 x 4096, ndim 2, rank 2 has \"fc1.bias\" f32 x 64, ndim 1" +
           kSameTensors},
      {[](Inputs& i) { i.policy.defaults.codec = CodecSpec::parse("bf16"); },
       "policy of tensor 0 \"fc1.weight\": rank 0 has codec int8, rank 2 has codec bf16" + kSamePolicy},
      {[](Inputs& i) { i.policy.defaults.algorithm = Algorithm::two_shot; },
       "policy of tensor 0 \"fc1.weight\": rank 0 has algorithm one_shot, rank 2 has algorithm two_shot" + kSamePolicy},
      {[](Inputs& i) { i.policy.defaults.error_feedback = ErrorFeedback::off; },
       "policy of tensor 0 \"fc1.weight\": rank 0 has error feedback auto, rank 2 has error feedback off" +
           kSamePolicy},
      {[](Inputs& i) { i.policy.defaults.decay = 0.95; },
       "policy of tensor 0 \"fc1.weight\": rank 2 alone has decay 0.95" + kSamePolicy},
      {[](Inputs& i) { i.policy.rules.push_back({.match = {.glob = "*.bias"}, .policy = i.policy.defaults}); },
       "policy of tensor 0 \"fc1.weight\": rank 0 has group 0, rank 2 has group 1" + kSamePolicy}};
  std::set<std::string> prints{Inputs{}.plan().fingerprint()};
  for (const auto& [change, message] : changes) {
    Inputs inputs;
    change(inputs);
    EXPECT_TRUE(prints.insert(inputs.plan().fingerprint()).second) << message;
    EXPECT_THAT(difference(change), ::testing::StartsWith(message));
  }
}

TEST(Fingerprint, DoesNotChangeWithWhatDoesNotMatter) {
  const std::string print = Inputs{}.plan().fingerprint();
  EXPECT_THAT(print, ::testing::MatchesRegex("[0-9a-f]{16}"));
  Inputs inputs;
  inputs.policy.source = "another/path.toml";
  inputs.policy.strict = true;
  EXPECT_EQ(inputs.plan().fingerprint(), print);
  EXPECT_EQ(difference([](Inputs&) {}), "");
  EXPECT_EQ(fingerprint_of(""), "2d06800538d394c2") << "XXH3 with 64 bits, seed 0";
}

TEST(Fingerprint, DescribeIsReadable) {
  EXPECT_EQ(Inputs{}.plan().describe(),
            "wire version: 2\n"
            "world size: 4\n"
            "reduction: mean\n"
            "checksum: on\n"
            "tensors: 3\n"
            "tensor 0: \"fc1.weight\" f32 x 4096, ndim 2\n"
            "tensor 1: \"fc1.bias\" f32 x 64, ndim 1\n"
            "tensor 2: \"fc2.weight\" f32 x 640, ndim 2\n"
            "bucket bytes: 33554432\n"
            "chunk bytes: 262144 as asked\n"
            "deterministic: false\n"
            "policy of tensor 0 \"fc1.weight\": codec int8, algorithm one_shot, error feedback auto, group 0\n"
            "policy of tensor 1 \"fc1.bias\": codec int8, algorithm one_shot, error feedback auto, group 0\n"
            "policy of tensor 2 \"fc2.weight\": codec int8, algorithm one_shot, error feedback auto, group 0\n"
            "bucket 0: f32 x 4800, codec int8, algorithm one_shot, tensors 2 1 0\n"
            "choice of codecs: none\n"
            "advice on the batch: none\n");
}

TEST(Difference, NamesTheMissingTensor) {
  const Change without_middle = [](Inputs& i) { i.tensors.erase(i.tensors.begin() + 1); };
  EXPECT_EQ(
      difference(without_middle, 0, 1),
      "rank 0 has 3 tensors, rank 1 has 2: tensor 1 of rank 0, \"fc1.bias\" f32 x 64, ndim 1, is missing on rank 1" +
          kSameTensors);
  const Change one_more = [](Inputs& i) { i.tensors.push_back({"head", 10, DType::f32, 1}); };
  EXPECT_EQ(difference(one_more, 3, 1),
            "rank 3 has 3 tensors, rank 1 has 4: tensor 3 of rank 1, \"head\" f32 x 10, ndim 1, is missing on rank 3" +
                kSameTensors);
  const Change many_more = [](Inputs& i) { i.tensors.resize(12, {"x", 1, DType::f32, 1}); };
  EXPECT_THAT(difference(many_more), HasSubstr("rank 0 has 3 tensors, rank 2 has 12: tensor 3 of rank 2"));
  const Change none = [](Inputs& i) { i.tensors.clear(); };
  EXPECT_THAT(difference(none), HasSubstr("rank 0 has 3 tensors, rank 2 has 0: tensor 0 of rank 0"));
}

TEST(Difference, NamesCannotForgeLines) {
  const Change forged = [](Inputs& i) { i.tensors[0].name = "a\" f32 x 1, ndim 1\ntensor 1: \"b"; };
  EXPECT_THAT(difference(forged), HasSubstr("rank 2 has \"a\\\" f32 x 1, ndim 1\\x0atensor 1: \\\"b\" f32"));
}

TEST(Difference, SurvivesAnyText) {
  const std::string mine = Inputs{}.plan().describe();
  const unsigned seed = 5;
  std::mt19937 random(seed);
  for (int round = 0; round < 500; ++round) {
    std::string theirs = mine.substr(0, random() % (mine.size() + 1));
    for (int edits = 0; edits < 3 && !theirs.empty(); ++edits) {
      theirs[random() % theirs.size()] = "\n: x"[random() % 4];
    }
    const std::string message = first_difference(mine, 0, theirs, 1);
    EXPECT_EQ(message.empty(), mine == theirs) << "seed " << seed << ", round " << round << "\n" << theirs;
  }
  EXPECT_THAT(first_difference(mine, 0, "", 7), HasSubstr("rank 0 and rank 7"));
}

}  // namespace
}  // namespace gradwire::plan
