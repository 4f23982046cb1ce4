// This process's part in agreeing on the world: a thread that hears the others, around membership's state machine.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.hpp"
#include "elastic/kept_copies.hpp"
#include "gradwire/processes.hpp"
#include "membership/membership.hpp"

namespace gradwire::session {

class Member {
 public:
  using World = membership::World;

  /// The first world is of all processes but `settings.spares`.
  Member(std::shared_ptr<Processes> processes, const membership::Settings& settings);
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;
  /// Leaves in good order: the others go on without this process, a moment later. Where all leave, nobody does. Without
  /// a farewell behind fail(), and while an exception is on its way: that is no end of a job.
  ~Member();

  [[nodiscard]] Processes& processes() noexcept { return *processes_; }
  /// Whether one of them, other than this process, has left in good order, as at the end of a job.
  [[nodiscard]] bool any_left(const std::set<Processes::Id>& who) const {
    const MutexLock lock(mutex_);
    return std::ranges::any_of(who, [this](Processes::Id id) REQUIRES(mutex_) { return left_.contains(id); });
  }

  /// The others hear that this process has ended, at once. Any thread.
  void fail() noexcept {
    failed_ = true;
    processes_->end();
  }

  /// The world that counts now.
  [[nodiscard]] World world() const;
  /// From here on, `interrupt` is called once `epoch` is over, or about to be; at once where it is. It ends what is
  /// under way, does not wait, and does not call this object.
  void watch(std::uint32_t epoch, std::function<void()> interrupt);
  /// Since an epoch that was watched was seen to be over.
  [[nodiscard]] double seconds_since_over() const;

  /// Of a process that is in no world: says that it waits, with `facts` of what it could do, until it is in one: true.
  /// False: no rank is left. Error(mismatch) where the others say other facts, Error(expelled).
  [[nodiscard]] bool wait_for_place(const std::string& facts);
  /// From here on those that wait and say these facts may become ranks; others are told so.
  void let_in(std::string facts);

  /// This process holds all that it needs of the next transaction. Waits until all members of `epoch` do: true; false
  /// when the epoch ended without. After `limit` it takes those that do not answer for gone.
  bool commit(std::uint32_t epoch, std::chrono::milliseconds limit);
  /// Returns once a quorum has said that the last transaction which this process delivered counts: it does in all
  /// worlds that follow, whatever becomes of this process. Error(expelled), or Error(timeout) that names who did not
  /// answer within `limit`.
  void confirm(std::chrono::milliseconds limit);
  /// See KeptCopies.
  void take_copies_up_to(std::uint64_t bytes);
  /// Sends a copy to `keeper` in the background. False: the one before is still on its way there, and this one is not
  /// sent.
  bool send_copy(Processes::Id keeper, const Copy& copy);
  [[nodiscard]] std::optional<Copy> take_copy(Processes::Id of, std::uint32_t epoch);
  /// A step of `epoch` failed for want of `who`: the others hear that it is missed here.
  void miss(std::uint32_t epoch, Processes::Id who);
  void forget_copies_before(std::uint32_t epoch);

