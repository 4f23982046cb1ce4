// Tests the TCP transport of a job with a key: the contract of transports, ranks with other keys, and somebody between
// the ranks who listens, changes, cuts and repeats what they send.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hex_bytes.hpp"
#include "middle.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"
#include "tests/transport/conformance.hpp"
#include "tests/transport/connected.hpp"
#include "tests/transport/exchange.hpp"
#include "transport/tcp/tcp_channel.hpp"

namespace gradwire::test {
namespace {

using Endpoint = std::shared_ptr<Transport>;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<Endpoint> keyed_world(int world_size, const transport::Rendezvous& rendezvous) {
  return make_tcp_world(world_size, rendezvous, [](int) { return keys_of(published_key()); });
}

class SecureConformance : public ::testing::TestWithParam<std::tuple<Scenario, int>> {};

TEST_P(SecureConformance, Holds) {
  const auto& [scenario, world_size] = GetParam();
  MemoryStore store;
  run_ranks(keyed_world(world_size, store.rendezvous()),
            [run = scenario.run](const Endpoint& endpoint) { run(*endpoint); });
}

INSTANTIATE_TEST_SUITE_P(Tcp, SecureConformance,
                         ::testing::Combine(::testing::ValuesIn(transport_scenarios().begin(),
                                                                transport_scenarios().end()),
                                            ::testing::Values(1, 2, 3)));

TEST(SecureTransport, SaysThatItIsEncrypted) {
  for (const bool keyed : {false, true}) {
    MemoryStore store;
    const auto world =
        make_tcp_world(2, store.rendezvous(), [&](int) { return keyed ? keys_of(published_key()) : nullptr; });
    EXPECT_EQ(world[0]->capabilities().encrypted, keyed);
  }
}

TEST(SecureTransport, ARankWithAnotherKeyOrNoneIsNamedAtOnce) {
  for (const bool none : {false, true}) {
    MemoryStore store;
    const auto begin = std::chrono::steady_clock::now();
    const Error error = error_of([&] {
      (void)make_tcp_world(2, store.rendezvous(), [&](int rank) {
        return rank == 0 ? keys_of(published_key()) : none ? nullptr : keys_of(security::Key::random());
      });
    });
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("rank 1 has " + std::string(none ? "no key" : "the key ")), HasSubstr("GRADWIRE_KEY")));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  }
}

// The store lies about keys: then ranks still do not reach each other.
TEST(SecureTransport, ALyingStoreLetsNobodyIn) {
  MemoryStore store;
  transport::Rendezvous lying = store.rendezvous();
  const std::string same = keys_of(published_key())->check_value();
  const auto put = lying.put;
  lying.put = [&](const std::string& key, const std::string& value) {
    const std::size_t mark = value.find(" key ");
    put(key, key.starts_with("tcp/host/") ? value.substr(0, mark) + " key " + same : value);
  };
  std::vector<std::string> whys(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      whys[static_cast<std::size_t>(rank)] =
          error_of([&] {
            (void)transport::make_tcp(lying, {.rank = rank,
                                              .world_size = 2,
                                              .timeout = std::chrono::seconds(1),
                                              .keys = keys_of(rank == 0 ? published_key() : security::Key::random())});
          }).what();
    });
  }
  for (std::thread& rank : ranks) {
    rank.join();
  }
  // Where the first rank sees no other key in what it was told itself, it waits in vain.
  EXPECT_THAT(whys[0], HasSubstr("rank 1"));
  EXPECT_THAT(whys[1], AllOf(HasSubstr("rank 0")));
}

// A lane gets a connection whose first packet TLS has read together with what came before it, so the system has nothing
// to report.
TEST(SecureTransport, WhatTlsHasReadAlreadyIsHeard) {
  namespace tcp = transport::tcp;
  const Keys keys = keys_of(published_key());
  auto [left, right] = connected();
  const tcp::Greeting own{.nonce = 7, .rank = 0};
  tcp::Greeting greeting{.nonce = 7, .rank = 1};
  keys->encrypt(left, greeting, 0);
  keys->encrypt_accepted(right, own, {.first = 1, .end = 2});
  for (int i = 0; i < 3; ++i) {
    static_cast<void>(tcp::shake_hands(left));
    static_cast<void>(tcp::shake_hands(right));
  }
  const auto until = tcp::Clock::now() + std::chrono::seconds(3);
  ASSERT_TRUE(tcp::write_until(left, bytes_of(greeting), until));
  tcp::Channel dials;
  tcp::Channel accepts;
  dials.add(std::move(left), tcp::TcpLane::Role::dials);  // sends its first packet
  ASSERT_TRUE(tcp::read_until(right, bytes_of(greeting), until));
  EXPECT_TRUE(tcp::has_unread(right));
  accepts.add(std::move(right), tcp::TcpLane::Role::accepts);
  bool mended = false;
  while (!mended && tcp::Clock::now() < until) {
    for (const auto& heard : accepts.hear(std::chrono::milliseconds(100))) {
      mended = heard.what == tcp::Channel::Heard::What::mended;
    }
  }
  EXPECT_TRUE(mended);
}

