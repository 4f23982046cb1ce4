// Tests that the stream executor gives the bytes of the host executor, in whatever order a rank's two queues run.
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "stream_harness.hpp"

namespace gradwire::test {
namespace {

std::vector<CodecSpec> all_codecs() {
  std::vector<CodecSpec> specs;
  for (const codec::CodecEntry& entry : codec::codecs()) {
    specs.emplace_back(entry.id);
    specs.emplace_back(entry.id, 41);
  }
  return specs;
}

#ifdef GRADWIRE_SANITIZED
constexpr std::array kWorlds{1, 2, 5};
#else
constexpr std::array kWorlds{1, 2, 3, 4, 5, 8};
#endif
constexpr std::array kDTypes{DType::f32, DType::f16, DType::bf16, DType::f64};
const std::vector<std::uint64_t> kCounts{0, 1, 4095, 4096, 4097, 3 * 4096, 20 * 4096 + 17};

// Tests each codec, dtype, algorithm and count with each world, but not all of their products.
TEST(StreamEquality, AllReduce) {
  unsigned at = 0;
  for (const int world : kWorlds) {
    for (const CodecSpec codec : all_codecs()) {
      ++at;
      compare({.algorithm = at % 3 == 0 ? Algorithm::one_shot : Algorithm::two_shot,
               .first = codec,
               .second = codec,
               .dtype = kDTypes[(at + at / 18) % 4],
               .count = kCounts[at % kCounts.size()],
               .reduction = at % 2 == 0 ? Reduction::sum : Reduction::mean,
               .in_place = at % 5 < 3,
               .zero_rank = at % 5 == 0 ? static_cast<int>(at) % world : -1,
               .step = at,
               .chunk_bytes = at % 4 < 2 ? kOneLane : exchange::ChunkSize(1 << 13)},
              world, at);
    }
  }
}

TEST(StreamEquality, EveryCountInEveryWorld) {
  unsigned at = 0;
  for (const int world : kWorlds) {
    for (const std::uint64_t count : kCounts) {
      for (const bool weighted : {false, true}) {
        const CodecSpec first = CodecSpec::parse(at % 3 == 0 ? "exact" : "int8");
        compare({.first = first,
                 .second = first,
                 .dtype = kDTypes[at % 4],
                 .count = count,
                 .reduction = at / 2 % 2 == 0 ? Reduction::sum : Reduction::mean,
                 .weighted = weighted,
                 .chunk_bytes = at % 5 < 3 ? kOneLane : exchange::ChunkSize(1 << 13)},
                world, at + 1);
        ++at;
      }
    }
  }
}

// There are more lanes than may be in flight, and frames that differ by hop.
TEST(StreamEquality, ManyLanesAndTwoCodecs) {
  const std::vector<CodecSpec> codecs = all_codecs();
  for (unsigned at = 0; at < codecs.size(); ++at) {
    compare({.first = codecs[at],
             .second = codecs[(at + 5) % codecs.size()],
             .count = 41 * 4096 + 5,
             .reduction = Reduction::mean,
             .weighted = at % 2 == 0,
             .chunk_bytes = 1 << 10},
            static_cast<int>(2 + at % 3), at);
  }
}

TEST(StreamEquality, ReduceScatterAllGatherAndBroadcast) {
  unsigned at = 0;
  for (const CodecSpec codec : all_codecs()) {
    for (int i = 0; i < 2; ++i) {
      const int world = kWorlds[++at % kWorlds.size()];
      std::vector<std::uint64_t> counts(static_cast<std::size_t>(world));
      for (std::size_t j = 0; j < counts.size(); ++j) {
        counts[j] = (at + j) % 4 == 0 ? 0 : 3000 * ((at + j) % 4) + j;
      }
      if (at % 3 == 0) {
        counts.assign(counts.size(), 9000 + at);
      }
      const std::uint64_t count = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
      Call call{.first = codec,
                .second = codec,
                .dtype = kDTypes[(at + at / 4) % 4],
                .count = count,
                .counts = counts,
                .step = at,
                .chunk_bytes = at % 4 < 2 ? kOneLane : exchange::ChunkSize(1 << 13)};
      call.kind = Call::Kind::all_gather;
      call.feedback = at % 2 == 0;
      compare(call, world, at);
      call.kind = Call::Kind::reduce_scatter;
      call.weighted = at % 3 == 0;
      call.reduction = at % 2 == 0 ? Reduction::mean : Reduction::sum;
      compare(call, world, at);
      compare({.kind = Call::Kind::broadcast,
               .first = codec,
               .second = codec,
               .dtype = kDTypes[at % 4],
               .count = kCounts[at % kCounts.size()],
               .in_place = at % 2 == 0,
               .root = static_cast<int>(at) % world,
               .chunk_bytes = call.chunk_bytes},
              world, at);
    }
  }
}

// Inputs are small integers, whose sum is exact in any order.
TEST(StreamEquality, NativeSums) {
  unsigned at = 0;
  for (const int world : {2, 3, 4}) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      for (const std::uint64_t count : kCounts) {
        ++at;
        Call call{.kind = Call::Kind::native,
                  .first = CodecSpec::parse("exact"),
                  .second = CodecSpec::parse("exact"),
                  .dtype = dtype,
                  .count = count,
                  .reduction = at % 2 == 0 ? Reduction::mean : Reduction::sum,
                  .in_place = at % 3 != 0,
                  .zero_rank = at % 5 == 0 ? 1 : -1};
        Outcome host(call, world);
        Outcome devices(call, world);
        for (int rank = 0; rank < world; ++rank) {
          Values exact(dtype, integers(count, rank));
          for (Outcome* outcome : {&host, &devices}) {
            outcome->ranks[static_cast<std::size_t>(rank)].fill(exact);
          }
        }
        SCOPED_TRACE(call.text() + " world " + std::to_string(world));
        run_on_host(call, host);
        run_on_devices(call, devices, at);
        expect_equal(call, host, devices);
      }
    }
  }
}

