// Files that NumPy 1, NumPy 2 and safetensors wrote are read value by value; data/README.md says how they were made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <tuple>

#include "record/gradient_files.hpp"
#include "tests/record/gradient_bytes.hpp"
#include "tests/support/error_of.hpp"

namespace gradwire::test {
namespace {

using record::StoredGradient;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::filesystem::path kData = std::filesystem::path(GRADWIRE_SOURCE_DIR) / "tests/record/data";
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The values of data/README.md, in each of the types.
const std::string kF32 = bytes_of<float>({1.5F, -0.0F, 1.0F / 3, 65504, -6e-8F, kInfinity});
const std::string kF64 = bytes_of<double>({1.5, -0.0, 1.0 / 3, 65504, -6e-8, kInfinity});
const std::string kF16 = bytes_of<std::uint16_t>({0x3e00, 0x8000, 0x3555, 0x7bff, 0x8001, 0x7c00});
const std::string kBf16 = bytes_of<std::uint16_t>({0x3fc0, 0x8000, 0x3eab, 0x4780, 0xb381, 0x7f80});

std::string values_of(const StoredGradient& gradient) {
  std::string bytes(gradient.count * element_bytes(gradient.dtype), '\0');
  record::GradientValues(gradient).read(0, gradient.count, bytes.data());
  return bytes;
}

class NpyOf : public ::testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] static std::filesystem::path file(const std::string& name) {
    return kData / GetParam() / (name + ".npy");
  }
  static std::string refusal(const std::string& name) {
    return error_of([&] { static_cast<void>(record::list_gradients(file(name))); }).what();
  }
};

// Mutations tried: the values begin two bytes earlier; the header's length has two bytes in version 2.0, too.
TEST_P(NpyOf, HasTheValuesThatWereSaved) {
  const struct {
    const char* name;
    DType dtype;
    const std::string& values;
  } kFiles[] = {{"float32", DType::f32, kF32},
                {"float64", DType::f64, kF64},
                {"float16", DType::f16, kF16},
                {"bfloat16", DType::bf16, kBf16},
                {"version2", DType::f32, kF32}};
  for (const auto& [name, dtype, values] : kFiles) {
    const record::Listing listing = record::list_gradients(file(name));
    EXPECT_THAT(listing.left_out, IsEmpty());
    ASSERT_EQ(listing.gradients.size(), 1U);
    EXPECT_EQ(listing.gradients[0].name, name);
    EXPECT_EQ(listing.gradients[0].dtype, dtype) << name;
    EXPECT_THAT(listing.gradients[0].shape, ElementsAre(2U, 3U));
    EXPECT_EQ(values_of(listing.gradients[0]), values) << name;
  }
}

// Mutation tried: the order of the elements is not looked at.
TEST_P(NpyOf, IsRefusedIfItIsNoGradient) {
  EXPECT_THAT(refusal("column-major"), HasSubstr("the array is in column-major (Fortran) order"));
  EXPECT_THAT(refusal("int64"), HasSubstr("elements of type \"<i8\" are no gradients here"));
}

INSTANTIATE_TEST_SUITE_P(Npy, NpyOf, ::testing::Values("numpy-1.26.4", "numpy-2.1.3"),
                         [](const auto& version) { return std::string(version.index == 0 ? "NumPy1" : "NumPy2"); });

// Mutations tried: tensors stand in the order of their names, not of their bytes; values begin eight bytes earlier.
TEST(SafetensorsFile, HasTheValuesThatWereSaved) {
  const record::Listing listing = record::list_gradients(kData / "safetensors-0.8.0.safetensors");
  ASSERT_EQ(listing.gradients.size(), 4U);
  const auto& [scale, weight, head, bias] =
      std::tie(listing.gradients[0], listing.gradients[1], listing.gradients[2], listing.gradients[3]);
  EXPECT_EQ(scale.name, "scale");
  EXPECT_THAT(scale.shape, IsEmpty());
  EXPECT_EQ(values_of(scale), bytes_of<double>({0.1}));
  EXPECT_EQ(weight.name, "layer.weight");
  EXPECT_THAT(weight.shape, ElementsAre(2U, 3U));
  EXPECT_EQ(weight.dtype, DType::f32);
  EXPECT_EQ(values_of(weight), kF32);
  EXPECT_EQ(head.name, "head");
  EXPECT_EQ(head.dtype, DType::bf16);
  EXPECT_EQ(values_of(head), kBf16);
  EXPECT_EQ(bias.name, "layer.bias");
  EXPECT_EQ(bias.dtype, DType::f16);
  EXPECT_EQ(values_of(bias), kF16.substr(0, 6));
  ASSERT_EQ(listing.left_out.size(), 1U);
  EXPECT_THAT(listing.left_out[0], HasSubstr("tensor \"steps\" is left out: its type \"I64\""));
}

}  // namespace
}  // namespace gradwire::test
