// Tests objects that are used when a process ends, and those that a forked child inherits.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gradwire/communicator.hpp"
#include "gradwire/table.hpp"
#include "model.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/small_stack.hpp"

namespace gradwire::test {
namespace {

constexpr std::size_t kCount = 20000;

void make_sums(const char* codec) {
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    std::vector<float> values(kCount, static_cast<float>(transport->rank() + 1));
    Communicator communicator(transport);
    communicator.all_reduce(view(values.data(), values.size()), {.codec = codec});
    auto gradients = make_gradients();
    Session session(transport, Policy::uniform(codec), {});
    add_all(session, gradients);
    for (const auto& gradient : gradients) {
      session.ready(gradient.id);
    }
    session.finish();
  });
}

// Mutation tried: codec::instruction_sets() has a static vector: SIGSEGV in the handler, and in the destructor below.
TEST(EndOfTheProcess, SumsInAHandlerOfExit) {
  for (const char* codec : {"topk(1%)+int8", "int4", "exact"}) {
    static const char* of_handler = nullptr;
    of_handler = codec;
    EXPECT_EXIT(
        {
          ::setenv("GRADWIRE_LOG", "debug", 1);        // NOLINT(concurrency-mt-unsafe): the log outlives its users too
          std::atexit([] { make_sums(of_handler); });  // registered first, so that it runs after all destructors
          make_sums(codec);
          std::exit(0);  // NOLINT(concurrency-mt-unsafe): intended
        },
        ::testing::ExitedWithCode(0), "");
  }
}

struct AtTheVeryEnd {
  std::function<void()> body;
  ~AtTheVeryEnd() {
    if (body) {
      body();
    }
  }
};
AtTheVeryEnd g_end;  // made before anything is used

TEST(EndOfTheProcess, SumsInADestructorOfAStaticObject) {
  EXPECT_EXIT(
      {
        g_end.body = [] { make_sums("topk(1%)+int8"); };
        make_sums("topk(1%)+int8");
        std::exit(0);  // NOLINT(concurrency-mt-unsafe): intended
      },
      ::testing::ExitedWithCode(0), "");
}

#ifndef GRADWIRE_SANITIZED  // sanitizers have larger frames
// Jobs that make sums from threads with 64 KiB keep them on the heap.
TEST(EndOfTheProcess, SumsOnASmallStack) {
  for (const char* codec : {"topk(1%)+int8", "int4", "int2", "exact"}) {
    run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
      Communicator communicator(transport);
      std::vector<float> values(kCount, 1.0F);
      run_on_stack_of(32768, [&] { communicator.all_reduce(view(values.data(), values.size()), {.codec = codec}); });
    });
  }
}
#endif

// Runs `body` in a child, which has ten seconds; returns its output and its status.
std::string output_of_child(const std::function<void()>& body, int& status) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    body();
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string output;
  std::array<char, 4096> part{};
  for (ssize_t count = 1; (count = ::read(ends[0], part.data(), part.size())) > 0;) {
    output.append(part.data(), static_cast<std::size_t>(count));
  }
  ::close(ends[0]);
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return output;
}

// Mutation tried: Session::~Session() = default; the child hangs, because the thread that it would join belongs to its
// parent.
TEST(ForkedChild, LeavesWhatItsParentMade) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer does not support a fork of a process that has threads";
#endif
  for (const Threading threading : kThreading) {
    run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
      auto gradients = make_gradients();
      auto session =
          std::make_unique<Session>(transport, Policy::uniform("int8"), SessionOptions{.threading = threading});
      auto communicator = std::make_unique<Communicator>(transport);
      add_all(*session, gradients);
      session->ready(gradients.front().id);  // in the middle of a step
      int status = -1;
      const std::string output = output_of_child(
          [&] {
            session.reset();
            communicator.reset();
          },
          status);
      EXPECT_EQ(output, "");
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
      for (std::size_t i = 1; i < gradients.size(); ++i) {
        session->ready(gradients[i].id);
      }
      session->finish();  // the parent's session goes on
    });
  }
}

TEST(ForkedChild, LeavesTablesAndTransports) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer does not support a fork of a process that has threads";
#endif
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    auto table = std::make_unique<Table>(transport, TableOptions{.name = "rows", .rows = 10, .width = 4});
    int status = -1;
    auto held = transport;
    const std::string output = output_of_child(
        [&] {
          table.reset();
          held.reset();
        },
        status);
    EXPECT_EQ(output, "");
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  });
}

}  // namespace
}  // namespace gradwire::test
