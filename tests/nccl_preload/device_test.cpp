// Tests the compressing drop-in over the fake library and a device path without a device: which calls reach NCCL, in
// which order, and the report. Messages of this drop-in are sends of bytes; each begins with a group of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "nccl_preload/device_calls.hpp"

namespace gradwire::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(NcclDevice, WhatIsCompressedReachesNcclAsMessages) {
  const Seen seen = run_job("alone");
  EXPECT_THAT(seen.lines.at("0 agreement"), HasSubstr(kAgreement)) << "this holds for any first reduction";
  EXPECT_EQ(names(seen.lines.at("0 agreement")).front(), "ncclAllReduce:10") << "it is made as on ranks that group it";
  // Half of 2^15 elements are one chunk of four tiles, which is encoded by both ranks.
  const std::string compressed = seen.lines.at("0 compressed");
  EXPECT_EQ(times(compressed, sent_tiles(4)), 2) << compressed;
  EXPECT_THAT(compressed, StartsWith(kAsking));
  EXPECT_EQ(times(without_asking(compressed), "ncclRecv"), 2);
  EXPECT_EQ(times(without_asking(compressed), "ncclGroupStart"), 2) << "a group for the parts, and one for the sums";
  EXPECT_THAT(compressed, Not(HasSubstr("ncclAllReduce")));
  EXPECT_EQ(seen.lines.at("0 small"), "ncclAllReduce:11");
  EXPECT_EQ(seen.lines.at("0 captured"), "ncclAllReduce:32770");
  EXPECT_EQ(seen.lines.at("0 maximum"), "ncclAllReduce:32771");
  EXPECT_EQ(times(seen.lines.at("0 scattered"), sent_tiles(8)), 1)
      << "a segment is sent once: " + seen.lines.at("0 scattered");
  EXPECT_THAT(seen.lines.at("0 scattered"), Not(HasSubstr("ncclReduceScatter")));
  EXPECT_EQ(seen.lines.at("0 gathered"), "ncclAllGather");

  EXPECT_EQ(seen.report.at("totals").at("compressed_calls"), 2);
  EXPECT_EQ(seen.calls({{"reason", nullptr}, {"codec", "int8"}}), 2U);
  EXPECT_EQ(seen.calls({{"reason", "ranks have not agreed yet"}}), 1U);
  EXPECT_EQ(seen.calls({{"reason", "below the floor"}}), 1U);
  EXPECT_EQ(seen.calls({{"reason", "captured into a graph"}}), 1U);
  EXPECT_EQ(seen.calls({{"reason", "neither sum nor average"}}), 1U);
  EXPECT_EQ(seen.calls({{"reason", "function is always passed on"}}), 1U);
  EXPECT_GT(seen.report.at("totals").at("ratio_compressed").get<double>(), 2.6) << "f32 and bf16";
  EXPECT_THAT(seen.outcome.err, HasSubstr("gradwire: NCCL, this rank: 7 calls, 2 compressed, ratio "));
}

// Mutation tried: captured calls take part in the agreement.
TEST(NcclDevice, NothingIsAgreedDuringCapture) {
  const Seen seen = run_job("captured_first");
  EXPECT_EQ(seen.lines.at("captured"), "ncclAllReduce:32768");
  EXPECT_THAT(seen.lines.at("agreement"), HasSubstr(kAgreement));
}

// Some ranks may make their first reduction in a group and others alone: it reaches NCCL in the same order.
TEST(NcclDevice, TheFirstReductionAloneIsAsInAGroup) {
  const Seen seen = run_job("first_alone_and_in_a_group");
  EXPECT_EQ(seen.lines.at("alone"), "ncclAllReduce:32768 " + kAgreement);
  EXPECT_EQ(seen.lines.at("in a group"), "ncclGroupStart ncclAllReduce:32768 ncclGroupEnd " + kAgreement);
  EXPECT_EQ(seen.calls({{"reason", "ranks have not agreed yet"}}), 2U);
}

