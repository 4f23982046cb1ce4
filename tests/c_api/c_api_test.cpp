// Tests the C API under mpirun: results, the answer to each mistake, structs of other versions, errors across ranks.
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "c_api_support.hpp"
#include "c_side.h"
#include "gradwire/mpi.h"
#include "gradwire/version.hpp"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

TEST(CApi, NamesItsVersionAndStatuses) {
  EXPECT_STREQ(gradwire_version(), std::string(gradwire::kVersion).c_str());
  const std::vector<std::string> names{"ok",        "invalid_argument", "unsupported", "corrupt",       "mismatch",
                                       "transport", "timeout",          "aborted",     "out_of_memory", "internal",
                                       "expelled",  "too_few"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(gradwire_status_text(static_cast<gradwire_status>(i)), names[i]);
  }
  EXPECT_STREQ(gradwire_status_text(static_cast<gradwire_status>(12)), "unknown");
  EXPECT_STREQ(gradwire_status_text(static_cast<gradwire_status>(-1)), "unknown");
}

TEST(CApi, ServesAProgramInC) {
  double ratio = 0;
  ASSERT_EQ(c_side_round_trip(MPI_COMM_WORLD, &ratio), 0) << gradwire_last_error();
  if (world_size() > 1) {
    EXPECT_GT(ratio, 3.8) << "nothing was compressed";
  }
}

TEST(CApi, AllReducesAsAsked) {
  gradwire_communicator* communicator = nullptr;
  ASSERT_OK(gradwire_communicator_create_mpi(MPI_COMM_WORLD, nullptr, &communicator));
  EXPECT_EQ(gradwire_communicator_rank(communicator), world_rank());
  EXPECT_EQ(gradwire_communicator_world_size(communicator), world_size());
  const int ranks = world_size();
  constexpr std::size_t kCount = 30000;
  std::vector<float> input(kCount);
  std::vector<float> output(kCount);
  std::vector<float> exact(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    input[i] = static_cast<float>(i % 97) * static_cast<float>(world_rank() + 1);
    exact[i] = static_cast<float>(i % 97) * static_cast<float>(ranks * (ranks + 1)) / 2;
  }
  gradwire_statistics statistics{};
  statistics.struct_size = sizeof statistics;
  ASSERT_OK(gradwire_all_reduce(communicator, input.data(), output.data(), kCount, GRADWIRE_F32, nullptr, &statistics));
  EXPECT_EQ(statistics.calls, 1U);
  EXPECT_EQ(statistics.bytes_in, 4 * kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_NEAR(output[i], exact[i], 96.0 * ranks * (ranks + 1) / 254) << i;
  }
  if (ranks > 1) {
    EXPECT_NE(output, exact) << "int8 is not exact";
    EXPECT_GT(statistics.bytes_uncompressed, 3 * statistics.bytes_sent);
  }

  gradwire_call_options options{};
  options.struct_size = sizeof options;
  options.codec = "exact";
  options.reduction = GRADWIRE_MEAN;
  options.algorithm = GRADWIRE_ONE_SHOT;
  ASSERT_OK(gradwire_all_reduce(communicator, input.data(), output.data(), kCount, GRADWIRE_F32, &options, nullptr));
  EXPECT_EQ(output[1] * static_cast<float>(ranks), exact[1]);
  EXPECT_EQ(output[0], 0);

  // With error feedback the next call delivers what one call drops. Without it both calls would drop the same.
  gradwire_feedback* feedback = nullptr;
  ASSERT_OK(gradwire_feedback_create(kCount, &feedback));
  options.codec = "int4";
  options.algorithm = GRADWIRE_ALGORITHM_DEFAULT;
  options.feedback = feedback;
  std::vector<float> sum(kCount);
  std::vector<double> distance(2);
  for (int call = 0; call < 8; ++call) {
    ASSERT_OK(gradwire_all_reduce(communicator, input.data(), output.data(), kCount, GRADWIRE_F32, &options, nullptr));
    for (std::size_t i = 0; i < kCount; ++i) {
      sum[i] += output[i] / 8;
      if (call == 0) {
        distance[0] += std::abs(output[i] - exact[i] / static_cast<float>(ranks));
      }
    }
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    distance[1] += std::abs(sum[i] - exact[i] / static_cast<float>(ranks));
  }
  if (ranks > 1) {
    EXPECT_LT(distance[1], 0.4 * distance[0]);
  }
  gradwire_feedback_destroy(feedback);

  double values[3] = {1.0 / 3, world_rank() + 0.5, -1};
  ASSERT_OK(gradwire_broadcast(communicator, values, 3, GRADWIRE_F64, ranks - 1, nullptr, nullptr));
  EXPECT_EQ(values[1], ranks - 0.5);
  EXPECT_OK(gradwire_barrier(communicator));
  gradwire_communicator_destroy(communicator);
}

