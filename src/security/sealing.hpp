// Seals and opens messages under the key of one sender and purpose. Behind its encrypted bytes a
// sealed message has: u64 counter of the key | 16 bytes of tag. The counter is the nonce.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/forked.hpp"
#include "base/mutex.hpp"
#include "security/cryptography.hpp"
#include "security/key.hpp"
#include "wire/frame.hpp"

namespace gradwire::security {

/// Bytes that sealing appends to a message.
inline constexpr std::size_t kSealBytes = 8 + kTagBytes;
static_assert(kSealBytes == wire::kSealBytes);

/// The most messages that one key seals: far from the limits of both ciphers, and enough for years of sending.
inline constexpr std::uint64_t kMostMessages = std::uint64_t{1} << 48U;

/// The sender's side. It owns the key, since two sealers of one key would use its counters twice. Any thread.
class Sealer {
 public:
  Sealer(const Cryptography& cryptography, Cipher cipher, Key key)
      : cryptography_(cryptography), cipher_(cipher), key_(std::move(key)) {}

  /// Encrypts all of `message` but its last kSealBytes in place, and writes the seal there; `associated` is sent beside
  /// it, and cannot be changed without the receiver's notice. Error(unsupported) in a forked child, whose counters are
  /// those of its parent. Error(internal) for a message without room, or once the key's counters are used up.
  void seal(std::span<const std::byte> associated, std::span<std::byte> message);

  /// The number of messages sealed so far.
  [[nodiscard]] std::uint64_t sealed() const noexcept { return next_.load(std::memory_order_relaxed); }

 private:
  Cryptography cryptography_;
  Cipher cipher_;
  Key key_;
  Home home_;
  std::atomic<std::uint64_t> next_{0};
};

/// Records which counters of a key have come: those of the last `width` up to the highest that came are known one by
/// one, and older ones are refused. So a message may be overtaken by width - 1 others of its sender. It takes width / 8
/// bytes, whatever comes.
class ReplayWindow {
 public:
  /// `width` is a multiple of 64.
  explicit ReplayWindow(std::size_t width) : words_(width / 64) {}

  enum class Verdict : std::uint8_t { first, again, too_old };
  /// Returns what take() would answer for this counter, which is below kMostMessages.
  [[nodiscard]] Verdict look_up(std::uint64_t counter) const noexcept;
  /// Marks the counter as come where it is the first.
  Verdict take(std::uint64_t counter) noexcept;

 private:
  [[nodiscard]] std::uint64_t width() const noexcept { return 64 * words_.size(); }

  std::vector<std::uint64_t> words_;  // counter c is bit c mod 64 of word (c / 64) mod words
  std::uint64_t end_ = 0;             // one above the highest that came
};

/// The receiver's side of one sender's key. Any thread.
class Opener {
 public:
  /// Messages that another one of the same sender may overtake: more than a rank has under way to all others.
  static constexpr std::size_t kWindow = std::size_t{1} << 16U;

  /// `sender` names the peer in errors, such as "rank 3".
  Opener(const Cryptography& cryptography, Cipher cipher, Key key, std::string sender, std::size_t window = kWindow)
      : cryptography_(cryptography), cipher_(cipher), key_(std::move(key)), sender_(std::move(sender)), came_(window) {}

  /// Decrypts all of `message` but its last kSealBytes in place. Error(corrupt), which names the sender: the message is
  /// too short, has come before, is older than the window, or is not what the sender sealed with `associated`; its
  /// bytes are as they came or zeros then. Only a message that is all right counts as come.
  void open(std::span<const std::byte> associated, std::span<std::byte> message);

  [[nodiscard]] const std::string& sender() const noexcept { return sender_; }

 private:
  [[noreturn]] void refuse(const std::string& why) const;
  void refuse_unless_first(ReplayWindow::Verdict verdict, std::uint64_t counter) const;

  Cryptography cryptography_;
  Cipher cipher_;
  Key key_;
  std::string sender_;
  Mutex mutex_;
  ReplayWindow came_ GUARDED_BY(mutex_);
};

}  // namespace gradwire::security