// Mutation tried: reach_agreement() is called before the group's end; then the agreement waits inside the group.
TEST(NcclDevice, TheFirstGroupPassesAndAgrees) {
  const Seen seen = run_job("first_group");
  EXPECT_EQ(seen.lines.at("first"),
            "ncclGroupStart ncclAllReduce:32768 ncclAllReduce:5 ncclGroupEnd "
            "ncclGroupStart ncclAllGather:96 ncclAllGather:96 ncclGroupEnd")
      << "both communicators agree at once";
  EXPECT_THAT(seen.lines.at("second"), Not(HasSubstr("ncclAllReduce")));
  EXPECT_EQ(seen.calls({{"reason", "ranks have not agreed yet"}}), 2U);
  EXPECT_EQ(seen.calls({{"reason", nullptr}}), 1U);
}

// Mutations tried: recorded calls run before NCCL's own end; all calls are recorded.
TEST(NcclDevice, PassedCallsOfAGroupKeepTheirPlace) {
  const Seen seen = run_job("mixed_group");
  EXPECT_EQ(seen.lines.at("inside"),
            "ncclGroupStart ncclSend:7 ncclGroupStart ncclBcast ncclBroadcast ncclAllReduce:20 ncclGroupEnd "
            "ncclRedOpCreatePreMulSum");
  const std::vector<std::string> end = names(seen.lines.at("0 at its end"));
  ASSERT_GT(end.size(), 2U);
  EXPECT_EQ(end[0], "ncclGroupEnd") << "the job's own group goes first";
  EXPECT_EQ(end[1] + " ", kAsking);
  EXPECT_EQ(end.back(), "ncclRedOpDestroy") << "not before the sums that use it";
  EXPECT_EQ(std::count_if(end.begin(), end.end(), [](const std::string& call) { return call.starts_with("ncclSend"); }),
            2)
      << "both sums are one message to the owner, and one from it";
  EXPECT_EQ(seen.calls({{"reason", nullptr}}), 2U);
  EXPECT_EQ(seen.calls({{"function", "ncclBroadcast"}}), 1U);
  EXPECT_EQ(seen.calls({{"op", "scaled sum"}, {"reason", nullptr}}), 1U);
}

TEST(NcclDevice, ASimulatedGroupHoldsWhatItWouldRun) {
  const Seen seen = run_job("simulated");
  EXPECT_EQ(seen.lines.at("simulated"), "ncclGroupStart ncclAllReduce:32768 ncclGroupSimulateEnd");
  EXPECT_EQ(seen.calls({{"reason", nullptr}}), 1U) << "only the next call has it";
}

TEST(NcclDevice, WhatThePolicyExemptsStaysOneGroup) {
  const ScratchFolder scratch;
  const Seen seen = run_job(
      "exact_in_a_group",
      policy_file(scratch, "[defaults]\nroles = \"all\"\n[[rule]]\nmax_bytes = \"200kB\"\ncodec = \"exact\"\n"));
  EXPECT_THAT(seen.lines.at("group"), HasSubstr("ncclGroupStart ncclGroupEnd " + kAsking +
                                                "ncclGroupStart ncclAllReduce:32768 ncclAllReduce:32769 ncclGroupEnd "
                                                "ncclGroupStart ncclRecv ncclSend:"));
  EXPECT_EQ(seen.calls({{"reason", "policy says exact"}}), 2U);
  EXPECT_EQ(seen.calls({{"reason", nullptr}, {"count", 2 * kLarge}}), 1U);
}

// Mutations tried: recorded calls of a communicator that ends are kept; the state of a freed address is kept; a reducer
// asks NCCL about a communicator that is gone (the fake prints it).
TEST(NcclDevice, Endings) {
  const Seen seen = run_job("endings");
  EXPECT_EQ(seen.lines.at("aborted inside"), "ncclGroupStart ncclCommAbort ncclGroupEnd");
  EXPECT_THAT(seen.lines.at("1 same address"), HasSubstr(kAgreement)) << "it agrees again";
  EXPECT_THAT(seen.lines.at("4 refused"), HasSubstr("ncclCommDestroy"));
  EXPECT_THAT(seen.lines.at("still there"), Not(HasSubstr("ncclAllReduce")));
  EXPECT_THAT(seen.lines.at("still there"), Not(HasSubstr(":96"))) << "it has agreed before";
  EXPECT_EQ(seen.lines.at("finalized"), "ncclCommFinalize ncclCommGetAsyncError ncclCommGetAsyncError ncclCommDestroy")
      << "the state and the second communicator are freed after NCCL's own end";
  EXPECT_EQ(seen.lines.at("destroyed"), "ncclCommDestroy");
  EXPECT_THAT(seen.lines.at("child"), HasSubstr(kAgreement)) << "a child agrees again";
  EXPECT_EQ(seen.lines.at("alive"), "2");
}

