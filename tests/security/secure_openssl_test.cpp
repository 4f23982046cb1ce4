// Tests TLS beside OpenSSL itself, as an impostor or the job may use it.
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "gradwire/error.hpp"
#include "hex_bytes.hpp"
#include "secure_sides.hpp"

namespace gradwire::test {
namespace {

// A server of TLS 1.3 that knows no key and has a certificate, which it has signed itself.
class Certified {
 public:
  Certified() {
    const Owned<EVP_PKEY> key(EVP_EC_gen("P-256"), &EVP_PKEY_free);
    const Owned<X509> certificate(X509_new(), &X509_free);
    X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -60);
    X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
    X509_set_pubkey(certificate.get(), key.get());
    EXPECT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
    EXPECT_EQ(SSL_CTX_use_certificate(settings_.get(), certificate.get()), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey(settings_.get(), key.get()), 1);
    ssl_.reset(SSL_new(settings_.get()));
    SSL_set_bio(ssl_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_accept_state(ssl_.get());
  }
  // Takes what the other side says, and returns the answer.
  Bytes answer(const Bytes& said) {
    BIO_write(SSL_get_rbio(ssl_.get()), said.data(), static_cast<int>(said.size()));
    SSL_do_handshake(ssl_.get());
    Bytes all(10000);
    const int bytes = BIO_read(SSL_get_wbio(ssl_.get()), all.data(), static_cast<int>(all.size()));
    all.resize(static_cast<std::size_t>(std::max(bytes, 0)));
    return all;
  }
  [[nodiscard]] bool is_believed() const { return SSL_is_init_finished(ssl_.get()) == 1; }

 private:
  template <typename T>
  using Owned = std::unique_ptr<T, void (*)(T*)>;
  Owned<SSL_CTX> settings_{SSL_CTX_new(TLS_server_method()), &SSL_CTX_free};
  Owned<SSL> ssl_{nullptr, &SSL_free};
};

// The handshake itself fails, before this side has said that it is content. Mutation tried: certificates are not
// examined, and not asked for a key after the handshake either.
TEST(SecureOpenssl, AnImpostorWithACertificateIsRefused) {
  Certified impostor;
  SecureChannel client = connecting(Key::random());
  client.step();
  const Bytes answer = impostor.answer(taken_from(client));
  ASSERT_GT(answer.size(), 500U) << "no certificate was shown";
  client.feed(answer);
  EXPECT_EQ(client.step(), State::failed);
  EXPECT_EQ(client.failure(), "certificate verify failed");
  EXPECT_FALSE(client.write(octets_of("what nobody shall read")));
  impostor.answer(taken_from(client));
  EXPECT_FALSE(impostor.is_believed());
  ERR_clear_error();  // the impostor's
}

// Returns the number of errors in this thread's queue, and empties it.
int errors() {
  int count = 0;
  while (ERR_get_error() != 0) {
    ++count;
  }
  return count;
}

// The job of this test has the same libcrypto. Mutation tried: LeavesNoErrors does nothing.
TEST(SecureOpenssl, TheJobFindsNoErrorsOfOurs) {
  errors();
  Sides sides{connecting(Key::random()), accepting(Key::random())};
  sides.pass();
  EXPECT_EQ(sides.server.state(), State::failed);
  EXPECT_EQ(sides.client.state(), State::failed);
  EXPECT_EQ(errors(), 0);
  ERR_raise(ERR_LIB_USER, 1);
  Bytes too_long(10'000);
  EXPECT_THROW(cryptography().hkdf(octets_of("key"), {}, {}, too_long), Error);
  EXPECT_EQ(errors(), 1) << "the job's own error stays, and no other one";
}

// The groups of TLS are X25519 alone. The vectors of RFC 7748, 5.2, through the library that makes its keys.
TEST(SecureOpenssl, X25519GivesTheAnswersOfRfc7748) {
  const auto multiply = [](const Bytes& scalar, const Bytes& point) {
    using Owned = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;
    const auto* const own = reinterpret_cast<const unsigned char*>(scalar.data());
    const auto* const other = reinterpret_cast<const unsigned char*>(point.data());
    const Owned secret(EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, nullptr, own, scalar.size()), &EVP_PKEY_free);
    const Owned peer(EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, nullptr, other, point.size()), &EVP_PKEY_free);
    const std::unique_ptr<EVP_PKEY_CTX, void (*)(EVP_PKEY_CTX*)> context(EVP_PKEY_CTX_new(secret.get(), nullptr),
                                                                         &EVP_PKEY_CTX_free);
    Bytes out(32);
    std::size_t bytes = out.size();
    EXPECT_EQ(EVP_PKEY_derive_init(context.get()), 1);
    EXPECT_EQ(EVP_PKEY_derive_set_peer(context.get(), peer.get()), 1);
    EXPECT_EQ(EVP_PKEY_derive(context.get(), reinterpret_cast<unsigned char*>(out.data()), &bytes), 1);
    return out;
  };
  EXPECT_EQ(to_hex(multiply(from_hex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4"),
                            from_hex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c"))),
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552");
  EXPECT_EQ(to_hex(multiply(from_hex("4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d"),
                            from_hex("e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493"))),
            "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957");
  Bytes scalar = from_hex("09" + std::string(62, '0'));
  Bytes point = scalar;
  for (int i = 1; i <= 1000; ++i) {
    point = std::exchange(scalar, multiply(scalar, point));
    if (i == 1) {
      EXPECT_EQ(to_hex(scalar), "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079");
    }
  }
  EXPECT_EQ(to_hex(scalar), "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51");
}

}  // namespace
}  // namespace gradwire::test
