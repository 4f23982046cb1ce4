// Litmus tests of the memory model: threads of different grids, which may be on different GPUs, or of different blocks
// of one grid. Each test runs with the detector of races, and without it on a machine where stores wait in a buffer and
// arrive in random order. What must be found, and what may happen, is written down here from PTX's memory model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/ptx/bench.hpp"

namespace gradwire::ptx {
namespace {

using testing::Contains;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

enum class Where : std::uint8_t { grids, blocks_of_one_grid };

constexpr std::uint64_t kSeeds = 50;
const std::string kX = "[%rd1+1020]";
const std::string kY = "[%rd1+512]";

// Says what each thread does; at its end %r4 is what it saw.
using Threads = std::vector<std::string>;
using Seen = std::vector<std::uint32_t>;

std::string leaves_in(std::size_t word) { return "\nst.global.u32 [%rd1+" + std::to_string(4 * word) + "], %r4;\n"; }

std::vector<std::shared_ptr<Grid>> begin(Bench& bench, const Threads& threads, Where where) {
  bench.words[1020 / 4] = bench.words[512 / 4] = 0;
  std::vector<std::shared_ptr<Grid>> grids;
  std::string all;
  for (std::size_t i = 0; i < threads.size(); ++i) {
    if (where == Where::grids) {
      grids.push_back(
          bench.begin(threads[i] + leaves_in(i), {.blocks = 1, .threads = 1}, static_cast<std::uint32_t>(i + 1)));
    }
    const std::string next = "NEXT" + std::to_string(i);
    all += "setp.ne.u32 %p7, %r2, " + std::to_string(i) + ";\n@%p7 bra " + next + ";\n{\n" + threads[i] + leaves_in(i) +
           "}\n" + next + ":\n";
  }
  if (where == Where::blocks_of_one_grid) {
    grids.push_back(bench.begin(all, {.blocks = static_cast<std::uint32_t>(threads.size()), .threads = 1}, 1));
  }
  return grids;
}

// Returns whether the detector finds a race, which is the same in each order of threads.
bool races(const Threads& threads, Where where = Where::grids) {
  std::set<std::string> found;
  for (const Schedule schedule : {Schedule::ascending, Schedule::descending, Schedule::random}) {
    Bench bench(schedule);
    const std::string finding = bench.run(begin(bench, threads, where));
    found.insert(finding.substr(0, finding.find(':')));
  }
  EXPECT_EQ(found.size(), 1U) << testing::PrintToString(threads);
  EXPECT_TRUE(*found.begin() == "race" || found.begin()->empty()) << *found.begin();
  return *found.begin() == "race";
}

// Returns what the threads saw over many seeds, without the detector.
std::set<Seen> seen(const Threads& threads, Where where = Where::grids, Buffered buffered = Buffered::strong) {
  std::set<Seen> all;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Bench bench(Settings{Schedule::random, seed, 5'000'000, 64, buffered, false});
    EXPECT_THAT(bench.run(begin(bench, threads, where)), IsEmpty()) << "seed " << seed;
    all.emplace(bench.words.begin(), bench.words.begin() + static_cast<std::ptrdiff_t>(threads.size()));
  }
  return all;
}

std::string wait_for(const std::string& load, const std::string& word, const std::string& label) {
  return label + ":\n" + load + ".global.u32 %r3, " + word + ";\nsetp.ne.u32 %p1, %r3, 1;\n@%p1 bra " + label + ";\n";
}

// Says how a flag is stored or loaded, and the farthest that this orders. A weak one orders nothing.
struct Side {
  std::string before, access, after;
  Scope scope;
};
const std::vector<Side> kStores{
    {"", "st.release.sys", "", Scope::system},
    {"fence.acq_rel.sys;", "st.relaxed.sys", "", Scope::system},
    {"fence.sc.sys;", "st.relaxed.sys", "", Scope::system},
    {"membar.sys;", "st.volatile", "", Scope::system},
    {"", "st.release.gpu", "", Scope::device},
    {"fence.acq_rel.gpu;", "st.relaxed.sys", "", Scope::device},
    {"membar.gl;", "st.relaxed.sys", "", Scope::device},
    {"", "st.release.cta", "", Scope::block},
    {"fence.acq_rel.cta;", "st.relaxed.sys", "", Scope::block},
    {"", "st.relaxed.sys", "", Scope::none},
    {"", "st", "", Scope::none},
};
const std::vector<Side> kLoads{
    {"", "ld.acquire.sys", "", Scope::system},
    {"", "ld.relaxed.sys", "fence.acq_rel.sys;", Scope::system},
    {"", "ld.volatile", "fence.sc.sys;", Scope::system},
    {"", "ld.acquire.gpu", "", Scope::device},
    {"", "ld.relaxed.sys", "fence.acq_rel.gpu;", Scope::device},
    {"", "ld.acquire.cta", "", Scope::block},
    {"", "ld.relaxed.sys", "", Scope::none},
    {"", "ld", "", Scope::none},
};

// x is the payload, y the flag; the second thread sees the payload, 7, or the word of before it, 0.
Threads message(const std::string& kind, const Side& store, const Side& load) {
  return {"st" + kind + ".global.u32 " + kX + ", 7;\n" + store.before + "\n" + store.access + ".global.u32 " + kY +
              ", 1;\nmov.u32 %r4, 0;",
          wait_for(load.access, kY, "WAIT") + load.after + "\nld" + kind + ".global.u32 %r4, " + kX + ";"};
}

Scope needed(Where where) { return where == Where::grids ? Scope::system : Scope::device; }

bool is_right(const Side& store, const Side& load, Where where) {
  return std::min(store.scope, load.scope) >= needed(where);
}

// Whether the machine can show a stale payload. A consistent fence lets the payload arrive, and the machine does not
// reorder loads, so it cannot show that the second thread acquires nothing.
bool shows_stale(const Side& store, const Side& load, Where where) {
  const bool arrives = store.before.find("fence.sc") == 0 || store.before.find("membar") == 0;
  return !is_right(store, load, where) && !(arrives && store.scope >= needed(where));
}

class PtxLitmus : public testing::TestWithParam<Where> {};
INSTANTIATE_TEST_SUITE_P(All, PtxLitmus, testing::Values(Where::grids, Where::blocks_of_one_grid));

// Mutations tried: each side's scope is not looked at; a fence of the device publishes for the system.
TEST_P(PtxLitmus, WeakPayloadsAreOrderedOrARaceWhetherOrNotOneIsSeenStale) {
  for (const Side& store : kStores) {
    for (const Side& load : kLoads) {
      const Threads threads = message("", store, load);
      EXPECT_EQ(races(threads, GetParam()), !is_right(store, load, GetParam())) << testing::PrintToString(threads);
      const auto all = seen(threads, GetParam(), Buffered::all);
      EXPECT_THAT(all, Contains(Seen{0, 7})) << testing::PrintToString(threads);
      EXPECT_EQ(all.size() == 2 && all.contains({0, 0}), shows_stale(store, load, GetParam()))
          << testing::PrintToString(threads);
    }
  }
}

// Mutations tried: strong stores do not wait in the buffer; a thread is not ordered behind what it acquired.
TEST_P(PtxLitmus, StrongPayloadsAreNoRaceButSeenStale) {
  const auto of_system = [](const Side& side) { return side.access.find("sys") != std::string::npos; };
  for (const Side& store : kStores) {
    for (const Side& load : kLoads) {
      if (!of_system(store) || !of_system(load)) {
        continue;  // the flag itself may be a race
      }
      const Threads threads = message(".relaxed.sys", store, load);
      EXPECT_FALSE(races(threads, GetParam())) << testing::PrintToString(threads);
      const auto all = seen(threads, GetParam());
      EXPECT_THAT(all, Contains(Seen{0, 7})) << testing::PrintToString(threads);
      EXPECT_EQ(all.size() == 2 && all.contains({0, 0}), shows_stale(store, load, GetParam()))
          << testing::PrintToString(threads);
    }
  }
}

// Mutation tried: two strong accesses are never a race.
TEST_P(PtxLitmus, AFlagOfTooSmallAScopeIsARaceItself) {
  for (const bool counts : {false, true}) {
    const auto threads = [&](const std::string& scope) {
      const std::string add = "atom.relaxed" + scope + ".global.add.u32 %r4, " + kY + ", 1;";
      return counts ? Threads{add, add}
                    : Threads{"st.relaxed" + scope + ".global.u32 " + kY + ", 1;\nmov.u32 %r4, 0;",
                              "ld.relaxed" + scope + ".global.u32 %r4, " + kY + ";"};
    };
    EXPECT_FALSE(races(threads(".sys"), GetParam()));
    EXPECT_EQ(races(threads(".gpu"), GetParam()), GetParam() == Where::grids);
    EXPECT_TRUE(races(threads(".cta"), GetParam()));
  }
}

// Each thread stores its word and loads the other's.
Threads store_buffering(const std::string& store, const std::string& fence, const std::string& load) {
  const auto thread = [&](const std::string& own, const std::string& other) {
    return store + ".global.u32 " + own + ", 1;\n" + fence + "\n" + load + ".global.u32 %r4, " + other + ";";
  };
  return {thread(kX, kY), thread(kY, kX)};
}

// Mutations tried: fence.sc lets nothing arrive; fence.acq_rel lets all arrive; the scope of a fence is not looked at.
TEST_P(PtxLitmus, OnlyAConsistentFenceOfTheScopeForbidsThatBothSeeNothing) {
  const bool one_grid = GetParam() == Where::blocks_of_one_grid;
  struct {
    const char *store, *fence, *load;
    bool forbidden;
  } const kCases[] = {
      {"st.relaxed.sys", "", "ld.relaxed.sys", false},
      {"st.release.sys", "", "ld.acquire.sys", false},
      {"st.relaxed.sys", "fence.acq_rel.sys;", "ld.relaxed.sys", false},
      {"st.relaxed.sys", "fence.sc.cta;", "ld.relaxed.sys", false},
      {"st.relaxed.sys", "fence.sc.gpu;", "ld.relaxed.sys", one_grid},
      {"st.relaxed.sys", "membar.gl;", "ld.relaxed.sys", one_grid},
      {"st.relaxed.sys", "fence.sc.sys;", "ld.relaxed.sys", true},
      {"st.volatile", "membar.sys;", "ld.volatile", true},
  };
  for (const auto& c : kCases) {
    const Threads threads = store_buffering(c.store, c.fence, c.load);
    EXPECT_FALSE(races(threads, GetParam())) << c.store << " " << c.fence;
    const auto all = seen(threads, GetParam());
    EXPECT_EQ(all.contains({0, 0}), !c.forbidden) << c.store << " " << c.fence;
    EXPECT_THAT(all, Contains(Seen{0, 1})) << c.store << " " << c.fence;
  }
  EXPECT_TRUE(races(store_buffering("st", "fence.sc.sys;", "ld"), GetParam()));
}

// Mutation tried: a store arrives before the earlier ones to its word.
TEST_P(PtxLitmus, StoresToOneWordArriveInTheirOrder) {
  const auto all =
      seen({"st.relaxed.sys.global.u32 " + kX + ", 1;\nst.relaxed.sys.global.u32 " + kX + ", 2;\nmov.u32 %r4, 0;",
            "ld.relaxed.sys.global.u32 %r5, " + kX + ";\nld.relaxed.sys.global.u32 %r6, " + kX +
                ";\nld.relaxed.sys.global.u32 %r7, " + kX +
                ";\nmad.lo.u32 %r4, %r5, 10, %r6;\nmad.lo.u32 %r4, %r4, 10, %r7;"},
           GetParam());
  for (const Seen& values : all) {
    EXPECT_THAT((std::set<std::uint32_t>{0, 1, 2, 11, 12, 22, 111, 112, 122, 222}), Contains(values[1]));
  }
  EXPECT_GE(all.size(), 3U);
}

// Mutations tried: a thread does not see its own stores that wait; it sees only the last of them.
TEST_P(PtxLitmus, AThreadSeesWhatItStored) {
  const std::string both = "st.relaxed.sys.global.u32 " + kX +
                           ", 0x01020304;\nst.relaxed.sys.global.u16 [%rd1+1022], " +
                           "0x0A0B;\nld.relaxed.sys.global.u32 %r4, " + kX + ";";
  EXPECT_THAT(seen({both}, GetParam()), UnorderedElementsAre(Seen{0x0A0B0304}));
  const std::string update = "st.relaxed.sys.global.u32 " + kX + ", 5;\natom.relaxed.sys.global.add.u32 %r4, " + kX +
                             ", 1;\nld.relaxed.sys.global.u32 %r5, " + kX + ";\nmad.lo.u32 %r4, %r4, 10, %r5;";
  EXPECT_THAT(seen({update}, GetParam()), UnorderedElementsAre(Seen{56}));
}

// What a thread saw before its release, others see behind it: the second thread passes the first one's store on.
TEST_P(PtxLitmus, AReleasePassesOnWhatItsThreadSaw) {
  const auto chain = [](const std::string& release) {
    return Threads{"st.relaxed.sys.global.u32 " + kX + ", 1;\nmov.u32 %r4, 0;",
                   wait_for("ld.relaxed.sys", kX, "SEE") + release + ".sys.global.u32 " + kY + ", 1;\nmov.u32 %r4, 0;",
                   wait_for("ld.acquire.sys", kY, "WAIT") + "ld.relaxed.sys.global.u32 %r4, " + kX + ";"};
  };
  EXPECT_FALSE(races(chain("st.release"), GetParam()));
  EXPECT_THAT(seen(chain("st.release"), GetParam()), UnorderedElementsAre(Seen{0, 0, 1}));
}

}  // namespace
}  // namespace gradwire::ptx
