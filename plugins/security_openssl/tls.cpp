#include "plugins/security_openssl/tls.hpp"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <climits>
#include <cstring>
#include <memory>
#include <new>

#include "plugins/security_openssl/openssl_context.hpp"

using gradwire::security::kTlsClosed;
using gradwire::security::kTlsFailed;
using gradwire::security::kTlsHandshake;
using gradwire::security::kTlsOpen;
using gradwire::security::TlsChannel;

namespace {

constexpr std::size_t kPskBytes = 32;
constexpr std::size_t kMostIdentity = 256;
constexpr std::size_t kRecordBytes = 16384;         // of clear text, at most
constexpr std::size_t kRecordHeader = 5;            // the last two bytes are the length of the rest
constexpr std::size_t kRecordsOfKey = 1ULL << 23U;  // RFC 8446, 5.5: some 2^24.5 records of AES-GCM under one key
constexpr unsigned char kAes128GcmSha256[] = {0x13, 0x01};

}  // namespace

struct gradwire::security::TlsChannel {
  struct Frees {
    void operator()(SSL* ssl) const noexcept { SSL_free(ssl); }
    void operator()(SSL_SESSION* session) const noexcept { SSL_SESSION_free(session); }
  };

  std::unique_ptr<SSL, Frees> ssl;
  int state = kTlsHandshake;
  std::size_t records = 0;  // written under the present key
  char failure[160] = {};

  unsigned char identity[kMostIdentity] = {};  // of the connecting side
  std::size_t identity_bytes = 0;
  unsigned char psk[kPskBytes] = {};  // of the connecting side, until the handshake is over

  bool (*find)(void*, const unsigned char*, std::size_t, unsigned char*) noexcept = nullptr;  // of the accepting side
  void* owner = nullptr;

  ~TlsChannel() { OPENSSL_cleanse(psk, sizeof(psk)); }
};

namespace {

// A session that stands for an external key (RFC 8446, 4.2.11). Every cipher suite with the same hash may follow.
std::unique_ptr<SSL_SESSION, TlsChannel::Frees> session_of(SSL* ssl, const unsigned char* psk) noexcept {
  std::unique_ptr<SSL_SESSION, TlsChannel::Frees> session(SSL_SESSION_new());
  const SSL_CIPHER* const suite = SSL_CIPHER_find(ssl, kAes128GcmSha256);
  if (session == nullptr || suite == nullptr || SSL_SESSION_set1_master_key(session.get(), psk, kPskBytes) != 1 ||
      SSL_SESSION_set_cipher(session.get(), suite) != 1 ||
      SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) != 1) {
    return nullptr;
  }
  return session;
}

int use_key(SSL* ssl, const EVP_MD* hash, const unsigned char** identity, std::size_t* identity_bytes,
            SSL_SESSION** session) noexcept {
  auto* const channel = static_cast<TlsChannel*>(SSL_get_app_data(ssl));
  *session = nullptr;
  if (hash != nullptr && EVP_MD_get_type(hash) != NID_sha256) {
    return 1;  // without a key, which ends the handshake
  }
  auto made = session_of(ssl, channel->psk);
  *identity = channel->identity;
  *identity_bytes = channel->identity_bytes;
  *session = made.release();
  return *session == nullptr ? 0 : 1;
}

int find_key(SSL* ssl, const unsigned char* identity, std::size_t identity_bytes, SSL_SESSION** session) noexcept {
  auto* const channel = static_cast<TlsChannel*>(SSL_get_app_data(ssl));
  unsigned char psk[kPskBytes];
  *session = nullptr;
  if (channel->find(channel->owner, identity, identity_bytes, psk)) {
    *session = session_of(ssl, psk).release();
  }
  OPENSSL_cleanse(psk, sizeof(psk));
  return 1;
}

