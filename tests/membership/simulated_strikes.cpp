// Implements what happens to the processes of a simulation: faults, ends and joins.
#include "tests/membership/simulation.hpp"

#include <algorithm>
#include <utility>

namespace gradwire::membership {

void Simulation::join() {
  const Id who = next_id_++;
  add(who, World{});
  joins_.insert(who);
  Membership& membership = *processes_[who].membership;
  for (auto& [other, process] : processes_) {
    if (process.ended_for_certain()) {
      membership.dead(end_of(other), Time(now_));
    } else if (other != who) {
      links_.tell(now_ + draw(1, 300), other, {who, Came{}});
      links_.tell(now_ + 1, who, {other, Came{}});
      if (process.fate == Process::Fate::lost) {
        links_.tell(now_ + draw(1000, 1300), who, {other, Lost{}});
      }
    }
  }
}

bool Simulation::disturbs(Fault::Kind kind) {
  using Kind = Fault::Kind;
  return kind != Kind::death && kind != Kind::machine && kind != Kind::lost_host && kind != Kind::stop &&
         kind != Kind::join;
}

void Simulation::strike(const Fault& fault) {
  const std::vector<Id> ids = running();
  if (ids.empty()) {
    return;
  }
  if (disturbs(fault.kind)) {
    disturbed_until_ = std::max(disturbed_until_, now_ + fault.length);
  }
  const auto any = [&] { return ids[static_cast<std::size_t>(draw(0, static_cast<int>(ids.size()) - 1))]; };
  switch (fault.kind) {
    case Fault::Kind::death:
      if (const Id who = any(); draw(0, 2) == 0) {
        processes_[who].ends_after = draw(0, 12);  // it ends in the middle of its messages
      } else {
        kill(who, true);
      }
      break;
    case Fault::Kind::machine:
      for (int i = draw(2, 3); i > 0; --i) {
        kill(any(), true);
      }
      break;
    case Fault::Kind::lost_host:
      for (int i = draw(1, 2); i > 0; --i) {
        kill(any(), false);
      }
      break;
    case Fault::Kind::stop: stop(any()); break;
    case Fault::Kind::reset:
      if (const std::vector<Id> two = some_of(ids, 2); two.size() == 2) {
        reset(two[0], two[1], draw(0, 2) == 0 ? draw(10, 1000) : fault.length, draw(0, 2) == 0);
      }
      break;
    case Fault::Kind::isolation: {
      const Id who = any();
      const bool one_way = draw(0, 2) == 0;
      for (const Id other : ids) {
        if (other != who) {
          reset(who, other, fault.length + draw(0, 200), one_way);
        }
      }
      break;
    }
    case Fault::Kind::pause: processes_[any()].paused_until = now_ + fault.length; break;
    case Fault::Kind::link: {
      const Id a = any();
      const Id b = any();
      if (a != b) {
        links_.cut(a, b, now_, faults_.for_ever ? SimulatedLinks::kForEver - now_ : fault.length, draw(0, 1) == 0);
      }
      break;
    }
    case Fault::Kind::partition:
      for (const Id a : ids) {
        side_[a] = draw(0, 1) == 0;
      }
      for (const Id a : ids) {
        for (const Id b : ids) {
          if (side_[a] != side_[b]) {
            links_.cut(a, b, now_, fault.length);
          }
        }
      }
      break;
    case Fault::Kind::freeze: freeze(ids, fault.length); break;
    case Fault::Kind::host: freeze(some_of(ids, (ids.size() + 2) / 3), fault.length); break;
    case Fault::Kind::jump: processes_[any()].clock += fault.length * (draw(0, 1) == 0 ? -6 : 6); break;
    case Fault::Kind::join: join(); break;
  }
}

std::vector<Id> Simulation::some_of(std::vector<Id> ids, std::size_t count) {
  std::shuffle(ids.begin(), ids.end(), random_);
  ids.resize(std::min(ids.size(), count));
  return ids;
}

void Simulation::freeze(const std::vector<Id>& ids, int length) {
  for (const Id who : ids) {
    Process& process = processes_[who];
    process.paused_until = std::max(process.paused_until, now_ + length + draw(0, 50));
    process.moved_at = std::max(process.moved_at, process.paused_until);  // a session counts its own waits likewise
  }
}

bool Simulation::may_go(Id who) const {
  const std::vector<Id> ids = running();
  return processes_.at(who).lives() && (!processes_.at(who).is_member() || std::ranges::count_if(ids, [&](Id one) {
                                                                             return processes_.at(one).is_member();
                                                                           }) > 1);
}

void Simulation::stop(Id who) {
  if (may_go(who)) {
    processes_[who].fate = Process::Fate::stopped;
    lose_last_words(who);
  }
}

void Simulation::kill(Id who, bool witnessed) {
  if (!may_go(who)) {
    return;
  }
  processes_[who].fate = witnessed ? Process::Fate::killed : Process::Fate::lost;
  lose_last_words(who);
  for (const Id other : running()) {
    if (witnessed) {
      links_.tell(now_ + draw(1, 300), other, {who, end_of(who)});
    } else if (draw(0, 3) > 0 || !processes_[other].is_member()) {  // otherwise nobody ever hears of it
      links_.tell(now_ + draw(1000, 1300), other, {who, Lost{}});
    }
  }
}

void Simulation::lose_last_words(Id who) {
  std::map<Id, int> last;
  for (const Id other : running()) {
    last[other] = now_ + draw(0, 40);
  }
  links_.lose(who, last);
}

void Simulation::leave(Id who, Process& process, Process::Fate fate) {
  left_out_ += fate == Process::Fate::expelled ? 1 : 0;
  gave_up_ += fate == Process::Fate::gave_up ? 1 : 0;
  if (fate == Process::Fate::finished) {
    process.counted = process.at;
    process.membership->leave();
  }
  say(who, process);
  if (!process.lives()) {
    return;
  }
  process.fate = fate;
  for (const Id other : running()) {
    if (draw(0, 3) > 0) {
      links_.send(who, other, end_of(who), now_);
    }
    links_.tell(now_ + draw(20, 400), other, {who, end_of(who)});
  }
}

}  // namespace gradwire::membership
