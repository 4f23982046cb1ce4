// How the ranks of a transport agree on the secret of their world: each draws random bytes and tells all others, with a
// proof that it has the job's key; the secret is derived from that key and from the random bytes of all.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gradwire/transport.hpp"
#include "security/cipher.hpp"
#include "security/cryptography.hpp"
#include "security/key.hpp"
#include "security/key_schedule.hpp"

namespace gradwire::transport {

/// The first message of a rank to every other rank. All numbers are little-endian.
struct KeyGreeting {
  std::uint32_t magic = 0;
  std::uint8_t version = 0;
  std::uint8_t has_aes = 0;
  std::uint16_t zero = 0;
  security::Salt salt{};
  security::Proof proof{};
};
static_assert(sizeof(KeyGreeting) == 72);

class KeyAgreement {
 public:
  /// Sends nothing yet.
  KeyAgreement(std::shared_ptr<Transport> transport, const security::Cryptography& cryptography, security::Key job);
  ~KeyAgreement();
  KeyAgreement(const KeyAgreement&) = delete;
  KeyAgreement& operator=(const KeyAgreement&) = delete;

  /// Posts the messages that are not posted yet, which need no other call of this rank to reach the others. A transport
  /// whose keys nobody uses leaves no greeting behind, which the next agreement over it would take. After an error of
  /// the transport it may be called again.
  void begin();

  /// Whether all messages have come, and gone. It looks only; the transport's progress() moves them.
  [[nodiscard]] bool complete() const noexcept;

  struct Outcome {
    security::Key world_secret;
    security::Cipher cipher;
  };
  /// The outcome, once it is complete. Error(mismatch) names a rank that has another key or version.
  [[nodiscard]] Outcome derive() const;

 private:
  // The messages under way. They are leaked where the transport may still touch them.
  struct Messages {
    std::vector<KeyGreeting> greetings;  // by rank
    std::vector<Operation> operations;
  };

  std::shared_ptr<Transport> transport_;
  security::Cryptography cryptography_;
  security::Key job_;
  std::unique_ptr<Messages> messages_ = std::make_unique<Messages>();
  bool begun_ = false;  // all messages are posted
};

}  // namespace gradwire::transport
