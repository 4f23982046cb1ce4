// The interpreter on small kernels: what they compute, and that each kind of error is found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/ptx/bench.hpp"

namespace gradwire::ptx {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class PtxSchedules : public testing::TestWithParam<Schedule> {};
INSTANTIATE_TEST_SUITE_P(All, PtxSchedules,
                         testing::Values(Schedule::ascending, Schedule::descending, Schedule::random));

TEST_P(PtxSchedules, DivergedLanesMeetAgain) {
  Bench bench(GetParam());
  // Odd lanes loop as often as their number says; then all lanes vote.
  ASSERT_THAT(bench.run(R"(
    and.b32 %r3, %r1, 1;
    setp.eq.u32 %p1, %r3, 0;
    mov.u32 %r4, 0;
    @%p1 bra DONE;
  LOOP:
    add.u32 %r4, %r4, 1;
    setp.lt.u32 %p2, %r4, %r1;
    @%p2 bra LOOP;
  DONE:
    setp.ne.u32 %p3, %r4, 0;
    vote.sync.ballot.b32 %r5, %p3, -1;
    add.u32 %r6, %r5, %r4;
    st.global.u32 [%rd4], %r6;)"),
              IsEmpty());
  for (std::uint32_t i = 0; i < 64; ++i) {
    EXPECT_EQ(bench.words[i], 0xAAAAAAAAU + (i % 2 == 1 ? i : 0)) << i;
  }
}

TEST_P(PtxSchedules, LanesExchangeAndReduce) {
  Bench bench(GetParam());
  ASSERT_THAT(bench.run(R"(
    ld.global.u32 %r3, [%rd4];
    shfl.sync.bfly.b32 %r4|%p1, %r3, 1, 31, -1;
    shfl.sync.up.b32 %r5|%p2, %r3, 4, 0, -1;
    selp.u32 %r6, 1000, 0, %p2;
    redux.sync.max.u32 %r7, %r3, -1;
    add.u32 %r8, %r4, %r5;
    add.u32 %r8, %r8, %r6;
    add.u32 %r8, %r8, %r7;
    st.global.u32 [%rd4], %r8;)"),
              IsEmpty());
  for (std::uint32_t i = 0; i < 64; ++i) {
    const std::uint32_t from_below = i % 32 < 4 ? i : i - 4 + 1000;
    EXPECT_EQ(bench.words[i], (i ^ 1) + from_below + (i / 32 * 32 + 31)) << i;
  }
}

const char* const kReverse = R"(
    mov.u64 %rd5, table;
    add.s64 %rd6, %rd5, %rd3;
    ld.global.u32 %r3, [%rd4];
    st.shared.u32 [%rd6], %r3;
    BARRIER
    sub.u32 %r4, 63, %r1;
    mul.wide.u32 %rd7, %r4, 4;
    add.s64 %rd8, %rd5, %rd7;
    ld.shared.u32 %r5, [%rd8];
    st.global.u32 [%rd4], %r5;)";

std::string with(std::string text, const std::string& name, const std::string& value) {
  const std::size_t at = text.find(name);
  return text.replace(at, name.size(), value);
}

TEST_P(PtxSchedules, ABarrierOrdersSharedMemory) {
  Bench bench(GetParam());
  ASSERT_THAT(bench.run(with(kReverse, "BARRIER", "bar.sync 0;")), IsEmpty());
  for (std::uint32_t i = 0; i < 64; ++i) {
    EXPECT_EQ(bench.words[i], 63 - i);
  }
  Bench racing(GetParam());
  EXPECT_THAT(racing.run(with(kReverse, "BARRIER", "")), HasSubstr("race"));
  // A barrier of warps orders lanes of one warp only.
  Bench warps(GetParam());
  EXPECT_THAT(warps.run(with(kReverse, "BARRIER", "bar.warp.sync -1;")), HasSubstr("race"));
}

TEST_P(PtxSchedules, ABarrierOfAWarpOrdersItsLanes) {
  const std::string next = R"(
    mov.u64 %rd5, table;
    add.s64 %rd6, %rd5, %rd3;
    st.shared.u32 [%rd6], %r1;
    BARRIER
    xor.b32 %r4, %r1, 1;
    mul.wide.u32 %rd7, %r4, 4;
    add.s64 %rd8, %rd5, %rd7;
    ld.shared.u32 %r5, [%rd8];
    st.global.u32 [%rd4], %r5;)";
  Bench bench(GetParam());
  EXPECT_THAT(bench.run(with(next, "BARRIER", "bar.warp.sync -1;")), IsEmpty());
  EXPECT_EQ(bench.words[6], 7U);
  Bench racing(GetParam());
  EXPECT_THAT(racing.run(with(next, "BARRIER", "")), HasSubstr("race"));
}

TEST_P(PtxSchedules, BlocksMeetInGlobalMemoryByAtomicsOnly) {
  Bench bench(GetParam());
  EXPECT_THAT(bench.run("atom.global.add.u32 %r3, [%rd1], 1;", {.blocks = 3, .threads = 40}), IsEmpty());
  EXPECT_EQ(bench.words[0], 120U);
  Bench racing(GetParam());
  EXPECT_THAT(racing.run("st.global.u32 [%rd4], 5;", {.blocks = 2, .threads = 1}),
              HasSubstr("race: a store of 4 bytes"));
}

