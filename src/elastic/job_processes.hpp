// The processes of a job as one of them knows them, and how it sends them messages.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/processes.hpp"
#include "membership/membership.hpp"

namespace gradwire::session {

/// Seals `body` and sends it. A message that cannot be sent is lost, as on a broken link.
void send_sealed(Processes& processes, Processes::Id to, std::span<const std::byte> body,
                 Processes::Lane lane) noexcept;

/// The functions only read members that do not change, so any thread may call them.
class JobProcesses {
 public:
  JobProcesses(std::shared_ptr<Processes> processes, const membership::MembershipSettings& settings)
      : processes_(std::move(processes)), start_(settings.start), spares_(settings.spares) {}

  [[nodiscard]] Processes& operator*() const noexcept { return *processes_; }
  [[nodiscard]] Processes* operator->() const noexcept { return processes_.get(); }
  [[nodiscard]] Processes::Id self() const noexcept { return processes_->self(); }
  [[nodiscard]] std::string own_name() const { return processes_->describe(self()); }
  /// Returns a text such as "rank 1 (...), rank 2 (...)", or "nobody".
  [[nodiscard]] std::string names(const std::vector<Processes::Id>& ids) const;

  [[nodiscard]] bool at_start(Processes::Id who) const;
  [[nodiscard]] std::size_t spares() const noexcept { return spares_.size(); }
  /// All other known processes.
  [[nodiscard]] std::vector<Processes::Id> others() const;
  /// Whether any process that began as a rank is missing among these members. False for no members.
  [[nodiscard]] bool lacks_a_rank(const std::vector<Processes::Id>& members) const;

  void send(Processes::Id to, std::span<const std::byte> body) const noexcept {
    send_sealed(*processes_, to, body, Processes::Lane::prompt);
  }
  /// Tells the launcher of the loss. It only waits for processes of the start.
  void note_loss_of(Processes::Id who) const;

 private:
  std::shared_ptr<Processes> processes_;
  const std::vector<Processes::Id> start_;
  const std::vector<Processes::Id> spares_;
};

}  // namespace gradwire::session
