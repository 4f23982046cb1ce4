#include "transport/tcp/tcp_letters.hpp"

#include <algorithm>
#include <cstring>

#include "base/awake_time.hpp"
#include "base/units.hpp"
#include "gradwire/error.hpp"

namespace gradwire::transport::tcp {
namespace {

struct Head {
  std::uint32_t epoch = 0;
  std::uint32_t key_bytes = 0;
};

void append(std::vector<std::byte>& to, const void* from, std::size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(from);
  to.insert(to.end(), begin, begin + bytes);
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::vector<std::byte> Letters::write(std::uint32_t epoch, const std::string& key, const std::string& value) {
  const Head head{.epoch = epoch, .key_bytes = static_cast<std::uint32_t>(key.size())};
  std::vector<std::byte> letter;
  append(letter, &head, sizeof(head));
  append(letter, key.data(), key.size());
  append(letter, value.data(), value.size());
  return letter;
}

void Letters::put(std::span<const std::byte> letter) {
  Head head;
  if (letter.size() < sizeof(head)) {
    return;
  }
  std::memcpy(&head, letter.data(), sizeof(head));
  letter = letter.subspan(sizeof(head));
  const MutexLock lock(mutex_);
  if (letter.size() >= head.key_bytes && head.epoch > over_) {
    letters_[{head.epoch, text_of(letter.first(head.key_bytes))}] = text_of(letter.subspan(head.key_bytes));
    changed_.notify_all();
  }
}

std::string Letters::get(std::uint32_t epoch, const std::string& key, const std::string& sender,
                         std::chrono::milliseconds limit, const std::function<void()>& go_on) {
  AwakeTime time;
  const MutexLock lock(mutex_);
  for (;;) {
    const std::uint64_t looks = looks_;
    {
      const MutexUnlock meanwhile(mutex_);
      go_on();
    }
    const auto left = std::min<AwakeTime::Clock::duration>(limit - time.waited(), AwakeTime::kLook);
    changed_.wait_for(mutex_, left, [&]() REQUIRES(mutex_) {
      return looks_ != looks || letters_.contains({epoch, key});
    });
    if (const auto letter = letters_.find({epoch, key}); letter != letters_.end()) {
      return letter->second;
    }
    if (looks_ == looks && time.waited() >= limit) {
      throw Error(ErrorCode::timeout,
                  "a new world: " + sender + " does not come to it within " + format_duration(limit),
                  ErrorCause::world);
    }
  }
}

void Letters::look() {
  const MutexLock lock(mutex_);
  ++looks_;
  changed_.notify_all();
}

void Letters::begin(std::uint32_t epoch) {
  const MutexLock lock(mutex_);
  newest_ = std::max(newest_, epoch);
  over_ = std::max(over_, epoch - 1);
  letters_.erase(letters_.begin(), letters_.lower_bound({over_ + 1, ""}));
  ++looks_;
  changed_.notify_all();
}

void Letters::look_at(std::uint32_t epoch) const {
  const MutexLock lock(mutex_);
  if (closed_ || newest_ > epoch) {
    throw Error(
        ErrorCode::aborted,
        "the world of epoch " + std::to_string(epoch) + " is not made: " +
            (closed_ ? "this process takes no part any more" : "epoch " + std::to_string(newest_) + " has begun"),
        ErrorCause::world);
  }
}

void Letters::forget(std::uint32_t epoch) {
  const MutexLock lock(mutex_);
  over_ = std::max(over_, epoch);
  letters_.erase(letters_.begin(), letters_.lower_bound({over_ + 1, ""}));
}

void Letters::close() noexcept {
  const MutexLock lock(mutex_);
  closed_ = true;
  ++looks_;
  changed_.notify_all();
}

bool Letters::closed() const noexcept {
  const MutexLock lock(mutex_);
  return closed_;
}

}  // namespace gradwire::transport::tcp
