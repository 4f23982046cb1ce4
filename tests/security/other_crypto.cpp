// Stands for a libcrypto and a libssl that a job brings along, under the names of OpenSSL: whoever calls it ends.
#include <cstdlib>

#define GRADWIRE_OTHER(name) \
  extern "C" __attribute__((visibility("default"))) void name() { std::abort(); }

GRADWIRE_OTHER(CRYPTO_memcmp)
GRADWIRE_OTHER(EVP_CIPHER_CTX_ctrl)
GRADWIRE_OTHER(EVP_CIPHER_CTX_free)
GRADWIRE_OTHER(EVP_CIPHER_CTX_get_iv_length)
GRADWIRE_OTHER(EVP_CIPHER_CTX_new)
GRADWIRE_OTHER(EVP_CIPHER_fetch)
GRADWIRE_OTHER(EVP_CipherFinal_ex)
GRADWIRE_OTHER(EVP_CipherInit_ex2)
GRADWIRE_OTHER(EVP_CipherUpdate)
GRADWIRE_OTHER(EVP_KDF_CTX_free)
GRADWIRE_OTHER(EVP_KDF_CTX_new)
GRADWIRE_OTHER(EVP_KDF_derive)
GRADWIRE_OTHER(EVP_KDF_fetch)
GRADWIRE_OTHER(OPENSSL_init_crypto)
GRADWIRE_OTHER(OSSL_LIB_CTX_new)
GRADWIRE_OTHER(OSSL_PROVIDER_load)
GRADWIRE_OTHER(OpenSSL_version)
GRADWIRE_OTHER(BIO_new)
GRADWIRE_OTHER(BIO_read_ex)
GRADWIRE_OTHER(BIO_s_mem)
GRADWIRE_OTHER(BIO_write_ex)
GRADWIRE_OTHER(ERR_clear_error)
GRADWIRE_OTHER(EVP_MD_get_type)
GRADWIRE_OTHER(SSL_CTX_new_ex)
GRADWIRE_OTHER(SSL_do_handshake)
GRADWIRE_OTHER(SSL_new)
GRADWIRE_OTHER(SSL_read_ex)
GRADWIRE_OTHER(TLS_method)
