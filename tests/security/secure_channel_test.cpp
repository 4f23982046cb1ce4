// Tests TLS over memory: what two sides with one key get, and what is refused to everybody else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "secure_sides.hpp"

namespace gradwire::test {
namespace {

using ::testing::IsEmpty;

TEST(SecureChannel, TwoSidesWithOneKeyUnderstandEachOther) {
  const Key key = Key::random();
  Sides sides{connecting(key), accepting(key)};
  EXPECT_FALSE(sides.client.write(octets_of("too early")));
  sides.pass();
  ASSERT_EQ(sides.client.state(), State::open) << sides.client.failure();
  ASSERT_EQ(sides.server.state(), State::open) << sides.server.failure();
  constexpr std::string_view kUp = "a secret of sixteen bytes and more";
  constexpr std::string_view kDown = "another secret of sixteen bytes";
  ASSERT_TRUE(sides.client.write(octets_of(kUp)));
  ASSERT_TRUE(sides.server.write(octets_of(kDown)));
  sides.pass();
  EXPECT_TRUE(sides.server.unread());
  EXPECT_EQ(text_from(sides.server), kUp);
  EXPECT_FALSE(sides.server.unread());
  EXPECT_EQ(text_from(sides.client), kDown);
  for (const Bytes& sent : {sides.of_client, sides.of_server}) {
    for (const std::string_view secret : {kUp, kDown}) {
      for (std::size_t at = 0; at + 16 <= secret.size(); ++at) {
        EXPECT_FALSE(contains(sent, octets_of(secret.substr(at, 16))));
      }
    }
  }
  EXPECT_TRUE(contains(sides.of_client, octets_of(kIdentity))) << "the identity is sent in clear text";
}

TEST(SecureChannel, MuchArrivesInOrder) {
  const Key key = Key::random();
  Sides sides{connecting(key), accepting(key)};
  sides.pass();
  Bytes much(1'000'001);
  std::mt19937 random(7);
  std::ranges::generate(much, [&] { return static_cast<std::byte>(random()); });
  ASSERT_TRUE(sides.server.write(much));
  Bytes there;
  for (Bytes sent = taken_from(sides.server); !sent.empty();) {  // in pieces that are no records
    const std::size_t piece = std::min<std::size_t>(sent.size(), 1 + random() % 30'000);
    sides.client.feed(std::span(sent).first(piece));
    sent.erase(sent.begin(), sent.begin() + static_cast<std::ptrdiff_t>(piece));
    std::array<std::byte, 3000> room{};
    for (bool unread = true; unread;) {
      const std::size_t count = sides.client.read(room);
      there.insert(there.end(), room.begin(), room.begin() + static_cast<std::ptrdiff_t>(count));
      unread = sides.client.unread();
      EXPECT_FALSE(unread && count < room.size());
    }
    EXPECT_THAT(read_from(sides.client), IsEmpty());
  }
  EXPECT_EQ(there, much);
}

TEST(SecureChannel, AnotherKeyOrIdentityIsRefusedByBothSides) {
  const Key key = Key::random();
  const Key other = Key::random();
  for (const std::string_view identity : {kIdentity, std::string_view("from 1 to 2")}) {
    Sides sides{connecting(identity == kIdentity ? other : key, identity), accepting(key)};
    sides.pass();
    EXPECT_EQ(sides.server.state(), State::failed);
    EXPECT_EQ(sides.client.state(), State::failed);
    EXPECT_FALSE(sides.client.write(octets_of("what nobody shall read")));
    EXPECT_FALSE(sides.server.write(octets_of("what nobody shall read")));
    EXPECT_FALSE(sides.server.failure().empty());
  }
}

// Somebody listens where a process was. It learns what anybody on the network may see, and the other side says no more.
TEST(SecureChannel, AnImpostorGetsTheFirstMessageOnly) {
  SecureChannel client = connecting(Key::random());
  client.step();
  const Bytes first = taken_from(client);
  EXPECT_FALSE(first.empty());
  const Key other = Key::random();
  SecureChannel server = accepting(other);
  server.feed(first);
  server.step();
  client.feed(taken_from(server));
  client.step();
  EXPECT_EQ(client.state(), State::failed);
  EXPECT_LE(taken_from(client).size(), 7U) << "an alert in clear text has 7 bytes";
}

// The channel first returns the bytes that it read before a changed record. Mutation tried: a channel that has failed
// has nothing unread.
TEST(SecureChannel, AFailureBehindGoodBytesIsUnread) {
  const Key key = Key::random();
  Sides sides{connecting(key), accepting(key)};
  sides.pass();
  ASSERT_TRUE(sides.client.write(octets_of("good")));
  ASSERT_TRUE(sides.client.write(octets_of("bad")));
  Bytes sent = taken_from(sides.client);
  sent.back() ^= std::byte{1};
  sides.server.feed(sent);
  std::array<std::byte, 100> room{};
  EXPECT_EQ(sides.server.read(room), 4U);
  EXPECT_EQ(sides.server.state(), State::failed);
  EXPECT_TRUE(sides.server.unread()) << "nobody would look again";
}

TEST(SecureChannel, ARecordedConnectionIsOfNoUse) {
  const Key key = Key::random();
  Sides sides{connecting(key), accepting(key)};
  sides.pass();
  ASSERT_TRUE(sides.client.write(octets_of("let me in")));
  sides.pass();
  ASSERT_EQ(text_from(sides.server), "let me in");
  SecureChannel server = accepting(key);
  server.feed(sides.of_client);
  server.step();
  EXPECT_THAT(read_from(server), IsEmpty());
  EXPECT_NE(server.state(), State::open);
  EXPECT_FALSE(server.write(octets_of("come in")));
}

TEST(SecureChannel, NothingIsSentForLaterConnections) {
  const Key key = Key::random();
  Sides sides{connecting(key), accepting(key)};
  sides.pass();
  ASSERT_TRUE(sides.server.write(octets_of("x")));
  EXPECT_EQ(taken_from(sides.server).size(), 5U + 1U + 1U + 16U) << "a ticket was sent, too";
}

// One bit of what one side sends is flipped, or some bytes are cut, come twice or are swapped.
TEST(SecureChannel, WhatWasChangedIsNeverTaken) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const Key key = Key::random();
  for (int i = 0; i < 4000; ++i) {
    Sides sides{connecting(key), accepting(key)};
    const bool in_handshake = i % 2 == 0;
    if (!in_handshake) {
      sides.pass();
    } else {
      sides.client.step();
    }
    const std::string said = "words that must come as they are";
    if (!in_handshake) {
      ASSERT_TRUE(sides.client.write(octets_of(said)));
      ASSERT_TRUE(sides.client.write(octets_of(said)));
    }
    Bytes sent = taken_from(sides.client);
    const std::size_t at = random() % sent.size();
    const Bytes before = sent;
    const auto kind = random() % 3;
    switch (kind) {
      case 0: sent[at] ^= static_cast<std::byte>(1U << random() % 8); break;
      case 1: sent.erase(sent.begin() + static_cast<std::ptrdiff_t>(at)); break;
      default: sent.insert(sent.begin() + static_cast<std::ptrdiff_t>(at), before.begin(), before.end()); break;
    }
    if (sent == before) {
      continue;
    }
    sides.server.feed(sent);
    sides.pass();
    const std::string heard = text_from(sides.server);
    EXPECT_TRUE((said + said).starts_with(heard)) << heard;
    EXPECT_LE(heard.size(), 2 * said.size());
    const bool of_version = kind == 0 && (at == 1 || at == 2);  // of a record, which receivers ignore (RFC 8446, 5.1)
    if (in_handshake && !of_version) {
      EXPECT_FALSE(sides.client.state() == State::open && sides.server.state() == State::open);
    }
  }
}

// A first message of the connecting side, made here byte by byte.
class Hello {
 public:
  enum class Version { tls13, tls12 };
  Hello(const Key& key, std::uint8_t mode, Version version) {
    Bytes extensions;
    if (version == Version::tls13) {
      add(extensions, 43, {2, 3, 4});
    }
    add(extensions, 10, {0, 2, 0, 0x1d});
    Numbers share{0, 36, 0, 0x1d, 0, 32};
    share.insert(share.end(), 32, 9);
    add(extensions, 51, share);
    add(extensions, 45, {1, mode});
    const std::size_t identity = kIdentity.size();
    Numbers psk{0, static_cast<std::uint8_t>(identity + 6), 0, static_cast<std::uint8_t>(identity)};
    psk.insert(psk.end(), kIdentity.begin(), kIdentity.end());
    psk.insert(psk.end(), {0, 0, 0, 0, 0, 33, 32});
    psk.insert(psk.end(), 32, 0);  // the proof of the key
    add(extensions, 41, psk);
    Numbers body{3, 3};
    body.insert(body.end(), 32, 5);
    body.insert(body.end(), {0, 0, 2, 0x13, 1, 1, 0, high(extensions.size()), low(extensions.size())});
    message_ = {std::byte{1}, std::byte{0}, static_cast<std::byte>(high(body.size() + extensions.size())),
                static_cast<std::byte>(low(body.size() + extensions.size()))};
    put(message_, body);
    message_.insert(message_.end(), extensions.begin(), extensions.end());
    prove(key);
  }
  [[nodiscard]] Bytes record() const {
    Bytes record;
    put(record, {22, 3, 1, high(message_.size()), low(message_.size())});
    record.insert(record.end(), message_.begin(), message_.end());
    return record;
  }

