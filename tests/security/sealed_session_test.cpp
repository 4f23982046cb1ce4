// Runs sessions, communicators and tables with a key: results are those without one, nothing of a tensor is seen on the
// network, and no key seals two messages with one nonce.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gradwire/communicator.hpp"
#include "gradwire/session.hpp"
#include "gradwire/table.hpp"
#include "hex_bytes.hpp"
#include "key_in_environment.hpp"
#include "recorded_traffic.hpp"
#include "security/key_schedule.hpp"
#include "tests/support/ranks.hpp"
#include "transport/key_agreement.hpp"
#include "wire/frame.hpp"

namespace gradwire::test {
namespace {

using Endpoint = std::shared_ptr<Transport>;

constexpr int kRanks = 4;
constexpr Algorithm kAlgorithms[] = {Algorithm::automatic, Algorithm::two_shot, Algorithm::one_shot,
                                     Algorithm::hierarchical, Algorithm::dense};

using Results = std::vector<std::vector<float>>;

// Calls of two communicators and steps of two sessions between the same ranks; returns all results.
Results job(const Endpoint& transport) {
  Results results;
  const auto buffer = [&](std::uint64_t count) -> View {
    results.push_back(marked(transport->rank(), count, static_cast<unsigned>(results.size())));
    return view(results.back().data(), count);
  };
  results.reserve(1000);
  for (int twice = 0; twice < 2; ++twice) {
    Communicator communicator(transport);
    for (const Algorithm algorithm : kAlgorithms) {
      for (const char* codec : {"exact", "int8", "topk(10%)+int8"}) {
        communicator.all_reduce(buffer(6000), {.codec = codec, .algorithm = algorithm, .chunk_bytes = 16384});
        communicator.all_reduce(buffer(30), {.codec = codec, .algorithm = algorithm, .reduction = Reduction::mean});
      }
    }
    communicator.all_reduce(buffer(5000), {.codec = "int8", .weight = 1.0 + transport->rank()});
    communicator.broadcast(buffer(3000), 1);
    communicator.barrier();
  }
  for (int twice = 0; twice < 2; ++twice) {
    Policy policy = Policy::uniform(twice == 0 ? "int8" : "exact");
    policy.bucket_bytes = 20000;
    Session session(transport, policy);
    std::vector<std::pair<TensorId, View>> tensors;
    for (const std::uint64_t count : {9000U, 5U, 700U}) {
      const View values = buffer(count);
      tensors.emplace_back(session.add("tensor " + std::to_string(tensors.size()), values), values);
    }
    for (int step = 0; step < 3; ++step) {
      for (const auto& [id, values] : tensors) {
        session.ready(id);
      }
      session.finish();
    }
    const View shared = buffer(2000);
    session.broadcast({&shared, 1}, 2);
  }
  return results;
}

struct JobRun {
  std::shared_ptr<Traffic> traffic = std::make_shared<Traffic>();
  std::vector<Results> results = std::vector<Results>(kRanks);
};

JobRun run_job() {
  JobRun run;
  run_ranks(recorded_world(kRanks, run.traffic, {0, 0, 1, 1}), [&](const Endpoint& transport) {
    run.results[static_cast<std::size_t>(transport->rank())] = job(transport);
  });
  return run;
}

// A hash of sixteen bytes in a row; none where they are mostly alike, as padding and headers are.
std::optional<std::uint64_t> window_at(std::span<const std::byte> bytes, std::size_t at) {
  std::array<std::uint64_t, 4> seen{};
  for (const std::byte byte : bytes.subspan(at, 16)) {
    const auto value = std::to_integer<unsigned>(byte);
    seen[value / 64] |= std::uint64_t{1} << (value % 64);
  }
  int distinct = 0;
  for (const std::uint64_t word : seen) {
    distinct += std::popcount(word);
  }
  if (distinct < 10) {
    return std::nullopt;
  }
  std::array<std::uint64_t, 2> halves{};
  std::memcpy(halves.data(), bytes.data() + at, sizeof halves);
  return halves[0] * 0x9E3779B97F4A7C15U ^ std::rotl(halves[1] * 0xC2B2AE3D27D4EB4FU, 32);
}

using Windows = std::vector<std::uint64_t>;  // sorted

Windows windows_of(const Traffic& traffic) {
  Windows windows;
  for (const RecordedMessage& message : traffic.messages()) {
    for (std::size_t at = 0; at + 16 <= message.bytes.size(); ++at) {
      if (const auto window = window_at(message.bytes, at)) {
        windows.push_back(*window);
      }
    }
  }
  std::ranges::sort(windows);
  return windows;
}

std::size_t count_in(const Windows& windows, std::span<const std::byte> bytes, std::size_t stride) {
  std::size_t found = 0;
  for (std::size_t at = 0; at + 16 <= bytes.size(); at += stride) {
    const auto window = window_at(bytes, at);
    found += window && std::ranges::binary_search(windows, *window) ? 1 : 0;
  }
  return found;
}

TEST(SealedJob, NobodyOnTheNetworkSeesATensorAndRanksAgree) {
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
  const auto seen_plain = windows_of(*plain.traffic);
  const auto seen_sealed = windows_of(*sealed->traffic);
  // The tensors of rank 0 as they are: the search finds them where there is no key.
  std::size_t found = 0;
  for (std::size_t i = 0; i < plain.results[0].size(); ++i) {
    const auto values = marked(0, plain.results[0][i].size(), static_cast<unsigned>(i));
    const auto bytes = std::as_bytes(std::span(values));
    found += count_in(seen_plain, bytes, 4) > 0 ? 1 : 0;
    EXPECT_EQ(count_in(seen_sealed, bytes, 4), 0) << "tensor " << i;
  }
  EXPECT_GE(found, 14U);
  // Whatever was sent without the key: frames of every codec and sum, weights, plans.
  std::size_t shared = 0;
  for (const RecordedMessage& message : plain.traffic->messages()) {
    const std::span<const std::byte> bytes(message.bytes);
    const bool frame = bytes.size() >= 32 && std::memcmp(bytes.data(), "GRW1", 4) == 0;
    shared += count_in(seen_sealed, frame ? bytes.subspan(32) : bytes, 1);
  }
  EXPECT_EQ(shared, 0);
}

// Opens every message with the keys of all worlds, which it derives from the greetings that it finds.
class Nonces {
 public:
  void add(const Traffic& traffic) {
    std::map<int, std::vector<security::Salt>> salts;
    for (const RecordedMessage& message : traffic.messages()) {
      if (is_greeting(message) && message.to == (message.from + 1) % kRanks) {
        transport::KeyGreeting greeting;
        std::memcpy(&greeting, message.bytes.data(), sizeof greeting);
        salts[message.from].push_back(greeting.salt);
      }
    }
    std::vector<security::Key> worlds;
    for (std::size_t world = 0; world < salts[0].size(); ++world) {
      std::vector<security::Salt> of_world;
      for (int rank = 0; rank < kRanks; ++rank) {
        of_world.push_back(salts[rank].at(world));
      }
      worlds.push_back(first_world_secret(cryptography_, published_key(), of_world));
    }
    Numbers numbers;
    for (const RecordedMessage& message : traffic.messages()) {
      if (!is_greeting(message)) {
        add(message, worlds, numbers);
      }
    }
  }
  [[nodiscard]] std::size_t size() const noexcept { return seen_.size(); }

