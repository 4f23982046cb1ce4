#include "security/key_schedule.hpp"

#include "gradwire/error.hpp"
#include "wire/bytes.hpp"

namespace gradwire::security {
namespace {

constexpr std::size_t kCheckBytes = 16;

// Fills `out` from the secret. Labels end with a zero, so that none is the beginning of another.
void derive(const Cryptography& cryptography, const Key& secret, std::string_view label,
            std::span<const std::byte> context, std::span<std::byte> out) {
  constexpr std::string_view kPrefix = "gradwire 1 ";
  wire::Bytes info;
  wire::put(info, kPrefix.data(), kPrefix.size());
  wire::put(info, label.data(), label.size());
  wire::put_number(info, std::uint8_t{0});
  wire::put(info, context.data(), context.size());
  cryptography.hkdf(secret.bytes(), {}, info, out);
}

Key derived(const Cryptography& cryptography, const Key& secret, std::string_view label,
            std::span<const std::byte> context = {}) {
  Key key;
  derive(cryptography, secret, label, context, key.bytes());
  return key;
}

}  // namespace

std::string_view to_string(Right right) noexcept { return right == Right::join ? "join" : "observe"; }

std::string_view to_string(Purpose purpose) noexcept {
  switch (purpose) {
    case Purpose::frames: return "frames";
    case Purpose::control: return "control";
    case Purpose::tables: return "tables";
    case Purpose::residual_copies: return "residual copies";
  }
  return "";
}

Key derive_right(const Cryptography& cryptography, const Key& job, Right right) {
  return derived(cryptography, job, to_string(right));
}

std::string check_value(const Cryptography& cryptography, const Key& key) {
  std::array<std::byte, kCheckBytes> value{};
  derive(cryptography, key, "check", {}, value);
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : value) {
    text += kDigits[std::to_integer<std::size_t>(byte >> 4U)];
    text += kDigits[std::to_integer<std::size_t>(byte & std::byte{15})];
  }
  return text;
}

Salt draw_salt() {
  Salt salt{};
  fill_random(salt);
  return salt;
}

Key first_world_secret(const Cryptography& cryptography, const Key& job, std::span<const Salt> salts) {
  if (salts.empty()) {
    throw Error(ErrorCode::internal, "security: a world's secret without the random bytes of any rank");
  }
  wire::Bytes context;
  wire::put_number(context, static_cast<std::uint32_t>(salts.size()));
  for (const Salt& salt : salts) {
    wire::put(context, salt.data(), salt.size());
  }
  return derived(cryptography, job, "first world", context);
}

Proof prove_greeting(const Cryptography& cryptography, const Key& job, const Salt& salt, bool rank_has_aes,
                     std::uint32_t rank, std::uint32_t world_size) {
  wire::Bytes context;
  wire::put_number(context, rank);
  wire::put_number(context, world_size);
  wire::put_number(context, static_cast<std::uint8_t>(rank_has_aes ? 1 : 0));
  wire::put(context, salt.data(), salt.size());
  Proof proof{};
  derive(cryptography, job, "greeting", context, proof);
  return proof;
}

Key connection_key(const Cryptography& cryptography, const Key& job, std::span<const std::byte> context) {
  return derived(cryptography, job, "connection", context);
}

Key draw_world_secret() { return Key::random(); }

Key sender_key(const Cryptography& cryptography, const Key& world_secret, Purpose purpose, Cipher cipher,
               std::uint32_t sender) {
  wire::Bytes context;
  wire::put_number(context, static_cast<std::uint8_t>(cipher));
  wire::put_number(context, sender);
  return derived(cryptography, world_secret, to_string(purpose), context);
}

}  // namespace gradwire::security