TEST(NcclDevice, ADeviceThatRefusesPasses) {
  const Seen seen = run_job("refusing_device");
  EXPECT_EQ(seen.lines.at("0 refused"), "ncclAllReduce:32768 " + kAgreement) << "its rank answers the others";
  EXPECT_EQ(seen.lines.at("0 again"), "ncclAllReduce:32768");
  EXPECT_EQ(seen.calls({{"reason", "disabled"}}), 1U);
  const std::size_t first = seen.outcome.err.find("no memory on the device");
  EXPECT_NE(first, std::string::npos) << seen.outcome.err;
  EXPECT_EQ(seen.outcome.err.find("no memory on the device", first + 1), std::string::npos) << "once";
}

// Whichever piece of memory is refused before the ranks have agreed, or all from one on, no call fails: without memory
// for the agreement itself no communicator is made. The fake ends the process if memory is freed without a truce.
TEST(NcclDevice, WhateverPieceOfMemoryIsRefusedNoCallFails) {
  std::map<std::string, int> reasons;
  for (const char* all : {"", "+"}) {
    for (int piece = 1; piece <= 9; ++piece) {
      const std::string refused = std::to_string(piece) + all;
      SCOPED_TRACE("piece " + refused);
      const Seen seen = run_job("short_of_memory", "FAKE_DEVICE_REFUSES=" + refused + " " + kAllCalls);
      ASSERT_EQ(seen.outcome.status, 0) << seen.outcome.err;
      if (refused == "1+") {
        EXPECT_EQ(seen.lines.at("made"), "1") << "ncclUnhandledCudaError";
        EXPECT_EQ(seen.lines.at("alive"), "0");
        EXPECT_THAT(seen.outcome.err, HasSubstr("a communicator is not made: no memory for an exchange"));
        continue;
      }
      EXPECT_EQ(seen.lines.at("made"), "0");
      for (const char* call : {"call 0", "call 1", "call 2"}) {
        EXPECT_EQ(seen.lines.at(call), "0") << seen.outcome.err;
      }
      std::uint64_t calls = 0;
      for (const char* reason : {"disabled", "no device memory for messages"}) {
        const std::uint64_t passed = seen.calls({{"communicator_size", 2}, {"reason", reason}});
        reasons[reason] += passed > 0 ? 1 : 0;
        calls += passed;
        if (passed > 0 && std::string(reason) == "disabled") {
          EXPECT_EQ(passed, 2U);
          EXPECT_THAT(seen.outcome.err, HasSubstr("every call is passed through: disabled on ranks 0 and 1 (no "));
        }
      }
      const std::uint64_t compressed = seen.calls({{"communicator_size", 2}, {"reason", nullptr}});
      reasons["compressed"] += compressed > 0 ? 1 : 0;
      EXPECT_EQ(calls + compressed, 2U) << "the first one is that of the agreement";
    }
  }
  EXPECT_EQ(reasons["disabled"], 5) << "streams and words, and with all behind them streams, the step, words";
  EXPECT_GT(reasons["no device memory for messages"], 0);
  EXPECT_GE(reasons["compressed"], 6);
}

// Mutations tried, each fails here: communicators that were made before the refused one stay; those behind it stay.
TEST(NcclDevice, ARefusedCommunicatorLeavesNoneThatWasMadeWithIt) {
  const Seen several = run_job("short_of_memory_for_one_of_several", "FAKE_DEVICE_REFUSES=2+ " + kAllCalls);
  EXPECT_EQ(several.lines.at("several"), "1 0 left 0 alive") << several.outcome.err;
  const Seen group = run_job("short_of_memory_for_one_of_a_group", "FAKE_DEVICE_REFUSES=3+ " + kAllCalls);
  EXPECT_EQ(group.lines.at("group"), "1 0 left 1 alive") << "the parent: " << group.outcome.err;
}

