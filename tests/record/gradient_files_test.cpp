// How formats are told apart, raw files, the file of char_lm, and folders.
#include "record/gradient_files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/record/gradient_bytes.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

using record::list_gradients;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refusal(const std::string& path, std::optional<DType> raw = std::nullopt) {
  return error_of([&] { static_cast<void>(list_gradients(path, raw)); }).what();
}

std::string dump_record(const std::string& name, std::uint32_t point, const std::vector<float>& values,
                        std::uint64_t claimed) {
  return bytes_of<std::uint32_t>({static_cast<std::uint32_t>(name.size())}) + name + bytes_of<std::uint32_t>({point}) +
         bytes_of<std::uint64_t>({claimed}) + bytes_of(values);
}

TEST(GradientFiles, RawElementsNeedTheirType) {
  const ScratchFolder folder;
  write_bytes(folder.file("g.bin"), bytes_of<float>({1, 2, 3}));
  EXPECT_THAT(refusal(folder.file("g.bin")), HasSubstr("g.bin: is neither .npy nor safetensors nor a file of char_lm; "
                                                       "for raw elements name their type: --dtype f32"));
  const auto found = list_gradients(folder.file("g.bin"), DType::f32).gradients;
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].name, "g.bin");
  EXPECT_EQ(found[0].count, 3U);
  EXPECT_EQ(list_gradients(folder.file("g.bin"), DType::bf16).gradients[0].count, 6U);
  EXPECT_THAT(refusal(folder.file("g.bin"), DType::f64), HasSubstr("has 12 bytes, no multiple of the 8 of a f64"));
  write_bytes(folder.file("g.npz"), "PK\x03\x04...........");
  EXPECT_THAT(refusal(folder.file("g.npz")), HasSubstr("is a zip file, such as .npz"));
  EXPECT_THAT(refusal(folder.file("missing.npy")), HasSubstr("missing.npy"));
}

TEST(GradientFiles, ReadsWhatCharLmWrites) {
  const ScratchFolder folder;
  const std::string file = folder.file("g");
  write_bytes(file, "GWGRAD01" + dump_record("a", 0, {1, 2}, 2) + dump_record("a", 1, {3, 4}, 2));
  const auto found = list_gradients(file).gradients;
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[1].step, 1U);
  std::vector<float> values(2);
  record::GradientValues(found[1]).read(0, 2, values.data());
  EXPECT_THAT(values, ElementsAre(3, 4));
  write_bytes(file, "GWGRAD01" + dump_record("a", 0, {1, 2}, 1ULL << 62U));
  EXPECT_THAT(refusal(file), HasSubstr("record 0, tensor \"a\": claims 4611686018427387904 values"));
  write_bytes(file, "GWGRAD01" + dump_record("a", 0, {1, 2}, 2).substr(0, 9));
  EXPECT_THAT(refusal(file), HasSubstr("record 0: the file ends here"));
  write_bytes(file, "GWGRAD01" + bytes_of<std::uint32_t>({5000}));
  EXPECT_THAT(refusal(file), HasSubstr("has a name of 5000 bytes"));
}

TEST(GradientFiles, AFolderWithoutIndexHoldsFilesAndSteps) {
  const ScratchFolder folder;
  const std::string file = npy(1, npy_dict("<f4", "(1,)"), "1234");
  for (const char* step : {"step-2", "step-10", "other"}) {
    std::filesystem::create_directory(folder.path() / step);
    write_bytes(folder.path() / step / "w.npy", file);
  }
  write_bytes(folder.path() / "notes.txt", "no gradient");
  const auto found = list_gradients(folder.path()).gradients;
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].step, 2U);
  EXPECT_EQ(found[1].step, 10U);
  const ScratchFolder empty;
  EXPECT_THAT(refusal(empty.path().string()), HasSubstr("holds no gradients"));
}

TEST(GradientFiles, AnIndexLeadsNowhereElse) {
  const ScratchFolder folder;
  write_bytes(folder.path() / "w.npy", npy(1, npy_dict("<f4", "(1,)"), "1234"));
  const auto index = [&](const std::string& gradients) {
    write_bytes(folder.path() / "index.json", R"({"schema":"gradwire.gradients.1","gradients":)" + gradients + "}");
    return folder.path().string();
  };
  EXPECT_EQ(
      list_gradients(index(R"([{"name":"x","step":7,"file":"w.npy","dtype":"f32","count":1}])")).gradients.front().step,
      7U);
  for (const char* file : {"../w.npy", "/etc/passwd", "a/../../w.npy", ""}) {
    EXPECT_THAT(
        refusal(index(R"([{"name":"x","step":7,"file":")" + std::string(file) + R"(","dtype":"f32","count":1}])")),
        HasSubstr("does not lie in this folder"));
  }
  EXPECT_THAT(refusal(index(R"([{"name":"x","step":7,"file":"w.npy","dtype":"f32","count":2}])")),
              HasSubstr("gradients, entry 0: the file \"w.npy\" does not hold what the index says"));
  EXPECT_THAT(refusal(index("[1]")), HasSubstr("file is missing, or no string"));
  EXPECT_THAT(refusal(index("1")), HasSubstr("is no index of recorded gradients"));
  EXPECT_THAT(refusal(index("[[[[[[1]]]]]]")), HasSubstr("is no index of recorded gradients")) << "nests too deep";
  EXPECT_THAT(refusal(index("[" + std::string(std::size_t{16} << 20, ' ') + "]")), HasSubstr("has more than 16MiB"));
}

}  // namespace
}  // namespace gradwire::test
