// Tests the order of work: captured calls and eager ones, and messages on a second communicator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "nccl_preload/device_calls.hpp"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(NcclDevice, CapturedCallsFollowEagerOnes) {
  const Seen seen = run_job("captured_after_eager");
  // The eager call also asks whether the kernel inside the node is allowed.
  EXPECT_EQ(seen.lines.at("0 captured"), without_asking(without_asking(seen.lines.at("eager"))));
  EXPECT_THAT(seen.lines.at("eager"), HasSubstr(sent_tiles(4)));
}

// An all-gather that the job enqueues behind a compressed reduce-scatter, on another stream, need not wait for its
// messages; what the job enqueues on the scatter's stream does.
// Mutations tried: messages stay on the job's communicator; lead_caller() is left out.
TEST(NcclDevice, APrefetchDoesNotWaitForACompressedScatter) {
  const Seen seen = run_job("prefetch", "GRADWIRE_CODEC=int8", true);
  EXPECT_THAT(seen.lines.at("first"), HasSubstr("ncclBroadcast " + kAsking + kSecond + "ncclGroupStart"));
  EXPECT_THAT(seen.lines.at("second"), Not(HasSubstr("ncclCommSplit"))) << "it is made once";
  EXPECT_THAT(seen.outcome.out, HasSubstr("0 behind: sends 1 all-gather 0 reduce 1\nfirst"));
  EXPECT_THAT(seen.outcome.out, HasSubstr("0 behind: sends 1 all-gather 0 reduce 1\nsecond"));
}

TEST(NcclDevice, WithoutASecondCommunicatorMessagesTravelOnTheJobs) {
  const Seen refused = run_job("prefetch_refused", "GRADWIRE_CODEC=int8", true);
  EXPECT_THAT(refused.outcome.out, HasSubstr("0 behind: sends 1 all-gather 1 reduce 1\nfirst"));
  EXPECT_THAT(refused.outcome.out, HasSubstr("0 behind: sends 1 all-gather 1 reduce 1\nsecond"));
  EXPECT_THAT(refused.outcome.err, HasSubstr("gets no second one for gradwire's messages"));
  EXPECT_EQ(refused.calls({{"reason", nullptr}}), 2U);

  const Seen full = run_job("prefetch", "FAKE_DEVICE_IS_FULL=1 GRADWIRE_CODEC=int8", true);
  EXPECT_THAT(full.outcome.out, HasSubstr("0 behind: sends 1 all-gather 1 reduce 1\nsecond"));
  EXPECT_THAT(full.lines.at("first"), HasSubstr("ncclAllGather:136 ncclAllGather:8 "));
  EXPECT_THAT(full.outcome.out, Not(HasSubstr("ncclCommSplit")));

  const Seen sharing = run_job("sharing", kAllCalls, true);
  EXPECT_THAT(sharing.outcome.out, Not(HasSubstr("compressed: ncclAllGather:136 ncclCommSplit")))
      << "children would share what NCCL keeps in order";
  EXPECT_THAT(sharing.lines.at("inherited"), HasSubstr("ncclAllGather:136 ncclAllGather:8 "));
}

// Mutation tried: the child is not aborted with its parent.
TEST(NcclDevice, TheSecondCommunicatorEndsWithTheJobs) {
  const Seen seen = run_job("end_pairs");
  for (const char* what : {"abort", "destroy", "finalize", "revoke", "shrink", "group", "failure"}) {
    EXPECT_EQ(seen.lines.at(std::string("alive with ") + what), "2");
  }
  EXPECT_EQ(seen.lines.at("aborted"), "ncclCommAbort ncclCommAbort");
  EXPECT_EQ(seen.lines.at("destroyed"), "ncclCommDestroy ncclCommDestroy");
  EXPECT_THAT(seen.lines.at("finalized"), HasSubstr("ncclCommFinalize ncclCommGetAsyncError"));
  EXPECT_THAT(seen.lines.at("finalized"), HasSubstr(" ncclCommDestroy"));
  EXPECT_EQ(times(seen.lines.at("0 revoked"), "ncclCommAbort"), 1);
  EXPECT_THAT(seen.lines.at("0 revoked"), HasSubstr("ncclAllReduce:32768")) << "NCCL's own error for such a call";
  EXPECT_EQ(times(seen.lines.at("shrunk"), "ncclCommAbort"), 1);
  EXPECT_EQ(seen.lines.at("in a group"), "ncclGroupStart ncclCommAbort ncclCommAbort ncclGroupEnd");
  EXPECT_EQ(times(seen.lines.at("destroyed after a failure"), "ncclCommAbort"), 1);
  EXPECT_EQ(times(seen.lines.at("destroyed after a failure"), "ncclCommDestroy"), 1);
  EXPECT_EQ(seen.lines.at("alive"), "0");
}

TEST(NcclDevice, CapturedCallsOfAGroupRunApart) {
  const Seen seen = run_job("eager_and_captured_in_a_group", kAllCalls, true);
  EXPECT_THAT(seen.lines.at("group"), HasSubstr("ncclGroupStart ncclGroupEnd " + kAsking + kSecond))
      << "not inside the group";
  EXPECT_EQ(times(seen.lines.at("group"), "ncclGroupStart"), 5) << "the job's, and two of each call";
}

// A graph and eager calls share memory, so each comes behind the one before, whatever the job's streams say.
// Mutation tried: begin_run() is not called.
TEST(NcclDevice, CapturedAndEagerCallsAreOrdered) {
  const Seen seen = run_job("captured_between");
  for (const char* pair : {"1, 112", "112, 2", "2, 112"}) {
    EXPECT_EQ(seen.lines.at(pair), "one behind the other") << pair;
  }
}

}  // namespace
}  // namespace gradwire::test