  /// Waits until the world after `epoch` is agreed on: true. False where nobody is missed for `patience`.
  /// Error(expelled) where the others went on without this process, Error(timeout) where an agreement takes more than
  /// `limit`, or as soon as too few are left to agree: on the smaller side of a network that came apart.
  bool await_change(std::uint32_t epoch, std::chrono::milliseconds patience, std::chrono::milliseconds limit);

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] static membership::Time now();
  [[nodiscard]] bool at_start(Processes::Id who) const;
  [[nodiscard]] bool lacks_a_rank_of_the_start() const REQUIRES(mutex_);
  /// All other processes that are known.
  [[nodiscard]] std::vector<Processes::Id> others() const;
  void run() noexcept;
  void hear(const Processes::Heard& heard) REQUIRES(mutex_);
  void hear_message(const Processes::Heard& heard) REQUIRES(mutex_);
  void hear_of_world(Processes::Id from, std::span<const std::byte> body) REQUIRES(mutex_);
  void hear_of_end(const Processes::Heard& heard) REQUIRES(mutex_);
  void end_those_that_left() REQUIRES(mutex_);
  void note_loss_of(Processes::Id who);
  void say_to_all_that_it_waits() REQUIRES(mutex_);
  void say_who_keeps_it_out() const REQUIRES(mutex_);
  void send_sealed(Processes::Id to, std::span<const std::byte> body,
                   Processes::Lane lane = Processes::Lane::prompt) noexcept;
  void hear_farewell(Processes::Id from, wire::ByteReader body) REQUIRES(mutex_);
  void hear_facts(Processes::Id from, const std::string& facts) REQUIRES(mutex_);
  void hear_refusal(const std::string& why) REQUIRES(mutex_);
  void hear_number_of_spares(Processes::Id from, wire::ByteReader body) REQUIRES(mutex_);
  void note_end(const membership::Ended& end) REQUIRES(mutex_);
  void hear_copy(Processes::Id from, const wire::ByteReader& body) REQUIRES(mutex_);
  void enter(std::uint32_t epoch) REQUIRES(mutex_);
  /// What the machine says goes out.
  void act() REQUIRES(mutex_);
  [[nodiscard]] bool over_locked(std::uint32_t epoch) const REQUIRES(mutex_);
  [[nodiscard]] bool waits() const REQUIRES(mutex_) { return machine_.world().members.empty(); }
  [[nodiscard]] bool is_member(Processes::Id who) const REQUIRES(mutex_);
  void throw_if_out() const REQUIRES(mutex_);
  [[noreturn]] void throw_no_agreement() const REQUIRES(mutex_);
  [[nodiscard]] std::string names(const std::vector<Processes::Id>& ids) const;

  std::shared_ptr<Processes> processes_;
  const membership::Settings settings_;
  mutable Mutex mutex_;
  CondVar changed_;
  membership::Membership machine_ GUARDED_BY(mutex_);
  std::function<void()> interrupt_ GUARDED_BY(mutex_);
  std::uint32_t watched_ GUARDED_BY(mutex_) = 0;  // the epoch of `interrupt_`
  Clock::time_point over_since_ GUARDED_BY(mutex_) = Clock::now();
  bool gave_up_ GUARDED_BY(mutex_) = false;  // commit() did, and what became of its transaction is not known
  KeptCopies copies_ GUARDED_BY(mutex_);
  std::set<membership::Id> left_ GUARDED_BY(mutex_);      // said farewell
  std::set<membership::Id> left_out_ GUARDED_BY(mutex_);  // by the others
  struct Farewell {
    Clock::time_point counts;  // as an end
    membership::Ended end;
  };
  std::map<membership::Id, Farewell> farewells_ GUARDED_BY(mutex_);
  std::set<membership::Id> told_spares_ GUARDED_BY(mutex_);  // have said how many there are
  std::uint32_t entered_ GUARDED_BY(mutex_) = 0;  // the last epoch that the others hear of with the end of this process
  // Of those that wait.
  std::map<membership::Id, std::string> facts_ GUARDED_BY(mutex_);  // that each has said
  std::string own_facts_ GUARDED_BY(mutex_);                        // none: nobody is let in
  std::string says_ GUARDED_BY(mutex_);                             // of this one, while it waits
  std::set<membership::Id> told_facts_ GUARDED_BY(mutex_);          // whom
  std::set<membership::Id> lost_ GUARDED_BY(mutex_);                // those that it cannot reach
  std::optional<Error> refused_ GUARDED_BY(mutex_);                 // why this process cannot take part
  std::set<membership::Id> ended_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::atomic<bool> failed_ = false;
  const int exceptions_ = std::uncaught_exceptions();  // that were on their way when this was made
  std::thread thread_;
};

}  // namespace gradwire::session
