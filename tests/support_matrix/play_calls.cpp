// Plays features of communicators, tables and optimizers.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "exchange/calls/device_communicator.hpp"
#include "gradwire/communicator.hpp"
#include "gradwire/optimizer.hpp"
#include "gradwire/table.hpp"
#include "tests/support_matrix/feature_plays.hpp"
#include "tests/support_matrix/small_jobs.hpp"

namespace gradwire::support::play {
namespace {

// Makes one all-reduce of 1 on rank 0 and 3 on rank 1; its results must be `wanted`.
void reduce_by_rank(Place place, const std::function<CallOptions(int rank)>& options_of, float wanted,
                    const CommunicatorOptions& of = {}, int ranks = kRanks) {
  on_transports(
      [&](const std::shared_ptr<Transport>& transport) {
        std::vector<float> values(kCount, static_cast<float>(1 + 2 * transport->rank()));
        const View all = view(values.data(), values.size());
        const CallOptions options = options_of(transport->rank());
        if (place == Place::host) {
          Communicator(transport, of).all_reduce(all, options);
        } else {
          const auto device = std::make_shared<test::HostDevice>(transport);
          exchange::DeviceCommunicator communicator(device, of);
          communicator.all_reduce(all, all, options);
          communicator.wait();
          device->synchronize();
        }
        EXPECT_NEAR(values[7], wanted, 0.1);
      },
      ranks);
}

void reduce(Place place, const CallOptions& options, float wanted, const CommunicatorOptions& of = {},
            int ranks = kRanks) {
  reduce_by_rank(
      place, [&](int /*rank*/) { return options; }, wanted, of, ranks);
}

}  // namespace

void all_reduce(Place place) {
  reduce(place, {.codec = "int8"}, 4);
  reduce(place, {.codec = "exact", .reduction = Reduction::mean}, 2);
}

void automatic_calls(Place place) { reduce(place, {.algorithm = Algorithm::automatic}, 4); }

void hierarchical_calls(Place place) {
  CommunicatorOptions two_nodes;
  two_nodes.ranks_per_node = 2;
  reduce(place, {.algorithm = Algorithm::hierarchical}, 16, two_nodes, 4);
}

void weighted_calls(Place place) {
  reduce_by_rank(
      place, [](int rank) { return CallOptions{.codec = "exact", .weight = 1 + 2 * rank}; }, 10);
}

void feedback_of_calls(Place place) {
  std::array<FeedbackBuffer, kRanks> buffers{FeedbackBuffer(kCount), FeedbackBuffer(kCount)};
  reduce_by_rank(
      place,
      [&](int rank) { return CallOptions{.codec = "int8", .feedback = &buffers[static_cast<std::size_t>(rank)]}; }, 4);
  EXPECT_GT(buffers[0].bytes(), 0U);
}

void other_calls(Place /*place*/) {
  on_transports([](const std::shared_ptr<Transport>& transport) {
    Communicator communicator(transport);
    const auto own = static_cast<float>(1 + 2 * transport->rank());
    std::vector<float> values(kCount, own);
    std::vector<float> part(kCount / kRanks);
    const std::vector<std::uint64_t> counts(kRanks, kCount / kRanks);
    const View all = view(values.data(), values.size());
    const View segment = view(part.data(), part.size());
    communicator.reduce_scatter(all, segment, counts, {.codec = "int8"});
    EXPECT_NEAR(part[7], 4, 0.1);
    communicator.all_gather(segment, all, counts, {.codec = "exact"});
    EXPECT_NEAR(values[kCount - 1], 4, 0.1) << "this segment belongs to the other rank";
    values[7] = own;
    communicator.broadcast(all, 1, {.codec = "exact"});
    EXPECT_EQ(values[7], 3);
    communicator.barrier();
  });
}

void checked_calls(Place place) { reduce(place, {.codec = "int8"}, 4, {.checksum = true}); }

void captured_calls(Place /*place*/) {
  on_transports([](const std::shared_ptr<Transport>& transport) {
    std::vector<float> values(kCount, 1.0F);
    const View all = view(values.data(), values.size());
    const auto device = std::make_shared<test::HostDevice>(transport);
    exchange::DeviceCommunicator communicator(device, {});
    communicator.reserve(kCount, DType::f32, {});
    Capture capture(*device);
    communicator.all_reduce(all, all, {});
    device->replay(capture.end());
    communicator.wait();
    EXPECT_NEAR(values[7], 2, 0.1);
  });
}

void tables_of_sessions(Place place) {
  on_session(place, with("int8"), [](Rank& rank) {
    const TableId table = rank.session.add_table({.name = "rows", .rows = 10, .width = 2, .learning_rate = 1});
    const std::vector<std::uint64_t> ids{3};
    std::vector<float> row(2);
    rank.session.push(table, ids, std::vector<float>{1, 2});
    rank.session.finish();
    EXPECT_TRUE(rank.session.pull(table, ids, row));
    EXPECT_EQ(row, (std::vector<float>{-1, -2}));
  });
}

void table(Place /*place*/) {
  on_transports([](const std::shared_ptr<Transport>& transport) {
    Table table(transport, {.name = "rows", .rows = 10, .width = 2, .learning_rate = 1});
    const std::vector<std::uint64_t> ids{3};
    std::vector<float> row(2);
    table.push(ids, std::vector<float>{1, 2});
    table.tick();
    table.synchronize();
    table.pull(ids, row);
    EXPECT_EQ(row, (std::vector<float>{-2, -4})) << "both ranks have pushed";
  });
}

void optimizers(Place place) {
  on_session(place, with("int8"), [](Rank& rank) {
    AdamW adam;
    Sgd sgd;
    adam.add("w", rank.parameter, rank.gradient);
    sgd.add("w", rank.other, rank.gradient);
    const TensorId id = rank.session.add("w", rank.gradient_view(), {.scale = adam.scale("w")});
    for (int step = 0; step < 3; ++step) {
      if (step == 2) {
        adam.send_momentum();
      }
      rank.fill();
      adam.to_send("w", rank.gradient);
      const StepOutcome outcome = rank.step(id);
      EXPECT_TRUE(adam.step(outcome));
      EXPECT_TRUE(sgd.step(outcome));
    }
    EXPECT_LT(rank.parameter[7], 1);
  });
}

}  // namespace gradwire::support::play
