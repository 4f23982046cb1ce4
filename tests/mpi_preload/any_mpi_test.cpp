// Tests libgradwire_any.so: a job of either MPI gets its drop-in, and a program without MPI gets nothing.
#include <algorithm>
#include <iterator>
#include <set>

#include "tests/mpi_preload/preload.hpp"

namespace gradwire::test {
namespace {

const std::string kAny = GRADWIRE_ANY;

// Returns the functions that an object exports, except those of gradwire/replace/mpi.h, which only jobs linked with it
// call.
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
  std::erase(more, "gradwire_any_next");  // a function that drop-ins call in this object
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

// The libraries of this test that were built for one MPI.
struct Parts {
  std::string role;
  std::string profiler;
};

Parts parts_of(const Library& library) {
#ifdef GRADWIRE_OPEN_MPI_ROLE
  if (library.name == "OpenMpi") {
    return {GRADWIRE_OPEN_MPI_ROLE, GRADWIRE_OPEN_MPI_PROFILER};
  }
#endif
#ifdef GRADWIRE_MPICH_ROLE
  if (library.name == "Mpich") {
    return {GRADWIRE_MPICH_ROLE, GRADWIRE_MPICH_PROFILER};
  }
#endif
  return {};
}

// Python with mpi4py or f2py works like this: MPI comes with a module, which has its own common block for Fortran's
// MPI_IN_PLACE, and weak references to functions that this MPI may not have. Mutations tried: one address in
// c_buffer(), which gives wrong sums in place; no substitute for missing functions of an MPI, which aborts under Open
// MPI 4.
TEST_P(Preload, AModuleBringsTheMpi) {
  const auto opened = [&](const std::string& environment, const std::string& how) {
    std::filesystem::remove(report_file());
    return run_program(GetParam().launch + " 2 env " + environment + " '" + GRADWIRE_BIN "/mpi_role_opener' " + how +
                       " '" + parts_of(GetParam()).role + "'");
  };
  const std::string any = "LD_PRELOAD='" + kAny + "' GRADWIRE_REPORT='" + report_file() + "' ";
  for (const char* how : {"local", "global"}) {
    const Outcome outcome = opened(any + "GRADWIRE_CODEC=int8", how);
    expect_ok(outcome, "role");
    EXPECT_TRUE(contains(outcome, "different yes")) << outcome.output;
    EXPECT_GE(compressed_calls(report()), 2U * 4) << how;
  }
  for (const std::string& environment :
       {any + "GRADWIRE_CODEC=int8 GRADWIRE_DISABLE=1", any, any + "GRADWIRE_DRY_RUN=1 GRADWIRE_CODEC=int8"}) {
    const Outcome outcome = opened(environment, "local");
    expect_ok(outcome, "role");
    EXPECT_TRUE(contains(outcome, "different no")) << outcome.output;
  }
  const Outcome direct = opened(preload(), "local");
  expect_ok(direct, "role");
  EXPECT_TRUE(contains(direct, "different yes")) << direct.output;
}

// Calls that gradwire passes on go to a profiler loaded after it; a profiler loaded before it takes all calls, and is
// named.
TEST_P(Preload, AProfilerSeesTheJob) {
  const std::string profiler = parts_of(GetParam()).profiler;
  for (const std::string& first : {GetParam().drop_in, kAny}) {
    const Outcome behind = with(2, "LD_PRELOAD='" + first + ":" + profiler + "' GRADWIRE_CODEC=int8", "compressed");
    expect_ok(behind, "compressed");
    EXPECT_TRUE(contains(behind, "different yes")) << behind.output;
    EXPECT_TRUE(contains(behind, "profiler, rank 0: 1 inits, ")) << behind.output;
    EXPECT_FALSE(contains(behind, "before gradwire does")) << behind.output;
    const Outcome passed = with(2, "LD_PRELOAD='" + first + ":" + profiler + "' GRADWIRE_DISABLE=1", "compressed");
    expect_ok(passed, "compressed");
    EXPECT_TRUE(contains(passed, "profiler, rank 0: 1 inits, ")) << passed.output;
    EXPECT_FALSE(contains(passed, " 0 sums")) << passed.output;
  }
  const Outcome before =
      with(2, "LD_PRELOAD='" + profiler + ":" + GetParam().drop_in + "' GRADWIRE_CODEC=int8", "compressed");
  expect_ok(before, "compressed");
  const std::string told = profiler + " takes MPI_Allreduce before gradwire does";
  EXPECT_TRUE(contains(before, told)) << before.output;
  EXPECT_EQ(before.output.find(told), before.output.rfind(told)) << "one line";
}

// Calls go on to the library if its drop-in cannot be loaded.
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
