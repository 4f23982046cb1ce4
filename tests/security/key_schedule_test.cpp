// Tests the key schedule against an independent computation (Python's hmac), and that nothing leads to a key twice.
#include "security/key_schedule.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/error.hpp"
#include "hex_bytes.hpp"

namespace gradwire::security {
namespace {

using gradwire::test::published_key;
using gradwire::test::to_hex;

constexpr Purpose kPurposes[] = {Purpose::frames, Purpose::control, Purpose::tables, Purpose::residual_copies};

std::vector<Salt> published_salts() {
  std::vector<Salt> salts(2);
  for (std::size_t rank = 0; rank < salts.size(); ++rank) {
    for (std::size_t i = 0; i < salts[rank].size(); ++i) {
      salts[rank][i] = static_cast<std::byte>(32 * (rank + 1) + i);
    }
  }
  return salts;
}

TEST(KeySchedule, IsThatOfTheDocument) {
  const Cryptography cryptography = Cryptography::load();
  const Key job = published_key();
  EXPECT_EQ(check_value(cryptography, job), "5d902d6b3db6b0b663bf99cf33687598");
  EXPECT_EQ(to_hex(derive_right(cryptography, job, Right::join).bytes()),
            "bc2a7b398547542353c96851242bc9ef2b60d8e56c220e334986093f0e7265a2");
  EXPECT_EQ(to_hex(derive_right(cryptography, job, Right::observe).bytes()),
            "85b0538fa5972b2f7f9dc9bab732b3b57d67a28476443c22c7d29ffa68eddccc");
  const Key world = first_world_secret(cryptography, job, published_salts());
  EXPECT_EQ(to_hex(world.bytes()), "900218b7354c31570f32013ee59e8dbbd8b01cf17e684a2df32d7220ced101b9");
  const std::pair<Cipher, const char*> expected[] = {
      {Cipher::aes_256_gcm, "35aaa4d18a1d67c1dc1c7805c6b5d46ab3af8a4351bc4fa0231987b1db832221"},
      {Cipher::chacha20_poly1305, "a44c197165ac0f21f8cac56c31cc3552f7f46c14c416936fa65f6de7757dc96a"}};
  for (const auto& [cipher, key] : expected) {
    EXPECT_EQ(to_hex(sender_key(cryptography, world, Purpose::frames, cipher, 1).bytes()), key);
  }
  EXPECT_EQ(to_hex(sender_key(cryptography, world, Purpose::residual_copies, Cipher::aes_256_gcm, 1).bytes()),
            "2bf7480b7723c2353d6895f8136b553a1eabfbe9a71bb9298f7a6850dbcafe66");
}

TEST(KeySchedule, GivesEverySenderPurposeAndCipherAKeyOfItsOwn) {
  const Cryptography cryptography = Cryptography::load();
  const Key job = published_key();
  std::set<std::string> keys{to_hex(job.bytes())};
  const auto add = [&](const Key& key) { EXPECT_TRUE(keys.insert(to_hex(key.bytes())).second); };
  add(derive_right(cryptography, job, Right::join));
  add(derive_right(cryptography, job, Right::observe));
  for (const bool first : {true, false}) {
    const Key world = first ? first_world_secret(cryptography, job, published_salts()) : draw_world_secret();
    add(world);
    for (const Purpose purpose : kPurposes) {
      for (const Cipher cipher : {Cipher::aes_256_gcm, Cipher::chacha20_poly1305}) {
        for (const std::uint32_t sender : {0U, 1U, 2U, 255U, 256U, 65536U}) {
          add(sender_key(cryptography, world, purpose, cipher, sender));
        }
      }
    }
  }
}

// A job that starts again with the same key file makes the same steps, with counters from 0 on.
TEST(KeySchedule, NoStartHasTheKeysOfAnother) {
  const Cryptography cryptography = Cryptography::load();
  std::set<std::string> keys;
  for (int start = 0; start < 100; ++start) {
    const std::vector<Salt> salts{draw_salt(), draw_salt()};
    const Key world = first_world_secret(cryptography, published_key(), salts);
    for (const std::uint32_t sender : {0U, 1U}) {
      const Key key = sender_key(cryptography, world, Purpose::frames, Cipher::aes_256_gcm, sender);
      EXPECT_TRUE(keys.insert(to_hex(key.bytes())).second) << "start " << start;
    }
  }
}

TEST(KeySchedule, EveryByteOfEveryRankCounts) {
  const Cryptography cryptography = Cryptography::load();
  std::set<std::string> secrets;
  const auto add = [&](const std::vector<Salt>& salts) {
    EXPECT_TRUE(secrets.insert(to_hex(first_world_secret(cryptography, published_key(), salts).bytes())).second);
  };
  const std::vector<Salt> salts = published_salts();
  add(salts);
  add({salts[1], salts[0]});
  add({salts[0]});
  add({salts[0], salts[1], Salt{}});
  for (std::size_t rank = 0; rank < salts.size(); ++rank) {
    for (std::size_t i = 0; i < salts[rank].size(); ++i) {
      std::vector<Salt> other = salts;
      other[rank][i] ^= std::byte{1};
      add(other);
    }
  }
  EXPECT_THROW(static_cast<void>(first_world_secret(cryptography, published_key(), {})), Error);
}

}  // namespace
}  // namespace gradwire::security
