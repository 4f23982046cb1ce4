// Runs one call of a collective twice on the same inputs: by the host executor over inproc, and by stream executors
// over simulated devices. All their outputs must be equal to the byte.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "codec/registry.hpp"
#include "exchange/collectives.hpp"
#include "exchange/host/host_executor.hpp"
#include "exchange/stream/stream_executor.hpp"
#include "inputs.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/simulated_device.hpp"

namespace gradwire::test {

/// Chunks so large that a call is one lane.
inline const exchange::ChunkSize kOneLane = exchange::ChunkSize::as_asked(1 << 24);

/// The parameters that all ranks agree on.
struct Call {
  enum class Kind : std::uint8_t { all_reduce, native, reduce_scatter, all_gather, broadcast };
  Kind kind = Kind::all_reduce;
  Algorithm algorithm = Algorithm::two_shot;
  CodecSpec first = CodecSpec::parse("int8");
  CodecSpec second = CodecSpec::parse("int8");
  DType dtype = DType::f32;
  std::uint64_t count = 0;
  std::vector<std::uint64_t> counts = {};  // of segments
  Reduction reduction = Reduction::sum;
  bool weighted = false;
  bool feedback = false;
  bool preconditioned = false;
  bool in_place = true;
  int zero_rank = -1;  // hands in no memory, but zeros
  int root = 0;
  std::uint32_t step = 0;
  exchange::ChunkSize chunk_bytes = 1 << 13;

  [[nodiscard]] exchange::HopCodecs codecs() const {
    const CodecSpec exact = CodecSpec::parse("exact");
    const bool exact_values = first.values == exact.values || second.values == exact.values;
    return exchange::hop_codecs(first, second, preconditioned && dtype == DType::f64 ? DType::f32 : dtype,
                                (feedback && (first == exact || second == exact)) || (preconditioned && exact_values));
  }
  [[nodiscard]] bool keeps_local(int world) const { return feedback && world > 1 && codecs().first.lossy(); }
  [[nodiscard]] bool keeps_owner(int world) const {
    return feedback && world > 1 && kind == Kind::all_reduce && algorithm == Algorithm::two_shot &&
           codecs().second.lossy();
  }
  [[nodiscard]] bool folds_owner(int world) const { return weighted && feedback && !keeps_owner(world); }
  [[nodiscard]] exchange::ResolvedCall resolved(int world) const {
    return {.codecs = codecs(),
            .weighted = weighted,
            .residuals = {.any = feedback,
                          .keeps = {.local = keeps_local(world), .owner = keeps_owner(world)},
                          .folds_owner = folds_owner(world)},
            .preconditioned = preconditioned && world > 1};
  }
  /// Returns the scale of this step, equal on all ranks: over many orders of magnitude, with some invalid values.
  [[nodiscard]] std::vector<float> scale() const {
    std::vector<float> all(preconditioned ? count : 0);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double phase = 1.3 * static_cast<double>(i) + 5.0 * step;
      all[i] = i % 501 == 7    ? 0.0F
               : i % 503 == 11 ? std::numeric_limits<float>::quiet_NaN()
                               : static_cast<float>(std::exp(5 * std::sin(phase)));
    }
    return all;
  }
  [[nodiscard]] static double weight(int rank) { return 1 + (rank * 7) % 5 + 0.25 * rank; }
  [[nodiscard]] std::uint64_t first_of(int rank) const {
    return std::accumulate(counts.begin(), counts.begin() + rank, std::uint64_t{0});
  }
  [[nodiscard]] exchange::Schedule schedule(int rank, int world) const {
    const exchange::Shape shape{rank, world, weighted, chunk_bytes, folds_owner(world)};
    switch (kind) {
      case Kind::native: return exchange::native_all_reduce(shape, count);
      case Kind::reduce_scatter: return exchange::reduce_scatter(shape, counts, codecs());
      case Kind::all_gather: return exchange::all_gather(shape, counts, codecs());
      case Kind::broadcast: return exchange::broadcast(shape, root, count, codecs());
      case Kind::all_reduce: break;
    }
    return exchange::all_reduce(algorithm, shape, count, codecs());
  }
  [[nodiscard]] std::string text() const {
    return first.to_string() + "/" + second.to_string() + " kind " + std::to_string(static_cast<int>(kind)) + " " +
           std::string(to_string(algorithm)) + " " + std::string(to_string(dtype)) + " x " + std::to_string(count) +
           (reduction == Reduction::mean ? " mean" : " sum") + (weighted ? " weighted" : "") +
           (chunk_bytes.per_shard == 1 ? " in one lane" : "") + (feedback ? " feedback" : "") +
           (in_place ? "" : " apart") + (preconditioned ? " by scale" : "") + " step " + std::to_string(step);
  }
};

