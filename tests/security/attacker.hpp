// An attacker between two ranks, who attacks one message of a rank.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "recorded_traffic.hpp"
#include "tests/support/forwarding_transport.hpp"

namespace gradwire::test {

/// The attacker does one of these to a message. `swap` exchanges it with the next message of its tag or of its size;
/// `repeat_here` puts an earlier message of the rank in its place, `repeat_beside` sends one behind it, and
/// `repeat_other_run` takes one of an earlier job with the same key.
enum class AttackKind : std::uint8_t { flip, cut, drop, repeat_here, repeat_beside, repeat_other_run, swap, delay };
inline constexpr std::size_t kAttackKinds = 8;
inline constexpr std::string_view kAttackNames[kAttackKinds] = {
    "flipped bits",           "cut or lengthened",         "dropped", "replaced by an earlier one",
    "earlier one sent again", "replaced by another job's", "swapped", "delayed"};

/// Hands on the messages of a rank, and attacks the first one from number `at` on to which the attack can be applied.
class Attacker final : public ForwardingTransport {
 public:
  using Messages = std::vector<RecordedMessage>;

  /// Attacks nothing without a kind. `other_run` are the messages that the rank sent in an earlier job.
  Attacker(std::shared_ptr<Transport> inner, std::optional<AttackKind> kind, std::size_t at, std::uint64_t seed,
           std::shared_ptr<const Messages> other_run)
      : ForwardingTransport(std::move(inner)), kind_(kind), at_(at), random_(seed), other_run_(std::move(other_run)) {}
  ~Attacker() override {
    for (Operation& operation : own_) {
      this->inner().cancel(operation);
    }
  }
  Attacker(const Attacker&) = delete;
  Attacker& operator=(const Attacker&) = delete;

  /// Whether a message was attacked. These four are to be called when no rank sends.
  [[nodiscard]] bool struck() const noexcept { return struck_; }
  /// Whether that message was the one by which ranks agree on keys.
  [[nodiscard]] bool struck_a_greeting() const noexcept { return struck_ && struck_tag_ == kTagLimit - 1; }
  [[nodiscard]] const Messages& sent() const noexcept { return sent_; }
  /// Messages before stop().
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  /// To be called on the rank's thread when its results are there: it attacks nothing more.
  void stop() noexcept {
    stopped_ = true;
    count_ = sent_.size();
  }

  void post_send(Operation& operation, int peer, Tag tag, std::span<const std::byte> data) override {
    const std::size_t number = sent_.size();
    sent_.push_back({rank(), peer, tag, {data.begin(), data.end()}});
    if (held_ != nullptr && take_turns(operation, sent_.back(), data)) {
      return;
    }
    if (!kind_ || struck_ || stopped_ || number < at_ || !strike(operation, sent_.back())) {
      inner().post_send(operation, peer, tag, data);
    }
  }

  bool progress(std::chrono::microseconds wait) override {
    if (held_ == nullptr) {
      return inner().progress(wait);
    }
    const auto now = std::chrono::steady_clock::now();
    if (now >= release_) {
      release();
      return true;
    }
    return inner().progress(
        std::min(wait, std::chrono::duration_cast<std::chrono::microseconds>(release_ - now) + kTick));
  }

  bool cancel(Operation& operation) noexcept override {
    if (&operation == held_) {
      held_ = nullptr;
      operation.state = Operation::State::idle;
      return true;
    }
    return inner().cancel(operation);
  }

 private:
  static constexpr std::chrono::microseconds kTick{1};

  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(random_() % limit); }

  void post(Operation& operation, int peer, Tag tag, std::vector<std::byte> bytes) {
    bytes_.push_back(std::move(bytes));
    inner().post_send(operation, peer, tag, bytes_.back());
  }