// The host has no native sums of 16-bit types, but a mean of equal numbers is that number.
TEST(StreamEquality, NativeSumsInSixteenBits) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const bool weighted : {false, true}) {
      Call call{.kind = Call::Kind::native,
                .first = CodecSpec::parse("exact"),
                .second = CodecSpec::parse("exact"),
                .dtype = dtype,
                .count = 5000,
                .reduction = Reduction::mean,
                .weighted = weighted};
      Outcome devices(call, 4);
      const std::vector<double> same(call.count, 0.5);
      for (RankMemory& memory : devices.ranks) {
        memory.fill(Values(dtype, same));
      }
      run_on_devices(call, devices, 1);
      for (const RankMemory& memory : devices.ranks) {
        Values got(dtype, call.count);
        std::memcpy(got.view().data, memory.input.data(), memory.input.size());
        for (const double x : got.doubles()) {
          ASSERT_NEAR(x, 0.5, weighted ? 0.005 : 0);
        }
      }
    }
  }
}

// Residuals of a step go into later ones, with any codec and collective. Mutations tried: owner residuals fold without
// the sum of weights; the own part does not consume its local residual; a shard that is not kept is not folded.
TEST(StreamEquality, FeedbackOverRandomSwitches) {
  const std::vector<CodecSpec> codecs = all_codecs();
  for (const int world : {1, 2, 3, 4}) {
    for (unsigned seed = 0; seed < 4; ++seed) {
      std::mt19937 random(seed * 8 + static_cast<unsigned>(world));
      const std::uint64_t count = std::vector<std::uint64_t>{100, 4097, 5 * 4096 + 3, 9 * 4096}[seed];
      const bool weighted = seed % 2 == 0;
      const DType dtype = seed == 3 ? DType::bf16 : DType::f32;
      const Call any{.dtype = dtype, .count = count, .feedback = true};
      Outcome host(any, world);
      Outcome devices(any, world);
      if (world == 1) {  // as after a change of world
        for (std::size_t i = 0; i < host.ranks[0].local.size(); i += 3) {
          host.ranks[0].local[i] = devices.ranks[0].local[i] = 0.125F;
          host.ranks[0].owner[i] = devices.ranks[0].owner[i] = -0.25F;
        }
      }
      for (std::uint32_t step = 0; step < 10; ++step) {
        Call call{.dtype = dtype,
                  .count = count,
                  .reduction = random() % 2 == 0 ? Reduction::mean : Reduction::sum,
                  .weighted = weighted,
                  .feedback = true,
                  .in_place = random() % 2 == 0,
                  .step = step};
        call.algorithm = random() % 3 == 0 ? Algorithm::one_shot : Algorithm::two_shot;
        call.chunk_bytes = random() % 2 == 0 ? kOneLane : exchange::ChunkSize(1 << 13);
        call.first = random() % 4 == 0 ? CodecSpec::parse("exact") : codecs[random() % codecs.size()];
        call.second = random() % 2 == 0 ? call.first : codecs[random() % codecs.size()];
        call.zero_rank = random() % 4 == 0 ? static_cast<int>(random()) % world : -1;
        call.preconditioned =
            world > 1 && step % 3 == 1 && !(call.first == CodecSpec::exact() && call.second == CodecSpec::exact());
        compare(call, world, seed * 100 + step, &host, &devices);
        if (HasFatalFailure()) {
          return;
        }
      }
      if (world > 1) {
        Call exact{.kind = Call::Kind::native,
                   .first = CodecSpec::parse("exact"),
                   .second = CodecSpec::parse("exact"),
                   .dtype = dtype,
                   .count = count,
                   .weighted = weighted,
                   .feedback = true,
                   .step = 99};
        Outcome last(exact, world);
        last.take_residuals(devices);
        run_on_devices(exact, last, seed);
        for (const RankMemory& memory : last.ranks) {
          EXPECT_TRUE(std::all_of(memory.local.begin(), memory.local.end(), [](float x) { return x == 0; }));
          EXPECT_TRUE(std::all_of(memory.owner.begin(), memory.owner.end(), [](float x) { return x == 0; }));
        }
      }
    }
  }
}

