// Tests a job of four processes, one of which computes longer: its files make one timeline, whose critical path names
// it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "gradwire/mpi.hpp"
#include "gradwire/session.hpp"
#include "observe/collector.hpp"
#include "watch/timeline/critical_path.hpp"
#include "watch/timeline/layout.hpp"
#include "watch/timeline/summary.hpp"
#include "watch/timeline/trace_file.hpp"

#ifdef GRADWIRE_DECODES
#include "tests/cli/timeline/decoded_trace.hpp"
#endif

namespace gradwire::watch::timeline {
namespace {

constexpr int kSteps = 6;
constexpr int kSlow = 2;

void train(int rank) {
  Session session = mpi::make_session(MPI_COMM_WORLD, Policy::uniform("int8"), {});
  std::vector<std::vector<float>> gradients(3, std::vector<float>(100'000, 0.5F));
  std::vector<TensorId> ids;
  for (std::vector<float>& gradient : gradients) {
    ids.push_back(session.add("t" + std::to_string(ids.size()), {gradient.data(), gradient.size(), DType::f32}));
  }
  for (int step = 0; step < kSteps; ++step) {
    std::this_thread::sleep_for(std::chrono::milliseconds(rank == kSlow ? 60 : 10));  // computes
    for (const TensorId id : ids) {
      session.ready(id);
    }
    session.finish();
  }
}

void expect_the_slow_rank(const Recording& recording, const Matching& matching) {
  const auto paths = critical_paths(recording, matching);
  ASSERT_EQ(paths.size(), 1U);
  ASSERT_EQ(paths[0].steps.size(), static_cast<std::size_t>(kSteps - 1));
  std::vector<const StepPath*> steps;
  for (const StepPath& step : paths[0].steps) {
    steps.push_back(&step);
  }
  const PathShare first = shares_of(steps, false)[0];
  EXPECT_EQ(recording.ranks[first.rank].rank, kSlow);
  EXPECT_EQ(first.work, Work::compute);
  EXPECT_GT(first.share, 0.5);
}

TEST(TracedMpiJob, IsOneTimelineWhosePathRunsThroughTheSlowRank) {
  int rank = 0;
  int world = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  int number = ::getpid();
  MPI_Bcast(&number, 1, MPI_INT, 0, MPI_COMM_WORLD);
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("gradwire-traced-job-" + std::to_string(number));
  ::setenv("GRADWIRE_TRACE", folder.c_str(), 1);
  train(rank);
  observe::stop_collecting();  // as at the end of the process
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank != 0) {
    return;
  }
  Recording recording = read_recording(folder);
  std::filesystem::remove_all(folder);
  EXPECT_THAT(recording.warnings, ::testing::IsEmpty());
  ASSERT_EQ(recording.ranks.size(), static_cast<std::size_t>(world));
  const Matching matching = match(recording);
  EXPECT_EQ(matching.lonely, 0U);
  EXPECT_GE(matching.messages.size(), static_cast<std::size_t>(kSteps * 2 * world * (world - 1)));
  const Alignment alignment = align(recording, matching);
  EXPECT_EQ(alignment.fits.size(), 1U) << "one host, one clock";
  expect_the_slow_rank(recording, matching);
#ifdef GRADWIRE_DECODES
  std::ostringstream out;
  write_trace(recording, alignment, lay_out(recording, matching), out);
  const test::DecodedTrace trace = test::decode(out.str());
  EXPECT_EQ(trace.flows.size(), matching.messages.size());
  test::expect_flows(trace, 2'000);  // both clocks are read, at slightly different times
#endif
}

}  // namespace
}  // namespace gradwire::watch::timeline
