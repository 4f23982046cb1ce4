// Where a process lets others join: a thread of its own, which has one of them at a time.
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
    std::function<void(Guest guest)> admit;  // or drops it
  };

  explicit Door(Host host);
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;
  ~Door();

  /// One connection of a joiner, which says a token for its rank. Any thread.
  void knock(Accepted accepted);
  /// Nobody is let in from here on. Any thread.
  void close() noexcept;

 private:
  // Of a joiner of which not both connections are there.
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
  std::deque<Half> waiting_ GUARDED_BY(mutex_);    // both are there
  std::thread thread_;
};

}  // namespace gradwire::transport::tcp
