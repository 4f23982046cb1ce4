// Tests collectives over exact+zstd: results are those of exact bit by bit, fewer bytes travel, what counts as sent is
// what travelled, and damage or a transport of fixed sizes is refused on every rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "gradwire/emulation.hpp"
#include "inputs.hpp"
#include "tests/support/faulty_transport.hpp"
#include "tests/support/forwarding_transport.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;
using World = std::vector<std::shared_ptr<Transport>>;

struct Called {
  std::vector<Values> results;
  Statistics statistics;        // of all ranks
  TransportCounters travelled;  // likewise
};

// Makes one call in every rank. `call` gets the rank's input, which it overwrites.
template <class Call>
Called call_all(World world, DType dtype, std::uint64_t count, Call call) {
  Called outcome{std::vector<Values>(world.size(), Values(dtype, count)), {}, {}};
  std::mutex mutex;
  run_ranks(std::move(world), [&](const std::shared_ptr<Transport>& transport) {
    Communicator communicator(transport);
    Values values(dtype, gaussian(count, transport->rank()));
    const Statistics statistics = call(communicator, values);
    EXPECT_TRUE(values.guarded());
    const TransportCounters counters = transport->counters();
    const std::lock_guard lock(mutex);
    outcome.results[static_cast<std::size_t>(transport->rank())] = values;
    outcome.statistics.add(statistics);
    outcome.travelled.bytes_sent += counters.bytes_sent;
    outcome.travelled.bytes_received += counters.bytes_received;
  });
  return outcome;
}

void expect_same_results_in_fewer_bytes(const Called& exact, const Called& packed, double ratio) {
  for (std::size_t rank = 0; rank < exact.results.size(); ++rank) {
    EXPECT_TRUE(packed.results[rank].bytes() == exact.results[rank].bytes()) << "rank " << rank;
  }
  const auto agreement = [](const Called& called) {  // on the hierarchy; it is no part of a call
    return called.travelled.bytes_sent - called.statistics.bytes_sent;
  };
  EXPECT_EQ(agreement(packed), agreement(exact));
  EXPECT_LT(agreement(packed), 300U);
  EXPECT_EQ(packed.travelled.bytes_sent, packed.travelled.bytes_received);
  EXPECT_EQ(packed.statistics.frames_sent, exact.statistics.frames_sent);
  EXPECT_GT(static_cast<double>(exact.travelled.bytes_sent), ratio * static_cast<double>(packed.travelled.bytes_sent));
}

// Mutations tried: a send of the whole buffer, as of exact; a receive of exactly the most bytes; a reader that takes
// the buffer for the frame.
TEST(PackedFrames, AllReducesGiveTheBitsOfExactInFewerBytes) {
  for (const Algorithm algorithm : {Algorithm::two_shot, Algorithm::one_shot, Algorithm::hierarchical}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
      for (const bool weighted : {false, true}) {
        SCOPED_TRACE(std::string(to_string(algorithm)) + " " + std::string(to_string(dtype)));
        const auto reduce = [&](const char* codec) {
          return call_all(make_inproc_world(4, {0, 0, 1, 1}), dtype, 70'001,
                          [&](Communicator& communicator, Values& values) {
                            CallOptions options{.codec = codec, .algorithm = algorithm, .reduction = Reduction::mean};
                            options.intra_codec = codec;
                            if (weighted) {
                              options.weight = weight_of(communicator.rank());
                            }
                            return communicator.all_reduce(values.view(), options);
                          });
        };
        // Sums of a node travel as f32, whose exponents shrink less.
        expect_same_results_in_fewer_bytes(reduce("exact"), reduce("exact+zstd"), dtype == DType::bf16 ? 1.25 : 1.04);
      }
    }
  }
}

TEST(PackedFrames, InsideNodesNothingIsPackedUnlessAsked) {
  const auto reduce = [&](const char* codec) {
    return call_all(
        make_inproc_world(4, {0, 0, 1, 1}), DType::f32, 70'001, [&](Communicator& communicator, Values& values) {
          return communicator.all_reduce(values.view(), {.codec = codec, .algorithm = Algorithm::hierarchical});
        });
  };
  const Called exact = reduce("exact");
  const Called packed = reduce("exact+zstd");
  expect_same_results_in_fewer_bytes(exact, packed, 1.01);
  EXPECT_LT(packed.statistics.bytes_inter, exact.statistics.bytes_inter * 9 / 10);
  EXPECT_GT(packed.statistics.bytes_intra, exact.statistics.bytes_intra * 9 / 10) << "results alone are packed";
}