/// One rank's memory, as both executors see it: elements [first, first + count) of the bucket.
struct RankMemory {
  std::vector<std::byte> input;
  std::vector<std::byte> output;  // empty if the call is in place
  std::uint64_t input_first = 0, input_count = 0;
  std::uint64_t output_first = 0, output_count = 0;
  bool zeros = false;
  std::vector<float> local;  // residuals
  std::vector<float> owner;
  std::uint64_t owner_first = 0;

  RankMemory(const Call& call, int rank, int world) {
    const auto segment = static_cast<std::size_t>(rank);
    input_count = output_count = call.count;
    if (call.kind == Call::Kind::all_gather) {
      input_first = call.first_of(rank);
      input_count = call.counts[segment];
    } else if (call.kind == Call::Kind::reduce_scatter) {
      output_first = call.first_of(rank);
      output_count = call.counts[segment];
    }
    const bool whole = input_count == call.count && output_count == call.count;
    zeros = rank == call.zero_rank;
    std::vector<double> values = gaussian(call.count, rank + static_cast<int>(call.step) * 100);
    for (std::size_t i = 5; i < values.size(); i += 97) {
      values[i] = -0.0;
    }
    Values typed(call.dtype, std::span(values).subspan(input_first, input_count));
    fill(typed);
    if (!whole || !call.in_place) {
      output.assign(output_count * element_bytes(call.dtype), std::byte{0x5A});
    }
    const auto shards = exchange::Partition::even(call.count, world, call.codecs(), call.chunk_bytes);
    if (call.feedback) {
      local.resize(call.count);
      owner.resize(shards.shard_count(rank));
      owner_first = shards.shard_first(rank);
    }
  }

  void fill(const Values& values) {
    const std::string bytes = values.bytes();
    const auto view = std::as_bytes(std::span(bytes));
    input.assign(view.begin(), view.end());
  }
  [[nodiscard]] const void* in() const { return zeros ? nullptr : input.data(); }
  [[nodiscard]] void* out() { return output.empty() ? input.data() : output.data(); }
};

/// Residuals as two flat arrays.
class FlatResiduals final : public exchange::ResidualAccess {
 public:
  explicit FlatResiduals(RankMemory& memory) : memory_(memory) {}

  [[nodiscard]] const float* load(codec::EncodeSite site, std::uint64_t first, std::uint32_t count,
                                  float* /*scratch*/) const override {
    return kept(site, first, count);
  }
  [[nodiscard]] float* target(codec::EncodeSite site, std::uint64_t first, std::uint32_t count,
                              float* /*scratch*/) override {
    return kept(site, first, count);
  }
  void store(codec::EncodeSite /*site*/, std::uint64_t /*first*/, std::uint32_t /*count*/,
             const float* /*values*/) override {}
  [[nodiscard]] bool holds(codec::EncodeSite site, std::uint64_t first, std::uint32_t count) const override {
    bool any = false;
    piece(site, first, count, [&](const float* values, std::uint64_t, std::uint64_t n) {
      any = std::any_of(values, values + n, [](float x) { return x != 0; });
    });
    return any;
  }
  void fold(codec::EncodeSite site, std::uint64_t first, std::uint32_t count, double factor, codec::Working type,
            void* values) override {
    piece(site, first, count, [&](float* residual, std::uint64_t offset, std::uint64_t n) {
      for (std::uint64_t i = 0; i < n; ++i) {
        if (residual[i] == 0) {
          continue;
        }
        if (type == codec::Working::f64) {
          static_cast<double*>(values)[offset + i] += factor * static_cast<double>(residual[i]);
        } else {
          static_cast<float*>(values)[offset + i] += static_cast<float>(factor) * residual[i];
        }
        residual[i] = 0;
      }
    });
  }

