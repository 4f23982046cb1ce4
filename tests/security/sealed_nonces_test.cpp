// No key seals two messages with one nonce: every message of several jobs is opened, and its key and nonce are
// recorded.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "gradwire/session.hpp"
#include "gradwire/table.hpp"
#include "hex_bytes.hpp"
#include "keyed_job.hpp"
#include "security/key_schedule.hpp"
#include "tests/drop_in/reducer_harness.hpp"
#include "tests/support/run_program.hpp"
#include "transport/key_agreement.hpp"
#include "wire/frame.hpp"

namespace gradwire::test {
namespace {

using Endpoint = std::shared_ptr<Transport>;

// Opens messages with the keys of all their worlds, which it derives from the greetings that it finds, and records
// under which key and nonce each was sealed. A frame may go to several ranks as it was sealed, but to each of them
// once.
class Nonces {
 public:
  // The messages of all sessions, communicators and tables over one network.
  void add(const Traffic& traffic) {
    ++network_;
    worlds_.clear();
    find_worlds(traffic);
    for (const RecordedMessage& message : traffic.messages()) {
      if (!is_greeting(message)) {
        add(message);
      }
    }
  }
  [[nodiscard]] std::size_t size() const noexcept { return seen_.size(); }
  // Keys under which at least one message was sealed.
  [[nodiscard]] std::size_t keys() const {
    std::set<std::string> keys;
    for (const auto& [pair, seal] : seen_) {
      keys.insert(pair.first);
    }
    return keys.size();
  }

 private:
  struct World {
    security::Key secret;
    std::map<std::pair<security::Purpose, int>, security::Key> keys = {};  // by sender
    std::map<std::tuple<int, int, Tag>, std::uint64_t> numbers = {};       // by sender, receiver and tag
  };
  struct Seal {
    int network = 0;
    std::vector<std::byte> bytes = {};
    std::set<int> receivers = {};
  };

  static bool is_greeting(const RecordedMessage& message) {
    return message.tag == kTagLimit - 1 && message.bytes.size() == sizeof(transport::KeyGreeting);
  }

  // Each rank sends its greetings in the order of the worlds.
  void find_worlds(const Traffic& traffic) {
    std::map<int, std::vector<security::Salt>> salts;
    int ranks = 0;
    for (const RecordedMessage& message : traffic.messages()) {
      ranks = std::max(ranks, message.to + 1);
    }
    for (const RecordedMessage& message : traffic.messages()) {
      if (is_greeting(message) && message.to == (message.from + 1) % ranks) {
        transport::KeyGreeting greeting;
        std::memcpy(&greeting, message.bytes.data(), sizeof greeting);
        salts[message.from].push_back(greeting.salt);
      }
    }
    for (std::size_t world = 0; world < salts[0].size(); ++world) {
      std::vector<security::Salt> of_world;
      for (int rank = 0; rank < ranks; ++rank) {
        if (world < salts[rank].size()) {  // a killed job may have sent only some of them
          of_world.push_back(salts[rank][world]);
        }
      }
      worlds_.push_back({first_world_secret(cryptography_, published_key(), of_world)});
    }
  }

  const security::Key& key_of(World& world, security::Purpose purpose, int sender) {
    auto found = world.keys.find({purpose, sender});
    if (found == world.keys.end()) {
      found = world.keys
                  .emplace(std::pair(purpose, sender), sender_key(cryptography_, world.secret, purpose, cipher_,
                                                                  static_cast<std::uint32_t>(sender)))
                  .first;
    }
    return found->second;
  }

  void add(const RecordedMessage& message) {
    const bool frame = is_frame(message);
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
    for (World& world : worlds_) {
      std::uint64_t& number = world.numbers[{message.from, message.to, message.tag}];
      if (!frame) {
        std::memcpy(associated.data() + 4, &message.to, 4);
        std::memcpy(associated.data() + 8, &number, 8);
      }
      const security::Key& key = key_of(world, purpose, message.from);
      std::vector<std::byte> data(message.bytes.begin() + static_cast<long>(header),
                                  message.bytes.begin() + static_cast<long>(seal));
      if (!cryptography_.open(cipher_, key, nonce, associated, data, tag)) {
        continue;
      }
      number += frame ? 0 : 1;
      const auto [at, first] = seen_.try_emplace({to_hex(key.bytes()), nonce}, Seal{network_, message.bytes});
      const bool passed_on = at->second.receivers.insert(message.to).second;
      ASSERT_TRUE(first || (frame && passed_on && at->second.network == network_ && at->second.bytes == message.bytes))
          << "a nonce came twice, from rank " << message.from;
      return;
    }
    ADD_FAILURE() << "a message of rank " << message.from << " with tag " << message.tag << " is not sealed";
  }