// The test runs with and without residuals and weights, and with every dtype; scales change from call to call.
TEST(StreamEquality, PreconditionedCodecs) {
  unsigned at = 0;
  for (const int world : {2, 3, 5}) {
    for (const CodecSpec codec : all_codecs()) {
      if (codec == CodecSpec::exact()) {
        continue;
      }
      ++at;
      const bool feedback = at % 3 != 0;
      Call call{.first = codec,
                .second = at % 4 == 0 ? CodecSpec::exact() : codec,
                .dtype = kDTypes[(at + at / 17) % 4],
                .count = kCounts[1 + at % (kCounts.size() - 1)],
                .reduction = at % 2 == 0 ? Reduction::sum : Reduction::mean,
                .weighted = at % 5 < 2,
                .feedback = feedback,
                .preconditioned = true,
                .in_place = at % 7 < 4,
                .zero_rank = at % 6 == 0 ? static_cast<int>(at) % world : -1};
      Outcome host(call, world);
      Outcome devices(call, world);
      for (call.step = 0; call.step < 3; ++call.step) {
        call.algorithm = (at + call.step) % 3 == 0 ? Algorithm::one_shot : Algorithm::two_shot;
        call.chunk_bytes = (at + call.step) % 2 == 0 ? kOneLane : exchange::ChunkSize(1 << 13);
        compare(call, world, at, feedback ? &host : nullptr, feedback ? &devices : nullptr);
        if (HasFatalFailure()) {
          return;
        }
      }
    }
  }
}

// The lanes of several collectives follow each other without a gap.
TEST(StreamEquality, CollectivesInOnePipeline) {
  for (const int world : {2, 3, 5}) {
    const std::vector<Call> calls{{.count = 9 * 4096, .reduction = Reduction::mean, .step = 1},
                                  {.first = CodecSpec::parse("exact"),
                                   .second = CodecSpec::parse("exact"),
                                   .count = 20000,
                                   .weighted = true,
                                   .step = 2},
                                  {.algorithm = Algorithm::one_shot, .count = 10, .step = 3},
                                  {.count = 0, .step = 4},
                                  {.first = CodecSpec::parse("int4"),
                                   .count = 40 * 4096 + 1,
                                   .reduction = Reduction::mean,
                                   .weighted = true,
                                   .step = 5}};
    std::vector<Outcome> host;
    std::vector<Outcome> devices;
    for (const Call& call : calls) {
      host.emplace_back(call, world);
      devices.emplace_back(call, world);
      run_on_host(call, host.back());
    }
    SimulatedWorld simulated(world, 7);
    std::vector<DeviceWords> words(calls.size() * static_cast<std::size_t>(world));
    for (int rank = 0; rank < world; ++rank) {
      exchange::StreamExecutor executor(simulated.device(rank));
      std::vector<std::shared_ptr<const exchange::StreamExecution>> executions;
      for (std::size_t i = 0; i < calls.size(); ++i) {
        executions.push_back(executor.start(
            calls[i].schedule(rank, world),
            stream_task(calls[i], devices[i].ranks[static_cast<std::size_t>(rank)],
                        words[i * static_cast<std::size_t>(world) + static_cast<std::size_t>(rank)], rank, world)));
      }
      EXPECT_FALSE(executions.back()->enqueued());
      executor.finish();
      for (std::size_t i = 0; i < calls.size(); ++i) {
        EXPECT_TRUE(executions[i]->enqueued());
        devices[i].statistics[static_cast<std::size_t>(rank)] = executions[i]->statistics();
      }
    }
    simulated.run();
    for (std::size_t i = 0; i < calls.size(); ++i) {
      SCOPED_TRACE(calls[i].text());
      expect_equal(calls[i], host[i], devices[i]);
    }
  }
}

// NaN and Inf arrive as they do on hosts, and the status says so.
TEST(StreamEquality, NonfiniteValues) {
  for (const char* spec : {"exact", "bf16", "int8", "int4", "topk(1%)+int8"}) {
    Call call{.first = CodecSpec::parse(spec), .second = CodecSpec::parse(spec), .count = 5 * 4096};
    Outcome host(call, 3);
    Outcome devices(call, 3);
    for (Outcome* outcome : {&host, &devices}) {
      const float infinite = std::numeric_limits<float>::infinity();
      std::memcpy(outcome->ranks[1].input.data() + 4 * 9000, &infinite, sizeof infinite);
    }
    run_on_host(call, host);
    run_on_devices(call, devices, 3);
    expect_equal(call, host, devices);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(host.nonfinite[rank]);
      EXPECT_TRUE(devices.nonfinite[rank]);
    }
  }
}

}  // namespace
}  // namespace gradwire::test
