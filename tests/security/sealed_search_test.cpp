// Searches what jobs send for their tensors: with a key no sixteen bytes of a tensor are found by any path, raw or
// encoded; without one the same search finds each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "byte_search.hpp"
#include "codec/codec.hpp"
#include "gradwire/communicator.hpp"
#include "gradwire/session.hpp"
#include "gradwire/table.hpp"
#include "keyed_job.hpp"
#include "sealed_messages.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using Bytes = std::vector<std::byte>;
using Endpoint = std::shared_ptr<Transport>;
using ::testing::HasSubstr;

constexpr std::uint64_t kLarge = 13000;  // elements, of more than one tile for each owner
constexpr std::uint64_t kSmall = 30;
constexpr int kSearchedRanks = 3;  // the last is alone on its node

Bytes raw(std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  return {bytes.begin(), bytes.end()};
}

// The payload of a rank's own frames of int8; those of a step begin anywhere, but at a tile.
Bytes as_int8(std::span<const float> values) {
  const codec::Codec codec(CodecSpec::parse("int8"), DType::f32);
  Bytes frame(codec.frame_bytes(values.size()));
  codec::FrameWriter writer(codec, {.count = static_cast<std::uint32_t>(values.size())}, false, frame);
  for (std::size_t first = 0; first < values.size(); first += codec::kTileElements) {
    const std::size_t count = std::min<std::size_t>(codec::kTileElements, values.size() - first);
    writer.write(values.data() + first, nullptr, static_cast<std::uint32_t>(count));
  }
  writer.finish();
  return {frame.begin() + wire::kHeaderBytes, frame.end()};
}

// A way of values to other ranks.
struct Path {
  std::string name;
  std::function<void(const Endpoint&)> run;
  std::function<Bytes(int rank)> secret;  // what the search must find in clear text
};

Path sum_of_communicator(const std::string& codec, Algorithm algorithm, std::uint64_t count) {
  const bool int8 = codec == "int8" && algorithm != Algorithm::dense;  // dense sums are exact
  return {.name = "sum of " + std::to_string(count) + " by " + codec + ' ' + std::string(to_string(algorithm)),
          .run =
              [=](const Endpoint& transport) {
                Communicator communicator(transport);
                auto values = marked(transport->rank(), count);
                communicator.all_reduce(
                    view(values.data(), count),
                    {.codec = codec, .algorithm = algorithm, .reduction = Reduction::sum, .chunk_bytes = 16384});
              },
          .secret = [=](int rank) { return int8 ? as_int8(marked(rank, count)) : raw(marked(rank, count)); }};
}

Path steps_of_session(const std::string& codec, const std::string& more, std::uint64_t count, bool encoded) {
  return {.name = "step of " + std::to_string(count) + " by " + codec + ' ' + more,
          .run =
              [=](const Endpoint& transport) {
                Session session(transport,
                                Policy::parse("[defaults]\nsmall = \"off\"\ncodec = \"" + codec + "\"\n" + more),
                                {.reduction = Reduction::sum});
                auto values = marked(transport->rank(), count);
                const TensorId id = session.add("tensor", view(values.data(), count));
                for (int step = 0; step < 3; ++step) {
                  session.ready(id);
                  session.finish();
                }
              },
          .secret = [=](int rank) { return encoded ? as_int8(marked(rank, count)) : raw(marked(rank, count)); }};
}

Path table_of(const std::string& what, bool pushes, CodecSpec codec) {
  constexpr std::uint32_t kWidth = 64;
  static const std::vector<std::uint64_t> ids{1, 20, 50, 70, 99};
  return {.name = what,
          .run =
              [=](const Endpoint& transport) {
                Table table(transport,
                            {.name = "words", .rows = 100, .width = kWidth, .codec = codec, .gradient_codec = codec});
                auto values = marked(transport->rank(), ids.size() * kWidth);
                pushes ? table.push(ids, values) : table.assign(ids, values);
                table.tick();
                table.synchronize();
                table.pull(ids, values);
              },
          .secret = [](int rank) { return raw(marked(rank, ids.size() * kWidth)); }};
}

std::vector<Path> paths() {
  std::vector<Path> all;
  for (const Algorithm algorithm : kAlgorithms) {
    for (const std::uint64_t count : {kLarge, kSmall}) {
      all.push_back(sum_of_communicator("exact", algorithm, count));
      all.push_back(sum_of_communicator("int8", algorithm, count));
    }
  }
  all.push_back(steps_of_session("exact", "", kLarge, false));
  all.push_back(steps_of_session("exact", "", kSmall, false));
  all.push_back(steps_of_session("int8", "", kLarge, true));
  all.push_back(steps_of_session("int8", "", kSmall, true));
  all.push_back(steps_of_session("int8", "sync = { async = true, staleness = 1 }\n", kLarge, true));
  all.push_back({.name = "broadcast of a communicator",
                 .run =
                     [](const Endpoint& transport) {
                       auto values = marked(transport->rank(), kLarge);
                       Communicator(transport).broadcast(view(values.data(), kLarge), 1);
                     },
                 .secret = [](int rank) { return rank == 1 ? raw(marked(1, kLarge)) : Bytes(); }});
  all.push_back({.name = "broadcast of a session",
                 .run =
                     [](const Endpoint& transport) {
                       auto values = marked(transport->rank(), kLarge);
                       const View parameters = view(values.data(), kLarge);
                       Session(transport, Policy()).broadcast({&parameters, 1}, 1);
                     },
                 .secret = [](int rank) { return rank == 1 ? raw(marked(1, kLarge)) : Bytes(); }});
  all.push_back(table_of("rows of a table", false, CodecSpec::exact()));
  all.push_back(table_of("gradients of a table", true, CodecSpec::exact()));
  return all;
}

