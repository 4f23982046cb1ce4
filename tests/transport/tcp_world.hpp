// Makes a world of the TCP transport whose ranks are threads of this process, and a store for it.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "transport/tcp/tcp_keys.hpp"
#include "transport/tcp/tcp_transport.hpp"

namespace gradwire::test {

class MemoryStore {
 public:
  [[nodiscard]] transport::Rendezvous rendezvous() {
    return {.put =
                [this](const std::string& key, const std::string& value) {
                  const std::lock_guard lock(mutex_);
                  values_[key] = value;
                  changed_.notify_all();
                },
            .get =
                [this](const std::string& key, std::chrono::milliseconds limit) {
                  std::unique_lock lock(mutex_);
                  if (!changed_.wait_for(lock, limit, [&] { return values_.contains(key); })) {
                    throw std::runtime_error("nothing is stored as " + key);
                  }
                  return values_[key];
                }};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

using Keys = std::shared_ptr<const transport::tcp::ConnectionKeys>;

/// `keys` returns those of a rank.
inline std::vector<std::shared_ptr<Transport>> make_tcp_world(
    int world_size, const transport::Rendezvous& rendezvous,
    const std::function<Keys(int rank)>& keys = [](int) { return Keys(); }) {
  std::vector<std::shared_ptr<Transport>> world(static_cast<std::size_t>(world_size));
  std::vector<std::exception_ptr> errors(world.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        world[static_cast<std::size_t>(rank)] = transport::make_tcp(
            rendezvous,
            {.rank = rank, .world_size = world_size, .timeout = std::chrono::seconds(60), .keys = keys(rank)});
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::exception_ptr& error : errors) {
    if (error) {
      std::rethrow_exception(error);
    }
  }
  return world;
}

inline std::vector<std::shared_ptr<Transport>> make_tcp_world(int world_size) {
  MemoryStore store;
  return make_tcp_world(world_size, store.rendezvous());
}

}  // namespace gradwire::test
