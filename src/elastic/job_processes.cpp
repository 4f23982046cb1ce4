#include "elastic/job_processes.hpp"

#include <algorithm>
#include <iterator>

#include "membership/membership_message.hpp"

namespace gradwire::session {

void send_sealed(Processes& processes, Processes::Id to, std::span<const std::byte> body,
                 Processes::Lane lane) noexcept {
  try {
    processes.send(to, membership::seal(body), lane);
  } catch (const std::exception&) {  // no memory: the message is lost, as one that cannot be sent
  }
}

std::string JobProcesses::names(const std::vector<Processes::Id>& ids) const {
  std::string text;
  for (const Processes::Id who : ids) {
    text += (text.empty() ? "" : ", ") + processes_->describe(who);
  }
  return text.empty() ? "nobody" : text;
}

bool JobProcesses::at_start(Processes::Id who) const { return std::ranges::find(start_, who) != start_.end(); }

std::vector<Processes::Id> JobProcesses::others() const {
  std::vector<Processes::Id> found = start_;
  std::ranges::copy(processes_->newcomers(), std::back_inserter(found));
  std::erase(found, self());
  return found;
}

bool JobProcesses::lacks_a_rank(const std::vector<Processes::Id>& members) const {
  return !members.empty() && std::ranges::any_of(start_, [&](Processes::Id who) {
    const bool is_spare = std::ranges::find(spares_, who) != spares_.end();
    return !is_spare && !std::ranges::binary_search(members, who);
  });
}

void JobProcesses::note_loss_of(Processes::Id who) const {
  if (at_start(who)) {
    processes_->note_loss();
  }
}

}  // namespace gradwire::session
