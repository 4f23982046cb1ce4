// Tests what only the in-process transport promises: buffering, sums in rank order, and freeing memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/ranks.hpp"
#include "tests/transport/exchange.hpp"

namespace gradwire::test {
namespace {

TEST(Inproc, WorldHasAtLeastOneRank) {
  for (const int world_size : {0, -3}) {
    try {
      (void)make_inproc_world(world_size);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), ::testing::HasSubstr(std::to_string(world_size)));
    }
  }
}

TEST(Inproc, SmallSendsAreCopiedAsideLargeOnesWait) {
  const auto world = make_inproc_world(2);
  Operation small;
  Operation large;
  Operation receive;
  Bytes data(100'000, std::byte{1});
  Bytes in(100'000);
  world[0]->post_send(small, 1, 0, std::span(data).first(8192));
  world[0]->post_send(large, 1, 1, data);
  EXPECT_TRUE(world[0]->progress(kNow));
  EXPECT_TRUE(small.done());
  EXPECT_FALSE(large.done());
  data.assign(data.size(), std::byte{2});  // a receive reads the data only when it is matched
  world[1]->post_receive(receive, 0, 1, in);
  EXPECT_TRUE(world[1]->progress(kNow));
  EXPECT_TRUE(world[0]->progress(kNow));
  EXPECT_TRUE(large.done());
  EXPECT_TRUE(in == data);
  world[1]->post_receive(receive, 0, 0, std::span(in).first(8192));
  EXPECT_TRUE(world[1]->progress(kNow));
  EXPECT_EQ(in[8191], std::byte{1});
}

TEST(Inproc, CancelledSendIsNeverReceived) {
  const auto world = make_inproc_world(2);
  Operation send;
  Operation receive;
  const Bytes data(100'000);
  Bytes in(100'000);
  world[0]->post_send(send, 1, 0, data);
  EXPECT_TRUE(world[0]->cancel(send));
  world[1]->post_receive(receive, 0, 0, in);
  EXPECT_FALSE(world[1]->progress(kNow));
  EXPECT_TRUE(receive.pending());
  EXPECT_TRUE(world[1]->cancel(receive));
  EXPECT_EQ(world[0]->counters().messages_sent, 0U);
}

TEST(Inproc, DestroyedEndpointLeavesNothingBehind) {
  auto world = make_inproc_world(2);
  Operation send;
  Operation receive;
  Bytes data(100'000);
  world[0]->post_send(send, 1, 0, data);
  world[0]->post_receive(receive, 1, 0, data);
  world[0].reset();
  Operation other;
  Bytes in(100'000);
  world[1]->post_receive(other, 0, 0, in);
  EXPECT_FALSE(world[1]->progress(kNow));
  EXPECT_TRUE(world[1]->cancel(other));
}

TEST(Inproc, AllReduceSumsInRankOrder) {
  // 1e8f + 1f == 1e8f, so the order shows.
  const std::vector<float> parts{1e8F, 1, 1, 1, -1e8F};
  float expected = parts[0];
  for (std::size_t rank = 1; rank < parts.size(); ++rank) {
    expected += parts[rank];
  }
  ASSERT_EQ(expected, 0.0F);
  run_ranks(5, [&](const std::shared_ptr<Transport>& transport) {
    std::vector<float> values(10'000, parts[static_cast<std::size_t>(transport->rank())]);
    Operation operation;
    transport->post_all_reduce(operation, view(values.data(), values.size()));
    while (!operation.done()) {
      transport->progress(std::chrono::milliseconds(100));
    }
    EXPECT_EQ(values, std::vector<float>(values.size(), expected));
  });
}

// Mutation tried: a rank withdraws from a gathering that is over.
TEST(Inproc, AllReduceThatARankGaveUpCanBeCancelledByTheOthers) {
  const auto world = make_inproc_world(2);
  float a = 1;
  float b = 2;
  Operation first;
  Operation second;
  world[0]->post_all_reduce(first, view(&a, 1));
  EXPECT_TRUE(world[0]->cancel(first));
  world[1]->post_all_reduce(second, view(&b, 1));
  EXPECT_FALSE(world[1]->progress(std::chrono::microseconds(0)));
  EXPECT_TRUE(world[1]->cancel(second));
  EXPECT_EQ(b, 2);
}

TEST(Inproc, AllReduceOfDifferentCountsFailsEverywhere) {
  const auto errors = run_ranks_catching(make_inproc_world(3), [](const std::shared_ptr<Transport>& transport) {
    std::vector<double> values(transport->rank() == 1 ? 7 : 8);
    Operation operation;
    transport->post_all_reduce(operation, view(values.data(), values.size()));
    try {
      for (;;) {
        transport->progress(std::chrono::milliseconds(100));
      }
    } catch (...) {
      transport->cancel(operation);
      throw;
    }
  });
  for (const std::exception_ptr& error : errors) {
    ASSERT_TRUE(error);
    try {
      std::rethrow_exception(error);
    } catch (const Error& seen) {
      EXPECT_THAT(seen.what(), ::testing::AnyOf(::testing::AllOf(::testing::HasSubstr("rank 1 gave 56 bytes"),
                                                                 ::testing::HasSubstr("64 bytes of f64")),
                                                ::testing::AllOf(::testing::HasSubstr("gave up"))));
    }
  }
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

TEST(Inproc, AbortsWithACodeAndATextAsBeforeToo) {
  const auto world = make_inproc_world(2);
  world[0]->abort(ErrorCode::corrupt, "the old form");
  try {
    world[0]->progress(std::chrono::microseconds(0));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    EXPECT_STREQ(error.what(), "the old form");
  }
}

#pragma GCC diagnostic pop

}  // namespace
}  // namespace gradwire::test
