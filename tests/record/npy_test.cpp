// What NumPy 1 and 2 write is read; what is no gradient is refused by name.
#include "record/npy.hpp"

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

using record::StoredGradient;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Npy : public ::testing::Test {
 protected:
  StoredGradient list(const std::string& bytes) {
    write_bytes(file(), bytes);
    const auto listing = record::list_gradients(file());
    EXPECT_EQ(listing.gradients.size(), 1U);
    return listing.gradients.front();
  }
  std::string refusal(const std::string& bytes) {
    write_bytes(file(), bytes);
    const Error error = error_of([&] { static_cast<void>(record::list_gradients(file())); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), StartsWith(file() + ": "));
    return error.what();
  }
  [[nodiscard]] std::string file() const { return folder_.file("w.npy"); }

  ScratchFolder folder_;
};

TEST_F(Npy, ReadsTheThreeVersionsOfTheFormat) {
  const std::vector<float> values{1.5F, -2, 3, 4, 5, 6};
  for (const int version : {1, 2, 3}) {
    const StoredGradient found = list(npy(version, npy_dict("<f4", "(2, 3)"), bytes_of(values)));
    EXPECT_EQ(found.name, "w");
    EXPECT_EQ(found.dtype, DType::f32);
    EXPECT_THAT(found.shape, ElementsAre(2U, 3U));
    EXPECT_EQ(found.count, 6U);
    std::vector<float> read(4);
    record::GradientValues(found).read(1, 4, read.data());
    EXPECT_THAT(read, ElementsAre(-2, 3, 4, 5)) << "version " << version;
  }
}

TEST_F(Npy, ReadsEveryTypeOfAFloat) {
  const auto dtype_of = [&](const std::string& descr, std::size_t bytes) {
    return list(npy(1, npy_dict(descr, "(3,)"), std::string(3 * bytes, '\1'))).dtype;
  };
  EXPECT_EQ(dtype_of("<f4", 4), DType::f32);
  EXPECT_EQ(dtype_of("<f8", 8), DType::f64);
  EXPECT_EQ(dtype_of("<f2", 2), DType::f16);
  EXPECT_EQ(dtype_of("|V2", 2), DType::bf16) << "bfloat16 of ml_dtypes";
  EXPECT_EQ(dtype_of("<V2", 2), DType::bf16);
  EXPECT_EQ(dtype_of("<u2", 2), DType::bf16) << "the bits of bfloat16";
}

TEST_F(Npy, ReadsShapesOfAllKinds) {
  EXPECT_EQ(list(npy(1, npy_dict("<f4", "()"), "1234")).count, 1U);
  EXPECT_EQ(list(npy(1, npy_dict("<f4", "(0,)"), "")).count, 0U);
  EXPECT_EQ(list(npy(1, npy_dict("<f4", "(18446744073709551615, 0)"), "")).count, 0U);
  EXPECT_EQ(list(npy(1, npy_dict("<f4", "(2L,)"), "12345678")).count, 2U) << "as Python 2 wrote it";
  EXPECT_EQ(list(npy(1, "{\"shape\":(1,2),\"fortran_order\":False,\"descr\":\"<f4\"}", "12345678")).count, 2U);
}

TEST_F(Npy, ColumnMajorOrderIsRefusedUnlessThereIsOneColumn) {
  EXPECT_THAT(refusal(npy(1, npy_dict("<f4", "(2, 3)", true), std::string(24, 'a'))),
              HasSubstr("header: the array is in column-major (Fortran) order; save numpy.ascontiguousarray(array)"));
  EXPECT_EQ(list(npy(1, npy_dict("<f4", "(6,)", true), std::string(24, 'a'))).count, 6U);
  EXPECT_EQ(list(npy(1, npy_dict("<f4", "(1, 6)", true), std::string(24, 'a'))).count, 6U);
}

TEST_F(Npy, TypesThatAreNoGradientsAreRefusedByName) {
  const auto refused = [&](const std::string& descr) {
    return refusal(npy(1, npy_dict(descr, "(2,)"), std::string(8, 'a')));
  };
  EXPECT_THAT(refused(">f4"), HasSubstr("header, byte 20: the elements are big endian (\">f4\"); save "));
  EXPECT_THAT(refused("<i4"), HasSubstr("elements of type \"<i4\" are no gradients here; save them as float32"));
  EXPECT_THAT(refused("|V1"), HasSubstr("elements of type \"|V1\""));
  EXPECT_THAT(refused("|O"), HasSubstr("elements of type \"|O\""));
  EXPECT_THAT(refusal(npy(1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "1234")),
              HasSubstr("records of several fields"));
}