// Never freed, like the library context. There are no certificates, neither own ones nor any to trust.
SSL_CTX* make_settings() noexcept {
  OSSL_LIB_CTX* const context = own_context();
  SSL_CTX* const made = context == nullptr ? nullptr : SSL_CTX_new_ex(context, nullptr, TLS_method());
  if (made == nullptr || SSL_CTX_set_min_proto_version(made, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(made, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(made, "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256") != 1 ||
      SSL_CTX_set1_groups_list(made, "X25519") != 1 || SSL_CTX_set_num_tickets(made, 0) != 1) {
    return nullptr;
  }
  SSL_CTX_set_options(made, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
                                SSL_OP_PRIORITIZE_CHACHA | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_clear_options(made, SSL_OP_ALLOW_NO_DHE_KEX);
  SSL_CTX_set_session_cache_mode(made, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_psk_use_session_callback(made, &use_key);
  SSL_CTX_set_psk_find_session_callback(made, &find_key);
  return made;
}

std::unique_ptr<TlsChannel> make_channel() noexcept {
  static SSL_CTX* const settings = make_settings();
  std::unique_ptr<TlsChannel> channel(settings == nullptr ? nullptr : new (std::nothrow) TlsChannel);
  if (channel == nullptr) {
    return nullptr;
  }
  channel->ssl.reset(SSL_new(settings));
  BIO* const in = BIO_new(BIO_s_mem());
  BIO* const out = BIO_new(BIO_s_mem());
  if (channel->ssl == nullptr || in == nullptr || out == nullptr) {
    BIO_free(in);
    BIO_free(out);
    return nullptr;
  }
  BIO_set_mem_eof_return(in, -1);  // an empty BIO means: later
  BIO_set_mem_eof_return(out, -1);
  SSL_set_bio(channel->ssl.get(), in, out);
  SSL_set_app_data(channel->ssl.get(), channel.get());
  return channel;
}

void fail(TlsChannel& channel, const char* why) noexcept {
  channel.state = kTlsFailed;
  std::strncpy(channel.failure, why, sizeof(channel.failure) - 1);
}

// Says what followed from the result of a call of OpenSSL that was no success. SSL_get_error() takes any error of the
// thread's queue for one of that call, so the queue is emptied before each.
void note(TlsChannel& channel, int result) noexcept {
  switch (SSL_get_error(channel.ssl.get(), result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: return;
    case SSL_ERROR_ZERO_RETURN: channel.state = kTlsClosed; return;
    default: break;
  }
  const char* const reason = ERR_reason_error_string(ERR_peek_error());
  fail(channel, reason == nullptr ? "an error without a reason" : reason);
}

// The connection must have ephemeral keys, and be of the key that was named.
bool is_right(SSL* ssl) noexcept {
  EVP_PKEY* ephemeral = nullptr;
  const bool has = SSL_get_peer_tmp_key(ssl, &ephemeral) == 1;
  EVP_PKEY_free(ephemeral);
  return has && SSL_session_reused(ssl) == 1 && SSL_version(ssl) == TLS1_3_VERSION;
}

}  // namespace

TlsChannel* tls_connect(const unsigned char* psk, const unsigned char* identity, std::size_t bytes) noexcept {
  const LeavesNoErrors errors;
  auto channel = bytes > kMostIdentity ? nullptr : make_channel();
  if (channel == nullptr) {
    return nullptr;
  }
  std::memcpy(channel->identity, identity, bytes);
  channel->identity_bytes = bytes;
  std::memcpy(channel->psk, psk, kPskBytes);
  SSL_set_verify(channel->ssl.get(), SSL_VERIFY_PEER, nullptr);  // none is trusted, so a certificate ends the handshake
  SSL_set_connect_state(channel->ssl.get());
  return channel.release();
}

TlsChannel* tls_accept(bool (*find)(void*, const unsigned char*, std::size_t, unsigned char*) noexcept,
                       void* owner) noexcept {
  const LeavesNoErrors errors;
  auto channel = make_channel();
  if (channel == nullptr) {
    return nullptr;
  }
  channel->find = find;
  channel->owner = owner;
  SSL_set_accept_state(channel->ssl.get());
  return channel.release();
}

void tls_free(TlsChannel* channel) noexcept { delete channel; }

int tls_feed(TlsChannel* channel, const unsigned char* data, std::size_t bytes) noexcept {
  const LeavesNoErrors errors;
  std::size_t written = 0;
  return BIO_write_ex(SSL_get_rbio(channel->ssl.get()), data, bytes, &written) == 1 && written == bytes ? 0 : 1;
}

std::size_t tls_take(TlsChannel* channel, unsigned char* out, std::size_t bytes) noexcept {
  const LeavesNoErrors errors;
  std::size_t read = 0;
  return BIO_read_ex(SSL_get_wbio(channel->ssl.get()), out, bytes, &read) == 1 ? read : 0;
}

int tls_step(TlsChannel* channel) noexcept {
  const LeavesNoErrors errors;
  if (channel->state == kTlsHandshake) {
    ERR_clear_error();
    if (const int result = SSL_do_handshake(channel->ssl.get()); result != 1) {
      note(*channel, result);
    } else if (!is_right(channel->ssl.get())) {
      fail(*channel, "no ephemeral keys, or no pre-shared key");
    } else {
      channel->state = kTlsOpen;
    }
    if (channel->state != kTlsHandshake) {
      OPENSSL_cleanse(channel->psk, sizeof(channel->psk));
    }
  }
  return channel->state;
}

std::size_t tls_read(TlsChannel* channel, unsigned char* out, std::size_t bytes) noexcept {
  const LeavesNoErrors errors;
  std::size_t done = 0;
  while (channel->state == kTlsOpen && done < bytes) {
    ERR_clear_error();
    std::size_t read = 0;
    const int result = SSL_read_ex(channel->ssl.get(), out + done, bytes - done, &read);
    if (result != 1) {
      note(*channel, result);
      break;
    }
    done += read;
  }
  return done;
}

int tls_write(TlsChannel* channel, const unsigned char* data, std::size_t bytes) noexcept {
  const LeavesNoErrors errors;
  if (channel->state != kTlsOpen) {
    return 1;
  }
  ERR_clear_error();
  channel->records += bytes / kRecordBytes + 1;
  if (channel->records > kRecordsOfKey) {
    channel->records = 0;
    if (SSL_key_update(channel->ssl.get(), SSL_KEY_UPDATE_NOT_REQUESTED) != 1) {
      fail(*channel, "the key cannot be renewed");
      return 1;
    }
  }
  std::size_t written = 0;
  const int result = SSL_write_ex(channel->ssl.get(), data, bytes, &written);
  if (result != 1 || written != bytes) {
    note(*channel, result);
    if (channel->state == kTlsOpen) {
      fail(*channel, "memory for encrypted bytes is missing");
    }
    return 1;
  }
  return 0;
}

bool tls_unread(TlsChannel* channel) noexcept {
  if (channel->state != kTlsOpen) {
    return channel->state != kTlsHandshake;  // the last read may have returned what came before the end
  }
  if (SSL_pending(channel->ssl.get()) > 0) {
    return true;
  }
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(SSL_get_rbio(channel->ssl.get()), &data);
  const auto* const record = reinterpret_cast<const unsigned char*>(data);
  return bytes >= static_cast<long>(kRecordHeader) &&
         bytes >= static_cast<long>(kRecordHeader) + (record[3] << 8U | record[4]);
}

const char* tls_failure(TlsChannel* channel) noexcept { return channel->failure; }