TEST(CApi, HierarchicalTakesRanksPerNodeAndACodecForEachTier) {
  const auto ranks = static_cast<std::uint32_t>(world_size());
  gradwire_communicator_options wanted{};
  wanted.struct_size = sizeof wanted;
  wanted.ranks_per_node = ranks + 1;
  gradwire_communicator* communicator = nullptr;
  if (ranks > 1) {
    EXPECT_EQ(gradwire_communicator_create_mpi(MPI_COMM_WORLD, &wanted, &communicator), GRADWIRE_INVALID_ARGUMENT);
    EXPECT_NE(std::string(gradwire_last_error()).find("does not divide"), std::string::npos) << gradwire_last_error();
  }
  wanted.ranks_per_node = 1;
  ASSERT_OK(gradwire_communicator_create_mpi(MPI_COMM_WORLD, &wanted, &communicator));
  gradwire_call_options options{};
  options.struct_size = sizeof options;
  options.algorithm = GRADWIRE_HIERARCHICAL;
  options.intra_codec = "int9";
  std::vector<float> values(20000, 1.0F);
  gradwire_statistics statistics{};
  statistics.struct_size = sizeof statistics;
  EXPECT_EQ(gradwire_all_reduce(communicator, values.data(), values.data(), values.size(), GRADWIRE_F32, &options,
                                &statistics),
            GRADWIRE_INVALID_ARGUMENT);
  options.intra_codec = "bf16";
  ASSERT_OK(gradwire_all_reduce(communicator, values.data(), values.data(), values.size(), GRADWIRE_F32, &options,
                                &statistics));
  EXPECT_NEAR(values[19999], ranks, 0.02 * ranks);
  EXPECT_EQ(statistics.bytes_inter, statistics.bytes_sent) << "each rank was given a node of its own";
  gradwire_communicator_destroy(communicator);
}

// Mutations tried: 0 is auto; 5 is two_shot.
TEST(CApi, TheAlgorithmIsTwoShotUnlessOneIsNamed) {
  gradwire_communicator* communicator = nullptr;
  ASSERT_OK(gradwire_communicator_create_mpi(MPI_COMM_WORLD, nullptr, &communicator));
  const auto sum_by = [&](gradwire_algorithm algorithm, std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>((i * 7919 + static_cast<std::size_t>(world_rank()) * 104729) % 10007);
    }
    auto options = sized<gradwire_call_options>();
    options.algorithm = algorithm;
    EXPECT_OK(gradwire_all_reduce(communicator, values.data(), values.data(), count, GRADWIRE_F32, &options, nullptr));
    return values;
  };
  constexpr std::size_t kSmall = 1000;    // one_shot is quickest
  constexpr std::size_t kLarge = 300000;  // two_shot is quickest
  EXPECT_TRUE(sum_by(GRADWIRE_ALGORITHM_DEFAULT, kSmall) == sum_by(GRADWIRE_TWO_SHOT, kSmall));
  EXPECT_TRUE(sum_by(GRADWIRE_ALGORITHM_AUTO, kSmall) == sum_by(GRADWIRE_ONE_SHOT, kSmall));
  EXPECT_TRUE(sum_by(GRADWIRE_ALGORITHM_AUTO, kLarge) == sum_by(GRADWIRE_TWO_SHOT, kLarge));
  EXPECT_EQ(sum_by(GRADWIRE_ONE_SHOT, kSmall) == sum_by(GRADWIRE_TWO_SHOT, kSmall), world_size() == 1)
      << "otherwise this test compares nothing";
  auto options = sized<gradwire_call_options>();
  options.algorithm = static_cast<gradwire_algorithm>(6);
  expect_error(gradwire_all_reduce(communicator, nullptr, nullptr, 0, GRADWIRE_F32, &options, nullptr),
               GRADWIRE_INVALID_ARGUMENT, "gradwire_all_reduce: algorithm is 6; give one of gradwire_algorithm");
  gradwire_communicator_destroy(communicator);
}

