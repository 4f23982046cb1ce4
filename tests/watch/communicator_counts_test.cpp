// Tests the files of a job that makes no session.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "gradwire/communicator.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/scratch_folder.hpp"
#include "watch/history_file.hpp"
#include "watch/textfile.hpp"

namespace gradwire::watch {
namespace {

using gradwire::test::read_text;
using gradwire::test::ScratchFolder;
using ::testing::HasSubstr;

#if defined(__SANITIZE_THREAD__)
constexpr bool kNoThreadsAfterFork = true;
#else
constexpr bool kNoThreadsAfterFork = false;
#endif

constexpr int kPair = 2;
constexpr std::uint64_t kElements = 10'000;

// Returns the bytes that the calls' statistics report as sent.
std::uint64_t make_calls(const std::shared_ptr<Transport>& transport) {
  Communicator communicator(transport);
  std::vector<float> values(kElements, 1.0F);
  std::vector<float> part(kElements / kPair);
  const std::vector<std::uint64_t> counts(kPair, kElements / kPair);
  const View all{values.data(), values.size(), DType::f32};
  CallOptions options;
  options.codec = CodecSpec::parse("int8");
  std::uint64_t sent = 0;
  for (int i = 0; i < 3; ++i) {
    sent += communicator.all_reduce(all, all, options).bytes_sent;
  }
  options.codec = CodecSpec::exact();
  return sent + communicator.reduce_scatter(all, {part.data(), part.size(), DType::f32}, counts, options).bytes_sent;
}

double sum_at(const std::string& text, const std::string& name, const std::string& label) {
  double sum = 0;
  const std::regex line(name + "\\{[^}]*" + label + "[^}]*\\} (\\S+)");
  for (std::sregex_iterator match(text.begin(), text.end(), line), end; match != end; ++match) {
    sum += std::stod((*match)[1]);
  }
  return sum;
}

TEST(CommunicatorCounts, AreInFilesAsThoseOfASession) {
  if (kNoThreadsAfterFork) {
    GTEST_SKIP() << "it allows no threads in a child of a process with threads";
  }
  const ScratchFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::setenv("GRADWIRE_JOB", "tried", 1);
    ::setenv("GRADWIRE_METRICS", ("file:" + folder.file("metrics")).c_str(), 1);
    ::setenv("GRADWIRE_REPORT", folder.file("report").c_str(), 1);
    std::vector<std::uint64_t> sent(kPair);
    gradwire::test::run_ranks(kPair, [&](const std::shared_ptr<Transport>& transport) {
      sent[static_cast<std::size_t>(transport->rank())] = make_calls(transport);
    });
    write_whole(folder.path(), "sent", std::to_string(sent[0]) + " " + std::to_string(sent[1]));
    std::exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  std::istringstream sent(read_text(folder.path() / "sent"));
  for (int rank = 0; rank < kPair; ++rank) {
    std::uint64_t expected = 0;
    ASSERT_TRUE(sent >> expected);
    ASSERT_GT(expected, 0U);
    const std::string text = read_text(folder.path() / "metrics" / file_name("library", rank, "tried"));
    EXPECT_EQ(sum_at(text, "gradwire_bytes_sent_total", ""), static_cast<double>(expected)) << text;
    EXPECT_EQ(sum_at(text, "gradwire_calls_total", "group=\"all_reduce\",codec=\"int8"), 3) << text;
    EXPECT_EQ(sum_at(text, "gradwire_calls_total", "group=\"reduce_scatter\",codec=\"exact"), 1) << text;
    EXPECT_EQ(sum_at(text, "gradwire_bytes_in_total", ""), 4 * kElements * sizeof(float)) << text;
    EXPECT_THAT(text, HasSubstr("transport=\"inproc"));
    EXPECT_THAT(text, HasSubstr("gradwire_world_size{part=\"library\",rank=\"" + std::to_string(rank) +
                                "\",gradwire_job=\"tried\"} 2\n"));
    const auto history =
        nlohmann::json::parse(read_text(folder.path() / "report" / history_name("library", rank, "tried")));
    ASSERT_EQ(history.at("groups").size(), 2U) << history;
    EXPECT_EQ(history.at("groups").at(0).at("name"), "all_reduce");
  }
}

}  // namespace
}  // namespace gradwire::watch
