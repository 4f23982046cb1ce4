// Compares hierarchical over NCCL with the host's codecs from the nodes' sums on: the ranks of one GPU are two nodes of
// two, by a setting. Inputs are small integers, whose sums are exact in any order, so the nodes' sums are known.
#include <algorithm>

#include "exchange/resolved_call.hpp"
#include "exchange/tier_partition.hpp"
#include "tests/gpu/ranks_world.hpp"
#include "tests/support/node_reference.hpp"

namespace gradwire::gpu {
namespace {

using exchange::TierPartition;
using exchange::Tiers;

constexpr std::chrono::seconds kTiersTimeout{30};
constexpr std::uint64_t kCount = 100'007;

float value_of(std::uint64_t element, int rank, std::uint32_t step) {
  return static_cast<float>(static_cast<int>((element * 31 + static_cast<unsigned>(rank) * 17 + step * 7) % 199) - 99);
}

struct TiersCall {
  CodecSpec codec;
  CodecSpec inside;
  std::uint64_t chunk_bytes;

  [[nodiscard]] bool feedback() const { return codec::Codec(codec, DType::f32).lossy(); }
  [[nodiscard]] exchange::Resolved resolve(int rank, const std::shared_ptr<const Tiers>& tiers) const {
    return exchange::resolve({.algorithm = Algorithm::hierarchical,
                              .codec = codec,
                              .second_hop = codec,
                              .intra = inside,
                              .count = kCount,
                              .feedback = feedback(),
                              .chunk_bytes = exchange::ChunkSize::as_asked(chunk_bytes),
                              .native = {.in_nodes = true}},
                             {rank, tiers->world_size(), tiers});
  }
};

// Returns the nodes' sums by rank and lane, in the dtype in which NCCL makes them.
std::vector<std::vector<test::NodeSum>> sums_of(const Tiers& tiers, const TierPartition& lanes, DType dtype,
                                                std::uint32_t step) {
  std::vector<std::vector<test::NodeSum>> all;
  for (int rank = 0; rank < tiers.world_size(); ++rank) {
    std::vector<test::NodeSum>& mine = all.emplace_back();
    for (std::uint64_t lane = 0; lane < lanes.lanes(); ++lane) {
      const exchange::Chunk part = lanes.part(tiers.place_of(rank), lane);
      std::vector<float> sum(part.count);
      for (const int member : tiers.members(tiers.node_of(rank))) {
        for (std::uint32_t i = 0; i < part.count; ++i) {
          sum[i] += value_of(part.first + i, member, step);
        }
      }
      test::NodeSum& of_lane = mine.emplace_back(dtype, std::vector<std::byte>(part.count * element_bytes(dtype)));
      test::run_convert(sum.data(), DType::f32, of_lane.bytes.data(), dtype, part.count, 1, 1);
    }
  }
  return all;
}

void check_call(Check& check, const World& world, exchange::CudaDevice& device, exchange::StreamExecutor& executor,
                const TiersCall& call, const std::shared_ptr<const Tiers>& tiers) {
  constexpr std::uint32_t kFirst = 3;
  const TierPartition lanes(kCount, *tiers, exchange::ChunkSize::as_asked(call.chunk_bytes));
  const exchange::ResolvedCall resolved = call.resolve(world.rank(), tiers).call;
  test::NodeReference reference{.tiers = *tiers,
                                .partition = lanes,
                                .codecs = resolved.codecs,
                                .dtype = DType::f32,
                                .divisor = static_cast<double>(world.world_size()),
                                .feedback = call.feedback(),
                                .bucket = kRanksBucket};
  std::vector<std::vector<float>> residuals;
  for (int rank = 0; rank < world.world_size(); ++rank) {
    residuals.emplace_back(exchange::elements_of(exchange::parts_of(
        kCount, exchange::ChunkSize::as_asked(call.chunk_bytes), {rank, tiers->world_size(), tiers})));
  }
  std::vector<float>& own = residuals[static_cast<std::size_t>(world.rank())];
  const Memory gradient{Bytes(kCount * sizeof(float))};
  const Memory residual{Bytes(own.size() * sizeof(float))};
  const Memory status{Bytes(sizeof(kernels::DeviceStatus))};
  const Memory word(std::as_bytes(std::span(&kFirst, 1)));
  for (std::uint32_t step = kFirst; step < kFirst + 3; ++step) {
    std::vector<float> input(kCount);
    for (std::uint64_t i = 0; i < kCount; ++i) {
      input[i] = value_of(i, world.rank(), step);
    }
    gradient.write(bytes_of(input));
    exchange::Resolved now = call.resolve(world.rank(), tiers);
    device.follow_caller();
    executor.run(std::move(now.schedule), {.input = {gradient.data(), 0, kCount},
                                           .output = {gradient.data(), 0, kCount},
                                           .count = kCount,
                                           .call = std::move(now.call),
                                           .reduction = Reduction::mean,
                                           .bucket = kRanksBucket,
                                           .step = word.as<std::uint32_t>(),
                                           .status = status.as<kernels::DeviceStatus>(),
                                           .local_residual = {},
                                           .owner_residual = {},
                                           .node_residual = call.feedback() ? residual.as<float>() : nullptr,
                                           .name = "tiers"});
    device.advance(word.as<std::uint32_t>());
    device.lead_caller();
    device.wait(device.mark(), kTiersTimeout);
    reference.step = step;
    std::vector<std::byte> wanted(kCount * sizeof(float));
    reference.make(sums_of(*tiers, lanes, *resolved.node_sums, step), residuals, wanted);
    const std::string what = "tiers 2 x 2, " + call.codec.to_string() + ", inside " + call.inside.to_string() + ", " +
                             std::to_string(lanes.lanes()) + " lanes, step " + std::to_string(step);
    check.same_elements(DType::f32, gradient.read(), wanted, what);
    check.that(world.agree(gradient.read()), what + ": ranks differ");
    if (call.feedback()) {
      check.same_elements(DType::f32, residual.read(), bytes_of(own), what + ": residual");
    }
  }
}

}  // namespace

void check_tiers(Check& check, const World& world, exchange::CudaDevice& device, exchange::StreamExecutor& executor) {
  if (world.world_size() < 4 || world.world_size() % 2 != 0) {
    return;  // there are no two nodes of two
  }
  const auto tiers = std::make_shared<const Tiers>(Tiers::in_rows(2, world.world_size()));
  device.set_nodes(*tiers);
  for (const std::uint64_t chunk_bytes : {1U << 22, 1U << 13}) {
    for (const char* codec : {"int8", "int4", "topk(1%)+int8", "exact"}) {
      check_call(check, world, device, executor, {CodecSpec::parse(codec), CodecSpec::exact(), chunk_bytes}, tiers);
    }
    check_call(check, world, device, executor, {CodecSpec::parse("int8"), CodecSpec::parse("bf16"), chunk_bytes},
               tiers);
  }
}

}  // namespace gradwire::gpu
