// Tests sealers and openers: each counter is used once, and nothing is taken twice, late, cut, altered or from another.
#include "security/sealing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "hex_bytes.hpp"
#include "security/key_schedule.hpp"
#include "tests/support/error_of.hpp"

namespace gradwire::security {
namespace {

using gradwire::test::error_of;
using gradwire::test::published_key;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kBytes = 100;
constexpr Cipher kCiphers[] = {Cipher::aes_256_gcm, Cipher::chacha20_poly1305};

using Message = std::vector<std::byte>;

Message plain() {
  Message message(kBytes + kSealBytes);
  for (std::size_t i = 0; i < kBytes; ++i) {
    message[i] = static_cast<std::byte>(i);
  }
  return message;
}

bool is_plain(const Message& message) {
  const Message expected = plain();
  return message.size() >= kBytes && std::equal(expected.begin(), expected.begin() + kBytes, message.begin());
}

const Message kHeader(32, std::byte{9});

// One sender and its receiver.
struct Pair {
  explicit Pair(Cipher cipher = Cipher::aes_256_gcm, std::size_t window = Opener::kWindow)
      : sealer(cryptography, cipher, published_key()),
        opener(cryptography, cipher, published_key(), "rank 3", window) {}
  Message sealed() {
    Message message = plain();
    sealer.seal(kHeader, message);
    return message;
  }
  std::string refusal(Message message, const Message& header = kHeader) {
    const Error error = error_of([&] { opener.open(header, message); });
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    EXPECT_THAT(error.what(), HasSubstr("rank 3"));
    EXPECT_FALSE(is_plain(message)) << "what was refused must not be readable";
    return error.what();
  }

  Cryptography cryptography = Cryptography::load();
  Sealer sealer;
  Opener opener;
};

std::uint64_t counter_of(const Message& message) {
  std::uint64_t counter = 0;
  std::memcpy(&counter, message.data() + kBytes, sizeof counter);
  return counter;
}

TEST(Sealing, GivesBackWhatWasSealed) {
  for (const Cipher cipher : kCiphers) {
    Pair pair(cipher);
    for (std::uint64_t i = 0; i < 10; ++i) {
      Message message = pair.sealed();
      EXPECT_EQ(counter_of(message), i);
      EXPECT_FALSE(is_plain(message));
      pair.opener.open(kHeader, message);
      EXPECT_TRUE(is_plain(message));
    }
    Message empty(kSealBytes);
    pair.sealer.seal({}, empty);
    EXPECT_NO_THROW(pair.opener.open({}, empty));
    EXPECT_EQ(pair.sealer.sealed(), 11);
  }
}

// An equal message must never look equal on the wire.
TEST(Sealing, EqualMessagesDiffer) {
  Pair pair;
  const Message one = pair.sealed();
  const Message other = pair.sealed();
  EXPECT_FALSE(std::equal(one.begin(), one.begin() + kBytes, other.begin()));
}

TEST(Sealing, EachCounterIsUsedOnceByAllThreads) {
  Pair pair;
  constexpr int kThreads = 8;
  constexpr int kEach = 500;
  std::vector<std::vector<Message>> sealed(kThreads);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kEach; ++i) {
          sealed[t].push_back(pair.sealed());
        }
      });
    }
  }
  std::set<std::uint64_t> counters;
  for (auto& messages : sealed) {
    for (Message& message : messages) {
      EXPECT_TRUE(counters.insert(counter_of(message)).second);
      pair.opener.open(kHeader, message);
      EXPECT_TRUE(is_plain(message));
    }
  }
  EXPECT_EQ(counters.size(), kThreads * kEach);
}

TEST(Sealing, AForkedChildNeverSeals) {
  Pair pair;
  const pid_t child = ::fork();
  if (child == 0) {
    int status = 1;
    try {
      static_cast<void>(pair.sealed());
    } catch (const Error& error) {
      status = error.code() == ErrorCode::unsupported && std::strstr(error.what(), "forked child") != nullptr ? 0 : 2;
    }
    ::_exit(status);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(pair.sealer.sealed(), 0);
}

TEST(Sealing, ARepeatedMessageIsRefused) {
  Pair pair;
  const Message message = pair.sealed();
  Message first = message;
  pair.opener.open(kHeader, first);
  EXPECT_THAT(pair.refusal(message), HasSubstr("came a second time"));
}

TEST(Sealing, OneOfManyThreadsTakesAMessage) {
  Pair pair;
  for (int round = 0; round < 50; ++round) {
    const Message message = pair.sealed();
    std::atomic<int> taken = 0;
    std::atomic<int> refused = 0;
    {
      std::vector<std::jthread> threads;
      for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
          Message copy = message;
          try {
            pair.opener.open(kHeader, copy);
            ++taken;
          } catch (const Error&) {
            ++refused;
          }
        });
      }
    }
    EXPECT_EQ(taken, 1);
    EXPECT_EQ(refused, 3);
  }
}

