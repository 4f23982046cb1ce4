// Runs a service over a transport: decides which thread may use which of them when, has the thread that serves other
// ranks, and limits waits by a timeout.
//
// One lock guards the service and is held briefly. The other lock belongs to the thread that moves messages, one at a
// time. A caller that waits moves messages itself; the table's own thread moves them while no caller waits.
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
  /// `options` must be valid and outlive this.
  Driver(std::shared_ptr<Transport> transport, const TableOptions& options);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  /// Calls work(service) under the lock. Throws the error that made the table fail. `work` may throw only before it
  /// changes anything, except for an error that Service::broken() then has: that ends the table.
  template <class Work>
  auto with(const char* call, Work work) {
    check_thread(call);
    try {
      const MutexLock lock(mutex_);
      throw_if_failed();
      return work(service_);
    } catch (...) {
      end_if_broken();
      throw;
    }
  }
  /// Sends the messages that wait, unless another thread is about to.
  void flush();
  /// Moves messages until `done(service)`. Throws Error(timeout), which quotes whom(service), after the timeout.
  void wait(const char* call, const std::function<bool(const Service&)>& done,
            const std::function<std::string(const Service&)>& whom);
  /// Blocks while the messages that wait to be sent exceed a limit.
  void throttle(const char* call);
  /// Returns every rank's text once all ranks have called. It returns only after its own text has left.
  [[nodiscard]] std::vector<std::string> exchange(const char* call, const std::string& mine,
                                                  Topic topic = Topic::collective);

  void abort(const Error& error) noexcept;
  [[nodiscard]] bool failed() const;
  [[nodiscard]] Transport& transport() const noexcept { return *transport_; }
  /// The source of the table's events.
  [[nodiscard]] observe::SourceId source() const noexcept { return source_; }

 private:
  void check_thread(const char* call) const;
  void throw_if_failed() const REQUIRES(mutex_);
  void end_if_broken() noexcept;
  void step(std::chrono::microseconds wait) REQUIRES(wire_);
  // Called when no message has come for too long: looks which ranks are silent, and ends the table on every rank.
  [[noreturn]] void give_up(const std::string& waited);
  void post_outbox() REQUIRES(wire_);
  [[nodiscard]] bool advance_reads();
  [[nodiscard]] std::uint64_t most_writes_under_way() REQUIRES(wire_);
  void run() noexcept;
  [[nodiscard]] std::string describe_unsent(const Service& service) const;
  /// Returns the bytes in the outbox, on their way from there, or still in the mailbox.
  [[nodiscard]] std::uint64_t unsent_bytes(const Service& service) const noexcept {
    return service.outgoing().bytes - mailbox_.completed_bytes();
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
  CondVar callers_done_;

  Mutex wire_ ACQUIRED_BEFORE(mutex_);
  Mailbox mailbox_;  // under wire_, except its counts: completed_bytes(), completed_messages(), completed_in_order()
  std::chrono::steady_clock::time_point held_since_ GUARDED_BY(wire_) =
      std::chrono::steady_clock::now();  // since then writes wait for a step
  std::thread thread_;
};

}  // namespace gradwire::table
