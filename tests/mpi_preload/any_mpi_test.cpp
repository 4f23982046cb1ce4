// libgradwire_any.so: a job of either MPI gets its drop-in, and what has no MPI gets nothing.
#include <algorithm>
#include <iterator>
#include <set>

#include "tests/mpi_preload/preload.hpp"

namespace gradwire::test {
namespace {

const std::string kAny = GRADWIRE_ANY;

// Functions that an object exports, but for those of gradwire/replace/mpi.h, which only jobs call that are linked with
// it.
std::set<std::string> exports_of(const std::string& object) {
  const Outcome outcome = run_program("nm -D --defined-only '" + object + "'");
  std::set<std::string> names;
  std::istringstream lines(outcome.output);
  for (std::string address, kind, name; lines >> address >> kind >> name;) {
    if (!name.starts_with("gradwire_MPI")) {
      names.insert(name);
    }
  }
  EXPECT_FALSE(names.empty()) << outcome.output;
  return names;
}

TEST(AnyMpi, HasEveryNameOfTheDropIns) {
  std::set<std::string> names;
  for (const Library& library : libraries()) {
    names.merge(exports_of(library.drop_in));
  }
  const std::set<std::string> any = exports_of(kAny);
  std::vector<std::string> missing;
  std::set_difference(names.begin(), names.end(), any.begin(), any.end(), std::back_inserter(missing));
  EXPECT_EQ(missing, std::vector<std::string>());
  std::vector<std::string> more;
  std::set_difference(any.begin(), any.end(), names.begin(), names.end(), std::back_inserter(more));
  EXPECT_TRUE(more.empty() || libraries().size() < 2) << more.front();
}

TEST(AnyMpi, BringsNothingIntoAShell) {
  const Outcome outcome = run_program("LD_PRELOAD='" + kAny + "' sh -c 'cat /proc/self/maps; echo done'");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.output.find("libgradwire_any.so"), std::string::npos) << outcome.output;
  for (const char* other : {"libmpi", "libgradwire_mpi", "libstdc++", "libm.so", "libgcc"}) {
    EXPECT_EQ(outcome.output.find(other), std::string::npos) << other;
  }
}

TEST_P(Preload, AnyFindsTheMpi) {
  const auto with_any = [&](const std::string& arguments) {
    return with(3, "LD_PRELOAD='" + kAny + "' GRADWIRE_CODEC=int8 GRADWIRE_REPORT='" + report_file() + "'", arguments);
  };
  const Outcome outcome = with_any("compressed");
  expect_ok(outcome, "compressed");
  EXPECT_TRUE(contains(outcome, "different yes"));
  EXPECT_EQ(report().at("totals").at("compressed_calls"), report().at("totals").at("calls"));
  for (const char* name : {"errors", "communicators", "many_names", "intercommunicator"}) {
    expect_ok(with_any(name), name);
  }
  expect_ok(with_any("requests_only multiple"), "requests_only");
  EXPECT_GE(compressed_calls(report()), 15U);
}

// Calls go on to the library where its drop-in cannot be loaded.
TEST_P(Preload, AnyPassesWhatHasNoDropIn) {
  const std::string alone = (work_ / "libgradwire_any.so").string();
  std::filesystem::copy_file(kAny, alone, std::filesystem::copy_options::overwrite_existing);
  const Outcome outcome = with(2, "LD_PRELOAD='" + alone + "' GRADWIRE_CODEC=int8", "compressed");
  expect_ok(outcome, "compressed");
  EXPECT_TRUE(contains(outcome, "different no"));
  EXPECT_TRUE(contains(outcome, "gradwire: every call is passed through: ")) << outcome.output;
}

}  // namespace
}  // namespace gradwire::test
