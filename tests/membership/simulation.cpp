#include "tests/membership/simulation.hpp"

#include <algorithm>
#include <utility>

namespace gradwire::membership {

Simulation::Simulation(unsigned seed, Faults faults) : random_(seed), faults_(faults), links_(random_, faults.flips) {
  World world{1, {}};
  last_step_ = faults.finishes ? static_cast<std::uint64_t>(draw(60, 120)) : ~0ULL;
  for (int i = 0; i < faults.processes; ++i) {
    world.members.push_back(static_cast<Id>(i));
  }
  for (const Id who : world.members) {
    add(who, world);
  }
  for (int i = 0; i < faults.spares; ++i) {
    spares_.insert(static_cast<Id>(faults.processes + i));
    add(static_cast<Id>(faults.processes + i), World{});
  }
  plan_.emplace(random_, faults_);
}

std::string Simulation::run() {
  while (now_ < kFaultsAreOver) {
    advance();
  }
  std::map<Id, std::uint64_t> before;
  for (const auto& [who, process] : processes_) {
    before[who] = process.at;
  }
  while (now_ < kQuiet) {
    advance();
  }
  if (faults_.finishes) {
    judge_that_all_end(processes_, wrong_);
  } else {
    judge_that_steps_go_on(processes_, before, wrong_);
    judge(processes_, spares_, joins_, static_cast<std::size_t>(faults_.processes), wrong_);
  }
  if (!faults_.follow_ups && faults_.pauses + faults_.partitions + faults_.isolations + faults_.resets +
                                     faults_.broken_links + faults_.frozen_hosts ==
                                 0) {
    judge_that_most_go_on(processes_, wrong_);
  }
  const int uncertain = faults_.pauses + faults_.broken_links + faults_.partitions + faults_.frozen_hosts +
                        faults_.lost_hosts + faults_.stops + faults_.isolations;
  const int broken = faults_.resets + faults_.broken_links;
  if (uncertain == faults_.broken_links && !faults_.follow_ups) {
    judge_who_is_lost(
        processes_, [&](Id who) { return links_.may_lose(who); }, broken, wrong_);
  }
  return wrong_.str();
}

void Simulation::add(Id who, const World& world) {
  auto& process = processes_[who];
  MembershipSettings settings{Time(100), Time(3000)};
  for (int i = 0; i < faults_.processes + faults_.spares; ++i) {
    settings.start.push_back(static_cast<Id>(i));
  }
  if (faults_.spares > 0) {
    settings.full = static_cast<std::size_t>(faults_.processes);
    settings.spares.assign(settings.start.begin() + faults_.processes, settings.start.end());
  }
  process.membership = std::make_unique<Membership>(who, world, 0, settings, Time(now_));
  for (const Id spare : settings.spares) {
    process.membership->let_in(spare);
  }
  process.reaches = settings.start;
  process.membership->wait_among(process.reaches);
  process.works_until = now_ + draw(1, 50);
  process.entered = process.epoch = world.epoch;
}

ProcessEnd Simulation::end_of(Id who) const {
  const Process& process = processes_.at(who);
  return faults_.ends_say_no_epoch ? ProcessEnd{who} : ProcessEnd{who, process.entered, process.counted};
}

void Simulation::hear(Id who, Process& process, const Packet& packet) {
  Membership& membership = *process.membership;
  const Time time = process.time(now_);
  if (const auto* part = std::get_if<Part>(&packet.what)) {
    process.parts[{part->epoch, part->step}].insert(packet.from);
    hold(process);
  } else if (const auto* ended = std::get_if<ProcessEnd>(&packet.what)) {
    membership.dead(*ended, time);
  } else if (std::holds_alternative<Damaged>(packet.what)) {
    membership.damaged(packet.from, time);
  } else if (std::holds_alternative<Lost>(packet.what)) {
    membership.cut(packet.from, time);
  } else if (std::holds_alternative<Back>(packet.what)) {
    membership.back(packet.from);
  } else if (std::ranges::find(process.reaches, packet.from) == process.reaches.end()) {
    membership.let_in(packet.from);
    process.reaches.push_back(packet.from);
    membership.wait_among(process.reaches);
  }
  take(who, process);
}

std::vector<Id> Simulation::running() const {
  std::vector<Id> ids;
  for (const auto& [who, process] : processes_) {
    if (process.lives()) {
      ids.push_back(who);
    }
  }
  return ids;
}

void Simulation::advance() {
  while (const std::optional<Fault> fault = plan_->take(now_)) {
    strike(*fault);
  }
  for (auto& [to, packet] : links_.arrivals(now_)) {
    processes_[to].inbox.push_back(std::move(packet));
  }
  for (auto& [who, process] : processes_) {
    if (process.lives() && now_ >= process.paused_until && has_to_do(who, process)) {
      live(who, process);
    }
  }
  ++now_;
}

bool Simulation::has_to_do(Id who, Process& process) const {
  const bool works = process.works_until >= 0 && now_ >= process.works_until;
  return !process.inbox.empty() || works || ticks(who) || now_ % 400 == 0 || now_ - process.moved_at >= 4000;
}

void Simulation::live(Id who, Process& process) {
  Membership& membership = *process.membership;
  for (const Packet& packet : std::exchange(process.inbox, {})) {
    if (!process.lives()) {
      return;
    }
    if (const auto* message = std::get_if<MembershipMessage>(&packet.what)) {
      note_decision(process, *message);
      membership.receive(*message, process.time(now_));
      take(who, process);
    } else {
      hear(who, process, packet);
    }
  }
  if (ticks(who)) {
    membership.tick(process.time(now_));
    take(who, process);
    if (!process.lives()) {
      return;
    }
  }
  work(who, process);
  take(who, process);
  miss(process);
  take(who, process);
  if (process.lives()) {
    end_if_over(who, process);
  }
}

void Simulation::end_if_over(Id who, Process& process) {
  const Membership& membership = *process.membership;
  if (process.confirming > 0 && membership.confirmed() >= process.confirming && !membership.expelled()) {
    ++confirmed_;
    truth_.confirm(who, process, process.confirming);
    process.confirming = 0;
    if (process.at >= last_step_) {
      return faults_.stops > 0 && may_go(who) && draw(0, 3) == 0 ? stop(who)
                                                                 : leave(who, process, Process::Fate::finished);
    }
  }
  if (membership.hopeless()) {
    judge_that_it_may_give_up(processes_, who, truth_.last_epoch(), now_ < disturbed_until_ + 12'000,
                              !faults_.ends_say_no_epoch, wrong_);
    const bool out_of_reach = faults_.resets + faults_.broken_links > 0 || !may_be_told(processes_, who);
    process.was_alone = membership.went_on().has_value() && out_of_reach;
    leave(who, process, Process::Fate::gave_up);
  } else if (membership.expelled() && (faults_.finishes || faults_.spares + faults_.joins > 0)) {
    leave(who, process, Process::Fate::expelled);
  } else if (membership.alone()) {
    leave(who, process, Process::Fate::no_place);
  }
}

void Simulation::miss(Process& process) const {
  Membership& membership = *process.membership;
  const auto& members = membership.world().members;
  if (!process.is_member() || membership.agreeing() || process.at >= last_step_ || now_ >= kStepsEnd ||
      now_ - process.moved_at < 4000) {
    return;
  }
  process.moved_at = now_;
  const auto& got = process.parts[{membership.world().epoch, membership.delivered() + 1}];
  for (const Id other : members) {
    if (!got.contains(other)) {
      return membership.missed(other, process.time(now_));
    }
  }
}

void Simulation::work(Id who, Process& process) {
  Membership& membership = *process.membership;
  const auto& members = membership.world().members;
  if (membership.expelled() || membership.agreeing() || process.works_until < 0 || now_ < process.works_until ||
      process.at >= last_step_ || now_ >= kStepsEnd || !std::binary_search(members.begin(), members.end(), who)) {
    return;
  }
  process.works_until = -1;
  const Part part{membership.world().epoch, membership.delivered() + 1};
  process.parts[{part.epoch, part.step}].insert(who);
  for (const Id other : members) {
    if (other != who) {
      links_.send(who, other, part, now_);
    }
  }
  hold(process);
}

void Simulation::hold(Process& process) {
  Membership& membership = *process.membership;
  const std::uint64_t step = membership.delivered() + 1;
  const auto& members = membership.world().members;
  const auto& got = process.parts[{membership.world().epoch, step}];
  if (!membership.agreeing() && !members.empty() &&
      std::includes(got.begin(), got.end(), members.begin(), members.end())) {
    process.held[step] = membership.world().epoch;
    membership.ready(step);
  }
}

void Simulation::say(Id who, Process& process) {
  Membership& membership = *process.membership;
  for (Membership::Outgoing& out : membership.take_messages()) {
    process.entered = std::max(process.entered, std::min(out.message.epoch, membership.epoch_entered()));
    if (process.ends_after == 0 && may_go(who)) {
      process.ends_after = -1;
      return kill(who, true);
    }
    process.ends_after -= process.ends_after > 0 ? 1 : 0;
    note_decision(process, out.message);
    links_.send(who, out.to, std::move(out.message), now_);
  }
  process.entered = std::max(process.entered, membership.epoch_entered());
}

void Simulation::take(Id who, Process& process) {
  Membership& membership = *process.membership;
  say(who, process);
  if (!process.lives()) {
    return;
  }
  for (const Distrusted& liar : membership.take_distrusted()) {
    wrong_ << "process " << who << " takes " << liar.who << " for a liar: " << liar.why << "; ";
  }
  // Mutation tried: a waiting process takes any decision for one about itself.
  if (membership.expelled() && (spares_.contains(who) || joins_.contains(who))) {
    wrong_ << "process " << who << " waits, and took itself for left out\n";
  }
  if (process.epoch != membership.epoch_entered()) {
    process.epoch = membership.epoch_entered();
    const bool heard = process.made && process.made->world == membership.world();
    change(who, process, heard ? *process.made : Decision{membership.world(), membership.delivered()});
  }
  while (process.at < membership.delivered()) {
    truth_.deliver(who, membership.world());
    deliver(who, process, process.at + 1);
    process.moved_at = now_;
    process.works_until = now_ + draw(1, 50);
  }
  if (membership.agreeing() && process.stopped_since < 0) {
    process.stopped_since = now_;
  } else if (!membership.agreeing() && process.stopped_since >= 0) {
    longest_stop_ = std::max(longest_stop_, now_ - process.stopped_since);
    process.stopped_since = -1;
  }
}

void Simulation::note_decision(Process& process, const MembershipMessage& message) {
  if (message.kind == MembershipMessage::Kind::decided) {
    process.made = message.decision;
  }
}

void Simulation::change(Id who, Process& process, const Decision& decision) {
  ++changes_;
  process.moved_at = now_;
  if (joins_.erase(who) + spares_.erase(who) != 0) {
    process.at = decision.delivered;
    ++taken_in_;
  }
  note_who_is_cut_off(decision.world);
  judge_steps(processes_, who, decision, wrong_);
  while (process.at < decision.delivered) {
    deliver(who, process, process.at + 1);
  }
  truth_.enter(who, process, decision);
  process.works_until = now_ + draw(1, 50);
  confirm_last(process);
}

void Simulation::note_who_is_cut_off(const World& next) {
  for (auto& [who, process] : processes_) {
    const bool is_out = process.is_member() && process.membership->world().epoch < next.epoch &&
                        !std::binary_search(next.members.begin(), next.members.end(), who);
    process.was_cut_off |= is_out && std::ranges::all_of(next.members, [&, self = who](Id member) {
                             return !processes_.at(member).lives() || links_.were_apart(self, member, now_);
                           });
  }
}

void Simulation::confirm_last(Process& process) {
  if (process.at > 0 && !faults_.ends_say_no_epoch && (process.at >= last_step_ || draw(1, 20) == 1)) {
    process.counted = process.confirming = process.at;
    process.membership->confirm(process.at);
  }
}

void Simulation::deliver(Id who, Process& process, std::uint64_t step) {
  if (step != process.at + 1) {
    wrong_ << "process " << who << " delivers step " << step << " after step " << process.at << "; ";
  }
  process.at = step;
  const auto held = process.held.find(step);
  if (held == process.held.end()) {
    wrong_ << "process " << who << " delivers step " << step << ", which it does not hold; ";
    return;
  }
  process.results[step] = held->second;
  steps_ = std::max(steps_, step);
  if (!process.membership->agreeing()) {
    confirm_last(process);
  }
}

}  // namespace gradwire::membership
