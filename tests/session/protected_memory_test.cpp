// Tests that a policy's [security] reaches the memory of sessions. It is a program of its own, since what one session
// asks for holds for the whole process. Mutation tried: the engine leaves the policy's protection out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <string>
#include <vector>

#include "gradwire/gradwire.hpp"
#include "memory/process_pool.hpp"
#include "tests/support/mapping_flags.hpp"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// Makes a step with residuals, and returns the flags of memory of the pool.
std::set<std::string> flags_after_a_step(const std::string& security) {
  std::vector<float> gradient(100'000, 1.0F);
  Session session(make_inproc_world(1).front(), Policy::parse("[defaults]\ncodec = \"int4\"\n" + security));
  const TensorId id = session.add("gradient", view(gradient.data(), gradient.size()));
  session.ready(id);
  session.finish();
  std::byte* const memory = memory::page_pool().allocate(100'000, memory::MemoryUse::residuals);
  const std::set<std::string> flags = mapping_flags(memory);
  memory::page_pool().free(memory, 100'000, memory::MemoryUse::residuals);
  return flags;
}

TEST(ProtectedMemory, ALimitThatDoesNotAllowItRefusesTheSession) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_MEMLOCK, &none);
    if (::geteuid() == 0 && ::setuid(65534) != 0) {
      std::_Exit(9);
    }
    std::string why;
    try {
      static_cast<void>(flags_after_a_step("[security]\nlock_memory = true\n"));
    } catch (const Error& error) {
      why = error.what();
    }
    EXPECT_THAT(why, AllOf(HasSubstr("RLIMIT_MEMLOCK is 0"), HasSubstr("lock_memory")));
    std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(ProtectedMemory, IsAskedForByThePolicy) {
  EXPECT_THAT(flags_after_a_step(""), AllOf(Not(Contains("dd")), Not(Contains("lo"))));
  EXPECT_THAT(flags_after_a_step("[security]\nno_dump = true\n"), AllOf(Contains("dd"), Not(Contains("lo"))));
  EXPECT_THAT(flags_after_a_step("[security]\nlock_memory = true\n"), AllOf(Contains("dd"), Contains("lo")));
}

}  // namespace
}  // namespace gradwire::test
