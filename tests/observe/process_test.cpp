// Tests recording when a process forks or ends.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "gathering.hpp"
#include "observe/record.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::observe::test {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

// Runs `body` in a child; returns its exit status, or -1 if a signal ended it.
template <typename Body>
int in_child(Body&& body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);  // ends a child that hangs, so that the test fails
    body();
    std::_Exit(99);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Fork, AChildRecordsNothingAndItsParentGoesOn) {
  Observed observed(kByHand);
  record({.bytes = 1, .kind = EventKind::send});
  EXPECT_EQ(in_child([] {
              record({.bytes = 2, .kind = EventKind::send});
              collect();
              stop_collecting();
              std::_Exit(on() ? 1 : 0);
            }),
            0);
  record({.bytes = 3, .kind = EventKind::send});
  observed.stop();
  const auto seen = observed.kept->seen();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].event.bytes, 1U);
  EXPECT_EQ(seen[1].event.bytes, 3U);
}

// The exit of a child must not wait for a thread that it does not have, nor write its parent's data.
TEST(Fork, AChildMayExitAsProgramsDo) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "exit handlers of a child that has lost its threads confuse it";
  }
  Observed observed(kByHand);
  record({.kind = EventKind::send});
  EXPECT_EQ(in_child([] { std::exit(0); }), 0);
  observed.stop();
  EXPECT_EQ(observed.kept->seen().size(), 1U);
}

TEST(Fork, AChildMayObserveByItself) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "it allows no threads in a child of a process with threads";
  }
  Observed observed(kByHand);
  record({.bytes = 1, .kind = EventKind::send});
  const SourceId before = add_source({.rank = 1});
  EXPECT_EQ(in_child([&] {
              Observed own(kByHand);
              record({.bytes = 2, .kind = EventKind::send});
              const bool unknown = !source_of(before);
              const SourceId mine = add_source({.rank = 5});
              const bool known = source_of(mine) && source_of(mine)->rank == 5 && mine != before;
              own.stop();
              const auto seen = own.kept->seen();
              std::_Exit(unknown && known && seen.size() == 1 && seen[0].event.bytes == 2 ? 0 : 1);
            }),
            0);
}

class WritesAtTheEnd final : public Sink {
 public:
  explicit WritesAtTheEnd(std::string file) : file_(std::move(file)) {}
  void take(const Round& round) override {
    events_ += round.recorded;
    if (round.last) {
      std::FILE* file = std::fopen(file_.c_str(), "w");
      std::fprintf(file, "%d", static_cast<int>(events_));
      std::fclose(file);
    }
  }

 private:
  std::string file_;
  std::uint64_t events_ = 0;
};

TEST(End, OfAProcessThatStopsNothingIsTheLastRound) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "it allows no threads in a child of a process with threads";
  }
  const gradwire::test::ScratchFolder folder;
  const std::string file = (folder.path() / "end").string();
  EXPECT_EQ(in_child([&] {
              add_sink(std::make_shared<WritesAtTheEnd>(file), kByHand);
              record({.kind = EventKind::send});
              std::thread([] { record({.kind = EventKind::send}); }).join();
              std::exit(0);
            }),
            0);
  EXPECT_EQ(gradwire::test::read_text(file), "2");
}

// Its reader and a thread that has a ring outlive dlclose().
TEST(End, OfALibraryThatIsUnloadedIsThatOfTheProcess) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "it allows no threads in a child of a process with threads";
  }
  for (const bool records : {false, true}) {  // a thread of its own that has a ring also keeps a library loaded
    const gradwire::test::ScratchFolder folder;
    const std::string file = (folder.path() / "end").string();
    EXPECT_EQ(in_child([&] {
                void* library = ::dlopen(GRADWIRE_OBSERVE_PLUGIN, RTLD_NOW | RTLD_LOCAL);
                if (library == nullptr) {
                  std::_Exit(1);
                }
                static std::atomic<bool> recorded{false};
                static std::atomic<bool> released{false};
                reinterpret_cast<void (*)(const char*)>(::dlsym(library, "plugin_observe"))(file.c_str());
                const auto record_there = reinterpret_cast<void (*)(std::atomic<bool>*, const std::atomic<bool>*)>(
                    ::dlsym(library, "plugin_record"));
                if (records) {
                  record_there(&recorded, &released);
                }
                while (records && !recorded) {
                  std::this_thread::yield();
                }
                ::dlclose(library);
                if (std::filesystem::exists(file)) {  // its end was reached, so the reader did not vanish with the code
                  std::_Exit(2);
                }
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
                released = true;
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
                std::exit(0);
              }),
              0);
    EXPECT_EQ(gradwire::test::read_text(file), records ? "1" : "0");
  }
}

}  // namespace
}  // namespace gradwire::observe::test