std::shared_ptr<Traffic> traffic_of(const std::function<void(const Endpoint&)>& run, bool sealed) {
  std::optional<KeyInEnvironment> key;
  if (sealed) {
    key.emplace();
  }
  auto traffic = std::make_shared<Traffic>();
  run_ranks(recorded_world(kSearchedRanks, traffic, {0, 0, 1}), run);
  return traffic;
}

TEST(SealedSearch, NoPathShowsATensor) {
  for (const Path& path : paths()) {
    SCOPED_TRACE(path.name);
    const auto plain = traffic_of(path.run, false);
    const SentWindows seen(*plain);
    const SentWindows sealed(*traffic_of(path.run, true));
    std::size_t found = 0;
    for (int rank = 0; rank < kSearchedRanks; ++rank) {
      found += seen.count_of(path.secret(rank));
      EXPECT_EQ(sealed.count_of(path.secret(rank)), 0U);
      EXPECT_EQ(sealed.count_of(raw(marked(rank, kLarge))), 0U);
    }
    EXPECT_GT(found, 10U);
    EXPECT_EQ(sealed.count_of(*plain), 0U) << "whatever was sent without the key";
  }
}

bool holds(const Traffic& traffic, std::span<const std::byte> bytes) {
  return std::ranges::any_of(traffic.messages(), [&](const RecordedMessage& message) {
    return std::search(message.bytes.begin(), message.bytes.end(), bytes.begin(), bytes.end()) != message.bytes.end();
  });
}

// A weight has eight bytes.
TEST(SealedSearch, NoWeightIsShown) {
  const auto weight_of = [](int rank) { return 1.2345678901234567 + 0.0123456789012345 * rank; };
  const auto run = [&](const Endpoint& transport) {
    auto values = marked(transport->rank(), kLarge);
    Communicator(transport).all_reduce(view(values.data(), kLarge),
                                       {.codec = "int8", .weight = weight_of(transport->rank())});
  };
  for (const bool sealed : {false, true}) {
    const auto traffic = traffic_of(run, sealed);
    for (int rank = 0; rank < kSearchedRanks; ++rank) {
      const double weight = weight_of(rank);
      EXPECT_EQ(holds(*traffic, std::as_bytes(std::span(&weight, 1))), !sealed) << rank;
    }
  }
}

// Ranks tell each other their plans where these differ.
TEST(SealedSearch, NoPlanIsShown) {
  const std::string name = "decoder.17.weight";
  for (const bool sealed : {false, true}) {
    std::optional<KeyInEnvironment> key;
    if (sealed) {
      key.emplace();
    }
    const auto traffic = std::make_shared<Traffic>();
    const auto errors = run_ranks_catching(recorded_world(kSearchedRanks, traffic), [&](const Endpoint& transport) {
      auto values = marked(transport->rank(), kLarge);
      Session session(transport, Policy::uniform(transport->rank() == 1 ? "int8" : "bf16"));
      session.ready(session.add(name, view(values.data(), kLarge)));
      session.finish();
    });
    EXPECT_THAT(told(errors[0]), HasSubstr("mismatch"));
    EXPECT_EQ(holds(*traffic, std::as_bytes(std::span(name))), !sealed);
  }
}

// The whole job, with topk, two worlds of each kind and results that are the same on all ranks.
TEST(SealedSearch, NothingOfAJobIsShownAndRanksAgree) {
  const JobRun plain = run_job();
  std::optional<JobRun> sealed;
  {
    const KeyInEnvironment key;
    sealed = run_job();
  }
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    ASSERT_EQ(plain.results[rank].size(), sealed->results[rank].size());
    for (std::size_t i = 0; i < plain.results[0].size(); ++i) {
      EXPECT_EQ(sealed->results[rank][i], sealed->results[0][i]) << "result " << i;
    }
  }
  EXPECT_EQ(SentWindows(*sealed->traffic).count_of(*plain.traffic), 0U);
}

TEST(SealedSearch, ATableHasTheSameRows) {
  std::array<std::vector<float>, 2> rows;
  for (const bool sealed : {false, true}) {
    static_cast<void>(traffic_of(
        [&](const Endpoint& transport) {
          Table table(transport, {.name = "words", .rows = 100, .width = 8});
          const std::vector<std::uint64_t> ids{1, 50, 99};
          std::vector<float> values(ids.size() * 8);
          table.push(ids, marked(transport->rank(), values.size()));
          table.tick();
          table.synchronize();
          table.pull(ids, values);
          if (transport->rank() == 0) {
            rows[sealed ? 1 : 0] = values;
          }
        },
        sealed));
  }
  ASSERT_EQ(rows[0].size(), rows[1].size());
  for (std::size_t i = 0; i < rows[0].size(); ++i) {
    EXPECT_NEAR(rows[0][i], rows[1][i], 1e-6) << "the order of sums is open";
  }
}

}  // namespace
}  // namespace gradwire::test
