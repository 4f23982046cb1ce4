// Tests the real NCCL without a GPU: results and messages are the same with the drop-in in between, in each of the
// three ways to use it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "nccl_preload/run_apart.hpp"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

// The probe's collectives all use a null communicator: ncclBcast counts once although NCCL's own calls ncclBroadcast.
const std::string kCounted = "gradwire: NCCL, this rank: 15 calls, none compressed: ";

std::string alone() {
  const OutcomeApart probe = run_apart("", GRADWIRE_PROBE);
  EXPECT_EQ(probe.status, 0) << probe.err;
  EXPECT_THAT(probe.out, HasSubstr("GroupEnd after an error"));
  EXPECT_THAT(probe.out, HasSubstr("AllReduce : comm argument is NULL"));
  EXPECT_EQ(probe.err, "");
  return probe.out;
}

TEST(NcclForwarding, Preloaded) {
  const OutcomeApart probe = run_apart("LD_PRELOAD=" GRADWIRE_DROP_IN, GRADWIRE_PROBE);
  EXPECT_EQ(probe.status, 0);
  EXPECT_EQ(probe.out, alone());
  EXPECT_THAT(probe.err, HasSubstr(kCounted));
}

TEST(NcclForwarding, LinkedBeforeNccl) {
  const OutcomeApart probe = run_apart("", GRADWIRE_PROBE_LINKED);
  EXPECT_EQ(probe.status, 0);
  EXPECT_EQ(probe.out, alone());
  EXPECT_THAT(probe.err, HasSubstr(kCounted));
}

// The drop-in is linked after NCCL, so only the header's names reach it.
TEST(NcclForwarding, ReplacedByTheHeader) {
  const OutcomeApart probe = run_apart("", GRADWIRE_PROBE_REPLACED);
  EXPECT_EQ(probe.status, 0);
  EXPECT_EQ(probe.out, alone());
  EXPECT_THAT(probe.err, HasSubstr(kCounted));
}

TEST(NcclForwarding, ProgramsWithoutNcclAreLeftAlone) {
  const OutcomeApart other = run_apart("LD_PRELOAD=" GRADWIRE_DROP_IN, "cat /proc/self/maps");
  EXPECT_EQ(other.status, 0);
  EXPECT_THAT(other.out, HasSubstr("libgradwire_nccl.so"));
  EXPECT_EQ(other.err, "");
  // The drop-in does not load NCCL at the end of the process either.
  const OutcomeApart loads = run_apart("LD_DEBUG=files LD_PRELOAD=" GRADWIRE_DROP_IN, "true");
  EXPECT_THAT(loads.err, HasSubstr("libgradwire_nccl.so"));
  EXPECT_THAT(loads.err, ::testing::Not(HasSubstr("libnccl")));
}

// NCCL is in a plugin's own scope, as if an interpreter opens an extension: no global name leads to it.
TEST(NcclForwarding, NcclOpenedForAPluginOnly) {
  const OutcomeApart opened = run_apart("LD_PRELOAD=" GRADWIRE_DROP_IN, GRADWIRE_OPENER " " GRADWIRE_PLUGIN);
  EXPECT_EQ(opened.status, 0) << opened.out << opened.err;
  EXPECT_THAT(opened.out, HasSubstr("ncclGetVersion 0 22"));
  EXPECT_THAT(opened.out, HasSubstr("ncclAllReduce 4"));
  EXPECT_THAT(opened.err, HasSubstr("gradwire: NCCL, this rank: 1 calls, none compressed: 1 bad arguments"));
}

}  // namespace
}  // namespace gradwire::test
