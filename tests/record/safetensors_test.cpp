#include "record/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "record/gradient_files.hpp"
#include "tests/record/gradient_bytes.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/mutations.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Safetensors : public ::testing::Test {
 protected:
  record::Listing list(const std::string& bytes, const std::string& name = "g.safetensors") {
    write_bytes(folder_.file(name), bytes);
    return record::list_gradients(folder_.file(name));
  }
  std::string refusal(const std::string& bytes) {
    return error_of([&] { static_cast<void>(list(bytes)); }).what();
  }

  ScratchFolder folder_;
};

TEST_F(Safetensors, ReadsTensorsInTheOrderOfTheirBytes) {
  const std::string file = safetensors(R"({"__metadata__":{"format":"pt"},)"
                                       R"("z":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                       R"("a":{"dtype":"BF16","shape":[1,3],"data_offsets":[8,14]},)"
                                       R"("n":{"dtype":"I64","shape":[],"data_offsets":[14,22]},)"
                                       R"("h":{"dtype":"F16","shape":[0],"data_offsets":[22,22]}})",
                                       bytes_of<float>({1, 2}) + std::string(6, 'b') + std::string(8, 'n'));
  for (const char* name : {"g.safetensors", "no_extension"}) {
    const record::Listing listing = list(file, name);
    ASSERT_EQ(listing.gradients.size(), 3U);
    EXPECT_EQ(listing.gradients[0].name, "z");
    EXPECT_EQ(listing.gradients[1].name, "a");
    EXPECT_EQ(listing.gradients[1].dtype, DType::bf16);
    EXPECT_THAT(listing.gradients[1].shape, ElementsAre(1U, 3U));
    EXPECT_EQ(listing.gradients[2].count, 0U);
    std::vector<float> values(2);
    record::GradientValues(listing.gradients[0]).read(0, 2, values.data());
    EXPECT_THAT(values, ElementsAre(1, 2));
    ASSERT_EQ(listing.left_out.size(), 1U);
    EXPECT_THAT(listing.left_out[0], HasSubstr("tensor \"n\" is left out: its type \"I64\""));
  }
}

TEST_F(Safetensors, DamageIsNamedWithItsPlace) {
  EXPECT_THAT(refusal("1234"), HasSubstr("g.safetensors: the length of its header: the file ends here"));
  EXPECT_THAT(refusal(safetensors("{}", "", 1000)), HasSubstr("byte 0: the header claims 1000 bytes; the file has 2"));
  EXPECT_THAT(refusal(safetensors("{}", "", ~0ULL)), HasSubstr("the header claims 18446744073709551615 bytes"));
  EXPECT_THAT(refusal(safetensors("[1]", "")), HasSubstr("header: is no JSON as safetensors has it"));
  EXPECT_THAT(refusal(safetensors("{\"a\":[[[[[[[[]]]]]]]]}", "")), HasSubstr("header: is no JSON"));
  const auto tensor = [&](const std::string& fields) {
    return refusal(safetensors("{\"a\":{" + fields + "}}", "1234"));
  };
  EXPECT_THAT(tensor(R"("dtype":"F32","shape":[1])"), HasSubstr("tensor \"a\": needs dtype, shape and data_offsets"));
  EXPECT_THAT(tensor(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), HasSubstr("needs dtype, shape"));
  EXPECT_THAT(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), HasSubstr("lie outside the 4 bytes"));
  EXPECT_THAT(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), HasSubstr("data_offsets [4, 0]"));
  EXPECT_THAT(tensor(R"("dtype":"F16","shape":[1],"data_offsets":[0,4])"),
              HasSubstr("not the bytes of its 1 elements"));
  EXPECT_THAT(tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4])"),
              HasSubstr("more elements than the file holds"));
}

TEST_F(Safetensors, DamagedFilesAreReadOrRefused) {
  const std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                             R"("b":{"dtype":"F64","shape":[1,1],"data_offsets":[4,12]}})";
  std::mt19937 random(8);
  for (int i = 0; i < 3000; ++i) {
    const std::string damaged =
        mutated(header, {header}, json_pieces({"\"F32\"", "18446744073709551615", "[0,4]", "shape"}), random);
    try {
      for (const auto& found : list(safetensors(damaged, "123456789012")).gradients) {
        std::vector<char> values(found.count * element_bytes(found.dtype));
        record::GradientValues(found).read(0, found.count, values.data());
      }
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace gradwire::test