  // Returns false where the attack cannot be applied to this message.
  bool strike(Operation& operation, const RecordedMessage& message) {
    const int peer = message.to;
    const Tag tag = message.tag;
    std::vector<std::byte> bytes = message.bytes;
    switch (*kind_) {
      case AttackKind::flip:
        for (std::size_t bits = 1 + below(3); bits > 0; --bits) {
          bytes[below(bytes.size())] ^= static_cast<std::byte>(1U << below(8));
        }
        if (bytes == message.bytes) {
          bytes.front() ^= std::byte{1};
        }
        post(operation, peer, tag, std::move(bytes));
        break;
      case AttackKind::cut:
        bytes.resize(below(4) == 0 ? bytes.size() + 1 + below(40) : below(bytes.size()));
        post(operation, peer, tag, std::move(bytes));
        break;
      case AttackKind::drop: done(operation, message); break;
      case AttackKind::repeat_here:
        if (const RecordedMessage* earlier = another_of(sent_, message)) {
          post(operation, peer, tag, earlier->bytes);
          break;
        }
        return false;
      case AttackKind::repeat_beside: {
        const RecordedMessage& earlier = sent_[below(sent_.size())];
        post(operation, peer, tag, std::move(bytes));
        post(own_.emplace_back(), peer, below(2) == 0 ? earlier.tag : tag, earlier.bytes);
        break;
      }
      case AttackKind::repeat_other_run:
        if (const RecordedMessage* other = another_of(*other_run_, message)) {
          post(operation, peer, tag, other->bytes);
          break;
        }
        return false;
      case AttackKind::swap: hold(operation, message, std::chrono::milliseconds(5)); break;
      case AttackKind::delay: hold(operation, message, std::chrono::microseconds(below(4000))); break;
    }
    struck_ = true;
    struck_tag_ = tag;
    return true;
  }

  // Another message of that size, one of that tag if there is any.
  const RecordedMessage* another_of(const Messages& messages, const RecordedMessage& message) {
    std::vector<const RecordedMessage*> alike;
    for (const RecordedMessage& other : messages) {
      if (other.bytes.size() == message.bytes.size() && other.bytes != message.bytes) {
        alike.push_back(&other);
      }
    }
    const auto of_tag = std::stable_partition(alike.begin(), alike.end(),
                                              [&](const RecordedMessage* other) { return other->tag == message.tag; });
    const auto count = static_cast<std::size_t>(of_tag == alike.begin() ? alike.size() : of_tag - alike.begin());
    return count == 0 ? nullptr : alike[below(count)];
  }

  static void fill(Operation& operation, const RecordedMessage& message) {
    operation.kind = Operation::Kind::send;
    operation.peer = message.to;
    operation.tag = message.tag;
    operation.bytes = message.bytes.size();
  }
  static void done(Operation& operation, const RecordedMessage& message) {
    fill(operation, message);
    operation.state = Operation::State::done;
  }

  void hold(Operation& operation, const RecordedMessage& message, std::chrono::microseconds time) {
    fill(operation, message);
    operation.state = Operation::State::pending;
    operation.handle = nullptr;
    held_ = &operation;
    held_message_ = message;
    release_ = std::chrono::steady_clock::now() + time;
  }

  void release() {
    held_->state = Operation::State::idle;
    post(*std::exchange(held_, nullptr), held_message_.to, held_message_.tag, held_message_.bytes);
  }

  // Swaps the held message with a later one: they change their order under one tag, or their places under two. Returns
  // whether the later one was posted.
  bool take_turns(Operation& operation, const RecordedMessage& message, std::span<const std::byte> data) {
    if (kind_ != AttackKind::swap || message.to != held_message_.to ||
        (message.tag != held_message_.tag && message.bytes.size() != held_message_.bytes.size())) {
      return false;
    }
    if (message.tag == held_message_.tag) {
      inner().post_send(operation, message.to, message.tag, data);
    } else {
      post(operation, message.to, message.tag, std::exchange(held_message_.bytes, message.bytes));
    }
    release();
    return true;
  }

  std::optional<AttackKind> kind_;
  std::size_t at_;
  std::mt19937_64 random_;
  std::shared_ptr<const Messages> other_run_;
  bool struck_ = false;
  Tag struck_tag_ = 0;
  bool stopped_ = false;
  std::size_t count_ = 0;
  Messages sent_;
  Operation* held_ = nullptr;
  RecordedMessage held_message_;
  std::chrono::steady_clock::time_point release_;
  std::deque<std::vector<std::byte>> bytes_;  // of messages on the way
  std::deque<Operation> own_;
};

}  // namespace gradwire::test