// A forked child has the counters of its parent: what it sent would have the nonces of what the parent sends next.
// Mutation tried: the child is not told apart.
TEST(SecureTransport, AForkedChildNeverSends) {
  namespace tcp = transport::tcp;
  const Keys keys = keys_of(published_key());
  auto [left, right] = connected();
  const tcp::Greeting greeting{.nonce = 7, .rank = 1};
  keys->encrypt(left, greeting, 0);
  keys->encrypt_accepted(right, {.nonce = 7, .rank = 0}, {.first = 1, .end = 2});
  for (int i = 0; i < 3; ++i) {
    static_cast<void>(tcp::shake_hands(left));
    static_cast<void>(tcp::shake_hands(right));
  }
  std::array<std::byte, 8> word{};
  const iovec part{word.data(), word.size()};
  const pid_t child = ::fork();
  if (child == 0) {
    const auto refused = [](ssize_t result) { return result == -1 && errno == EPERM; };
    const bool all = refused(tcp::send_some(left, std::span(&part, 1))) && refused(tcp::receive_some(left, word)) &&
                     refused(tcp::shake_hands(left));
    ::_exit(all ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(tcp::receive_some(right, word), -1) << "the child has sent something";
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(tcp::send_some(left, std::span(&part, 1)), 8) << "the parent goes on";
  EXPECT_EQ(tcp::receive_some(right, word), 8);
}

// TLS has encrypted the beginnings of messages that are not sent yet; these may be withdrawn, and the other ones must
// still arrive. Mutation tried: Stream::withdraw() does not look for such messages.
TEST(SecureTransport, AMessageThatTlsHasTakenCanBeWithdrawn) {
  constexpr int kMessages = 2000;
  constexpr std::size_t kBytes = 5000;
  MemoryStore store;
  run_ranks(keyed_world(2, store.rendezvous()), [](const Endpoint& endpoint) {
    const bool sends = endpoint->rank() == 0;
    std::deque<Operation> kept;
    std::deque<Operation> withdrawn;
    std::deque<Bytes> buffers;
    for (int i = 0; sends && i < kMessages; ++i) {
      buffers.push_back(pattern(0, 1, static_cast<std::uint64_t>(i), kBytes));
      endpoint->post_send((i % 2 == 0 ? kept : withdrawn).emplace_back(), 1, static_cast<Tag>(100 + i), buffers.back());
    }
    for (Operation& operation : withdrawn) {
      EXPECT_TRUE(endpoint->cancel(operation));
    }
    if (!sends) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      Batch batch(*endpoint);
      for (int i = 0; i < kMessages; i += 2) {
        batch.receive(0, static_cast<Tag>(100 + i), pattern(0, 1, static_cast<std::uint64_t>(i), kBytes));
      }
      batch.wait();
    }
    for (Operation& operation : kept) {
      while (!operation.done()) {
        endpoint->progress(std::chrono::milliseconds(100));
      }
    }
    barrier(*endpoint, 8);
  });
}

Bytes marked_tensor() {
  Bytes tensor;
  for (int i = 0; i < 4096; ++i) {
    const std::string mark = "marked value " + std::to_string(1000 + i) + ";";
    const auto bytes = std::as_bytes(std::span(mark));
    tensor.insert(tensor.end(), bytes.begin(), bytes.end());
  }
  return tensor;
}

void exchange(Transport& transport, const Bytes& message) {
  Batch batch(transport);
  batch.send(1 - transport.rank(), 8, message);
  batch.receive(1 - transport.rank(), 8, message);
  batch.wait();
}

// Mutation tried: Socket::encrypt() drops the channel.
TEST(SecureTransport, WhoListensSeesNoSixteenBytesOfATensor) {
  const Bytes tensor = marked_tensor();
  std::set<std::string> parts;
  for (std::size_t at = 0; at + 16 <= tensor.size(); ++at) {
    parts.emplace(reinterpret_cast<const char*>(tensor.data()) + at, 16);
  }
  for (const bool keyed : {false, true}) {
    MemoryStore store;
    Middle middle;
    {
      auto world = make_tcp_world(2, middle.between(store.rendezvous()),
                                  [&](int) { return keyed ? keys_of(published_key()) : nullptr; });
      run_ranks(std::move(world), [&](const Endpoint& endpoint) { exchange(*endpoint, tensor); });
    }
    std::size_t found = 0;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < middle.count(); ++i) {
      const auto recorded = middle.recorded(i);
      for (const Bytes* sent : {&recorded.first, &recorded.second}) {
        bytes += sent->size();
        for (std::size_t at = 0; at + 16 <= sent->size(); ++at) {
          found += parts.contains({reinterpret_cast<const char*>(sent->data()) + at, 16}) ? 1 : 0;
        }
      }
    }
    EXPECT_GE(bytes, 2 * tensor.size());
    if (keyed) {
      EXPECT_EQ(found, 0U);
    } else {
      EXPECT_GE(found, 2 * (tensor.size() - 15)) << "this test finds nothing";
    }
  }
}

