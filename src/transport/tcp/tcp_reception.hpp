// The connections that a process takes and makes while it runs, on a thread of its own: those of processes that it
// knows, made anew, and of others that join.
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
  // Called by its thread.
  struct Host {
    std::function<void(Accepted accepted)> came;  // it knows the secret, and says this rank
    std::function<void(Dialer::Made made)> made;
  };

  /// `end`: of the ranks that others may say.
  Reception(std::vector<Listener> listeners, const Greeting& own, std::uint32_t end, Host host);
  Reception(const Reception&) = delete;
  Reception& operator=(const Reception&) = delete;
  ~Reception();

  /// Any thread.
  void dial(Dialer::Order order);
  /// Nobody is let in from here on. Any thread.
  void close() noexcept;

 private:
  void run(std::vector<Listener> listeners) noexcept;

  Greeting own_;
  std::uint32_t end_;
  Host host_;
  WakeUp wake_;
  std::atomic<bool> closed_ = false;
  Mutex mutex_;
  std::vector<Dialer::Order> orders_ GUARDED_BY(mutex_);
  Dialer dialer_;  // of the thread
  std::thread thread_;
};

}  // namespace gradwire::transport::tcp