 private:
  [[nodiscard]] float* kept(codec::EncodeSite site, std::uint64_t first, std::uint32_t count) const {
    float* kept = nullptr;
    piece(site, first, count,
          [&](float* values, std::uint64_t, std::uint64_t n) { kept = n == count ? values : nullptr; });
    return kept;
  }
  template <class Body>
  void piece(codec::EncodeSite site, std::uint64_t first, std::uint64_t count, Body&& body) const {
    const bool owned = site == codec::EncodeSite::owner;
    std::vector<float>& kept = owned ? memory_.owner : memory_.local;
    const std::uint64_t kept_first = owned ? memory_.owner_first : 0;
    const std::uint64_t begin = std::max(first, kept_first);
    const std::uint64_t end = std::min(first + count, kept_first + kept.size());
    if (begin < end) {
      body(kept.data() + (begin - kept_first), begin - first, end - begin);
    }
  }
  RankMemory& memory_;
};

/// The memory of a world, and the counts of its ranks.
struct Outcome {
  std::vector<RankMemory> ranks;
  std::vector<Statistics> statistics;
  std::vector<char> nonfinite;  // not bool: ranks are threads, and bits share bytes

  Outcome(const Call& call, int world) : statistics(static_cast<std::size_t>(world)), nonfinite(statistics.size()) {
    for (int rank = 0; rank < world; ++rank) {
      ranks.emplace_back(call, rank, world);
    }
  }
  /// Takes over the residuals of an earlier call.
  void take_residuals(const Outcome& before) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      ranks[rank].local = before.ranks[rank].local;
      ranks[rank].owner = before.ranks[rank].owner;
    }
  }
};

inline void run_on_host(const Call& call, Outcome& outcome) {
  const int world = static_cast<int>(outcome.ranks.size());
  const std::vector<float> scale = call.scale();
  run_ranks(world, [&](const std::shared_ptr<Transport>& transport) {
    const int rank = transport->rank();
    RankMemory& memory = outcome.ranks[static_cast<std::size_t>(rank)];
    const std::size_t element = element_bytes(call.dtype);
    const auto* in = static_cast<const std::byte*>(memory.in());
    auto* out = static_cast<std::byte*>(memory.out());
    codec::TensorList tensors(call.dtype, call.codecs().first.working());
    // Cuts are at the borders of ranges.
    std::vector<std::uint64_t> cuts{0,
                                    memory.input_first,
                                    memory.input_first + memory.input_count,
                                    memory.output_first,
                                    memory.output_first + memory.output_count,
                                    call.count};
    std::sort(cuts.begin(), cuts.end());
    for (std::size_t i = 1; i < cuts.size(); ++i) {
      const std::uint64_t at = cuts[i - 1];
      const bool read = in != nullptr && at >= memory.input_first && at < memory.input_first + memory.input_count;
      const bool written = at >= memory.output_first && at < memory.output_first + memory.output_count;
      tensors.append(read ? in + (at - memory.input_first) * element : nullptr,
                     written ? out + (at - memory.output_first) * element : nullptr, cuts[i] - at);
    }
    std::optional<codec::Preconditioner> preconditioner;
    if (call.preconditioned) {  // scales of two tensors
      preconditioner.emplace();
      preconditioner->append(scale.data(), scale.size() / 3);
      preconditioner->append(scale.data() + scale.size() / 3, scale.size() - scale.size() / 3);
    }
    FlatResiduals residuals(memory);
    exchange::HostExecutor executor(*transport, {.checksum = false});
    const auto execution =
        executor.start(call.schedule(rank, world), {.tensors = std::move(tensors),
                                                    .call = call.resolved(world),
                                                    .reduction = call.reduction,
                                                    .weight = Call::weight(rank),
                                                    .bucket = 3,
                                                    .step = call.step,
                                                    .residuals = call.feedback ? &residuals : nullptr,
                                                    .preconditioner = std::move(preconditioner),
                                                    .name = "call"});
    executor.wait(*execution);
    outcome.statistics[static_cast<std::size_t>(rank)] = execution->statistics();
    outcome.nonfinite[static_cast<std::size_t>(rank)] = execution->nonfinite();
  });
}

/// Words that devices read besides tensors; they must outlive the run.
struct DeviceWords {
  std::uint32_t step = 0;
  kernels::DeviceStatus status = {};
};