TEST(NcclDevice, ADeviceWithoutKernelsPasses) {
  const Seen seen = run_job("without_kernels");
  EXPECT_EQ(seen.lines.at("0 passed"), "ncclAllReduce:32768");
  EXPECT_EQ(seen.calls({{"reason", "disabled"}}), 1U);
  EXPECT_THAT(seen.outcome.err, HasSubstr("every call is passed through: disabled on ranks 0, 1"));
  EXPECT_THAT(seen.outcome.err, HasSubstr("no kernel image"));
}

// The fake ends the process if memory is freed without a truce.
TEST(NcclDevice, ACommunicatorThatEndsInAGroup) {
  EXPECT_EQ(run_job("ended_in_a_group").outcome.err.find("truce"), std::string::npos);
}

TEST(NcclDevice, AFailedMessageLeavesNoGroupOpen) {
  const Seen seen = run_job("failed_send");
  EXPECT_EQ(seen.lines.at("groups"), "2 started 2 ended");
}

TEST(NcclDevice, ADisabledRankAgreesAndPasses) {
  const Seen seen = run_job("alone", "GRADWIRE_DISABLE=1");
  EXPECT_THAT(seen.lines.at("0 agreement"), HasSubstr(kAgreement)) << "other ranks wait for it";
  EXPECT_EQ(seen.lines.at("0 compressed"), "ncclAllReduce:32768");
  EXPECT_EQ(seen.calls({{"reason", "disabled"}}), 2U);
  EXPECT_THAT(seen.outcome.err, HasSubstr("every call is passed through: disabled on ranks 0 and 1"));
}

// Mutations tried: no agreement without a codec; events on a captured stream; a group of two calls is timed as one.
TEST(NcclDevice, WithoutACodecItAgreesThenCountsAndTimes) {
  const Seen alone = run_job("alone", "");
  EXPECT_THAT(alone.lines.at("0 agreement"), HasSubstr(kAgreement)) << "other ranks wait for it";
  EXPECT_EQ(alone.lines.at("0 compressed"), "ncclAllReduce:32768");
  EXPECT_EQ(alone.lines.at("0 scattered"), "ncclReduceScatter");
  EXPECT_EQ(alone.calls({{"reason", "observed: no codec was named"}}), 2U);
  EXPECT_EQ(alone.report.at("totals").at("compressed_calls"), 0);
  EXPECT_THAT(alone.outcome.err, HasSubstr("; GRADWIRE_CODEC=int8 compresses what was observed"));

  const Seen timed = run_job("observed", "");
  // Three single calls and one group are timed, each between two events, which are 1 ms apart here.
  EXPECT_EQ(timed.lines.at("events"), "8 made 8 recorded 0 captured 8 destroyed");
  double seconds = 0;
  for (const json& row : timed.report.at("classes")) {
    seconds += row.at("seconds").get<double>();
    EXPECT_TRUE(row.at("seconds") == 0 || row.at("reason") == "observed: no codec was named") << row;
  }
  EXPECT_NEAR(seconds, 4e-3, 1e-6);
  EXPECT_EQ(timed.calls({{"reason", "observed: no codec was named"}}), 6U) << "calls that are not timed are counted";
  const json& forecast = timed.report.at("forecast");
  EXPECT_TRUE(forecast.at("saved_seconds").is_null()) << "no sample is taken of a device's memory";
  EXPECT_TRUE(forecast.at("classes").at(0).at("ratio").is_null());
}

TEST(NcclDevice, ANamedCodecIsNotTimed) {
  EXPECT_EQ(run_job("observed").lines.at("events"), "0 made 0 recorded 0 captured 0 destroyed");
}