TEST(Sealing, MessagesMayOvertakeEachOtherInsideTheWindow) {
  Pair pair(Cipher::aes_256_gcm, 64);
  std::vector<Message> messages;
  for (int i = 0; i < 65; ++i) {
    messages.push_back(pair.sealed());
  }
  for (int i = 64; i > 0; --i) {
    pair.opener.open(kHeader, messages[i]);
  }
  EXPECT_THAT(pair.refusal(messages[0]), HasSubstr("later than messages may be overtaken"));
}

// Whoever knows no key cannot make the receiver refuse what the sender sends.
TEST(Sealing, AForgedCounterMovesNothing) {
  Pair pair(Cipher::aes_256_gcm, 64);
  const Message message = pair.sealed();
  for (const std::uint64_t counter : {std::uint64_t{1}, std::uint64_t{1000}, kMostMessages - 1}) {
    Message forged = message;
    std::memcpy(forged.data() + kBytes, &counter, sizeof counter);
    EXPECT_THAT(pair.refusal(forged), HasSubstr("were changed"));
  }
  Message beyond = message;
  std::memcpy(beyond.data() + kBytes, &kMostMessages, sizeof kMostMessages);
  EXPECT_THAT(pair.refusal(beyond), HasSubstr("which no sender reaches"));
  Message good = message;
  EXPECT_NO_THROW(pair.opener.open(kHeader, good));
}

TEST(Sealing, OtherKeysAndCiphersOpenNothing) {
  Pair pair;
  const Key world = published_key();
  const auto opens = [&](Cipher cipher, Key key) {
    Opener opener(pair.cryptography, cipher, std::move(key), "rank 3");
    Message message = pair.sealed();
    try {
      opener.open(kHeader, message);
    } catch (const Error& error) {
      return false;
    }
    return true;
  };
  EXPECT_TRUE(opens(Cipher::aes_256_gcm, published_key()));
  EXPECT_FALSE(opens(Cipher::chacha20_poly1305, published_key()));
  EXPECT_FALSE(
      opens(Cipher::aes_256_gcm, sender_key(pair.cryptography, world, Purpose::frames, Cipher::aes_256_gcm, 0)));
}

TEST(Sealing, EveryChangeIsRefused) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (const Cipher cipher : kCiphers) {
    Pair pair(cipher);
    for (int i = 0; i < 5000; ++i) {
      Message message = pair.sealed();
      Message header = kHeader;
      Message other = pair.sealed();
      switch (random() % 5) {
        case 0: message[random() % message.size()] ^= static_cast<std::byte>(1U << random() % 8); break;
        case 1: header[random() % header.size()] ^= static_cast<std::byte>(1U << random() % 8); break;
        case 2: message.resize(random() % message.size()); break;
        case 3: message.insert(message.end(), 1 + random() % 40, std::byte{0}); break;
        default:  // the seal of another message
          std::copy(other.end() - kSealBytes, other.end(), message.end() - kSealBytes);
          break;
      }
      const Message sent = message;
      const Error error = error_of([&] { pair.opener.open(header, message); });
      ASSERT_EQ(error.code(), ErrorCode::corrupt);
      ASSERT_THAT(error.what(), HasSubstr("rank 3"));
      ASSERT_EQ(message.size(), sent.size());
      pair.opener.open(kHeader, other);
      ASSERT_TRUE(is_plain(other));
    }
  }
}

TEST(Sealing, NeedsRoom) {
  Pair pair;
  Message small(kSealBytes - 1);
  EXPECT_THAT(error_of([&] { pair.sealer.seal({}, small); }).what(), HasSubstr("no room"));
  EXPECT_THAT(pair.refusal(small), HasSubstr("fewer than a seal"));
}

}  // namespace
}  // namespace gradwire::security
