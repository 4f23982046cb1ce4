// Tests what packs its bytes on a system without libzstd: saving is refused beforehand, and a packed file names the
// library. This program has a dlopen() of its own, which finds nothing.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "gradwire/optimizer.hpp"
#include "gradwire/policy.hpp"
#include "gradwire/session.hpp"
#include "gradwire/table.hpp"
#include "session/parts/checkpoints/checkpoint_folder.hpp"
#include "session/state/state_file.hpp"
#include "tests/session/packed_golden.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/hex.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/scratch_folder.hpp"

extern "C" void* dlopen(const char* /*file*/, int /*flags*/) noexcept { return nullptr; }

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

template <typename Call>
void expect_unsupported(Call&& call, const char* who, const char* instead) {
  const Error error = error_of(std::forward<Call>(call));
  EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr(who), HasSubstr("needs libzstd.so.1"), HasSubstr("install libzstd"), HasSubstr(instead)));
}

constexpr const char* kPlain = "write save_as = \"exact\"";

TEST(WithoutZstd, AskingForPackedFilesIsAnErrorOfThePolicy) {
  const Error error = error_of([] { static_cast<void>(Policy::parse("save_as = \"exact+zstd\"\n")); });
  EXPECT_THAT(error.what(), AllOf(HasSubstr("policy:1:11: "), HasSubstr("libzstd"), HasSubstr(kPlain)));
}

TEST(WithoutZstd, SavingIsRefusedBeforehand) {
  const ScratchFolder folder;
  std::vector<float> gradient(5000);
  Policy policy = Policy::uniform("int8");
  policy.save_packed = true;
  Session session(make_inproc_world(1)[0], policy);
  static_cast<void>(session.add("t", view(gradient.data(), gradient.size())));
  const ConstView all = view(gradient.data(), gradient.size());
  expect_unsupported([&] { session.save(folder.path()); }, "save_as", kPlain);
  expect_unsupported([&] { session.checkpoint(folder.path(), std::span(&all, 1)); }, "save_as", kPlain);
  EXPECT_TRUE(session::complete_checkpoints(folder.path()).empty());

  Sgd optimizer;
  std::ostringstream state;
  expect_unsupported([&] { optimizer.save(state, true); }, "save_as", kPlain);
  EXPECT_EQ(state.str(), "");

  Table table(make_inproc_world(1)[0], {.rows = 10, .width = 2, .save_packed = true});
  expect_unsupported([&] { table.save(folder.path()); }, "save_as", kPlain);
}

TEST(WithoutZstd, APackedFileNamesTheLibrary) {
  std::stringstream stream(bytes_of(kPackedState));
  expect_unsupported([&] { static_cast<void>(session::read_state(stream, "it")); }, "it needs", "load a copy");
  const ScratchFolder folder;
  std::ofstream(folder.path() / "table-rank-0-of-1.gwtable", std::ios::binary) << bytes_of(kPackedTable);
  Table table(make_inproc_world(1)[0], {.rows = 300, .width = 2});
  expect_unsupported([&] { table.load(folder.path()); }, "table-rank-0-of-1.gwtable needs", "load a copy");
}

}  // namespace
}  // namespace gradwire::test