TEST(NcclDevice, AutoCompressesWhatIsFasterFromTheSameCallOnWhateverIsCaptured) {
  const ScratchFolder scratch;
  for (const char* scenario : {"faster", "faster_and_captures"}) {
    const Seen seen = run_job(scenario, policy_file(scratch, kAutomatic));
    // 267 calls allow eight trials, the exchange of call 320 finds memory for them, and that of call 448 their times.
    EXPECT_EQ(seen.lines.at("first trial"), "384") << scenario;
    EXPECT_EQ(seen.lines.at("trials"), "16") << scenario << ": later NCCL's own call is the rival";
    EXPECT_EQ(seen.lines.at("last that passed"), "511") << scenario;
    EXPECT_EQ(seen.lines.at("events"), "0 captured, few") << scenario;
    EXPECT_EQ(seen.calls({{"codec", "int8"}}), std::stoul(seen.lines.at("compressed")) + 8);
    EXPECT_GE(seen.calls({{"reason", "being measured"}}), 511U);
    EXPECT_THAT(seen.outcome.err, HasSubstr("compressed, ratio 3.9"));
  }
}

TEST(NcclDevice, AutoFollowsTheChoicesOfAnEarlierJob) {
  const ScratchFolder scratch;
  const std::string file = (scratch.path() / "choices").string();
  const std::string environment = policy_file(scratch, kAutomatic) + " RANK=3 GRADWIRE_CHOICES=" + file;
  const Seen first = run_job("faster", environment);
  EXPECT_EQ(first.lines.at("last that passed"), "511");
  ASSERT_TRUE(std::filesystem::exists(file + ".nccl-3")) << "each process has a file of its own";
  const Seen second = run_job("slower", environment);
  EXPECT_EQ(second.lines.at("trials"), "0");
  EXPECT_EQ(second.calls({{"reason", "passed in the recorded job"}}), 511U);
  EXPECT_EQ(second.calls({{"codec", "int8"}}), 289U) << "from the same call on, whatever is faster now";
}

TEST(NcclDevice, AutoPassesWhatIsNoFaster) {
  const ScratchFolder scratch;
  const Seen seen = run_job("slower", policy_file(scratch, kAutomatic));
  EXPECT_EQ(seen.lines.at("first trial"), "384");
  EXPECT_EQ(seen.lines.at("trials"), "8");
  EXPECT_EQ(seen.lines.at("compressed"), "0");
  EXPECT_EQ(seen.report.at("totals").at("compressed_calls"), 0);
  EXPECT_GT(seen.calls({{"reason", "no faster on this link"}}), 100U);
}

// Mutations tried, each fails here: the job's question for errors goes to NCCL alone; an abort does not reach kernels.
TEST(NcclDevice, ARankThatIsMissingInTheNodeIsAnErrorOfTheCommunicator) {
  const ScratchFolder scratch;
  const std::string automatic = policy_file(scratch, kAutomatic);
  const std::string two_parts = "ncclAllGather:8 ncclAllGather:128 ncclAllGather:128";
  const Seen good = run_job("missing_rank", automatic + " FAKE_NODE=1");
  EXPECT_EQ(good.lines.at("opened"), "ncclAllGather:8 " + two_parts + " ncclAllGather:8 ncclAllReduce:32768")
      << "the ranks compare what they want, their texts, and their hosts";
  EXPECT_EQ(good.lines.at("error"), "0");
  EXPECT_EQ(good.lines.at("second"), "0");
  EXPECT_THAT(good.outcome.err, HasSubstr("kernels end, behind 0 aborts"));
  EXPECT_EQ(good.lines.at("aborted"), "ncclCommAbort ncclCommAbort");
  EXPECT_EQ(good.lines.at("destroyed"), "ncclCommDestroy ncclCommDestroy");

  const Seen missing = run_job("missing_rank", automatic + " FAKE_NODE=missing GRADWIRE_TIMEOUT=3s");
  EXPECT_EQ(missing.lines.at("first"), "0");
  EXPECT_EQ(missing.lines.at("error"), "6") << "ncclRemoteError";
  EXPECT_EQ(missing.lines.at("second"), "2") << "ncclSystemError";
  EXPECT_THAT(missing.outcome.err, HasSubstr("waited for rank 1 inside an all-reduce, in vain (timeout 3s)"));
  EXPECT_THAT(missing.outcome.err, HasSubstr("only late; calls on this communicator that gradwire would handle fail"));
  EXPECT_THAT(missing.outcome.err, HasSubstr("only late\nkernels end, behind 2 aborts"))
      << "as a communicator ends without another call";
  EXPECT_EQ(missing.lines.at("alive"), "0");

  const Seen forbidden = run_job("missing_rank", automatic + " FAKE_NODE=1 GRADWIRE_NODE_KERNEL=0");
  EXPECT_EQ(forbidden.lines.at("opened"), "ncclAllGather:8 ncclAllGather:8 ncclAllReduce:32768");
}

