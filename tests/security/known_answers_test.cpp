// Compares the primitives with the answers that their specifications publish.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "hex_bytes.hpp"
#include "security/cryptography.hpp"

namespace gradwire::security {
namespace {

using gradwire::test::from_hex;
using gradwire::test::to_hex;

std::string run_of(int first, int last) {
  std::string hex;
  for (int i = first; i <= last; ++i) {
    hex += gradwire::test::hex_of(std::string(1, static_cast<char>(i)));
  }
  return hex;
}

std::string repeated(const std::string& hex, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) {
    all += hex;
  }
  return all;
}

TEST(KnownAnswers, HkdfOfRfc5869) {
  struct Case {
    std::string key, salt, info, answer;
  };
  const Case cases[] = {
      {repeated("0b", 22), run_of(0, 12), run_of(0xf0, 0xf9),
       "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"},
      {run_of(0, 0x4f), run_of(0x60, 0xaf), run_of(0xb0, 0xff),
       "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09da3275600c2f09b"
       "8"
       "367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87"},
      {repeated("0b", 22), "", "",
       "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"},
  };
  const Cryptography cryptography = Cryptography::load();
  for (const Case& one : cases) {
    std::vector<std::byte> out(one.answer.size() / 2);
    cryptography.hkdf(from_hex(one.key), from_hex(one.salt), from_hex(one.info), out);
    EXPECT_EQ(to_hex(out), one.answer);
  }
}

struct Sealed {
  std::string name;
  Cipher cipher;
  std::string key, nonce, associated, plain, sealed, tag;
};

const std::vector<Sealed>& sealed_cases() {
  static const std::vector<Sealed> cases = {
      {"test case 13 of the GCM specification", Cipher::aes_256_gcm, repeated("00", 32), repeated("00", 12), "", "", "",
       "530f8afbc74536b9a963b4f1c4cb738b"},
      {"test case 14", Cipher::aes_256_gcm, repeated("00", 32), repeated("00", 12), "", repeated("00", 16),
       "cea7403d4d606b6e074ec5d3baf39d18", "d0d1c8a799996bf0265b98b5d48ab919"},
      {"test case 16", Cipher::aes_256_gcm, repeated("feffe9928665731c6d6a8f9467308308", 2), "cafebabefacedbaddecaf888",
       "feedfacedeadbeeffeedfacedeadbeefabaddad2",
       "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de65"
       "7"
       "ba637b39",
       "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0"
       "a"
       "bcc9f662",
       "76fc6ece0f4e1768cddf8853bb2d551b"},
      {"RFC 8439, 2.8.2", Cipher::chacha20_poly1305, run_of(0x80, 0x9f), "070000004041424344454647",
       "50515253c0c1c2c3c4c5c6c7",
       gradwire::test::hex_of("Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the "
                              "future, sunscreen would be it."),
       "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2"
       "9"
       "05d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc3ff4def08e4b7a9de576d26586cec64"
       "b"
       "6116",
       "1ae10b594f09e26a7e902ecbd0600691"},
  };
  return cases;
}

TEST(KnownAnswers, CiphersSealAndOpen) {
  const Cryptography cryptography = Cryptography::load();
  for (const Sealed& one : sealed_cases()) {
    SCOPED_TRACE(one.name);
    const Key key(from_hex(one.key));
    Nonce nonce{};
    std::ranges::copy(from_hex(one.nonce), nonce.begin());
    std::vector<std::byte> data = from_hex(one.plain);
    const std::vector<std::byte> associated = from_hex(one.associated);
    const Tag tag = cryptography.seal(one.cipher, key, nonce, associated, data);
    EXPECT_EQ(to_hex(data), one.sealed);
    EXPECT_EQ(to_hex(tag), one.tag);
    EXPECT_TRUE(cryptography.open(one.cipher, key, nonce, associated, data, tag));
    EXPECT_EQ(to_hex(data), one.plain);
  }
}

// Every bit of key, nonce, associated bytes, data and tag counts; what is not authentic is never handed out.
TEST(KnownAnswers, AnyOtherBitIsNotOpened) {
  const Cryptography cryptography = Cryptography::load();
  for (const Sealed& one : sealed_cases()) {
    SCOPED_TRACE(one.name);
    const std::string all = one.key + one.nonce + one.associated + one.sealed + one.tag;
    const std::vector<std::byte> bytes = from_hex(all);
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      std::vector<std::byte> changed = bytes;
      changed[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      std::span<std::byte> rest(changed);
      const auto take = [&](std::size_t digits) {
        const auto taken = rest.first(digits / 2);
        rest = rest.subspan(digits / 2);
        return taken;
      };
      const Key key(take(one.key.size()));
      Nonce nonce{};
      std::ranges::copy(take(one.nonce.size()), nonce.begin());
      const auto associated = take(one.associated.size());
      const auto data = take(one.sealed.size());
      ASSERT_FALSE(cryptography.open(one.cipher, key, nonce, associated, data, rest.first<kTagBytes>()))
          << "bit " << bit;
      ASSERT_TRUE(std::ranges::all_of(data, [](std::byte byte) { return byte == std::byte{0}; })) << "bit " << bit;
    }
  }
}

TEST(KnownAnswers, EqualComparesAllBytes) {
  const Cryptography cryptography = Cryptography::load();
  const std::vector<std::byte> one(16, std::byte{7});
  for (std::size_t i = 0; i < one.size(); ++i) {
    std::vector<std::byte> other = one;
    EXPECT_TRUE(cryptography.equal(one, other));
    other[i] = std::byte{8};
    EXPECT_FALSE(cryptography.equal(one, other)) << i;
  }
  EXPECT_FALSE(cryptography.equal(one, std::span(one).first(15)));
}

}  // namespace
}  // namespace gradwire::security