TEST(CApi, RefusesNullsAndNumbersThatAreNone) {
  gradwire_policy* policy = nullptr;
  expect_error(gradwire_policy_load(nullptr, &policy), GRADWIRE_INVALID_ARGUMENT, "gradwire_policy_load: file is NULL");
  expect_error(gradwire_policy_load("x", nullptr), GRADWIRE_INVALID_ARGUMENT, "gradwire_policy_load: policy is NULL");
  expect_error(gradwire_policy_parse("codec = 1", "p.toml", &policy), GRADWIRE_INVALID_ARGUMENT,
               "p.toml:1:1: unknown key \"codec\"");
  EXPECT_EQ(policy, nullptr);
  expect_error(gradwire_policy_parse("[defaults]\nsync = { every = 0 }", nullptr, &policy), GRADWIRE_INVALID_ARGUMENT,
               "policy:2:18: ");
  expect_error(gradwire_session_ready(nullptr, 0), GRADWIRE_INVALID_ARGUMENT,
               "gradwire_session_ready: session is NULL");
  expect_error(gradwire_session_finish(nullptr, nullptr), GRADWIRE_INVALID_ARGUMENT, "session is NULL");
  expect_error(gradwire_session_create_mpi(MPI_COMM_WORLD, nullptr, nullptr, nullptr), GRADWIRE_INVALID_ARGUMENT,
               "gradwire_session_create_mpi: session is NULL");
  expect_error(gradwire_barrier(nullptr), GRADWIRE_INVALID_ARGUMENT, "communicator is NULL");
  EXPECT_EQ(gradwire_session_rank(nullptr), -1);
  EXPECT_EQ(gradwire_communicator_world_size(nullptr), -1);
  gradwire_session_destroy(nullptr);
  gradwire_communicator_destroy(nullptr);
  gradwire_feedback_destroy(nullptr);

  gradwire_session* session = nullptr;
  ASSERT_OK(gradwire_session_create_mpi(MPI_COMM_WORLD, nullptr, nullptr, &session));
  float value = 0;
  expect_error(gradwire_session_add(session, "x", &value, 1, static_cast<gradwire_dtype>(7), nullptr),
               GRADWIRE_INVALID_ARGUMENT, "dtype is 7");
  expect_error(gradwire_session_add(session, "x", nullptr, 1, GRADWIRE_F32, nullptr), GRADWIRE_INVALID_ARGUMENT, "x");
  ASSERT_OK(gradwire_session_add(session, "x", &value, 1, GRADWIRE_F32, nullptr));
  expect_error(gradwire_session_add(session, "y", &value, 1, GRADWIRE_F32, nullptr), GRADWIRE_INVALID_ARGUMENT,
               "the gradient of \"y\" overlaps the gradient of \"x\"");
  gradwire_session_destroy(session);

  gradwire_session_options options{};
  options.struct_size = sizeof options;
  options.timeout_ms = -1;
  expect_error(gradwire_session_create_mpi(MPI_COMM_WORLD, nullptr, &options, &session), GRADWIRE_INVALID_ARGUMENT,
               "timeout_ms is -1");
  EXPECT_EQ(session, nullptr);
  options.timeout_ms = INT64_MAX;  // it must work like any other timeout
  ASSERT_OK(gradwire_session_create_mpi(MPI_COMM_WORLD, nullptr, &options, &session));
  ASSERT_OK(gradwire_session_add(session, "x", &value, 1, GRADWIRE_F32, nullptr));
  ASSERT_OK(gradwire_session_ready(session, 0));
  ASSERT_OK(gradwire_session_finish(session, nullptr));
  gradwire_session_destroy(session);
}