TEST(PtxFindings, StrayAccesses) {
  EXPECT_THAT(Bench().run("ld.global.u32 %r3, [%rd4+1024];"), HasSubstr("stray access of 4 bytes"));
  EXPECT_THAT(Bench().run("st.global.u32 [%rd4+-4], 0;"), HasSubstr("stray access of 4 bytes"));
  EXPECT_THAT(Bench().run("mov.u64 %rd5, table;\nld.shared.u32 %r3, [%rd5+4096];"),
              HasSubstr("shared memory has 4096"));
  EXPECT_THAT(Bench().run("prefetch.global.L2 [%rd4+1024];"), HasSubstr("stray access"));
  Bench bench;
  bench.memory().forbid(bench.words.data() + 63, 4);
  EXPECT_THAT(bench.run("ld.global.u32 %r3, [%rd4];"), HasSubstr("thread 63"));
}

TEST(PtxFindings, MisalignedAndUninitialised) {
  EXPECT_THAT(Bench().run("ld.global.u32 %r3, [%rd4+2];"), HasSubstr("misaligned access of 4 bytes"));
  EXPECT_THAT(Bench().run("ld.global.v2.u32 {%r3, %r4}, [%rd1+4];"), HasSubstr("misaligned access of 8 bytes"));
  EXPECT_THAT(Bench().run("ld.global.u32 %r3, [%rd2];"), HasSubstr("uninitialised read of 4 bytes"));
}

TEST(PtxFindings, NameAnInstructionThatIsUnknown) {
  EXPECT_THAT(Bench().run("lop3.b32 %r3, %r1, %r1, %r1, 5;"), HasSubstr("unknown instruction lop3.b32"));
  EXPECT_THAT(Bench().run("ld.global.u32.sparkling %r3, [%rd4];"), HasSubstr("ld.global.u32.sparkling"));
}

TEST(PtxFindings, ThreadsThatNeverMeet) {
  EXPECT_THAT(Bench().run("setp.lt.u32 %p1, %r1, 32;\n@%p1 bra END;\nbar.sync 0;\nEND:"), HasSubstr("deadlock"));
  EXPECT_THAT(Bench().run("setp.lt.u32 %p1, %r1, 3;\n@%p1 ret;\nbar.sync 0;"),
              HasSubstr("lanes of this warp have exited"));
  EXPECT_THAT(Bench().run("setp.lt.u32 %p1, %r1, 3;\n@%p1 ret;\nbar.warp.sync -1;"),
              HasSubstr("lanes that have exited"));
  EXPECT_THAT(Bench().run("FOREVER:\nbra FOREVER;"), HasSubstr("no end"));
}

// One grid stores a word, then a flag; the other waits for the flag and reads the word.
std::vector<std::shared_ptr<Grid>> two_grids(Bench& bench, const std::string& store, const std::string& load) {
  return {bench.begin("WAIT:\n" + load + " %r3, [%rd1+512];\nsetp.ne.u32 %p1, %r3, 9;\n@%p1 bra WAIT;\n" +
                          "ld.global.u32 %r4, [%rd1+1020];\nst.global.u32 [%rd1], %r4;",
                      {.blocks = 1, .threads = 1}, 1),
          bench.begin("st.global.u32 [%rd1+1020], 77;\n" + store + " [%rd1+512], 9;", {.blocks = 1, .threads = 1}, 2)};
}

TEST_P(PtxSchedules, GridsMeetByReleaseAndAcquireOfTheSystem) {
  Bench bench(GetParam());
  EXPECT_THAT(bench.run(two_grids(bench, "st.release.sys.global.u32", "ld.acquire.sys.global.u32")), IsEmpty());
  EXPECT_EQ(bench.words[0], 77U);
  Bench fenced(GetParam());
  EXPECT_THAT(
      fenced.run(two_grids(fenced, "fence.acq_rel.sys;\nst.relaxed.sys.global.u32", "ld.acquire.sys.global.u32")),
      IsEmpty());
  Bench relaxed(GetParam());
  EXPECT_THAT(relaxed.run(two_grids(relaxed, "st.relaxed.sys.global.u32", "ld.acquire.sys.global.u32")),
              HasSubstr("race"));
  Bench unacquired(GetParam());
  EXPECT_THAT(unacquired.run(two_grids(unacquired, "st.release.sys.global.u32", "ld.relaxed.sys.global.u32")),
              HasSubstr("race"));
  Bench too_near(GetParam());  // of one GPU
  EXPECT_THAT(too_near.run(two_grids(too_near, "st.release.gpu.global.u32", "ld.acquire.gpu.global.u32")),
              HasSubstr("race"));
}

TEST(PtxGrids, OneStreamOrdersWhatTwoDoNot) {
  const char* const body = "ld.global.u32 %r3, [%rd4];\nadd.u32 %r3, %r3, 1;\nst.global.u32 [%rd4], %r3;";
  Bench bench;
  EXPECT_THAT(bench.run({bench.begin(body, {}, 1)}) + bench.run({bench.begin(body, {}, 1)}), IsEmpty());
  EXPECT_EQ(bench.words[5], 7U);
  Bench racing;
  EXPECT_THAT(racing.run({racing.begin(body, {}, 1)}), IsEmpty());
  EXPECT_THAT(racing.run({racing.begin(body, {}, 2)}), HasSubstr("meets an access of grid of stream 1"));
}

}  // namespace
}  // namespace gradwire::ptx
