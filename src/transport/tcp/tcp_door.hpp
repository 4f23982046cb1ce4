// Where a process lets others join: a thread of its own, which has one of them at a time.
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "transport/tcp/tcp_introduction.hpp"

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

  Door(std::vector<Listener> listeners, const Greeting& own, Host host);
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;
  ~Door();

  /// Nobody is let in from here on. Any thread.
  void close() noexcept;

 private:
  // Of a joiner of which not both connections are there.
  struct Half {
    Socket prompt;
    Socket bulk;
    Clock::time_point until;
  };

  void run(std::vector<Listener> listeners) noexcept;
  void serve(Half joiner) const;

  Greeting own_;
  Host host_;
  Socket wake_;
  std::atomic<bool> closed_ = false;
  std::thread thread_;
};

}  // namespace gradwire::transport::tcp
