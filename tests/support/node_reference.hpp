// What ranks must make of their nodes' sums where a library sums inside nodes: it takes these sums as the library gave
// them, and encodes, adds and decodes one shard after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "codec/codec.hpp"
#include "exchange/hop_codecs.hpp"
#include "exchange/stream/stream_lane.hpp"
#include "exchange/tier_partition.hpp"
#include "exchange/tiers.hpp"
#include "tests/support/simulated_codecs.hpp"

namespace gradwire::test {

/// A node's sum of one rank's part of a lane.
struct NodeSum {
  DType dtype;
  std::vector<std::byte> bytes;
};

struct NodeReference {
  exchange::Tiers tiers;
  exchange::TierPartition partition;
  exchange::HopCodecs codecs;
  DType dtype;
  double divisor = 1;
  bool feedback = false;
  std::uint32_t bucket = 0;
  std::uint32_t step = 0;
  std::vector<std::uint8_t> powers = {};  // of a scale; empty: none

  /// `sums`: by rank and lane. `residuals`: by rank, in the order of its parts. `output`: the elements of the bucket.
  void make(const std::vector<std::vector<NodeSum>>& sums, std::vector<std::vector<float>>& residuals,
            std::vector<std::byte>& output) const {
    for (std::uint64_t lane = 0; lane < partition.lanes(); ++lane) {
      for (int place = 0; place < static_cast<int>(tiers.members(0).size()); ++place) {
        for (int owner = 0; owner < tiers.nodes(); ++owner) {
          make_shard({lane, place, owner}, sums, residuals, output);
        }
      }
    }
  }

 private:
  struct Shard {
    std::uint64_t lane;
    int place;
    int owner;
  };

  void rescale(const void* from, DType from_dtype, void* to, DType to_dtype, const exchange::Chunk& chunk,
               bool divides) const {
    if (to != nullptr) {
      run_rescale({.from = from,
                   .from_dtype = from_dtype,
                   .to = to,
                   .to_dtype = to_dtype,
                   .powers = powers.data() + chunk.first,
                   .count = chunk.count,
                   .divides = divides});
    }
  }

  void make_shard(const Shard& shard, const std::vector<std::vector<NodeSum>>& sums,
                  std::vector<std::vector<float>>& residuals, std::vector<std::byte>& output) const {
    kernels::DeviceStatus status;
    const auto fields = [&](const codec::Codec& codec) {
      return kernels::CallFields{
          .codec = exchange::frame_codec(codec, 0), .bucket = bucket, .step = &step, .status = &status};
    };
    const exchange::Chunk chunk =
        partition.shards_of(shard.place, shard.lane).chunk(static_cast<std::uint64_t>(shard.owner));
    const std::uint64_t inside = chunk.first - partition.part(shard.place, shard.lane).first;
    const bool scaled = !powers.empty();
    const auto nodes = static_cast<std::size_t>(tiers.nodes());
    const std::uint64_t pitch = exchange::frame_pitch(codecs.first, chunk.count);
    std::vector<std::uint8_t> frames((nodes - 1) * pitch);
    std::uint8_t* next = frames.data();
    std::vector<std::vector<float>> in_units(nodes, std::vector<float>(scaled ? chunk.count : 0));
    std::vector<std::uint8_t> result(codecs.second.frame_bytes(chunk.count));
    kernels::ReduceJob sum{.call = fields(codecs.first),
                           .second = exchange::frame_codec(codecs.second, 0),
                           .count = chunk.count,
                           .first_tile = chunk.first_tile,
                           .frames = frames.data(),
                           .pitch = static_cast<std::uint32_t>(pitch),
                           .ranks = tiers.nodes(),
                           .own_rank = shard.owner,
                           .divisor = divisor,
                           .out = result.data(),
                           .result_dtype = dtype};
    for (int node = 0; node < tiers.nodes(); ++node) {
      const auto at = static_cast<std::size_t>(node);
      const auto rank = static_cast<std::size_t>(tiers.members(node)[static_cast<std::size_t>(shard.place)]);
      const NodeSum& all = sums[rank].at(shard.lane);
      const void* values = all.bytes.data() + inside * element_bytes(all.dtype);
      if (scaled) {
        rescale(values, all.dtype, in_units[at].data(), DType::f32, chunk, true);
        values = in_units[at].data();
      }
      const DType values_dtype = scaled ? DType::f32 : all.dtype;
      const bool keeps = feedback && (node == shard.owner ? codecs.second : codecs.first).lossy();
      float* residual = keeps ? residuals[rank].data() + partition.before(shard.lane) + inside : nullptr;
      if (scaled) {
        rescale(residual, DType::f32, residual, DType::f32, chunk, true);
      }
      if (node == shard.owner) {
        sum.own = values;
        sum.own_dtype = values_dtype;
        sum.owner_residual = residual;
        continue;
      }
      run_encode({.call = fields(codecs.first),
                  .frame = {next, chunk.count, chunk.first_tile, 0, -1},
                  .values = values,
                  .values_dtype = values_dtype,
                  .residual = residual});
      if (scaled) {
        rescale(residual, DType::f32, residual, DType::f32, chunk, false);
      }
      next += pitch;
    }
    run_reduce(sum);
    void* to = output.data() + chunk.first * element_bytes(dtype);
    std::vector<float> decoded(scaled ? chunk.count : 0);
    run_decode({.call = fields(codecs.second),
                .frame = {result.data(), chunk.count, chunk.first_tile, 1, -1},
                .values = scaled ? decoded.data() : to,
                .values_dtype = scaled ? DType::f32 : dtype});
    if (scaled) {
      rescale(sum.owner_residual, DType::f32, sum.owner_residual, DType::f32, chunk, false);
      rescale(decoded.data(), DType::f32, to, dtype, chunk, false);
    }
  }
};

}  // namespace gradwire::test
