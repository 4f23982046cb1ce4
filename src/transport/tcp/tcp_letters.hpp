// What processes leave for each other while a world is made, kept until it is asked for.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.hpp"

namespace gradwire::transport::tcp {

/// Any thread.
class Letters {
 public:
  [[nodiscard]] static std::vector<std::byte> write(std::uint32_t epoch, const std::string& key,
                                                    const std::string& value);
  /// One that came; what is none, or is of an epoch that is over, is dropped.
  void put(std::span<const std::byte> letter);
  /// Waits until it comes. `go_on` is called each time that something may have changed; what it throws comes out.
  /// Error(timeout) after `limit`, which names `sender`.
  [[nodiscard]] std::string get(std::uint32_t epoch, const std::string& key, const std::string& sender,
                                std::chrono::milliseconds limit, const std::function<void()>& go_on);
  /// Those who wait call `go_on` again.
  void look();

  /// Its world is being made: older ones are over.
  void begin(std::uint32_t epoch);
  /// Error(aborted) where another world is being made since, or behind close().
  void look_at(std::uint32_t epoch) const;
  /// Its world is there.
  void forget(std::uint32_t epoch);
  void close() noexcept;
  [[nodiscard]] bool closed() const noexcept;

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  std::map<std::pair<std::uint32_t, std::string>, std::string> letters_ GUARDED_BY(mutex_);
  std::uint32_t newest_ GUARDED_BY(mutex_) = 0;  // that is being made, or was
  std::uint32_t over_ GUARDED_BY(mutex_) = 0;    // letters up to this epoch are not wanted
  std::uint64_t looks_ GUARDED_BY(mutex_) = 0;   // calls of look()
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace gradwire::transport::tcp
