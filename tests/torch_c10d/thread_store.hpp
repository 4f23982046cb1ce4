// Defines the store of a process group whose ranks are threads.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

#include "transport/tcp/tcp_transport.hpp"

namespace gradwire::test {

class ThreadStore {
 public:
  [[nodiscard]] transport::Rendezvous rendezvous() {
    return {.put = [this](const std::string& key, const std::string& value) { put(key, value); },
            .get = [this](const std::string& key, std::chrono::milliseconds limit) { return get(key, limit); }};
  }
  void put(const std::string& key, const std::string& value) {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  [[nodiscard]] std::string get(const std::string& key, std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, limit, [&] { return values_.contains(key); })) {
      throw std::runtime_error("no key " + key);
    }
    return values_.at(key);
  }
  [[nodiscard]] std::map<std::string, std::string> values() {
    const std::lock_guard lock(mutex_);
    return values_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace gradwire::test
