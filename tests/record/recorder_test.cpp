#include "record/recorder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "record/gradient_files.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

using record::Recorder;
using record::safe_file_name;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Recorder, WhatItWritesIsListedInItsOrder) {
  const ScratchFolder scratch;
  const std::filesystem::path folder = scratch.path() / "a/b";
  const std::vector<float> first{1, 2, 3};
  const std::vector<double> second{4, 5};
  Recorder recorder(folder, 1, 4);
  for (const std::uint64_t step : {12U, 13U}) {
    recorder.add(step, "head/weight", view(first.data(), first.size()));
    recorder.add(step, "body", view(second.data(), second.size()));
  }
  recorder.add(13, "body", view(second.data(), 1));  // the step was made again
  recorder.write_index();
  const auto found = record::list_gradients(folder).gradients;
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[0].name, "head/weight");
  EXPECT_EQ(found[0].step, 12U);
  EXPECT_EQ(found[0].file, folder / "step-12/head_weight.npy");
  EXPECT_EQ(found[1].dtype, DType::f64);
  EXPECT_EQ(found[3].count, 1U);
  std::vector<float> values(3);
  record::GradientValues(found[0]).read(0, 3, values.data());
  EXPECT_THAT(values, ElementsAre(1, 2, 3));
  const auto index = nlohmann::json::parse(read_text(folder / "index.json"));
  EXPECT_EQ(index.at("rank"), 1);
  EXPECT_EQ(index.at("ranks"), 4);
}

TEST(Recorder, ItsFolderStaysWhereTheProgramChangesItsDirectory) {
  const ScratchFolder scratch;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(scratch.path());
  Recorder recorder("own", 0, 1);
  std::filesystem::create_directory("elsewhere");
  std::filesystem::current_path("elsewhere");
  const float value = 1;
  recorder.add(0, "w", view(&value, 1));
  recorder.write_index();
  std::filesystem::current_path(before);
  EXPECT_EQ(record::list_gradients(scratch.path() / "own").gradients.size(), 1U);
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path() / "elsewhere"));
  EXPECT_THAT(error_of([] { Recorder none("", 0, 1); }).what(), HasSubstr("gradients cannot be recorded in "));
}

TEST(Recorder, EachStepHasItsFolderInAnyOrder) {
  const ScratchFolder folder;
  Recorder recorder(folder.path(), 0, 1);
  const float value = 1;
  for (const std::uint64_t step : {1U, 1U, 2U, 1U}) {
    recorder.add(step, "w", view(&value, 1));
  }
  recorder.add(2, "v", view(&value, 1));
  recorder.write_index();
  EXPECT_EQ(record::list_gradients(folder.path()).gradients.size(), 3U);
}

TEST(Recorder, WritesNoIndexThatCannotBeRead) {
  const ScratchFolder folder;
  Recorder recorder(folder.path(), 0, 1);
  const float value = 1;
  recorder.add(0, "w", view(&value, 1));
  recorder.write_index();
  recorder.add(0, std::string(std::size_t{16} << 20, 'x'), view(&value, 1));
  EXPECT_THAT(error_of([&] { recorder.write_index(); }).what(),
              HasSubstr("index.json would have more than 16MiB; record fewer steps"));
  EXPECT_EQ(record::list_gradients(folder.path()).gradients.size(), 1U) << "the previous index stays";
}

TEST(Recorder, NamesBecomeNamesOfFiles) {
  EXPECT_EQ(safe_file_name("layer.0.weight"), "layer.0.weight");
  EXPECT_EQ(safe_file_name("../../etc/passwd"), "_._.._etc_passwd");
  EXPECT_EQ(safe_file_name("a b\n\xc3\xa4"), "a_b___");
  EXPECT_EQ(safe_file_name(""), "tensor");
  EXPECT_EQ(safe_file_name(std::string(5000, 'x')).size(), 100U);
  const ScratchFolder folder;
  Recorder recorder(folder.path(), 0, 1);
  const float value = 1;
  for (const char* name : {"a/b", "a b", "a_b"}) {
    recorder.add(0, name, view(&value, 1));
  }
  recorder.write_index();
  EXPECT_EQ(record::list_gradients(folder.path()).gradients.size(), 3U);
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "step-0/a_b~3.npy"));
}

TEST(Recorder, RefusesFoldersThatCannotBe) {
  const ScratchFolder folder;
  Recorder(folder.path(), 0, 1).write_index();
  EXPECT_THAT(error_of([&] { Recorder again(folder.path(), 0, 1); }).what(),
              HasSubstr("it holds gradients of an earlier recording (index.json); name another directory"));
  EXPECT_THAT(error_of([&] { Recorder again(folder.path() / "index.json", 0, 1); }).what(),
              HasSubstr("it is a file; name a directory"));
  EXPECT_THAT(error_of([&] { Recorder again(folder.path() / "index.json/x", 0, 1); }).what(),
              HasSubstr("gradients cannot be recorded in "));
}

}  // namespace
}  // namespace gradwire::test