TEST_F(Npy, DamageIsNamedWithItsPlace) {
  const std::string good = npy(1, npy_dict("<f4", "(3,)"), std::string(12, 'a'));
  EXPECT_THAT(refusal(""), HasSubstr("the first bytes: the file ends here, after 0 bytes"));
  EXPECT_THAT(refusal("no numpy"), HasSubstr("byte 0: does not begin as a .npy file does"));
  EXPECT_THAT(refusal(good.substr(0, 9)), HasSubstr("the length of its header: the file ends here"));
  EXPECT_THAT(refusal(good.substr(0, 30)), HasSubstr("byte 8: the header claims 118 bytes"));
  EXPECT_THAT(refusal(good.substr(0, good.size() - 1)), HasSubstr("the file is cut off"));
  EXPECT_THAT(refusal(good + "x"), HasSubstr("but 13 follow; save each array in a file of its own"));
  EXPECT_THAT(refusal(npy(4, npy_dict("<f4", "(3,)"), std::string(12, 'a'))), HasSubstr("version 4.0 of the format"));
  EXPECT_THAT(refusal(npy(1, "[]", "")), HasSubstr("header, byte 10: expected '{'"));
  EXPECT_THAT(refusal(npy(1, "{'descr': '<f4'}", "")), HasSubstr("descr, fortran_order or shape is missing"));
  EXPECT_THAT(refusal(npy(1, "{'odd': 1}", "")), HasSubstr("the key \"odd\" is unknown"));
  EXPECT_THAT(refusal(npy(1, npy_dict("<f4", "(-1,)"), "")), HasSubstr("expected the length of a side"));
  EXPECT_THAT(refusal(npy(1, npy_dict("<f4", "(99999999999999999999,)"), "")), HasSubstr("the length of a side"));
}

TEST_F(Npy, SizesThatOverflowAreRefused) {
  for (const char* shape : {"(4294967296, 4294967296)", "(4611686018427387904, 4)", "(18446744073709551615,)"}) {
    EXPECT_THAT(refusal(npy(1, npy_dict("<f4", shape), std::string(16, 'a'))),
                HasSubstr("its shape has more elements than the file holds"));
  }
  std::string long_header = npy(2, npy_dict("<f4", "(1,)"), "1234");
  long_header.replace(8, 4, "\xff\xff\xff\xff");
  EXPECT_THAT(refusal(long_header), HasSubstr("the header claims 4294967295 bytes"));
  std::string sides = "(";
  for (int i = 0; i < 100; ++i) {
    sides += "1,";
  }
  EXPECT_THAT(refusal(npy(1, npy_dict("<f4", sides + ")"), "1234")), HasSubstr("more than 32 dimensions"));
}

TEST_F(Npy, DamagedFilesAreReadOrRefused) {
  const std::vector<std::string> texts{npy(1, npy_dict("<f4", "(3,)"), std::string(12, 'a')),
                                       npy(3, npy_dict("|V2", "(2, 3)"), std::string(12, 'b'))};
  const std::vector<std::string> pieces{"'", "(",    ")",     ",",        "{",    "}",
                                        ":", "True", "'<f8'", "99999999", "\xff", std::string(1, '\0')};
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    write_bytes(file(), mutated(texts[random() % texts.size()], texts, pieces, random));
    try {
      for (const StoredGradient& found : record::list_gradients(file()).gradients) {
        std::vector<char> values(found.count * element_bytes(found.dtype));
        record::GradientValues(found).read(0, found.count, values.data());
      }
    } catch (const Error&) {
    }
  }
}

TEST_F(Npy, WhatIsWrittenIsRead) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    const std::string header = record::npy_header(dtype, 5);
    EXPECT_EQ(header.size() % 64, 0U);
    const StoredGradient found = list(header + std::string(5 * element_bytes(dtype), 'a'));
    EXPECT_EQ(found.dtype, dtype);
    EXPECT_EQ(found.count, 5U);
    EXPECT_EQ(found.offset, header.size());
  }
}

}  // namespace
}  // namespace gradwire::test
