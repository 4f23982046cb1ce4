#include "security/cryptography.hpp"

#include "base/companion_library.hpp"
#include "gradwire/error.hpp"

namespace gradwire::security {
namespace {

constexpr CompanionLibrary kLibrary{.file_name = "libgradwire_security.so",
                                    .function = "gradwire_security_functions",
                                    .needed = "security: a key",
                                    .advice =
                                        "install the package gradwire-security, or build gradwire where "
                                        "libssl-dev is installed",
                                    .isolated = true};

const unsigned char* of(std::span<const std::byte> bytes) noexcept {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

unsigned char* of(std::span<std::byte> bytes) noexcept { return reinterpret_cast<unsigned char*>(bytes.data()); }

[[noreturn]] void fail(const char* what) {
  throw Error(ErrorCode::internal, std::string("security: ") + what + " failed in OpenSSL; is there memory left?");
}

const SecurityTable& table_in(const std::string& file) {
  const auto* table = reinterpret_cast<decltype(&gradwire_security_functions)>(load_companion(kLibrary, file))();
  if (table->version != kSecurityVersion) {
    refuse_companion(kLibrary, "but the one that was found has version " + std::to_string(table->version) + " where " +
                                   std::to_string(kSecurityVersion) + " is needed");
  }
  return *table;
}

}  // namespace

Cryptography Cryptography::load(const std::string& file) { return Cryptography(table_in(file)); }

void Cryptography::hkdf(std::span<const std::byte> key, std::span<const std::byte> salt,
                        std::span<const std::byte> info, std::span<std::byte> out) const {
  if (table_->hkdf(of(key), key.size(), of(salt), salt.size(), of(info), info.size(), of(out), out.size()) != 0) {
    fail("the derivation of a key");
  }
}

Tag Cryptography::seal(Cipher cipher, const Key& key, const Nonce& nonce, std::span<const std::byte> associated,
                       std::span<std::byte> data) const {
  Tag tag{};
  if (table_->seal(static_cast<int>(cipher), of(key.bytes()), of(nonce), of(associated), associated.size(), of(data),
                   data.size(), of(std::span<std::byte>(tag))) != 0) {
    fail("encryption");
  }
  return tag;
}

bool Cryptography::open(Cipher cipher, const Key& key, const Nonce& nonce, std::span<const std::byte> associated,
                        std::span<std::byte> data, std::span<const std::byte, kTagBytes> tag) const {
  const int result = table_->open(static_cast<int>(cipher), of(key.bytes()), of(nonce), of(associated),
                                  associated.size(), of(data), data.size(), of(tag));
  if (result != 0) {
    wipe(data);  // nothing that was not authentic is ever read
    if (result != kWrongTag) {
      fail("decryption");
    }
  }
  return result == 0;
}

}  // namespace gradwire::security
