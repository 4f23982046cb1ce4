// Runs a service over a transport: who may touch which of them when, the thread that serves others, and waits that end.
//
// One lock guards the service and is held for moments; another one is for whoever moves messages, one thread at a time.
// A caller that waits moves them itself; the table's own thread does while no caller waits.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.hpp"
#include "gradwire/table.hpp"
#include "observe/event.hpp"
#include "table/mailbox.hpp"
#include "table/service.hpp"

namespace gradwire::table {

class Driver {
 public:
  /// `options` are valid and outlive it.
  Driver(std::shared_ptr<Transport> transport, const TableOptions& options);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  /// Calls work(service) under the lock. Throws what made the table fail; `work` may throw only before it changes
  /// anything.
  template <class Work>
  auto with(const char* call, Work work) {
    check_thread(call);
    const MutexLock lock(mutex_);
    throw_if_failed();
    return work(service_);
  }
  /// Sends what waits to be sent, unless another thread is about to.
  void flush();
  /// Moves messages until `done(service)`. After the timeout: Error(timeout) that quotes whom(service).
  void wait(const char* call, const std::function<bool(const Service&)>& done,
            const std::function<std::string(const Service&)>& whom);
  /// Blocks while more than a bound waits to be sent.
  void throttle(const char* call);
  /// Every rank's text, once all have called. Returns when its own has left.
  [[nodiscard]] std::vector<std::string> exchange(const char* call, const std::string& mine,
                                                  Topic topic = Topic::collective);

  void abort(const Error& error) noexcept;
  [[nodiscard]] bool failed() const;
  [[nodiscard]] Transport& transport() const noexcept { return *transport_; }
  /// Of its events.
  [[nodiscard]] observe::SourceId source() const noexcept { return source_; }

 private:
  void check_thread(const char* call) const;
  void throw_if_failed() const REQUIRES(mutex_);
  void step(std::chrono::microseconds wait) REQUIRES(wire_);
  // When nothing has come for too long: asks who is there, and ends the table on every rank.
  [[noreturn]] void give_up(const std::string& waited);
  void post_outbox() REQUIRES(wire_);
  [[nodiscard]] std::uint64_t most_writes_under_way() REQUIRES(wire_);
  void run() noexcept;
  [[nodiscard]] std::string describe_unsent(const Service& service) const;
  /// In the outbox, on its way from there, or not gone from the mailbox.
  [[nodiscard]] std::uint64_t unsent_bytes(const Service& service) const noexcept {
    return service.outgoing().bytes - mailbox_.left_bytes();
  }

  std::shared_ptr<Transport> transport_;
  const TableOptions& options_;
  const observe::SourceId source_;
  Threading threading_;
  std::thread::id maker_ = std::this_thread::get_id();

  mutable Mutex mutex_;
  Service service_ GUARDED_BY(mutex_);
  std::optional<Error> failure_ GUARDED_BY(mutex_);
  int waiting_ GUARDED_BY(mutex_) = 0;  // callers
  bool stopping_ GUARDED_BY(mutex_) = false;
  CondVar nobody_waits_;

  Mutex wire_ ACQUIRED_BEFORE(mutex_);
  Mailbox mailbox_;  // under wire_, but for what it counts: left_bytes(), left_messages(), left()
  std::chrono::steady_clock::time_point held_since_ GUARDED_BY(wire_) =
      std::chrono::steady_clock::now();  // writes, for a step
  std::thread thread_;
};

}  // namespace gradwire::table
