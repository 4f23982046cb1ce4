// Tests invariants for any timing, chunk size and world: ranks and runs have equal bits, and errors do not grow.
#include <gtest/gtest.h>

#include <random>

#include "codec/registry.hpp"
#include "inputs.hpp"
#include "tests/support/faulty_transport.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

std::vector<CodecSpec> lossy_codecs() {
  std::vector<CodecSpec> specs;
  for (const codec::CodecEntry& entry : codec::codecs()) {
    if (entry.lossy) {
      specs.emplace_back(entry.id);
    }
    if (entry.name == "int8" || entry.name == "int2") {
      specs.emplace_back(entry.id, 41);  // topk's inner codecs differ little
    }
  }
  return specs;
}

// Makes a world whose messages leave late, at random: frames arrive in a different order in every run.
std::vector<std::shared_ptr<Transport>> shuffled_world(int world, std::uint64_t seed, int delays) {
  std::mt19937_64 random(seed);
  auto transports = make_inproc_world(world);
  for (auto& transport : transports) {
    std::vector<transport::Fault> faults;
    for (int i = 0; i < delays; ++i) {
      faults.push_back({.kind = transport::Fault::Kind::delay,
                        .nth = random() % static_cast<std::uint64_t>(40 * delays),
                        .delay = std::chrono::microseconds(random() % 500)});
    }
    transport = transport::make_faulty(transport, std::move(faults));
  }
  return transports;
}

// Trains "parameters" with the mean of changing gradients; returns a text of all hashes, checked equal over ranks.
std::string train(std::vector<std::shared_ptr<Transport>> transports, CodecSpec codec, int steps, std::uint64_t count) {
  const std::size_t world = transports.size();
  std::vector<std::string> histories(world);
  run_ranks(std::move(transports), [&](const std::shared_ptr<Transport>& transport) {
    Communicator communicator(transport);
    std::vector<float> parameters(count, 1.0F);
    std::vector<float> gradient(count);
    std::mt19937 random(static_cast<unsigned>(transport->rank()));
    std::string& history = histories[static_cast<std::size_t>(transport->rank())];
    for (int step = 0; step < steps; ++step) {
      for (std::uint64_t i = 0; i < count; ++i) {
        gradient[i] = parameters[i] * (static_cast<float>(random() % 1000) / 1000.0F - 0.3F);
      }
      communicator.all_reduce(
          view(gradient.data(), count),
          {.codec = codec, .algorithm = Algorithm::two_shot, .reduction = Reduction::mean, .chunk_bytes = 1 << 13});
      for (std::uint64_t i = 0; i < count; ++i) {
        parameters[i] -= 0.01F * gradient[i];
      }
      const std::string_view bytes(reinterpret_cast<const char*>(parameters.data()), count * 4);
      history += std::to_string(std::hash<std::string_view>{}(bytes)) + " ";
    }
  });
  for (std::size_t rank = 1; rank < world; ++rank) {
    EXPECT_EQ(histories[rank], histories[0]) << "rank " << rank << " drifted from rank 0";
  }
  return histories[0];
}

// Mutation tried: the owner keeps its own fp32 sum instead of decoding the frames that it sent; the hashes differ in
// step 0.
TEST(Invariants, RanksStayIdenticalInAnyArrivalOrder) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (const int world : {2, 3, 4, 7, 8}) {
    SCOPED_TRACE("world " + std::to_string(world));
    const CodecSpec codec = CodecSpec::parse("int8");
    const std::string calm = train(make_inproc_world(world), codec, 500 / kStepShare, 9000);
    EXPECT_EQ(train(shuffled_world(world, seed, 100), codec, 500 / kStepShare, 9000), calm)
        << "arrival order changed the result";
  }
}

// Mutations tried: the tile index is relative to the chunk; the last tile of a chunk is left out.
TEST(Invariants, ChunkSizeChangesNoBit) {
  const std::vector<Values> inputs{Values(DType::f32, gaussian(200001, 0)), Values(DType::f32, gaussian(200001, 1)),
                                   Values(DType::f32, gaussian(200001, 2))};
  for (const CodecSpec& codec : lossy_codecs()) {
    for (const int world : {2, 3}) {
      std::vector<std::string> results;
      for (const std::uint64_t chunk_bytes : {1ULL << 13, 1ULL << 15, 1ULL << 17}) {
        std::string result;
        run_ranks(world, [&](const std::shared_ptr<Transport>& transport) {
          Communicator communicator(transport);
          Values values = inputs[static_cast<std::size_t>(transport->rank())];
          communicator.all_reduce(values.view(),
                                  {.codec = codec, .algorithm = Algorithm::two_shot, .chunk_bytes = chunk_bytes});
          if (transport->rank() == 0) {
            result = values.bytes();
          }
        });
        results.push_back(std::move(result));
      }
      EXPECT_TRUE(results[0] == results[1] && results[1] == results[2]) << codec.to_string() << " world " << world;
    }
  }
}

double squared_relative_error_of_mean(const std::vector<std::vector<double>>& inputs, CodecSpec codec) {
  std::vector<double> wanted(inputs[0].size(), 0);
  for (const std::vector<double>& input : inputs) {
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      wanted[i] += input[i] / static_cast<double>(inputs.size());
    }
  }
  double error = 0;
  run_ranks(static_cast<int>(inputs.size()), [&](const std::shared_ptr<Transport>& transport) {
    Communicator communicator(transport);
    Values values(DType::f32, inputs[static_cast<std::size_t>(transport->rank())]);
    communicator.all_reduce(values.view(),
                            {.codec = codec, .algorithm = Algorithm::two_shot, .reduction = Reduction::mean});
    if (transport->rank() == 0) {
      const double relative = relative_error(values.doubles(), wanted);
      error = relative * relative;
    }
  });
  return error;
}

// A ring that encodes again at each hop fails this test.
TEST(Invariants, ErrorOfTheMeanIsFlatInTheWorld) {
  constexpr int kLargest = 128 / kStepShare;
  std::vector<std::vector<double>> inputs;
  for (int rank = 0; rank < kLargest; ++rank) {
    inputs.push_back(gaussian(12 * codec::kTileElements, rank));
  }
  const auto first = [&](int world) {
    return std::vector<std::vector<double>>(inputs.begin(), inputs.begin() + world);
  };
  for (const CodecSpec& codec : lossy_codecs()) {
    const double at_8 = squared_relative_error_of_mean(first(8), codec);
    for (const int world : {2, kLargest / 4, kLargest}) {
      EXPECT_LE(squared_relative_error_of_mean(first(world), codec), 1.2 * at_8)
          << codec.to_string() << " world " << world;
    }
  }
}

}  // namespace
}  // namespace gradwire::test
