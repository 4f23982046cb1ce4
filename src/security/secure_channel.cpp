#include "security/secure_channel.hpp"

#include <algorithm>
#include <utility>

#include "gradwire/error.hpp"

namespace gradwire::security {
namespace {

const unsigned char* octets(std::span<const std::byte> bytes) noexcept {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

unsigned char* octets(std::span<std::byte> bytes) noexcept { return reinterpret_cast<unsigned char*>(bytes.data()); }

bool find_key(void* owner, const unsigned char* identity, std::size_t bytes, unsigned char* key) noexcept {
  try {
    return (*static_cast<SecureChannel::Find*>(owner))(
        std::as_bytes(std::span(identity, bytes)),
        std::as_writable_bytes(std::span<unsigned char, kKeyBytes>(key, kKeyBytes)));
  } catch (...) {  // without memory nobody is let in
    return false;
  }
}

SecureChannel::State state_of(int state) noexcept {
  switch (state) {
    case kTlsHandshake: return SecureChannel::State::handshake;
    case kTlsOpen: return SecureChannel::State::open;
    case kTlsClosed: return SecureChannel::State::closed;
    default: return SecureChannel::State::failed;
  }
}

[[noreturn]] void refuse() {
  throw Error(ErrorCode::internal, "security: a TLS connection cannot be made in OpenSSL; is there memory left?");
}

}  // namespace

SecureChannel::SecureChannel(const SecurityTable& table, TlsChannel* channel, std::unique_ptr<Find> find)
    : table_(&table), find_(std::move(find)), channel_(channel, Frees{&table}) {
  if (channel == nullptr) {
    refuse();
  }
}

SecureChannel SecureChannel::connect(const Cryptography& cryptography, std::span<const std::byte> identity,
                                     const Key& key) {
  const SecurityTable& table = cryptography.table();
  return {table, table.tls_connect(octets(key.bytes()), octets(identity), identity.size()), nullptr};
}

SecureChannel SecureChannel::accept(const Cryptography& cryptography, Find find) {
  const SecurityTable& table = cryptography.table();
  auto owned = std::make_unique<Find>(std::move(find));
  Find* const owner = owned.get();
  return {table, table.tls_accept(&find_key, owner), std::move(owned)};
}

void SecureChannel::feed(std::span<const std::byte> bytes) {
  if (table_->tls_feed(channel_.get(), octets(bytes), bytes.size()) != 0) {
    refuse();
  }
}

std::size_t SecureChannel::take(std::span<std::byte> out) noexcept {
  return table_->tls_take(channel_.get(), octets(out), out.size());
}

SecureChannel::State SecureChannel::step() noexcept { return state_ = state_of(table_->tls_step(channel_.get())); }

std::size_t SecureChannel::read(std::span<std::byte> out) noexcept {
  const std::size_t bytes = table_->tls_read(channel_.get(), octets(out), out.size());
  step();
  return bytes;
}

bool SecureChannel::unread() const noexcept { return table_->tls_unread(channel_.get()); }

bool SecureChannel::write(std::span<const std::byte> bytes) noexcept {
  const bool written = table_->tls_write(channel_.get(), octets(bytes), bytes.size()) == 0;
  step();
  return written;
}

std::string SecureChannel::failure() const { return table_->tls_failure(channel_.get()); }

}  // namespace gradwire::security