 private:
  static bool is_greeting(const RecordedMessage& message) {
    return message.tag == kTagLimit - 1 && message.bytes.size() == sizeof(transport::KeyGreeting);
  }

  using Numbers = std::map<std::tuple<std::size_t, int, int, Tag>, std::uint64_t>;  // by world, ranks and tag

  void add(const RecordedMessage& message, const std::vector<security::Key>& worlds, Numbers& numbers) {
    const bool frame = std::memcmp(message.bytes.data(), "GRW1", 4) == 0;
    const auto purpose = frame ? security::Purpose::frames : security::Purpose::control;
    const std::size_t seal = message.bytes.size() - wire::kSealBytes;
    const std::size_t header = frame ? wire::header_bytes(std::to_integer<std::uint8_t>(message.bytes[6])) : 0;
    std::vector<std::byte> associated(message.bytes.begin(), message.bytes.begin() + static_cast<long>(header));
    associated.resize(header + (frame ? 4 : 16));
    std::memcpy(associated.data() + header, &message.tag, 4);
    security::Nonce nonce{};
    std::memcpy(nonce.data() + 4, message.bytes.data() + seal, 8);
    std::array<std::byte, 16> tag{};
    std::memcpy(tag.data(), message.bytes.data() + seal + 8, 16);
    const auto cipher = security::choose_cipher(security::has_aes());
    for (std::size_t at_world = 0; at_world < worlds.size(); ++at_world) {
      const security::Key& world = worlds[at_world];
      std::uint64_t& number = numbers[{at_world, message.from, message.to, message.tag}];
      if (!frame) {
        std::memcpy(associated.data() + 4, &message.to, 4);
        std::memcpy(associated.data() + 8, &number, 8);
      }
      const security::Key key =
          sender_key(cryptography_, world, purpose, cipher, static_cast<std::uint32_t>(message.from));
      std::vector<std::byte> data(message.bytes.begin() + static_cast<long>(header),
                                  message.bytes.begin() + static_cast<long>(seal));
      if (!cryptography_.open(cipher, key, nonce, associated, data, tag)) {
        continue;
      }
      number += frame ? 0 : 1;
      const auto [at, first] = seen_.insert({{to_hex(key.bytes()), nonce}, message.bytes});
      ASSERT_TRUE(first || at->second == message.bytes) << "a nonce came twice, from rank " << message.from;
      return;
    }
    ADD_FAILURE() << "a message of rank " << message.from << " with tag " << message.tag << " is not sealed";
  }