inline exchange::StreamTask stream_task(const Call& call, RankMemory& memory, DeviceWords& words, int rank, int world,
                                        const std::byte* powers = nullptr) {
  words.step = call.step;
  return {
      .input = {memory.in(), memory.input_first, memory.input_count},
      .output = {memory.out(), memory.output_first, memory.output_count},
      .count = call.count,
      .dtype = call.dtype,
      .call = call.resolved(world),
      .reduction = call.reduction,
      .weight = Call::weight(rank),
      .bucket = 3,
      .step = &words.step,
      .status = &words.status,
      .local_residual = {memory.local.empty() ? nullptr : memory.local.data(), 0, memory.local.size()},
      .owner_residual = {memory.owner.empty() ? nullptr : memory.owner.data(), memory.owner_first, memory.owner.size()},
      .powers = {reinterpret_cast<const std::uint8_t*>(powers), 0, powers == nullptr ? 0 : call.count},
      .name = "call"};
}

/// Enqueues on all ranks, then runs in an order drawn from `seed`.
inline void run_on_devices(const Call& call, Outcome& outcome, unsigned seed) {
  const int world = static_cast<int>(outcome.ranks.size());
  SimulatedWorld devices(world, seed);
  std::vector<DeviceWords> words(outcome.ranks.size());
  const std::vector<float> scale = call.scale();
  for (int rank = 0; rank < world; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    SimulatedDevice& device = devices.device(rank);
    exchange::StreamExecutor executor(device);
    std::byte* powers = nullptr;
    if (call.preconditioned) {
      powers = device.acquire(std::max<std::uint64_t>(call.count, 1));
      static_cast<exchange::StreamBackend&>(device).measure_scale(scale.data(), call.count,
                                                                  reinterpret_cast<std::uint8_t*>(powers));
    }
    const auto execution =
        executor.run(call.schedule(rank, world), stream_task(call, outcome.ranks[at], words[at], rank, world, powers));
    EXPECT_TRUE(execution->enqueued());
    if (powers != nullptr) {
      device.release(powers);
    }
    outcome.statistics[at] = execution->statistics();
  }
  devices.run();
  for (int rank = 0; rank < world; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    EXPECT_EQ(devices.device(rank).live_bytes(), 0U) << "rank " << rank << " released less than it acquired";
    EXPECT_EQ(words[at].status.bad_frames, 0U);
    outcome.nonfinite[at] = words[at].status.nonfinite != 0;
  }
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

inline void expect_equal(const Call& call, const Outcome& host, const Outcome& devices) {
  for (std::size_t rank = 0; rank < host.ranks.size(); ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    ASSERT_TRUE(host.ranks[rank].input == devices.ranks[rank].input);
    ASSERT_TRUE(host.ranks[rank].output == devices.ranks[rank].output);
    ASSERT_TRUE(same_bits(host.ranks[rank].local, devices.ranks[rank].local));
    ASSERT_TRUE(same_bits(host.ranks[rank].owner, devices.ranks[rank].owner));
    const Statistics& wanted = host.statistics[rank];
    const Statistics& got = devices.statistics[rank];
    // A device's weight is a double; this one is followed by its complement.
    const bool weights = call.weighted && call.count > 0;
    EXPECT_EQ(got.bytes_sent + (weights ? sizeof(double) * (host.ranks.size() - 1) : 0), wanted.bytes_sent);
    EXPECT_EQ(got.frames_sent, wanted.frames_sent);
    EXPECT_EQ(got.bytes_uncompressed, wanted.bytes_uncompressed);
    EXPECT_EQ(got.bytes_in, wanted.bytes_in);
    EXPECT_EQ(got.elements, wanted.elements);
    EXPECT_EQ(got.calls, 1U);
  }
}

/// Runs the call both ways and compares. It starts from the residuals of earlier calls if they are given, and replaces
/// them.
inline void compare(const Call& call, int world, unsigned seed, Outcome* host_before = nullptr,
                    Outcome* devices_before = nullptr) {
  SCOPED_TRACE(call.text() + " world " + std::to_string(world) + " seed " + std::to_string(seed));
  Outcome host(call, world);
  Outcome devices(call, world);
  if (host_before != nullptr) {
    host.take_residuals(*host_before);
    devices.take_residuals(*devices_before);
  }
  run_on_host(call, host);
  run_on_devices(call, devices, seed);
  expect_equal(call, host, devices);
  if (host_before != nullptr) {
    host_before->take_residuals(host);
    devices_before->take_residuals(devices);
  }
}

}  // namespace gradwire::test
