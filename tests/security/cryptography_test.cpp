// Tests how libgradwire_security.so is loaded: what is said where it cannot be, and that a libcrypto which the job
// brings along is never called.
#include "security/cryptography.hpp"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/sanitizers.hpp"
#include "hex_bytes.hpp"
#include "security/secure_channel.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/run_program.hpp"

namespace gradwire::security {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Cryptography, SaysWhatIsWrongAndWhatToInstall) {
  const auto why = [](const std::string& file) {
    const Error error = gradwire::test::error_of([&] { static_cast<void>(Cryptography::load(file)); });
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    return std::string(error.what());
  };
  EXPECT_THAT(why("/nowhere/libgradwire_security.so"),
              AllOf(HasSubstr("a key needs libgradwire_security.so"), HasSubstr("no such file"),
                    HasSubstr("gradwire-security"), HasSubstr("libssl-dev")));
  EXPECT_THAT(why("libm.so.6"), HasSubstr("another library"));
  EXPECT_THAT(why(GRADWIRE_OTHER_SECURITY), HasSubstr("has version 999 where 2 is needed"));
}

TEST(Cryptography, IsOpenSsl3) { EXPECT_THAT(Cryptography::load().provider(), StartsWith("OpenSSL 3.")); }

// The tests below run this one in another process.
TEST(Cryptography, DISABLED_SealsAndOpens) {
  const Cryptography cryptography = Cryptography::load();
  const Key key = gradwire::test::published_key();
  std::vector<std::byte> data(100);
  for (const Cipher cipher : {Cipher::aes_256_gcm, Cipher::chacha20_poly1305}) {
    const Tag tag = cryptography.seal(cipher, key, Nonce{}, {}, data);
    ASSERT_TRUE(cryptography.open(cipher, key, Nonce{}, {}, data, tag));
  }
  std::vector<std::byte> out(32);
  cryptography.hkdf(key.bytes(), {}, {}, out);
  ASSERT_TRUE(cryptography.equal(out, out));
  ASSERT_THAT(cryptography.provider(), StartsWith("OpenSSL 3."));
  SecureChannel client = SecureChannel::connect(cryptography, out, key);
  SecureChannel server = SecureChannel::accept(cryptography, [&](auto, std::span<std::byte, kKeyBytes> found) {
    std::ranges::copy(key.bytes(), found.begin());
    return true;
  });
  std::vector<std::byte> passed(4096);
  for (int i = 0; i < 2; ++i) {
    client.step();
    server.feed(std::span(passed).first(client.take(passed)));
    server.step();
    client.feed(std::span(passed).first(server.take(passed)));
  }
  ASSERT_EQ(client.state(), SecureChannel::State::open);
  ASSERT_EQ(server.state(), SecureChannel::State::open);
}

TEST(Cryptography, DISABLED_SealsBesideAnother) {
  ASSERT_NE(::dlopen(GRADWIRE_OTHER_CRYPTO, RTLD_NOW | RTLD_GLOBAL), nullptr) << ::dlerror();
  const Cryptography cryptography = Cryptography::load();
  std::vector<std::byte> out(32);
  cryptography.hkdf(out, {}, {}, out);
  ASSERT_THAT(cryptography.provider(), StartsWith("OpenSSL 3."));
}

std::string run_of(const std::string& before, const std::string& test) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto outcome = gradwire::test::run_program(
      before + ' ' + self + " --gtest_also_run_disabled_tests --gtest_filter=Cryptography.DISABLED_" + test);
  return std::to_string(outcome.status) + ": " + outcome.output;
}

TEST(Cryptography, ALibcryptoOfTheJobIsNeverCalled) {
  if (GRADWIRE_ADDRESS_SANITIZER != 0) {
    GTEST_SKIP() << "under AddressSanitizer libraries cannot be isolated";
  }
  EXPECT_THAT(run_of("", "SealsAndOpens"), StartsWith("0: "));
  EXPECT_THAT(run_of("LD_PRELOAD='" GRADWIRE_OTHER_CRYPTO "'", "SealsAndOpens"), StartsWith("0: "));
  EXPECT_THAT(run_of("", "SealsBesideAnother"), StartsWith("0: "));
}

}  // namespace
}  // namespace gradwire::security