  security::Cryptography cryptography_ = security::Cryptography::load();
  std::map<std::pair<std::string, security::Nonce>, std::vector<std::byte>> seen_;
};

// The job is started twice with the same key, makes the same steps, and has sessions and communicators side by side.
TEST(SealedJob, NoKeySealsTwoMessagesWithOneNonce) {
  const KeyInEnvironment key;
  Nonces nonces;
  for (int start = 0; start < 2; ++start) {
    nonces.add(*run_job().traffic);
  }
  EXPECT_GT(nonces.size(), 1000U);
}

TEST(SealedJob, ATableIsSealedToo) {
  std::array<std::vector<float>, 2> rows;
  for (const bool sealed : {false, true}) {
    std::optional<KeyInEnvironment> key;
    if (sealed) {
      key.emplace();
    }
    const auto traffic = std::make_shared<Traffic>();
    run_ranks(recorded_world(3, traffic), [&](const Endpoint& transport) {
      Table table(transport, {.name = "words", .rows = 100, .width = 8});
      const std::vector<std::uint64_t> ids{1, 50, 99};
      std::vector<float> values(ids.size() * 8);
      table.pull(ids, values);
      const std::vector<float> gradients = marked(transport->rank(), values.size());
      table.push(ids, gradients);
      table.tick();
      table.synchronize();
      table.pull(ids, values);
      if (transport->rank() == 0) {
        rows[sealed ? 1 : 0] = values;
      }
    });
    std::size_t found = 0;
    const Windows windows = windows_of(*traffic);
    for (int rank = 0; rank < 3; ++rank) {
      const std::vector<float> gradients = marked(rank, 24);
      found += count_in(windows, std::as_bytes(std::span(gradients)), 4);
    }
    EXPECT_EQ(found > 0, !sealed);
  }
  ASSERT_EQ(rows[0].size(), rows[1].size());
  for (std::size_t i = 0; i < rows[0].size(); ++i) {
    EXPECT_NEAR(rows[0][i], rows[1][i], 1e-6) << "the order of sums is open";
  }
}

}  // namespace
}  // namespace gradwire::test