TEST(PackedFrames, OtherCollectivesGiveTheBitsOfExactInFewerBytes) {
  constexpr std::uint64_t kCount = 60'000;
  const std::vector<std::uint64_t> segments{20'000, 0, 40'000};
  const auto part = [&](Values& values, int rank) {
    return View{static_cast<float*>(values.view().data) + (rank == 2 ? 20'000 : 0),
                segments[static_cast<std::size_t>(rank)], DType::f32};
  };
  const auto broadcast = [&](const char* codec) {
    return call_all(make_inproc_world(3), DType::f32, kCount, [&](Communicator& communicator, Values& values) {
      return communicator.broadcast(values.view(), 1, {.codec = codec});
    });
  };
  expect_same_results_in_fewer_bytes(broadcast("exact"), broadcast("exact+zstd"), 1.1);
  const auto gather = [&](const char* codec) {
    return call_all(make_inproc_world(3), DType::f32, kCount, [&](Communicator& communicator, Values& values) {
      return communicator.all_gather(part(values, communicator.rank()), values.view(), segments, {.codec = codec});
    });
  };
  expect_same_results_in_fewer_bytes(gather("exact"), gather("exact+zstd"), 1.1);
  const auto scatter = [&](const char* codec) {
    return call_all(make_inproc_world(3), DType::f32, kCount, [&](Communicator& communicator, Values& values) {
      return communicator.reduce_scatter(values.view(), part(values, communicator.rank()), segments, {.codec = codec});
    });
  };
  expect_same_results_in_fewer_bytes(scatter("exact"), scatter("exact+zstd"), 1.1);
}

// Only one hop has the packed codec.
TEST(PackedFrames, OneHopMayBePacked) {
  const auto reduce = [&](const char* first, const char* second) {
    return call_all(make_inproc_world(3), DType::f32, 50'000, [&](Communicator& communicator, Values& values) {
      return communicator.all_reduce(values.view(),
                                     {.codec = first, .algorithm = Algorithm::two_shot, .second_hop = second});
    });
  };
  expect_same_results_in_fewer_bytes(reduce("exact", "exact"), reduce("exact+zstd", "exact"), 1.04);
  expect_same_results_in_fewer_bytes(reduce("exact", "exact"), reduce("exact", "exact+zstd"), 1.04);
  expect_same_results_in_fewer_bytes(reduce("int8", "exact"), reduce("int8", "exact+zstd"), 1.04);
}

TEST(PackedFrames, AnEmulatedLinkCountsWhatTravelled) {
  const auto reduce = [&](const char* codec) {
    World world = make_inproc_world(2);
    for (auto& transport : world) {
      transport = make_throttled(std::move(transport), Link::parse("1Gbit/s,20us"));
    }
    return call_all(std::move(world), DType::bf16, 300'000, [&](Communicator& communicator, Values& values) {
      return communicator.all_reduce(values.view(), {.codec = codec, .algorithm = Algorithm::two_shot});
    });
  };
  expect_same_results_in_fewer_bytes(reduce("exact"), reduce("exact+zstd"), 1.3);
}

TEST(PackedFrames, DamageIsNamedOnEveryRank) {
  for (const std::size_t offset : {20UL, 40UL, 50UL, 5'000UL}) {
    World world = make_inproc_world(3);
    world[1] =
        transport::make_faulty(std::move(world[1]), {{.kind = transport::Fault::Kind::corrupt, .offset = offset}});
    const auto errors = run_ranks_catching(std::move(world), [&](const std::shared_ptr<Transport>& transport) {
      Communicator communicator(transport, {.checksum = true});
      Values values(DType::f32, gaussian(50'000, transport->rank()));
      communicator.all_reduce(values.view(), {.codec = "exact+zstd", .algorithm = Algorithm::two_shot});
    });
    int named = 0;
    for (const auto& error : errors) {
      ASSERT_NE(error, nullptr);
      try {
        std::rethrow_exception(error);
      } catch (const Error& told) {
        named += told.code() == ErrorCode::corrupt ? 1 : 0;
        EXPECT_THAT(told.what(), HasSubstr("CRC"));
      }
    }
    EXPECT_EQ(named, 1) << "the others hear of it";
  }
}

// A transport of a user, which receives exactly as many bytes as were posted.
class FixedSizes final : public ForwardingTransport {
 public:
  explicit FixedSizes(std::shared_ptr<Transport> inner) : ForwardingTransport(std::move(inner)) {}
  [[nodiscard]] std::string name() const override { return "fixed"; }
  [[nodiscard]] TransportCapabilities capabilities() const override { return {.emulation = {}}; }
  void post_receive_at_most(Operation& operation, int peer, Tag tag, std::span<std::byte> data) override {
    Transport::post_receive_at_most(operation, peer, tag, data);  // as a class that does not override it
  }
};

TEST(PackedFrames, ATransportOfFixedSizesIsRefusedByName) {
  run_ranks(2, [&](const std::shared_ptr<Transport>& inner) {
    const auto transport = std::make_shared<FixedSizes>(inner);
    Operation operation;
    std::byte room[8];
    EXPECT_THROW(transport->post_receive_at_most(operation, 1 - inner->rank(), 3, room), Error);
    EXPECT_FALSE(operation.pending());
    Communicator communicator(transport);
    Values values(DType::f32, gaussian(9000, transport->rank()));
    try {
      communicator.all_reduce(values.view(), {.codec = "exact+zstd", .algorithm = Algorithm::two_shot});
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_THAT(error.what(), HasSubstr("transport fixed receives only messages of a size that is known before"));
    }
  });
}

}  // namespace
}  // namespace gradwire::test