 private:
  using Numbers = std::vector<std::uint8_t>;
  using Hash = std::array<std::uint8_t, 32>;
  static std::uint8_t high(std::size_t size) { return static_cast<std::uint8_t>(size >> 8U); }
  static std::uint8_t low(std::size_t size) { return static_cast<std::uint8_t>(size); }
  static void put(Bytes& to, const Numbers& numbers) {
    std::ranges::transform(numbers, std::back_inserter(to), [](std::uint8_t one) { return std::byte{one}; });
  }
  static void add(Bytes& to, std::uint8_t type, const Numbers& body) {
    put(to, {0, type, high(body.size()), low(body.size())});
    put(to, body);
  }
  static Hash hmac(std::span<const std::uint8_t> key, std::span<const std::uint8_t> data) {
    Hash out{};
    unsigned int bytes = 0;
    HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), data.data(), data.size(), out.data(), &bytes);
    return out;
  }
  static Hash sha256(std::span<const std::byte> data) {
    Hash out{};
    SHA256(reinterpret_cast<const unsigned char*>(data.data()), data.size(), out.data());
    return out;
  }
  // RFC 8446, 7.1, of 32 bytes.
  static Hash expand_label(const Hash& secret, std::string_view label, std::span<const std::uint8_t> context) {
    Numbers info{0, 32, static_cast<std::uint8_t>(6 + label.size())};
    for (const std::string_view text : {std::string_view("tls13 "), label}) {
      info.insert(info.end(), text.begin(), text.end());
    }
    info.push_back(static_cast<std::uint8_t>(context.size()));
    info.insert(info.end(), context.begin(), context.end());
    info.push_back(1);
    return hmac(secret, info);
  }
  void prove(const Key& key) {
    constexpr std::size_t kBinders = 35;
    const Hash zeros{};
    const auto* const psk = reinterpret_cast<const std::uint8_t*>(key.bytes().data());
    const Hash early = hmac(zeros, {psk, security::kKeyBytes});
    const Hash binder = expand_label(early, "ext binder", sha256({}));
    const Hash proof =
        hmac(expand_label(binder, "finished", {}), sha256(std::span(message_).first(message_.size() - kBinders)));
    std::memcpy(message_.data() + message_.size() - proof.size(), proof.data(), proof.size());
  }

