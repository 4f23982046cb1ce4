#include "transport/tcp/tcp_keys.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "security/job_key.hpp"
#include "security/key_file.hpp"
#include "security/key_schedule.hpp"
#include "transport/tcp/tcp_secure_link.hpp"

namespace gradwire::transport::tcp {
namespace {

security::Key shared_key_of(const security::Cryptography& cryptography, const security::Key& job,
                            const ConnectionIdentity& identity, std::uint64_t nonce) {
  std::array<std::byte, sizeof(identity) + sizeof(nonce)> context{};
  std::memcpy(context.data(), &identity, sizeof(identity));
  std::memcpy(context.data() + sizeof(identity), &nonce, sizeof(nonce));
  return connection_key(cryptography, job, context);
}

}  // namespace

std::shared_ptr<const ConnectionKeys> ConnectionKeys::of_job() {
  const auto setting = security::key_setting();
  if (!setting) {
    return nullptr;
  }
  return std::make_shared<const ConnectionKeys>(security::Cryptography::load(), security::read_key_file(setting->file));
}

void ConnectionKeys::encrypt(Socket& socket, const Greeting& mine, std::uint32_t theirs) const {
  const ConnectionIdentity identity{.from = mine.rank, .to = theirs, .purpose = mine.purpose};
  socket.encrypt(std::make_unique<SecureLink>(
      security::SecureChannel::connect(cryptography_, std::as_bytes(std::span(&identity, 1)),
                                       shared_key_of(cryptography_, job_, identity, mine.nonce)),
      nullptr));
}

void ConnectionKeys::encrypt_accepted(Socket& socket, const Greeting& own, const Callers& callers) const {
  const auto peer = std::make_shared<std::optional<ConnectionIdentity>>();
  socket.encrypt(std::make_unique<SecureLink>(
      security::SecureChannel::accept(
          cryptography_,
          [keys = shared_from_this(), own, callers, peer](std::span<const std::byte> bytes,
                                                          std::span<std::byte, security::kKeyBytes> key) {
            ConnectionIdentity identity;
            if (bytes.size() != sizeof(identity)) {
              return false;
            }
            std::memcpy(&identity, bytes.data(), sizeof(identity));
            if (identity.magic != ConnectionIdentity::kMagic || identity.unused != 0 || identity.to != own.rank ||
                identity.from < callers.first || identity.from >= callers.end ||
                identity.purpose > static_cast<std::uint32_t>(callers.last)) {
              return false;
            }
            std::ranges::copy(shared_key_of(keys->cryptography_, keys->job_, identity, own.nonce).bytes(), key.begin());
            *peer = identity;
            return true;
          }),
      peer));
}

std::string ConnectionKeys::check_value() const { return security::check_value(cryptography_, job_); }

}  // namespace gradwire::transport::tcp