  security::Cryptography cryptography_ = security::Cryptography::load();
  security::Cipher cipher_ = security::choose_cipher(security::has_aes());
  int network_ = 0;
  std::vector<World> worlds_;
  std::map<std::pair<std::string, security::Nonce>, Seal> seen_;
};

// The same on every rank and in every job, so that equal steps would seal equal bytes.
std::vector<float> gradient_of(int rank, std::uint64_t step) { return marked(rank, 5000, static_cast<unsigned>(step)); }

// Makes steps up to `steps` from the state in the folder, if there is one; saves the state after each step. Returns the
// first step.
std::uint64_t train(const Endpoint& transport, const std::filesystem::path& folder, std::uint64_t steps) {
  Session session(transport, Policy::parse("[defaults]\nsmall = \"off\"\ncodec = \"int4\"\n"));
  std::vector<float> values(5000);
  const TensorId id = session.add("tensor", view(values.data(), values.size()));
  if (std::filesystem::exists(folder)) {
    session.load(folder);
  }
  const std::uint64_t first = session.step();
  while (session.step() < steps) {
    std::ranges::copy(gradient_of(session.rank(), session.step()), values.begin());
    session.ready(id);
    session.finish();
    session.save(folder);
  }
  return first;
}

// The job is started twice with the same key, and makes the same steps, under all schedules.
TEST(SealedNonces, DifferAmongWorldsAndStarts) {
  const KeyInEnvironment key;
  Nonces nonces;
  for (int start = 0; start < 2; ++start) {
    nonces.add(*run_job().traffic);
  }
  EXPECT_GT(nonces.size(), 1000U);
  EXPECT_EQ(nonces.keys(), 2U * 4 * 4 * 2) << "starts, worlds of each, ranks, purposes";
}

TEST(SealedNonces, DifferWhereAnEarlierStepIsLoadedAndMadeAgain) {
  const KeyInEnvironment key;
  const ScratchFolder folder;
  const auto traffic = std::make_shared<Traffic>();
  run_ranks(recorded_world(3, traffic), [&](const Endpoint& transport) {
    const auto early = folder.path() / "early";
    train(transport, early, 2);
    const std::string file = "rank-" + std::to_string(transport->rank()) + "-of-3.gradwire";
    const auto late = folder.path() / ("late" + std::to_string(transport->rank()));
    for (int again = 0; again < 3; ++again) {  // each loads the state of step 2, and makes the steps 2 to 4
      std::filesystem::remove_all(late);
      std::filesystem::create_directory(late);
      std::filesystem::copy_file(early / file, late / file);
      EXPECT_EQ(train(transport, late, 5), 2U);
    }
  });
  Nonces nonces;
  nonces.add(*traffic);
  EXPECT_GT(nonces.size(), 50U);
  EXPECT_EQ(nonces.keys(), 4U * 3 * 2) << "sessions, ranks, purposes";
}

// Sessions in every way of threading, late sums in the background, calls of several threads and a table, all at once.
TEST(SealedNonces, DifferAmongThreads) {
  const KeyInEnvironment key;
  std::vector<std::function<void(const Endpoint&)>> users;
  for (const Threading threading : kThreading) {
    for (const char* sync : {"", "sync = { async = true, staleness = 1 }\n"}) {
      users.emplace_back([=](const Endpoint& transport) {
        Policy policy = Policy::parse(std::string("[defaults]\nsmall = \"off\"\ncodec = \"int4\"\n") + sync);
        policy.bucket_bytes = 20000;
        Session session(transport, policy, {.threading = threading});
        std::vector<float> values = gradient_of(transport->rank(), 0);
        std::vector<float> small(30);
        const TensorId ids[] = {session.add("tensor", view(values.data(), values.size())),
                                session.add("small", view(small.data(), small.size()))};
        for (int step = 0; step < 4; ++step) {
          session.ready(ids[1]);
          session.ready(ids[0]);
          session.finish();
        }
      });
    }
  }
  for (int thread = 0; thread < 2; ++thread) {
    users.emplace_back([](const Endpoint& transport) {
      Communicator communicator(transport);
      std::vector<float> values = gradient_of(transport->rank(), 0);
      for (int call = 0; call < 4; ++call) {
        communicator.all_reduce(view(values.data(), values.size()), {.codec = "int8"});
      }
    });
  }
  users.emplace_back([](const Endpoint& transport) {
    Table table(transport, {.name = "words", .rows = 100, .width = 8});
    const std::vector<std::uint64_t> ids{1, 50, 99};
    std::vector<float> rows(ids.size() * 8, 1.0F);
    for (int step = 0; step < 4; ++step) {
      table.push(ids, rows);
      table.tick();
      table.synchronize();
      table.pull(ids, rows);
    }
  });
  // Two communicators of a job under a drop-in, each called by a thread.
  const drop_in::Configuration configuration =
      drop_in::configuration_of("[defaults]\ncodec = \"int8\"\nerror_feedback = \"off\"\n");
  for (int thread = 0; thread < 2; ++thread) {
    users.emplace_back([&](const Endpoint& transport) {
      drop_in::Rank rank(configuration, transport);
      rank.reducer.check_same(7, "number");
      for (int call = 0; call < 4; ++call) {
        EXPECT_TRUE(rank.reduce(drop_in::kCount).decision.compress);
      }
    });
  }
  std::vector<std::shared_ptr<Traffic>> networks;
  std::vector<std::thread> threads;
  for (const auto& user : users) {
    networks.push_back(std::make_shared<Traffic>());
    threads.emplace_back([&user, traffic = networks.back()] { run_ranks(recorded_world(3, traffic), user); });
  }
  Nonces nonces;
  for (std::size_t i = 0; i < users.size(); ++i) {
    threads[i].join();
    nonces.add(*networks[i]);
  }
  EXPECT_GT(nonces.size(), 300U);
}

// What stands in a file before the bytes of a message.
struct MessageHead {
  int from = -1;
  int to = -1;
  Tag tag = 0;
  std::uint64_t bytes = 0;
};

// A job whose messages go to the file TRAFFIC. It kills itself after so many messages that it is in the middle of a
// step.
TEST(SealedNonces, DISABLED_KilledJob) {
  // NOLINTBEGIN(concurrency-mt-unsafe): no ranks yet
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(std::getenv("TRAFFIC"), "wb"), &std::fclose);
  const std::filesystem::path folder = std::getenv("STATE");
  // NOLINTEND(concurrency-mt-unsafe)
  ASSERT_NE(file, nullptr);
  int left = 120;
  const auto traffic = std::make_shared<Traffic>([&](const RecordedMessage& message) {
    const MessageHead head{message.from, message.to, message.tag, message.bytes.size()};
    ASSERT_EQ(std::fwrite(&head, sizeof head, 1, file.get()), 1U);
    ASSERT_EQ(std::fwrite(message.bytes.data(), 1, message.bytes.size(), file.get()), message.bytes.size());
    ASSERT_EQ(std::fflush(file.get()), 0);
    if (--left == 0) {
      ::kill(::getpid(), SIGKILL);
    }
  });
  run_ranks(recorded_world(2, traffic), [&](const Endpoint& transport) { train(transport, folder, 1000); });
}

std::shared_ptr<Traffic> read_traffic(const std::string& name) {
  auto traffic = std::make_shared<Traffic>();
  std::ifstream file(name, std::ios::binary);
  MessageHead head;
  while (file.read(reinterpret_cast<char*>(&head), sizeof head)) {
    RecordedMessage message{head.from, head.to, head.tag, std::vector<std::byte>(head.bytes)};
    EXPECT_TRUE(file.read(reinterpret_cast<char*>(message.bytes.data()), static_cast<long>(head.bytes)));
    traffic->add(std::move(message));
  }
  return traffic;
}

std::set<std::uint32_t> steps_of(const Traffic& traffic) {
  std::set<std::uint32_t> steps;
  for (const RecordedMessage& message : traffic.messages()) {
    if (is_frame(message)) {
      steps.insert(wire::parse_sealed_header(message.bytes).step);
    }
  }
  return steps;
}

// The job that is started again loads the last whole state, so it makes again the step in which the first was killed.
TEST(SealedNonces, DifferWhereAKilledJobIsStartedAgain) {
  const KeyInEnvironment key;
  const ScratchFolder folder;
  Nonces nonces;
  std::set<std::uint32_t> before;
  bool made_again = false;
  for (int start = 0; start < 4; ++start) {
    const std::string file = folder.file("traffic");
    const Outcome job = run_program("TRAFFIC=" + file + " STATE=" + folder.file(start == 3 ? "other" : "state") +
                                    " exec " + std::filesystem::read_symlink("/proc/self/exe").string() +
                                    " --gtest_also_run_disabled_tests --gtest_filter=SealedNonces.DISABLED_KilledJob");
    ASSERT_EQ(job.status, 128 + SIGKILL) << job.output;
    const std::shared_ptr<Traffic> traffic = read_traffic(file);
    ASSERT_EQ(traffic->messages().size(), 120U);
    nonces.add(*traffic);
    const std::set<std::uint32_t> steps = steps_of(*traffic);
    made_again = made_again || std::ranges::any_of(steps, [&](std::uint32_t step) { return before.contains(step); });
    before.insert(steps.begin(), steps.end());
  }
  EXPECT_TRUE(made_again);
  EXPECT_GT(nonces.size(), 100U);
}

}  // namespace
}  // namespace gradwire::test
