// Lets other processes join by this one: a thread of its own, which serves one joiner at a time.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <thread>

#include "base/mutex.hpp"
#include "transport/tcp/tcp_acceptor.hpp"
#include "transport/tcp/tcp_introduction.hpp"
#include "transport/tcp/tcp_wake_up.hpp"

namespace gradwire::transport::tcp {

class Door {
 public:
  /// A process that joins.
  struct Guest {
    Acquaintance who;
    Socket prompt;
    Socket bulk;
  };
  struct Host {
    std::function<Turn()> turn;
    std::function<void(Guest guest)> admit;  // admits the guest or drops it
  };

  explicit Door(Host host);
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;
  ~Door();

  /// Takes one connection of a joiner, whose greeting has a token instead of a rank. Any thread may call this.
  void knock(Accepted accepted);
  /// From here on no process is let in. Any thread may call this.
  void close() noexcept;

 private:
  // The connections of a joiner, of which one may be missing.
  struct Half {
    Socket prompt;
    Socket bulk;
    Clock::time_point until;
  };

  void run() noexcept;
  void serve(Half joiner) const;

  Host host_;
  WakeUp wake_;
  std::atomic<bool> closed_ = false;
  Mutex mutex_;
  CondVar changed_;
  std::map<int, Half> halves_ GUARDED_BY(mutex_);  // by token
  std::deque<Half> waiting_ GUARDED_BY(mutex_);    // joiners with both connections
  std::thread thread_;
};

}  // namespace gradwire::transport::tcp
