// This process's part in agreeing on the world: a thread that hears the other processes, around membership's state
// machine.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>

#include "base/mutex.hpp"
#include "elastic/admission.hpp"
#include "elastic/departures.hpp"
#include "elastic/job_processes.hpp"
#include "elastic/kept_copies.hpp"
#include "elastic/world_watch.hpp"
#include "gradwire/processes.hpp"
#include "membership/membership.hpp"

namespace gradwire::session {

class WorldAgreement {
 public:
  using World = membership::World;

  /// The first world has all processes except `settings.spares`. `copies` gets the copies that other ranks want to be
  /// kept.
  WorldAgreement(std::shared_ptr<Processes> processes, const membership::MembershipSettings& settings,
                 KeptCopies& copies);
  WorldAgreement(const WorldAgreement&) = delete;
  WorldAgreement& operator=(const WorldAgreement&) = delete;
  /// Leaves in good order: the others go on without this process a moment later, and if all leave, no change follows.
  /// There is no farewell after fail() or while an exception is on its way, since neither is the end of a job.
  ~WorldAgreement();

  /// Whether any of these processes, other than this one, has left in good order, as at the end of a job.
  [[nodiscard]] bool any_said_farewell(const std::set<Processes::Id>& who) const {
    const MutexLock lock(mutex_);
    return departures_.any_said_farewell(who);
  }

  /// Tells the other processes at once that this one has ended. Any thread may call this.
  void fail() noexcept {
    failed_ = true;
    job_->end();
  }

  /// Returns the world that counts now.
  [[nodiscard]] World world() const;
  /// Calls `interrupt` once `epoch` is over or about to be; at once if it already is. `interrupt` ends the
  /// communication under way, does not wait, and does not call this object.
  void watch(std::uint32_t epoch, std::function<void()> interrupt);
  /// Seconds since a watched epoch was seen to be over.
  [[nodiscard]] double seconds_since_over() const {
    const MutexLock lock(mutex_);
    return watch_.seconds_since_over();
  }

  /// To be called on a process that is in no world. Says that it waits, with `facts` about what it could do, until it
  /// is in a world: true. False if no rank is left. Error(mismatch) if the ranks state other facts, Error(expelled).
  [[nodiscard]] bool wait_for_place(const std::string& facts);
  /// From here on waiting processes that state the same facts may become ranks. Tells those whose facts differ.
  void let_in(std::string facts) {
    const MutexLock lock(mutex_);
    admission_.let_in(std::move(facts));
  }

  /// This process holds all that it needs for the next transaction. Waits until all members of `epoch` do: true; false
  /// if the epoch ended without that. After `limit` it treats the members that do not answer as gone.
  bool commit(std::uint32_t epoch, std::chrono::milliseconds limit);
  /// Returns once a quorum has said that the last transaction which this process delivered counts. It then counts in
  /// all later worlds, whatever becomes of this process. Error(expelled), or Error(timeout) that names the processes
  /// which did not answer within `limit`.
  void confirm(std::chrono::milliseconds limit);
  /// A step of `epoch` failed because `who` did not answer: tells the others that it is missed here.
  void miss(std::uint32_t epoch, Processes::Id who);

  /// Waits until the world after `epoch` is agreed on: true. False if nobody is missed for `patience`. Error(expelled)
  /// if the others went on without this process. Error(timeout) if an agreement takes more than `limit`, or as soon as
  /// too few are left to agree, as on the smaller side of a network that came apart.
  bool await_change(std::uint32_t epoch, std::chrono::milliseconds patience, std::chrono::milliseconds limit);

 private:
  void run() noexcept;
  void hear(const Processes::Heard& heard) REQUIRES(mutex_);
  void hear_message(const Processes::Heard& heard) REQUIRES(mutex_);
  void hear_of_world(Processes::Id from, std::span<const std::byte> body) REQUIRES(mutex_);
  void hear_farewell(Processes::Id from, wire::ByteReader body) REQUIRES(mutex_);
  void hear_of_end(const membership::ProcessEnd& end) REQUIRES(mutex_);
  void note_end(const membership::ProcessEnd& end) REQUIRES(mutex_);
  void enter(std::uint32_t epoch) REQUIRES(mutex_);
  /// Sends the machine's messages and acts upon its state.
  void act() REQUIRES(mutex_);
  [[nodiscard]] bool over_locked(std::uint32_t epoch) const REQUIRES(mutex_);
  [[nodiscard]] bool has_left(std::uint32_t epoch) const REQUIRES(mutex_);
  [[nodiscard]] bool waits() const REQUIRES(mutex_) { return machine_.world().members.empty(); }
  [[nodiscard]] bool is_member(Processes::Id who) const REQUIRES(mutex_);
  void throw_if_out() const REQUIRES(mutex_);
  [[noreturn]] void throw_no_agreement() const REQUIRES(mutex_);

  const JobProcesses job_;
  const membership::MembershipSettings settings_;
  KeptCopies& copies_;
  mutable Mutex mutex_;
  CondVar changed_;
  membership::Membership machine_ GUARDED_BY(mutex_);
  Admission admission_ GUARDED_BY(mutex_){job_, machine_};
  Departures departures_ GUARDED_BY(mutex_);
  WorldWatch watch_ GUARDED_BY(mutex_);
  bool gave_up_ GUARDED_BY(mutex_) = false;  // commit() gave up, and the outcome of its transaction is not known
  std::uint32_t entered_ GUARDED_BY(mutex_) =
      0;  // the last epoch that the others learn of with the end of this process
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::atomic<bool> failed_ = false;
  const int exceptions_ = std::uncaught_exceptions();  // number of exceptions on their way when this object was made
  std::thread thread_;
};

}  // namespace gradwire::session