TEST(CApi, KeepsTheErrorOfEachThread) {
  (void)gradwire_session_ready(nullptr, 0);
  const std::string mine = gradwire_last_error();
  std::thread([&] {
    EXPECT_STREQ(gradwire_last_error(), "") << "nothing failed on this thread";
    (void)gradwire_barrier(nullptr);
    EXPECT_THAT(gradwire_last_error(), HasSubstr("gradwire_barrier"));
  }).join();
  EXPECT_EQ(gradwire_last_error(), mine);
  const std::string long_name(100000, 'x');
  EXPECT_EQ(gradwire_policy_parse(("a = " + long_name).c_str(), long_name.c_str(), nullptr), GRADWIRE_INVALID_ARGUMENT);
  gradwire_policy* policy = nullptr;
  EXPECT_EQ(gradwire_policy_parse("a = 1", long_name.c_str(), &policy), GRADWIRE_INVALID_ARGUMENT);
  EXPECT_GT(std::strlen(gradwire_last_error()), 1000U);
  EXPECT_LT(std::strlen(gradwire_last_error()), 10000U) << "cut, not overrun";
}

TEST(CApi, UnderstandsStructsOfOtherVersions) {
  gradwire_communicator* communicator = nullptr;
  struct Newer {
    gradwire_communicator_options known;
    std::uint64_t added;
  } newer{};
  newer.known.struct_size = sizeof newer;
  ASSERT_OK(gradwire_communicator_create_mpi(MPI_COMM_WORLD, &newer.known, &communicator));
  gradwire_communicator_destroy(communicator);
  newer.added = 1;
  EXPECT_EQ(gradwire_communicator_create_mpi(MPI_COMM_WORLD, &newer.known, &communicator), GRADWIRE_UNSUPPORTED);
  EXPECT_THAT(gradwire_last_error(), HasSubstr("gradwire_communicator_options sets a field that"));
  newer.known.struct_size = 0;
  EXPECT_EQ(gradwire_communicator_create_mpi(MPI_COMM_WORLD, &newer.known, &communicator), GRADWIRE_INVALID_ARGUMENT);
  EXPECT_THAT(gradwire_last_error(), HasSubstr("struct_size is 0; set it to sizeof(gradwire_communicator_options)"));

  // A shorter struct ends after timeout_ms: the memory after it is not read.
  gradwire_communicator_options older{};
  older.struct_size = offsetof(gradwire_communicator_options, checksum);
  older.checksum = static_cast<gradwire_switch>(77);
  ASSERT_OK(gradwire_communicator_create_mpi(MPI_COMM_WORLD, &older, &communicator));
  // Results are written only as far as there is room.
  float value = 1;
  gradwire_statistics statistics{};
  std::memset(&statistics, 0x5a, sizeof statistics);
  statistics.struct_size = offsetof(gradwire_statistics, bytes_sent);
  ASSERT_OK(gradwire_all_reduce(communicator, &value, &value, 1, GRADWIRE_F32, nullptr, &statistics));
  EXPECT_EQ(statistics.calls, 1U);
  EXPECT_EQ(statistics.bytes_in, 4U);
  EXPECT_EQ(statistics.bytes_sent, 0x5a5a5a5a5a5a5a5aU);
  EXPECT_EQ(statistics.struct_size, offsetof(gradwire_statistics, bytes_sent));
  gradwire_communicator_destroy(communicator);
}

