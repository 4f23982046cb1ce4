// libgradwire_security.so: OpenSSL 3 behind a table of C functions (security/security_table.hpp).
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/provider.h>

#include <climits>
#include <memory>

#include "plugins/security_openssl/openssl_context.hpp"
#include "plugins/security_openssl/tls.hpp"
#include "security/cipher.hpp"
#include "security/security_table.hpp"

OSSL_LIB_CTX* own_context() noexcept {
  static OSSL_LIB_CTX* const context = []() noexcept -> OSSL_LIB_CTX* {
    OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, nullptr);
    OSSL_LIB_CTX* const made = OSSL_LIB_CTX_new();
    return made != nullptr && OSSL_PROVIDER_load(made, "default") != nullptr ? made : nullptr;
  }();
  return context;
}

namespace {

using gradwire::security::Cipher;
using gradwire::security::kSecurityVersion;
using gradwire::security::kWrongTag;
using gradwire::security::SecurityTable;

constexpr int kFailed = 2;
constexpr int kNonceBytes = 12;
constexpr int kTagBytes = 16;

struct Algorithms {
  EVP_KDF* hkdf = nullptr;
  EVP_CIPHER* aes = nullptr;
  EVP_CIPHER* chacha = nullptr;

  Algorithms() noexcept {
    OSSL_LIB_CTX* const context = own_context();
    if (context == nullptr) {
      return;
    }
    hkdf = EVP_KDF_fetch(context, "HKDF", nullptr);
    aes = EVP_CIPHER_fetch(context, "AES-256-GCM", nullptr);
    chacha = EVP_CIPHER_fetch(context, "ChaCha20-Poly1305", nullptr);
  }
};

const Algorithms& algorithms() noexcept {
  static const Algorithms all;
  return all;
}

struct FreesContext {
  void operator()(EVP_CIPHER_CTX* context) const noexcept { EVP_CIPHER_CTX_free(context); }
  void operator()(EVP_KDF_CTX* context) const noexcept { EVP_KDF_CTX_free(context); }
};

int hkdf(const unsigned char* key, std::size_t key_bytes, const unsigned char* salt, std::size_t salt_bytes,
         const unsigned char* info, std::size_t info_bytes, unsigned char* out, std::size_t out_bytes) noexcept {
  const LeavesNoErrors errors;
  const std::unique_ptr<EVP_KDF_CTX, FreesContext> context(
      algorithms().hkdf == nullptr ? nullptr : EVP_KDF_CTX_new(algorithms().hkdf));
  if (context == nullptr) {
    return kFailed;
  }
  // OpenSSL only reads what the parameters point to.
  char digest[] = "SHA256";
  OSSL_PARAM parameters[5];
  OSSL_PARAM* next = parameters;
  *next++ = OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0);
  *next++ = OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, const_cast<unsigned char*>(key), key_bytes);
  if (salt_bytes > 0) {
    *next++ = OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, const_cast<unsigned char*>(salt), salt_bytes);
  }
  if (info_bytes > 0) {
    *next++ = OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, const_cast<unsigned char*>(info), info_bytes);
  }
  *next = OSSL_PARAM_construct_end();
  return EVP_KDF_derive(context.get(), out, out_bytes, parameters) == 1 ? 0 : kFailed;
}

// Runs `bytes` through the cipher in place, in pieces that an int can count.
bool run(EVP_CIPHER_CTX* context, unsigned char* data, std::size_t bytes) noexcept {
  constexpr std::size_t kPiece = std::size_t{1} << 30;
  static_assert(kPiece <= INT_MAX);
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t piece = bytes - done < kPiece ? bytes - done : kPiece;
    int written = 0;
    if (EVP_CipherUpdate(context, data + done, &written, data + done, static_cast<int>(piece)) != 1) {
      return false;
    }
    done += piece;
  }
  return true;
}

// A context that has taken key, nonce and associated bytes; null: the cipher cannot be had. It is made anew for each
// message and wiped after it, so that no other copy of a key stays in memory.
std::unique_ptr<EVP_CIPHER_CTX, FreesContext> begin(int cipher, int encrypts, const unsigned char* key,
                                                    const unsigned char* nonce, const unsigned char* associated,
                                                    std::size_t associated_bytes) noexcept {
  const EVP_CIPHER* const algorithm =
      cipher == static_cast<int>(Cipher::aes_256_gcm) ? algorithms().aes : algorithms().chacha;
  std::unique_ptr<EVP_CIPHER_CTX, FreesContext> context(algorithm == nullptr ? nullptr : EVP_CIPHER_CTX_new());
  int written = 0;
  if (context == nullptr || associated_bytes > INT_MAX ||
      EVP_CipherInit_ex2(context.get(), algorithm, key, nonce, encrypts, nullptr) != 1 ||
      EVP_CIPHER_CTX_get_iv_length(context.get()) != kNonceBytes ||
      (associated_bytes > 0 &&
       EVP_CipherUpdate(context.get(), nullptr, &written, associated, static_cast<int>(associated_bytes)) != 1)) {
    return nullptr;
  }
  return context;
}

int seal(int cipher, const unsigned char* key, const unsigned char* nonce, const unsigned char* associated,
         std::size_t associated_bytes, unsigned char* data, std::size_t bytes, unsigned char* tag) noexcept {
  const LeavesNoErrors errors;
  const auto context = begin(cipher, 1, key, nonce, associated, associated_bytes);
  int written = 0;
  unsigned char rest[kTagBytes];
  if (context == nullptr || !run(context.get(), data, bytes) ||
      EVP_CipherFinal_ex(context.get(), rest, &written) != 1 ||
      EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag) != 1) {
    return kFailed;
  }
  return 0;
}

int open(int cipher, const unsigned char* key, const unsigned char* nonce, const unsigned char* associated,
         std::size_t associated_bytes, unsigned char* data, std::size_t bytes, const unsigned char* tag) noexcept {
  const LeavesNoErrors errors;
  const auto context = begin(cipher, 0, key, nonce, associated, associated_bytes);
  int written = 0;
  unsigned char rest[kTagBytes];
  if (context == nullptr || !run(context.get(), data, bytes) ||
      EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_SET_TAG, kTagBytes, const_cast<unsigned char*>(tag)) != 1) {
    return kFailed;
  }
  return EVP_CipherFinal_ex(context.get(), rest, &written) == 1 ? 0 : kWrongTag;  // compares in constant time
}

bool equal(const void* one, const void* other, std::size_t bytes) noexcept {
  return CRYPTO_memcmp(one, other, bytes) == 0;
}

const char* provider() noexcept { return OpenSSL_version(OPENSSL_VERSION); }

constexpr SecurityTable kTable{.version = kSecurityVersion,
                               .provider = &provider,
                               .hkdf = &hkdf,
                               .seal = &seal,
                               .open = &open,
                               .equal = &equal,
                               .tls_connect = &tls_connect,
                               .tls_accept = &tls_accept,
                               .tls_free = &tls_free,
                               .tls_feed = &tls_feed,
                               .tls_take = &tls_take,
                               .tls_step = &tls_step,
                               .tls_read = &tls_read,
                               .tls_write = &tls_write,
                               .tls_unread = &tls_unread,
                               .tls_failure = &tls_failure};

}  // namespace

extern "C" __attribute__((visibility("default"))) const SecurityTable* gradwire_security_functions() { return &kTable; }
