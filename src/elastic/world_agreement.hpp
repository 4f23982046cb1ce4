// This process's part in agreeing on the world: a thread that hears the others, around membership's state machine.
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

  /// The first world is of all processes but `settings.spares`. `copies` gets what other ranks want to be kept.
  WorldAgreement(std::shared_ptr<Processes> processes, const membership::MembershipSettings& settings,
                 KeptCopies& copies);
  WorldAgreement(const WorldAgreement&) = delete;
  WorldAgreement& operator=(const WorldAgreement&) = delete;
  /// Leaves in good order: the others go on without this process, a moment later. Where all leave, nobody does. Without
  /// a farewell behind fail(), and while an exception is on its way: that is no end of a job.
  ~WorldAgreement();

  /// Whether one of them, other than this process, has left in good order, as at the end of a job.
  [[nodiscard]] bool any_left(const std::set<Processes::Id>& who) const {
    const MutexLock lock(mutex_);
    return departures_.any_left(who);
  }

  /// The others hear that this process has ended, at once. Any thread.
  void fail() noexcept {
    failed_ = true;
    job_->end();
  }

  /// The world that counts now.
  [[nodiscard]] World world() const;
  /// From here on, `interrupt` is called once `epoch` is over, or about to be; at once where it is. It ends what is
  /// under way, does not wait, and does not call this object.
  void watch(std::uint32_t epoch, std::function<void()> interrupt);
  /// Since an epoch that was watched was seen to be over.
  [[nodiscard]] double seconds_since_over() const {
    const MutexLock lock(mutex_);
    return watch_.seconds_since_over();
  }

  /// Of a process that is in no world: says that it waits, with `facts` of what it could do, until it is in one: true.
  /// False: no rank is left. Error(mismatch) where the others say other facts, Error(expelled).
  [[nodiscard]] bool wait_for_place(const std::string& facts);
  /// From here on those that wait and say these facts may become ranks; others are told so.
  void let_in(std::string facts) {
    const MutexLock lock(mutex_);
    admission_.let_in(std::move(facts));
  }

  /// This process holds all that it needs of the next transaction. Waits until all members of `epoch` do: true; false
  /// when the epoch ended without. After `limit` it takes those that do not answer for gone.
  bool commit(std::uint32_t epoch, std::chrono::milliseconds limit);
  /// Returns once a quorum has said that the last transaction which this process delivered counts: it does in all
  /// worlds that follow, whatever becomes of this process. Error(expelled), or Error(timeout) that names who did not
  /// answer within `limit`.
  void confirm(std::chrono::milliseconds limit);
  /// A step of `epoch` failed for want of `who`: the others hear that it is missed here.
  void miss(std::uint32_t epoch, Processes::Id who);

  /// Waits until the world after `epoch` is agreed on: true. False where nobody is missed for `patience`.
  /// Error(expelled) where the others went on without this process, Error(timeout) where an agreement takes more than
  /// `limit`, or as soon as too few are left to agree: on the smaller side of a network that came apart.
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
  /// What the machine says goes out.
  void act() REQUIRES(mutex_);
  [[nodiscard]] bool over_locked(std::uint32_t epoch) const REQUIRES(mutex_);
  [[nodiscard]] bool is_out_of(std::uint32_t epoch) const REQUIRES(mutex_);
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
  bool gave_up_ GUARDED_BY(mutex_) = false;       // commit() did, and what became of its transaction is not known
  std::uint32_t entered_ GUARDED_BY(mutex_) = 0;  // the last epoch that the others hear of with the end of this process
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::atomic<bool> failed_ = false;
  const int exceptions_ = std::uncaught_exceptions();  // that were on their way when this was made
  std::thread thread_;
};

}  // namespace gradwire::session