TEST(CApi, SavesAndLoadsASession) {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);  // jobs of other sizes run at the same time
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("gradwire_c_api_test_" + std::to_string(size))).string();
  gradwire_policy* policy = nullptr;
  ASSERT_OK(gradwire_policy_parse("[defaults]\ncodec = \"int4\"\nsmall = \"off\"", nullptr, &policy));
  std::vector<float> gradient(5000, 1);
  for (int round = 0; round < 2; ++round) {
    gradwire_session* session = nullptr;
    ASSERT_OK(gradwire_session_create_mpi(MPI_COMM_WORLD, policy, nullptr, &session));
    ASSERT_OK(gradwire_session_add(session, "w", gradient.data(), gradient.size(), GRADWIRE_F32, nullptr));
    if (round == 1) {
      ASSERT_OK(gradwire_session_load(session, folder.c_str()));
    }
    ASSERT_OK(gradwire_session_ready(session, 0));
    gradwire_step_outcome outcome{};
    outcome.struct_size = sizeof outcome;
    ASSERT_OK(gradwire_session_finish(session, &outcome));
    EXPECT_EQ(outcome.step, static_cast<std::uint64_t>(round)) << "a loaded session goes on where it was";
    if (round == 0) {
      ASSERT_OK(gradwire_session_save(session, folder.c_str()));
    }
    gradwire_session_destroy(session);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  gradwire_policy_destroy(policy);
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() == 0) {
    std::filesystem::remove_all(folder);
  }
}

TEST(CApi, SkipsStepsWithNanAndSaysSo) {
  gradwire_session_options options{};
  options.struct_size = sizeof options;
  options.nonfinite = GRADWIRE_SKIP;
  gradwire_session* session = nullptr;
  ASSERT_OK(gradwire_session_create_mpi(MPI_COMM_WORLD, nullptr, &options, &session));
  float value = world_rank() == 0 ? std::numeric_limits<float>::quiet_NaN() : 3.0F;
  ASSERT_OK(gradwire_session_add(session, "w", &value, 1, GRADWIRE_F32, nullptr));
  ASSERT_OK(gradwire_session_ready(session, 0));
  gradwire_step_outcome outcome{};
  outcome.struct_size = sizeof outcome;
  ASSERT_OK(gradwire_session_finish(session, &outcome));
  EXPECT_EQ(outcome.skipped, 1);
  EXPECT_EQ(outcome.nonfinite, 1);
  gradwire_session_destroy(session);
}

// A difference between ranks gives a status on every rank, and no rank hangs.
TEST(CApi, RanksThatDifferAllGetAStatus) {
  if (world_size() == 1) {
    GTEST_SKIP() << "one rank agrees with itself";
  }
  gradwire_policy* policy = nullptr;
  ASSERT_OK(gradwire_policy_parse(world_rank() == 0 ? "[defaults]\ncodec = \"int8\"" : "[defaults]\ncodec = \"bf16\"",
                                  nullptr, &policy));
  gradwire_session* session = nullptr;
  ASSERT_OK(gradwire_session_create_mpi(MPI_COMM_WORLD, policy, nullptr, &session));
  std::vector<float> gradient(100000);
  ASSERT_OK(gradwire_session_add(session, "w", gradient.data(), gradient.size(), GRADWIRE_F32, nullptr));
  gradwire_status status = gradwire_session_ready(session, 0);
  if (status == GRADWIRE_OK) {
    status = gradwire_session_finish(session, nullptr);
  }
  // The second rank that checks hears about the difference from the first.
  EXPECT_TRUE(status == GRADWIRE_MISMATCH || status == GRADWIRE_ABORTED) << status;
  EXPECT_THAT(gradwire_last_error(), HasSubstr("policy of tensor 0 \"w\": rank "));
  gradwire_session_destroy(session);
  gradwire_policy_destroy(policy);
}

}  // namespace
}  // namespace gradwire::test
