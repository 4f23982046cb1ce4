// Letters of processes to each other while a world is made, kept until they are asked for.
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

/// Any thread may use it.
class Letters {
 public:
  [[nodiscard]] static std::vector<std::byte> write(std::uint32_t epoch, const std::string& key,
                                                    const std::string& value);
  /// Takes a letter that arrived; drops bytes that are none, and letters of an epoch that is over.
  void put(std::span<const std::byte> letter);
  /// Waits for a letter. Calls `go_on`, whose errors it passes on, each time that something may have changed.
  /// Error(timeout), which names `sender`, after `limit`.
  [[nodiscard]] std::string get(std::uint32_t epoch, const std::string& key, const std::string& sender,
                                std::chrono::milliseconds limit, const std::function<void()>& go_on);
  /// Makes waiting threads call `go_on` again.
  void look();

  /// Says that the world of `epoch` is being made, so older ones are over.
  void begin(std::uint32_t epoch);
  /// Throws Error(aborted) where another world is being made since then, or after close().
  void look_at(std::uint32_t epoch) const;
  /// Drops the letters of an epoch whose world was made.
  void forget(std::uint32_t epoch);
  void close() noexcept;
  [[nodiscard]] bool closed() const noexcept;

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  std::map<std::pair<std::uint32_t, std::string>, std::string> letters_ GUARDED_BY(mutex_);
  std::uint32_t newest_ GUARDED_BY(mutex_) = 0;  // the newest epoch whose world is being made, or was
  std::uint32_t over_ GUARDED_BY(mutex_) = 0;    // letters up to this epoch are not wanted
  std::uint64_t looks_ GUARDED_BY(mutex_) = 0;   // number of calls of look()
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace gradwire::transport::tcp