// Two nodes of two ranks, as the policy says. Mutation tried: the split communicator is not freed.
TEST(NcclDevice, TiersSplitTheSecondCommunicatorByNode) {
  const ScratchFolder scratch;
  const std::string automatic =
      policy_file(scratch, std::string("[tier]\nranks_per_node = 2\n") + kAutomatic) + " GRADWIRE_NODE_KERNEL=0";
  const Seen seen = run_job("tiers", automatic);
  EXPECT_EQ(seen.lines.at("opened"),
            "ncclAllGather:8 ncclAllGather:8 ncclCommSplit ncclAllGather:8 ncclAllGather:8 ncclAllReduce:32768");
  EXPECT_EQ(seen.lines.at("sums inside nodes"), "8") << "its trials";
  EXPECT_EQ(seen.lines.at("aborted"), "ncclCommAbort ncclCommAbort ncclCommAbort");
  EXPECT_EQ(seen.lines.at("destroyed"), "ncclCommDestroy ncclCommDestroy ncclCommDestroy");
  EXPECT_EQ(seen.lines.at("alive"), "0");

  const Seen refused = run_job("tiers_refused", automatic);
  EXPECT_EQ(refused.lines.at("sums inside nodes"), "0");
  EXPECT_EQ(refused.lines.at("aborted"), "ncclCommAbort");
  EXPECT_EQ(refused.lines.at("alive"), "0");
  EXPECT_THAT(refused.outcome.err, HasSubstr("in 2 nodes of 2 ranks: some rank has no communicator of its node"));
}

TEST(NcclDevice, ADeterministicPolicyRefusesAuto) {
  const ScratchFolder scratch;
  const Seen seen = run_job("alone", policy_file(scratch, "deterministic = true\n[defaults]\ncodec = \"auto\"\n"));
  EXPECT_EQ(seen.lines.at("0 compressed"), "ncclAllReduce:32768");
  EXPECT_THAT(seen.outcome.err, HasSubstr("chooses by measurement, which deterministic = true forbids; name a codec"));
}

TEST(NcclDevice, CodecsThatNeedTheStepWaitForIt) {
  const ScratchFolder scratch;
  const Seen seen = run_job("steps", policy_file(scratch, "[defaults]\ncodec = \"int4\"\nroles = \"all\"\n"));
  EXPECT_EQ(seen.calls({{"reason", "step not known yet"}}), 16U);
  EXPECT_EQ(seen.calls({{"reason", nullptr}, {"codec", "int4"}, {"order", 0}}), 4U);
}

// Mutations tried: calls are compressed while their role is open; exchanges go on when all roles are known.
TEST(NcclDevice, BucketsAreCompressedOnceTheyAreKnown) {
  const Seen seen = run_job("data_parallel", "GRADWIRE_CODEC=int8");
  const std::string& steps = seen.lines.at("steps");
  EXPECT_EQ(times(steps, "ncclAllReduce:32768") + times(steps, "ncclAllReduce:16384"), 127)
      << "the votes of call 64 count from call 128 on";
  EXPECT_EQ(times(steps, "ncclAllReduce:256"), 1) << "the votes";
  EXPECT_EQ(seen.calls({{"reason", nullptr}, {"codec", "int8"}}), 33U);
  EXPECT_EQ(seen.calls({{"reason", "not known to be a gradient yet"}}), 127U);
  EXPECT_THAT(seen.outcome.err, HasSubstr("127 not known to be a gradient yet"));
}

