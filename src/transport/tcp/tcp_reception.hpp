// Accepts and makes connections while a process runs, on a thread of its own: those of known processes, which are made
// anew, and those of processes that join.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "base/mutex.hpp"
#include "transport/tcp/tcp_acceptor.hpp"
#include "transport/tcp/tcp_dialer.hpp"
#include "transport/tcp/tcp_wake_up.hpp"

namespace gradwire::transport::tcp {

class Reception {
 public:
  // Callbacks, which its thread calls.
  struct Host {
    std::function<void(Accepted accepted)> came;  // a connection came; it knows the secret, and names this rank
    std::function<void(Dialer::Made made)> made;
  };

  /// `end`: the ranks that visitors may name are below it. `keys` encrypt all connections, unless null.
  Reception(std::vector<Listener> listeners, const Greeting& own, std::uint32_t end,
            std::shared_ptr<const ConnectionKeys> keys, Host host);
  Reception(const Reception&) = delete;
  Reception& operator=(const Reception&) = delete;
  ~Reception();

  /// Any thread may call this.
  void dial(Dialer::Order order);
  /// From here on no connection is accepted. Any thread may call this.
  void close() noexcept;

 private:
  void begin(Dialer::Order order);
  void run(std::vector<Listener> listeners) noexcept;

  Greeting own_;
  std::uint32_t end_;
  std::shared_ptr<const ConnectionKeys> keys_;
  Host host_;
  WakeUp wake_;
  std::atomic<bool> closed_ = false;
  Mutex mutex_;
  std::vector<Dialer::Order> orders_ GUARDED_BY(mutex_);
  Dialer dialer_;  // only the thread uses it
  std::thread thread_;
};

}  // namespace gradwire::transport::tcp
