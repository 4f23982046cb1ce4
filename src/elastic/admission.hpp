// How a waiting process and the ranks compare what they run, and which processes are let in.
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

/// One process's part in admission: that of a waiting process, and that of a rank which lets others in. The owner
/// guards this object together with `machine`.
class Admission {
 public:
  using Id = Processes::Id;

  Admission(const JobProcesses& job, membership::Membership& machine) : job_(job), machine_(machine) {}

  /// From here on waiting processes that state the same facts may become ranks.
  void tell_number_of_spares() const;
  /// This process waits from here on, and tells the others its `facts`.
  void let_in(std::string facts);
  /// This process waits from here on, and tells the others its `facts`.
  void wait(const std::string& facts);
  /// Tells this process's facts to those that have come since, or can be reached again.
  void tell_facts();
  /// Why this process cannot be a rank, once that is known.
  [[nodiscard]] const std::optional<Error>& refusal() const noexcept { return refusal_; }
  /// Logs which processes do not know of this one, which joins and has waited for long. Logs nothing for a spare: it
  /// waits for others to end, which is no news.
  void log_unaware_processes() const;
  /// Logs the broken ways if nobody else is left, as far as this process knows.
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
  std::map<Id, std::string> early_facts_;  // from processes that waited before this one let anybody in
  std::string own_facts_;                  // facts of a rank; empty: it lets nobody in yet
  std::string waits_with_;                 // the facts of this process while it waits; empty: it does not wait
  std::set<Id> facts_delivered_to_;        // processes that have got the facts of this one
  std::set<Id> spares_reported_by_;        // processes that have said how many spares there are
  std::set<Id> unreachable_;
  std::optional<Error> refusal_;
};

}  // namespace gradwire::session
