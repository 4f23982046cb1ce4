// How a process that waits to be a rank and the ranks compare what they run, and who is let in.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "elastic/job_processes.hpp"
#include "gradwire/error.hpp"
#include "membership/membership.hpp"
#include "wire/bytes.hpp"

namespace gradwire::session {

/// One process's part in it: that of a process that waits, and that of a rank which lets others in. Whoever owns it
/// guards it together with `machine`.
class Admission {
 public:
  using Id = Processes::Id;

  Admission(const JobProcesses& job, membership::Membership& machine) : job_(job), machine_(machine) {}

  /// Tells the others how many spares this process's policy has.
  void tell_number_of_spares() const;
  /// From here on processes that wait and say these facts may become ranks.
  void let_in(std::string facts);
  /// This process waits from here on, and tells the others its `facts`.
  void wait(const std::string& facts);
  /// Others have come, or can be reached again.
  void tell_facts();
  /// Why this process cannot be a rank, once that is known.
  [[nodiscard]] const std::optional<Error>& refusal() const noexcept { return refusal_; }
  /// Of a process that joins and waits for long. A spare waits for others to end, which is no news.
  void log_unaware_processes() const;
  /// Nobody else is left, as far as this process knows.
  void log_broken_ways() const;

  void hear_facts(Id from, const std::string& facts);
  void hear_refusal(const std::string& why);
  void hear_number_of_spares(Id from, wire::ByteReader body);
  void lose(Id who) { unreachable_.insert(who); }
  void find_again(Id who);
  void forget(Id who) { early_facts_.erase(who); }

 private:
  [[nodiscard]] bool waits() const { return machine_.world().members.empty(); }

  const JobProcesses& job_;
  membership::Membership& machine_;
  std::map<Id, std::string> early_facts_;  // said by processes that wait, before this one let anybody in
  std::string own_facts_;                  // of a rank; empty: it lets nobody in yet
  std::string waits_with_;                 // the facts of this process while it waits; empty: it does not
  std::set<Id> told_facts_;                // those that this process has told its facts
  std::set<Id> told_spares_;               // those that have said how many spares there are
  std::set<Id> unreachable_;
  std::optional<Error> refusal_;
};

}  // namespace gradwire::session