TEST(NcclDevice, AShortJobIsToldWhyNothingWasCompressed) {
  const Seen seen = run_job("alone", "GRADWIRE_CODEC=int8");
  EXPECT_EQ(seen.lines.at("0 compressed"), "ncclAllReduce:32768");
  EXPECT_THAT(seen.outcome.err, HasSubstr("none compressed: "));
  EXPECT_THAT(seen.outcome.err,
              HasSubstr("; a rule of a policy, or roles = \"all\", says which calls carry gradients"));
}

TEST(NcclDevice, ActivationsPass) {
  const Seen seen = run_job("tensor_parallel", "GRADWIRE_CODEC=int8");
  const std::string& steps = seen.lines.at("steps");
  EXPECT_EQ(times(steps, "ncclAllReduce:32769"), 120);
  EXPECT_EQ(times(steps, "ncclAllReduce:32770"), 60);
  EXPECT_LT(times(steps, "ncclAllReduce:32768"), 60);
  EXPECT_GT(seen.calls({{"reason", nullptr}, {"count", kLarge}}), 60U);
  EXPECT_EQ(seen.calls({{"reason", nullptr}}), seen.calls({{"reason", nullptr}, {"count", kLarge}}));
  EXPECT_GT(seen.calls({{"reason", "no gradient: its buffer changes or repeats"}, {"count", kLarge + 1}}), 60U);
}

// Mutation tried: no call is said to come behind one on another communicator.
TEST(NcclDevice, ActivationsThatTakeTurnsPassBesideGradientsElsewhere) {
  const Seen seen = run_job("two_parallelisms", "GRADWIRE_CODEC=int8");
  EXPECT_EQ(times(seen.lines.at("steps"), "ncclAllReduce:32768"), 60 * 48);
  EXPECT_EQ(seen.calls({{"reason", nullptr}, {"count", kLarge}}), 0U);
}

// Mutation tried: scatters of 16 bits are compressed.
TEST(NcclDevice, ScattersAreGradientsByTheirType) {
  const Seen seen = run_job("scatters", "GRADWIRE_CODEC=int8");
  EXPECT_EQ(times(seen.lines.at("f32"), sent_tiles(8)), 1) << seen.lines.at("f32");
  EXPECT_EQ(seen.lines.at("bf16"), "ncclReduceScatter");
  EXPECT_EQ(times(seen.lines.at("factor of the host"), sent_tiles(8)), 1) << seen.lines.at("factor of the host");
  EXPECT_EQ(seen.lines.at("factor of the device"), without_asking(seen.lines.at("factor of the host")))
      << "ranks may differ in where the factor lies, so that none asks for that";
  EXPECT_EQ(seen.calls({{"reason", "16-bit reduce-scatter without a rule"}}), 1U);
  EXPECT_EQ(seen.calls({{"reason", nullptr}, {"op", "scaled sum"}}), 2U);
}

// Mutation tried: the operation is destroyed at once.
TEST(NcclDevice, AnOperationOutlivesTheSumsOfItsGroup) {
  const ScratchFolder scratch;
  const Seen seen = run_job("scaled_in_a_group", policy_file(scratch, "[defaults]\ncodec = \"exact\"\n"));
  EXPECT_EQ(seen.lines.at("group"),
            "ncclGroupStart ncclRedOpCreatePreMulSum ncclGroupEnd ncclAllReduce:32768 ncclRedOpDestroy");
}

TEST(NcclDevice, RulesMayNameCommunicators) {
  const ScratchFolder scratch;
  const Seen seen = run_job("named", policy_file(scratch, "[[rule]]\ncommunicator_name = \"dp*\"\n"));
  EXPECT_THAT(seen.lines.at("dp0"), Not(HasSubstr("ncclAllReduce")));
  EXPECT_EQ(seen.lines.at("tp0"), "ncclAllReduce:32768");
}

TEST(NcclDevice, ADryRunPassesAndCounts) {
  const Seen seen = run_job("alone", "GRADWIRE_DRY_RUN=1");
  EXPECT_EQ(seen.lines.at("0 compressed"), "ncclAllReduce:32768");
  EXPECT_EQ(seen.report.at("totals").at("compressed_calls"), 2);
  EXPECT_THAT(seen.outcome.err, HasSubstr("2 would be compressed"));
}

}  // namespace
}  // namespace gradwire::test
