// Tests rounds while the process has no memory left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "gathering.hpp"
#include "observe/record.hpp"

namespace {
thread_local bool t_no_memory = false;
}  // namespace

// These replace the functions of the C++ library in this whole program.
void* operator new(std::size_t bytes) {
  void* const memory = t_no_memory ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }

namespace gradwire::observe::test {
namespace {

class NoMemory {
 public:
  NoMemory() { t_no_memory = true; }
  ~NoMemory() { t_no_memory = false; }
  NoMemory(const NoMemory&) = delete;
  NoMemory& operator=(const NoMemory&) = delete;
};

void record_one(std::uint64_t bytes) { record({.begin = ticks(), .bytes = bytes, .kind = EventKind::send}); }

TEST(WithoutMemory, ARoundIsLeftOutAndTheNextOneHasAll) {
  Observed observed(kByHand);
  record_one(1);
  publish({.source = 1});
  EXPECT_NO_THROW({
    const NoMemory none;
    collect();
  }) << "on the thread that reads events, that would end the job";
  EXPECT_EQ(observed.kept->rounds(), 0);
  record_one(2);
  collect();
  EXPECT_EQ(observed.kept->seen().size(), 2U);
  EXPECT_EQ(observed.kept->recorded(), 2U);
  EXPECT_EQ(observed.kept->snapshots().size(), 1U);
}

TEST(WithoutMemory, ASinkThatLeavesIsToldTheEnd) {
  Observed observed(kByHand);
  record_one(1);
  EXPECT_NO_THROW({
    const NoMemory none;
    observed.stop();
  });
  EXPECT_TRUE(observed.kept->ended());
  EXPECT_FALSE(on());
}

class Fails final : public Sink {
 public:
  void take(const Round& /*round*/) override { throw std::bad_alloc(); }
};

TEST(WithoutMemory, ASinkThatFailsIsNotTheLastOfTheOthers) {
  Observed observed(kByHand);
  add_sink(std::make_shared<Fails>(), kByHand);
  record_one(1);
  collect();
  collect();
  EXPECT_EQ(observed.kept->rounds(), 2);
  EXPECT_EQ(observed.kept->seen().size(), 1U);
}

}  // namespace
}  // namespace gradwire::observe::test