// Changes one piece of what ranks send. Returns what it did.
class Attack {
 public:
  explicit Attack(std::uint32_t seed) : random_(seed), after_(random_() % 200'000), kind_(random_() % 6) {}

  bool operator()(std::size_t connection, bool up, Bytes& bytes) {
    Bytes& before = before_[2 * connection + (up ? 1 : 0)];
    const bool hits = !done_ && seen_ + bytes.size() > after_;
    seen_ += bytes.size();
    const Bytes now = bytes;
    bool stays = true;
    if (hits) {
      const std::size_t at = random_() % bytes.size();
      const auto middle = bytes.begin() + static_cast<std::ptrdiff_t>(at);
      done_ = true;
      switch (kind_) {
        case 0: bytes[at] ^= static_cast<std::byte>(1U << random_() % 8); break;
        case 1: bytes.erase(middle); break;
        case 2: bytes.insert(middle, now.begin(), now.end()); break;               // repeated
        case 3: bytes.insert(bytes.begin(), before.begin(), before.end()); break;  // an older piece again
        case 4: std::rotate(bytes.begin(), middle, bytes.end()); break;            // swapped
        default: stays = false; break;                                             // the connection is cut
      }
      changed_ = !stays || bytes != now;
    }
    before = now;
    return stays;
  }
  [[nodiscard]] bool changed() const { return changed_; }

 private:
  std::mt19937 random_;
  std::size_t after_;  // bytes that pass before
  std::size_t kind_;
  std::size_t seen_ = 0;
  bool done_ = false;
  bool changed_ = false;
  std::map<std::size_t, Bytes> before_;
};

TEST(SecureTransport, WhatWasChangedOnTheWayIsNeverTaken) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const Bytes tensor = marked_tensor();
  int changed = 0;
  int errors = 0;
  for (std::uint32_t i = 0; i < 30; ++i) {
    MemoryStore store;
    Attack attack(seed + i);
    Middle middle(std::ref(attack));
    std::vector<std::thread> ranks;
    std::atomic<int> wrong = 0;
    std::atomic<int> failed = 0;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, rank] {
        try {
          const auto transport = transport::make_tcp(
              middle.between(store.rendezvous()),
              {.rank = rank, .world_size = 2, .timeout = std::chrono::seconds(3), .keys = keys_of(published_key())});
          Bytes room(tensor.size());
          Operation receive;
          Operation send;
          transport->post_receive(receive, 1 - rank, 8, room);
          transport->post_send(send, 1 - rank, 8, tensor);
          const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(700);
          while ((!receive.done() || !send.done()) && std::chrono::steady_clock::now() < until) {
            transport->progress(std::chrono::milliseconds(20));
          }
          wrong += receive.done() && room != tensor ? 1 : 0;
          failed += receive.done() && send.done() ? 0 : 1;  // a job has a timeout
          transport->cancel(receive);
          transport->cancel(send);
        } catch (const Error& error) {
          EXPECT_NE(error.code(), ErrorCode::internal) << error.what();
          EXPECT_THAT(error.what(), HasSubstr("rank"));
          ++failed;
        }
      });
    }
    for (std::thread& rank : ranks) {
      rank.join();
    }
    EXPECT_EQ(wrong, 0) << "attack " << i;
    changed += attack.changed() ? 1 : 0;
    errors += failed > 0 ? 1 : 0;
  }
  EXPECT_GT(changed, 15);
  EXPECT_GT(errors, 8) << "this test changes nothing that matters";
}

}  // namespace
}  // namespace gradwire::test
