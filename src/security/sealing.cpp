#include "security/sealing.hpp"

#include <algorithm>
#include <cstring>

#include "gradwire/error.hpp"

namespace gradwire::security {
namespace {

constexpr std::size_t kCounterBytes = 8;

Nonce nonce_of(std::uint64_t counter) {
  Nonce nonce{};
  std::memcpy(nonce.data() + kNonceBytes - kCounterBytes, &counter, kCounterBytes);
  return nonce;
}

}  // namespace

void Sealer::seal(std::span<const std::byte> associated, std::span<std::byte> message) {
  if (home_.is_elsewhere()) {
    throw Error(ErrorCode::unsupported,
                "security: a forked child cannot send, since its parent uses the same key and counters; let only the "
                "process that began the job communicate");
  }
  if (message.size() < kSealBytes) {
    throw Error(ErrorCode::internal, "security: no room for a seal in " + std::to_string(message.size()) + " bytes");
  }
  const std::uint64_t counter = next_.fetch_add(1, std::memory_order_relaxed);
  if (counter >= kMostMessages) {
    throw Error(ErrorCode::internal, "security: a key has sealed 2^48 messages; start the job again");
  }
  const std::size_t bytes = message.size() - kSealBytes;
  const Tag tag = cryptography_.seal(cipher_, key_, nonce_of(counter), associated, message.first(bytes));
  std::memcpy(message.data() + bytes, &counter, kCounterBytes);
  std::memcpy(message.data() + bytes + kCounterBytes, tag.data(), kTagBytes);
}

ReplayWindow::Verdict ReplayWindow::look_up(std::uint64_t counter) const noexcept {
  if (counter >= end_) {
    return Verdict::first;
  }
  if (end_ - counter > width()) {
    return Verdict::too_old;
  }
  const std::uint64_t word = words_[counter / 64 % words_.size()];
  return (word >> (counter % 64) & 1U) != 0 ? Verdict::again : Verdict::first;
}

ReplayWindow::Verdict ReplayWindow::take(std::uint64_t counter) noexcept {
  const Verdict verdict = look_up(counter);
  if (verdict != Verdict::first) {
    return verdict;
  }
  // A new highest counter moves the window: the places of those between have the bits of counters that are too old now.
  if (counter >= end_) {
    for (std::uint64_t passed = std::max(end_, counter + 1 - std::min(counter + 1, width())); passed <= counter;) {
      std::uint64_t& word = words_[passed / 64 % words_.size()];
      if (passed % 64 == 0 && passed + 63 <= counter) {
        word = 0;
        passed += 64;
      } else {
        word &= ~(std::uint64_t{1} << (passed % 64));
        ++passed;
      }
    }
    end_ = counter + 1;
  }
  words_[counter / 64 % words_.size()] |= std::uint64_t{1} << (counter % 64);
  return verdict;
}

void Opener::refuse(const std::string& why) const {
  throw Error(ErrorCode::corrupt, "security: a message of " + sender_ + ' ' + why +
                                      "; somebody on the network changes or repeats messages, or the ranks have "
                                      "different keys");
}

void Opener::refuse_unless_first(ReplayWindow::Verdict verdict, std::uint64_t counter) const {
  if (verdict == ReplayWindow::Verdict::again) {
    refuse("(number " + std::to_string(counter) + ") came a second time");
  }
  if (verdict == ReplayWindow::Verdict::too_old) {
    refuse("(number " + std::to_string(counter) + ") came later than messages may be overtaken");
  }
}

void Opener::open(std::span<const std::byte> associated, std::span<std::byte> message) {
  if (message.size() < kSealBytes) {
    refuse("has " + std::to_string(message.size()) + " bytes, fewer than a seal");
  }
  const std::size_t bytes = message.size() - kSealBytes;
  std::uint64_t counter = 0;
  std::memcpy(&counter, message.data() + bytes, kCounterBytes);
  if (counter >= kMostMessages) {
    refuse("has the number " + std::to_string(counter) + ", which no sender reaches");
  }
  {
    const MutexLock lock(mutex_);
    refuse_unless_first(came_.look_up(counter), counter);
  }
  if (!cryptography_.open(cipher_, key_, nonce_of(counter), associated, message.first(bytes),
                          message.subspan(bytes + kCounterBytes).first<kTagBytes>())) {
    refuse("is not what it sent: bytes, header or tag were changed");
  }
  // The counter is taken only now, since a forged one must not move the window.
  const MutexLock lock(mutex_);
  const ReplayWindow::Verdict verdict = came_.take(counter);
  if (verdict != ReplayWindow::Verdict::first) {
    wipe(message.first(bytes));
  }
  refuse_unless_first(verdict, counter);
}

}  // namespace gradwire::security
