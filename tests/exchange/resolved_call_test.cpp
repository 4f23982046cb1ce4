// Tests how calls are resolved for every kind of caller, by rules that are written here a second time.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "codec/registry.hpp"
#include "exchange/host/host_executor.hpp"
#include "exchange/residuals/bucket_residuals.hpp"
#include "exchange/resolved_call.hpp"
#include "exchange/stream/stream_executor.hpp"
#include "inputs.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/recording_executor.hpp"

namespace gradwire::test {
namespace {

using namespace exchange;  // NOLINT(google-build-using-namespace): tests internals

constexpr std::uint64_t kCount = 5 * codec::kTileElements + 77;
const CodecSpec kExact = CodecSpec::parse("exact");

std::vector<CodecSpec> specs() {
  std::vector<CodecSpec> all;
  for (const codec::CodecEntry& entry : codec::codecs()) {
    all.emplace_back(entry.id);
    all.emplace_back(entry.id, 41);
  }
  return all;
}

bool lossy(const CodecSpec& spec) { return codec::Codec(spec, DType::f32).lossy(); }

bool takes(const CodecSpec& spec, DType dtype) {
  try {
    static_cast<void>(codec::Codec(spec, dtype));
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Calls body(request, world) for every combination that a caller can bring.
template <class Body>
void for_each_request(Body&& body) {
  const auto two_by_two = std::make_shared<const Tiers>(Tiers::in_rows(2, 4));
  const auto flat = std::make_shared<const Tiers>(Tiers::in_rows(4, 4));
  const std::vector<CodecSpec> all = specs();
  for (const Algorithm algorithm :
       {Algorithm::dense, Algorithm::one_shot, Algorithm::two_shot, Algorithm::hierarchical}) {
    for (const CodecSpec& codec : all) {
      for (const std::optional<CodecSpec>& second : {std::optional(kExact), std::optional(CodecSpec::parse("int8")),
                                                     std::optional(codec), std::optional<CodecSpec>()}) {
        for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
          for (int bits = 0; bits < 64; ++bits) {
            CallRequest request{.algorithm = algorithm,
                                .codec = codec,
                                .second_hop = second,
                                .intra = (bits & 1) != 0 ? CodecSpec::parse("bf16") : kExact,
                                .dtype = dtype,
                                .count = kCount,
                                .weighted = (bits & 2) != 0,
                                .feedback = (bits & 4) != 0,
                                .held = {.any = (bits & 8) != 0, .moved = (bits & 16) != 0}};
            const RankGroup world{(bits & 32) != 0 ? 3 : 0, 4, (bits & 1) != 0 ? two_by_two : flat};
            if (takes(codec, dtype) && takes(second.value_or(codec), dtype)) {
              body(request, world);
            }
          }
        }
      }
    }
  }
}

std::string text_of(const CallRequest& request, const RankGroup& world) {
  return std::string(to_string(request.algorithm)) + " " + request.codec.to_string() + " / " +
         (request.second_hop ? request.second_hop->to_string() : "as first") + " " +
         std::string(to_string(request.dtype)) + (request.weighted ? " weighted" : "") +
         (request.feedback ? " feedback" : "") + (request.held.any ? " held" : "") +
         (request.held.moved ? " moved" : "") + " rank " + std::to_string(world.rank) +
         (has_tiers(world) ? " tiers" : "");
}

TEST(Resolve, KeepsAndFoldsByTheRules) {
  int requests = 0;
  for_each_request([&](const CallRequest& request, const RankGroup& world) {
    SCOPED_TRACE(text_of(request, world));
    const ResolvedCall call = resolve(request, world).call;
    const bool dense = request.algorithm == Algorithm::dense;
    const bool tiered = request.algorithm == Algorithm::hierarchical && has_tiers(world);
    const bool twice = request.algorithm == Algorithm::two_shot || request.algorithm == Algorithm::hierarchical;
    const CodecSpec between = dense ? kExact : request.codec;
    const CodecSpec first = tiered ? *request.intra : between;
    const CodecSpec second = twice ? request.second_hop.value_or(between) : between;
    const ResidualSites& keeps = call.residuals.keeps;
    ASSERT_EQ(keeps.local, request.feedback && lossy(first));
    ASSERT_EQ(keeps.intra, request.feedback && tiered && lossy(between));
    ASSERT_EQ(keeps.owner, request.feedback && twice && lossy(second));
    ASSERT_EQ(call.residuals.any, keeps.any() || request.held.any);
    ASSERT_EQ(call.residuals.folds_owner, request.weighted && request.held.any && (!keeps.owner || request.held.moved));
    ASSERT_EQ(call.codecs.first.spec(), first);
    ASSERT_EQ(call.codecs.second.spec(), second);
    ASSERT_EQ(call.codecs.node.spec(), between);
    const bool exact = first == kExact || between == kExact || second == kExact;
    if (exact && call.residuals.any) {
      ASSERT_GE(element_bytes(call.codecs.first.dtype()), 4U) << "the wire dtype has no room for residuals";
    } else if (!tiered && !lossy(first) && !lossy(second)) {
      ASSERT_EQ(call.codecs.first.dtype(), request.dtype) << "the dtype is wider than necessary";
    }
    ASSERT_EQ(call.codecs.first.working(), call.codecs.second.working());
    ASSERT_EQ(call.codecs.first.working(), call.codecs.node.working());
    ++requests;
  });
  EXPECT_GT(requests, 10000);
}

// The ranges that the ranks of one call keep cover each element once at each site, except for the local site, where
// every rank keeps all elements.
TEST(Resolve, RangesOfAllRanksCoverTheBufferOnce) {
  const auto tiers = std::make_shared<const Tiers>(Tiers::in_rows(2, 4));
  const CodecSpec int8 = CodecSpec::parse("int8");
  for (const Algorithm algorithm : {Algorithm::two_shot, Algorithm::hierarchical}) {
    std::vector<int> owned(kCount);
    std::vector<int> summed(kCount);
    for (int rank = 0; rank < 4; ++rank) {
      const ResidualUse use = resolve({.algorithm = algorithm,
                                       .codec = int8,
                                       .second_hop = int8,
                                       .intra = int8,
                                       .count = kCount,
                                       .feedback = true},
                                      {rank, 4, tiers})
                                  .call.residuals;
      EXPECT_EQ(use.local.first, 0U);
      EXPECT_EQ(use.local.count, kCount);
      const auto mark = [](std::vector<int>& marks, const ResidualUse::Range& range) {
        for (std::uint64_t i = range.first; i < range.first + range.count; ++i) {
          ++marks[i];
        }
      };
      mark(owned, use.owned);
      for (const ResidualUse::Range& range : use.summed) {
        mark(summed, range);
      }
    }
    EXPECT_TRUE(std::all_of(owned.begin(), owned.end(), [](int times) { return times == 1; }));
    const int sums = algorithm == Algorithm::hierarchical ? 1 : 0;  // each element has one, on a node that does not own
                                                                    // it
    EXPECT_TRUE(std::all_of(summed.begin(), summed.end(), [=](int times) { return times == sums; }));
  }
}

TEST(Resolve, RefusesWhatDoesNotFitTheGroup) {
  const auto refused = [](const CallRequest& request, int rank = 0) {
    try {
      static_cast<void>(resolve(request, {rank, 2}));
      return false;
    } catch (const Error& error) {
      return error.code() == ErrorCode::internal;
    }
  };
  const CodecSpec int8 = CodecSpec::parse("int8");
  const CallRequest gather{.collective = Collective::all_gather, .codec = int8, .count = 10, .segments = {4, 6}};
  EXPECT_FALSE(refused(gather));
  EXPECT_TRUE(refused(gather, 2));
  EXPECT_TRUE(refused({.collective = Collective::all_gather, .codec = int8, .count = 10, .segments = {10}}));
  EXPECT_TRUE(refused({.collective = Collective::reduce_scatter, .codec = int8, .count = 10, .segments = {4, 7}}));
  EXPECT_TRUE(refused({.collective = Collective::broadcast, .codec = int8, .count = 10, .root = 2}));
  EXPECT_FALSE(refused({.collective = Collective::broadcast, .codec = int8, .count = 10, .root = 1}));
}

TEST(Resolve, AGatherKeepsItsOwnSegment) {
  const std::vector<std::uint64_t> segments{10, 0, 5000, 3};
  const ResolvedCall call = resolve({.collective = Collective::all_gather,
                                     .codec = CodecSpec::parse("int8"),
                                     .count = 5013,
                                     .segments = segments,
                                     .feedback = true},
                                    {2, 4})
                                .call;
  EXPECT_EQ(call.residuals.local.first, 10U);
  EXPECT_EQ(call.residuals.local.count, 5000U);
  EXPECT_FALSE(call.residuals.keeps.owner);
}

TEST(Resolve, NativeWhereTheLibraryHasTheDtypeAndItIsSmall) {
  const auto name = [](DType dtype, std::uint64_t count, const NativeSum& native, bool held = false) {
    return std::string(
        resolve(
            {.algorithm = Algorithm::dense, .dtype = dtype, .count = count, .held = {.any = held}, .native = native},
            {0, 2})
            .schedule.name);
  };
  const std::string native = "native all-reduce";
  const NativeSum f32{.f32 = true, .below = 4000};
  EXPECT_EQ(name(DType::f32, 999, f32), native);
  EXPECT_NE(name(DType::f32, 1000, f32), native);
  EXPECT_NE(name(DType::f64, 10, f32), native);
  EXPECT_NE(name(DType::f32, 10, {}), native);
  EXPECT_EQ(name(DType::bf16, 1 << 20, kStreamNativeSum), native);
  EXPECT_EQ(name(DType::f32, 1000, {.f32 = true, .below = 4000, .asks = true}), native);
  // Residuals widen the dtype on the rank that holds some; ranks compare their terms by the tensor.
  EXPECT_EQ(name(DType::f16, 10, f32, true), native);
  EXPECT_NE(name(DType::f16, 10, {.f32 = true, .below = 4000, .compares_terms = true}, true), native);
}

// The same request has the same schedule on every rank, by the host's executor and by a device's.
TEST(Resolve, SchedulesOfAllRanksFitTogether) {
  const auto tiers = std::make_shared<const Tiers>(Tiers::in_rows(2, 4));
  for (const Collective collective :
       {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather, Collective::broadcast}) {
    for (const bool weighted : {false, true}) {
      std::vector<Schedule> schedules;
      for (int rank = 0; rank < 4; ++rank) {
        schedules.push_back(resolve({.collective = collective,
                                     .algorithm = Algorithm::hierarchical,
                                     .codec = CodecSpec::parse("int8"),
                                     .second_hop = CodecSpec::parse("int8"),
                                     .count = kCount,
                                     .segments = {kCount - 9, 0, 4, 5},
                                     .root = 2,
                                     .weighted = weighted && collective != Collective::broadcast,
                                     .chunk_bytes = 1 << 14},
                                    {rank, 4, tiers})
                                .schedule);
      }
      EXPECT_FALSE(record(schedules, 4).empty());
    }
  }
}

// Plays a caller outside all modules: a gradient in two rounds, the first lossy with feedback, the second exact. It
// provides memory and a store, and need not know which residuals exist and where they go. The second round delivers
// values that the first one dropped: over both, nothing is lost.
TEST(Resolve, AnotherCallerNeedsNoResidualLogic) {
  run_ranks(3, [](const std::shared_ptr<Transport>& transport) {
    HostExecutor executor(*transport, {});
    exchange::ResidualStore store;
    const auto reduce = [&](const std::vector<float>& values, const char* codec, std::uint32_t step) {
      exchange::BucketResiduals residuals(store, {{.count = values.size()}});
      auto [call, schedule] = resolve({.codec = CodecSpec::parse(codec),
                                       .second_hop = CodecSpec::parse(codec),
                                       .count = values.size(),
                                       .feedback = true,
                                       .held = residuals.held()},
                                      {transport->rank(), transport->world_size()});
      residuals.begin(call.residuals);
      std::vector<float> sum = values;
      codec::TensorList tensors(DType::f32, call.codecs.first.working());
      tensors.append(sum.data(), sum.data(), sum.size());
      const ResidualUse use = call.residuals;
      const auto execution = executor.start(std::move(schedule), {.tensors = std::move(tensors),
                                                                  .call = std::move(call),
                                                                  .step = step,
                                                                  .residuals = use.any ? &residuals : nullptr,
                                                                  .name = "a sixth caller"});
      executor.wait(*execution);
      residuals.end(use);
      return sum;
    };
    std::vector<float> values(20'000);
    std::vector<double> wanted(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      for (int rank = 0; rank < 3; ++rank) {
        const float value = static_cast<float>((i * 37 + static_cast<unsigned>(rank) * 101) % 1009) / 512.0F - 1.0F;
        wanted[i] += 2.0 * static_cast<double>(value);
        values[i] = rank == transport->rank() ? value : values[i];
      }
    }
    const std::vector<float> lossy_sum = reduce(values, "int4", 0);
    EXPECT_GT(store.bytes(), 0U);
    const std::vector<float> exact_sum = reduce(values, "exact", 1);
    EXPECT_EQ(store.bytes(), 0U);
    double dropped = 0;
    double lost = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      dropped = std::max(dropped, std::abs(static_cast<double>(lossy_sum[i]) - wanted[i] / 2));
      lost =
          std::max(lost, std::abs(static_cast<double>(lossy_sum[i]) + static_cast<double>(exact_sum[i]) - wanted[i]));
    }
    EXPECT_GT(dropped, 0.05);
    EXPECT_LT(lost, 1e-5);
  });
}

}  // namespace
}  // namespace gradwire::test
