// Tests memory that is left out of core dumps and kept out of swap, as the kernel sees it in /proc/self/smaps.
// Mutations tried: regions that are mapped later are not protected; regions that were there before are not; a failure
// of mlock() is ignored.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "gradwire/error.hpp"
#include "memory/page_pool.hpp"
#include "tests/support/mapping_flags.hpp"

namespace gradwire::memory {
namespace {

using test::mapping_flags;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

PagePoolOptions with(Protection protection) {
  PagePoolOptions options;
  options.protection = protection;
  return options;
}

TEST(Protection, IsOffUnlessAskedFor) {
  SystemPages pages;
  PagePool pool(pages);
  std::byte* const memory = pool.allocate(100'000, MemoryUse::residuals);
  EXPECT_THAT(mapping_flags(memory), AllOf(Contains("rd"), Not(Contains("dd")), Not(Contains("lo"))));
  pool.free(memory, 100'000, MemoryUse::residuals);
}

TEST(Protection, CoversMemoryOfBeforeAndOfLater) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers make mlock() do nothing";
#endif
  for (const HugePages huge : {HugePages::madvise, HugePages::off}) {
    SystemPages pages;
    PagePool pool(pages);
    PagePoolOptions options = with({.not_dumped = true, .locked = true});
    options.huge_pages = huge;
    std::byte* const before = pool.allocate(100'000, MemoryUse::residuals);
    pool.configure(options);
    std::byte* const after = pool.allocate(3 << 20, MemoryUse::residuals);
    for (const std::byte* const memory : {before, after, after + (2 << 20)}) {
      EXPECT_THAT(mapping_flags(memory), AllOf(Contains("dd"), Contains("lo")));
    }
    pool.configure({});
    std::byte* const later = pool.allocate(5 << 20, MemoryUse::tables);
    EXPECT_THAT(mapping_flags(later), AllOf(Contains("dd"), Contains("lo"))) << "another session asks for less";
    pool.free(before, 100'000, MemoryUse::residuals);
    pool.free(after, 3 << 20, MemoryUse::residuals);
    pool.free(later, 5 << 20, MemoryUse::tables);
  }
}

TEST(Protection, EachKindAlone) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers make mlock() do nothing";
#endif
  SystemPages pages;
  PagePool pool(pages, with({.not_dumped = true}));
  std::byte* const memory = pool.allocate(4096, MemoryUse::residuals);
  EXPECT_THAT(mapping_flags(memory), AllOf(Contains("dd"), Not(Contains("lo"))));
  pool.configure(with({.locked = true}));
  EXPECT_THAT(mapping_flags(memory), AllOf(Contains("dd"), Contains("lo")));
  pool.free(memory, 4096, MemoryUse::residuals);
}

// Regions are given back in parts; what is left of them is protected when that is asked for.
TEST(Protection, CoversTheRestOfARegion) {
  SystemPages pages;
  std::byte* const memory = pages.map(3 * kRegionBytes, HugePages::off);
  ASSERT_NE(memory, nullptr);
  pages.unmap(memory + kRegionBytes, kRegionBytes);
  pages.protect({.not_dumped = true});
  EXPECT_THAT(mapping_flags(memory), Contains("dd"));
  EXPECT_THAT(mapping_flags(memory + 2 * kRegionBytes), Contains("dd"));
  pages.unmap(memory, kRegionBytes);
  pages.unmap(memory + 2 * kRegionBytes, kRegionBytes);
  pages.protect({.locked = true});
}

// The child is not root, and may lock nothing.
TEST(Protection, ALimitThatDoesNotAllowItIsNamed) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers make mlock() do nothing";
#endif
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_MEMLOCK, &none);
    if (::geteuid() == 0 && ::setuid(65534) != 0) {
      std::_Exit(9);
    }
    SystemPages pages;
    PagePool pool(pages);
    std::string why;
    try {
      pool.configure(with({.locked = true}));
    } catch (const Error& error) {
      why = error.code() == ErrorCode::unsupported ? error.what() : "another error";
    }
    EXPECT_THAT(why, AllOf(HasSubstr("mlock: "), HasSubstr("RLIMIT_MEMLOCK is 0"), HasSubstr("ulimit -l"),
                           HasSubstr("lock_memory")));
    std::byte* const memory = pool.allocate(4096, MemoryUse::residuals);
    EXPECT_THAT(mapping_flags(memory), Not(Contains("lo"))) << "as before";
    pool.free(memory, 4096, MemoryUse::residuals);
    std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace gradwire::memory
