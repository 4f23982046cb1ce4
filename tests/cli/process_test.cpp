// Tests how the tool runs a program and reads what it prints.
#include "cli/process.hpp"

#include <gmock/gmock.h>
#include <sys/time.h>

#include <csignal>

#include "cli/commands.hpp"

namespace gradwire::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Process, SaysWhatAProgramPrintedAndHowItEnded) {
  const std::vector<std::string> command{"sh", "-c", "echo out; echo error >&2; exit 3"};
  const ProgramOutput both = run_and_read(command, StandardError::taken);
  EXPECT_EQ(both.status, 3);
  EXPECT_EQ(both.text, "out\nerror\n");
  const ProgramOutput one = run_and_read(command, StandardError::dropped);
  EXPECT_EQ(one.status, 3);
  EXPECT_EQ(one.text, "out\n");
  EXPECT_EQ(output_of(command), "out\n") << "whatever the status is";
  EXPECT_EQ(run_and_read({"sh", "-c", "kill -9 $$"}, StandardError::taken).status, kSignalled + SIGKILL);
  EXPECT_EQ(run_and_read({"cat"}, StandardError::taken).status, 0) << "it has no input";
}

TEST(Process, SaysWhyAProgramCannotBeStarted) {
  const ProgramOutput missing = run_and_read({"/nowhere/program"}, StandardError::taken);
  EXPECT_EQ(missing.status, kCannotRunStatus);
  EXPECT_THAT(missing.text, HasSubstr("No such file"));
  EXPECT_THAT(output_of({"/nowhere/program"}), IsEmpty());
}

// Mutation tried: an interrupted read ends the text, which then lacks the second line.
TEST(Process, SignalsDoNotEndTheText) {
  struct sigaction now {};
  struct sigaction before {};
  now.sa_handler = [](int) {};  // without SA_RESTART
  ::sigaction(SIGALRM, &now, &before);
  const itimerval often{.it_interval = {.tv_sec = 0, .tv_usec = 5000}, .it_value = {.tv_sec = 0, .tv_usec = 5000}};
  ::setitimer(ITIMER_REAL, &often, nullptr);
  const ProgramOutput output =
      run_and_read({"sh", "-c", "echo one; sleep 0.2; echo two; exec sleep 0.1"}, StandardError::taken);
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
  EXPECT_EQ(output.status, 0);
  EXPECT_EQ(output.text, "one\ntwo\n");
}

}  // namespace
}  // namespace gradwire::cli