  Bytes message_;
};

// Without ephemeral keys anybody who gets the key later could read what was recorded. Mutation tried: the accepting
// side sets SSL_OP_ALLOW_NO_DHE_KEX.
TEST(SecureChannel, ClientsWithoutEphemeralKeysAndOldVersionsAreRefused) {
  const Key key = Key::random();
  const auto answer = [&](std::uint8_t mode, Hello::Version version) {
    SecureChannel server = accepting(key);
    server.feed(Hello(key, mode, version).record());
    server.step();
    return std::pair(server.state(), taken_from(server));
  };
  constexpr std::byte kHandshake{22};
  constexpr std::byte kAlert{21};
  const auto [right, hello] = answer(1, Hello::Version::tls13);
  EXPECT_EQ(right, State::handshake);
  ASSERT_GT(hello.size(), 100U);
  EXPECT_EQ(hello[0], kHandshake) << "this test's first message is not right";
  for (const auto& [mode, version] : {std::pair<std::uint8_t, Hello::Version>{0, Hello::Version::tls13},
                                      std::pair<std::uint8_t, Hello::Version>{1, Hello::Version::tls12}}) {
    const auto [state, said] = answer(mode, version);
    EXPECT_EQ(state, State::failed);
    ASSERT_FALSE(said.empty());
    EXPECT_EQ(said[0], kAlert);
    EXPECT_LE(said.size(), 7U);
  }
}

TEST(SecureChannel, WhatIsNoTlsIsRefused) {
  SecureChannel server = accepting(Key::random());
  server.feed(octets_of("GET / HTTP/1.1\r\n\r\n"));
  EXPECT_EQ(server.step(), State::failed);
  EXPECT_THAT(read_from(server), IsEmpty());
}

}  // namespace
}  // namespace gradwire::test
