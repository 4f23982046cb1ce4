// Processes that are in a world together, in simulated time: links with delays, deaths, pauses, resets and broken
// links, drawn from a seed. Each runs steps: it sends its part to all, holds a step once all parts came, and delivers
// as its Membership says. Now and then it has a step confirmed. What comes out must be one world and, for each step,
// one result.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include "membership/membership.hpp"
#include "tests/membership/simulated_faults.hpp"
#include "tests/membership/simulated_judge.hpp"
#include "tests/membership/simulated_links.hpp"
#include "tests/membership/simulated_process.hpp"

namespace gradwire::membership {

class Simulation {
 public:
  Simulation(unsigned seed, Faults faults) : random_(seed), faults_(faults), links_(random_, faults.flips) {
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

  /// Empty, or what is wrong.
  [[nodiscard]] std::string run() {
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

  [[nodiscard]] std::size_t changes() const { return changes_; }
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  [[nodiscard]] std::size_t taken_in() const { return taken_in_; }
  [[nodiscard]] int longest_stop() const { return longest_stop_; }
  [[nodiscard]] std::size_t confirmed() const { return confirmed_; }
  [[nodiscard]] std::size_t left_out() const { return left_out_; }
  [[nodiscard]] std::size_t gave_up() const { return gave_up_; }

 private:
  static constexpr int kFaultsAreOver = 40'000;  // and what they cost
  static constexpr int kStepsEnd = 50'000;
  static constexpr int kQuiet = 60'000;

  using Process = SimulatedProcess;
  int draw(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  void add(Id who, const World& world) {
    auto& process = processes_[who];
    Settings settings{Time(100), Time(3000)};
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
    process.entered = world.epoch;
  }

  // The others hear of it one by one.
  void join() {
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

  [[nodiscard]] Ended end_of(Id who) const {
    const Process& process = processes_.at(who);
    return faults_.ends_say_no_epoch ? Ended{who} : Ended{who, process.entered, process.counted};
  }

  // What comes that is no message of the agreement.
  void hear(Id who, Process& process, const Packet& packet) {
    Membership& membership = *process.membership;
    const Time time = process.time(now_);
    if (const auto* part = std::get_if<Part>(&packet.what)) {
      process.parts[{part->epoch, part->step}].insert(packet.from);
      hold(process);
    } else if (const auto* ended = std::get_if<Ended>(&packet.what)) {
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

  std::vector<Id> running() const {
    std::vector<Id> ids;
    for (const auto& [who, process] : processes_) {
      if (process.lives()) {
        ids.push_back(who);
      }
    }
    return ids;
  }

  // Keeps some that live from others for a while.
  [[nodiscard]] static bool disturbs(Fault::Kind kind) {
    using Kind = Fault::Kind;
    return kind != Kind::death && kind != Kind::machine && kind != Kind::lost_host && kind != Kind::stop &&
           kind != Kind::join;
  }

  void strike(const Fault& fault) {
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
          processes_[who].ends_after = draw(0, 12);  // in the middle of what it says
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

  std::vector<Id> some_of(std::vector<Id> ids, std::size_t count) {
    std::shuffle(ids.begin(), ids.end(), random_);
    ids.resize(std::min(ids.size(), count));
    return ids;
  }

  // One signal stops them, another one lets them go on.
  void freeze(const std::vector<Id>& ids, int length) {
    for (const Id who : ids) {
      Process& process = processes_[who];
      process.paused_until = std::max(process.paused_until, now_ + length + draw(0, 50));
      process.moved_at = std::max(process.moved_at, process.paused_until);  // a session's own waits count likewise
    }
  }

  void reset(Id a, Id b, int length, bool one_way) { links_.reset(a, b, now_, length, one_way, faults_.forgets); }

  // A job of which nobody is left proves nothing.
  [[nodiscard]] bool may_go(Id who) const {
    const std::vector<Id> ids = running();
    return processes_.at(who).lives() && (!processes_.at(who).is_member() || std::ranges::count_if(ids, [&](Id one) {
                                                                               return processes_.at(one).is_member();
                                                                             }) > 1);
  }

  void stop(Id who) {
    if (may_go(who)) {
      processes_[who].fate = Process::Fate::stopped;
      lose_last_words(who);
    }
  }

  // What it sent last is lost on some links. A witness tells the others of it, one by one.
  void kill(Id who, bool witnessed) {
    if (!may_go(who)) {
      return;
    }
    processes_[who].fate = witnessed ? Process::Fate::killed : Process::Fate::lost;
    lose_last_words(who);
    for (const Id other : running()) {
      if (witnessed) {
        links_.tell(now_ + draw(1, 300), other, {who, end_of(who)});
      } else if (draw(0, 3) > 0 || !processes_[other].is_member()) {  // else nothing is ever heard of it
        links_.tell(now_ + draw(1000, 1300), other, {who, Lost{}});
      }
    }
  }

  void lose_last_words(Id who) {
    std::map<Id, int> last;
    for (const Id other : running()) {
      last[other] = now_ + draw(0, 40);
    }
    links_.lose(who, last);
  }

  // It ends by itself, and says so; its witness does, too.
  void leave(Id who, Process& process, Process::Fate fate) {
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

  void advance() {
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

  // Most of the time nothing is: three quarters of a simulation's own time.
  [[nodiscard]] bool has_to_do(Id who, Process& process) const {
    const bool works = process.works_until >= 0 && now_ >= process.works_until;
    return !process.inbox.empty() || works || ticks(who) || now_ % 400 == 0 || now_ - process.moved_at >= 4000;
  }
  [[nodiscard]] bool ticks(Id who) const { return now_ % 50 == static_cast<int>(who) % 50; }

  void live(Id who, Process& process) {
    Membership& membership = *process.membership;
    for (const Packet& packet : std::exchange(process.inbox, {})) {
      if (!process.lives()) {
        return;
      }
      if (const auto* message = std::get_if<Message>(&packet.what)) {
        membership.receive(*message, process.time(now_));
        take(who, process);
      } else {
        hear(who, process, packet);
      }
    }
    if (ticks(who)) {
      membership.tick(process.time(now_));
    }
    work(who, process);
    take(who, process);
    miss(process);
    take(who, process);
    if (process.lives()) {
      end_if_over(who, process);
    }
  }

  void end_if_over(Id who, Process& process) {
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

  // What a session does whose step does not end.
  void miss(Process& process) {
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

  void work(Id who, Process& process) {
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

  void hold(Process& process) {
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

  // As a session's member does: of a later world nobody hears before the witness does.
  void say(Id who, Process& process) {
    Membership& membership = *process.membership;
    for (Membership::Outgoing& out : membership.take_messages()) {
      process.entered = std::max(process.entered, std::min(out.message.epoch, membership.epoch_entered()));
      if (process.ends_after == 0 && may_go(who)) {
        process.ends_after = -1;
        return kill(who, true);
      }
      process.ends_after -= process.ends_after > 0 ? 1 : 0;
      links_.send(who, out.to, std::move(out.message), now_);
    }
    process.entered = std::max(process.entered, membership.epoch_entered());
  }

  void take(Id who, Process& process) {
    Membership& membership = *process.membership;
    say(who, process);
    if (!process.lives()) {
      return;
    }
    for (const News& news : membership.take_news()) {
      if (const auto* delivered = std::get_if<Delivered>(&news)) {
        truth_.deliver(who, membership.world());
        deliver(who, process, delivered->step);
        process.moved_at = now_;
        process.works_until = now_ + draw(1, 50);
      } else if (const auto* changed = std::get_if<Changed>(&news)) {
        change(who, process, changed->decision);
      } else if (const auto* lied = std::get_if<Distrusted>(&news)) {
        wrong_ << "process " << who << " takes " << lied->who << " for a liar: " << lied->why << "; ";
      } else if (spares_.contains(who) ||
                 joins_.contains(who)) {  // seen red where a process that waits took any decision for one about it
        wrong_ << "process " << who << " waits, and took itself for left out\n";
      }
    }
    if (membership.agreeing() && process.stopped_since < 0) {
      process.stopped_since = now_;
    } else if (!membership.agreeing() && process.stopped_since >= 0) {
      longest_stop_ = std::max(longest_stop_, now_ - process.stopped_since);
      process.stopped_since = -1;
    }
  }

  void change(Id who, Process& process, const Decision& decision) {
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

  void note_who_is_cut_off(const World& next) {
    for (auto& [who, process] : processes_) {
      const bool is_out = process.is_member() && process.membership->world().epoch < next.epoch &&
                          !std::binary_search(next.members.begin(), next.members.end(), who);
      process.was_cut_off |= is_out && std::ranges::all_of(next.members, [&](Id member) {
                               return !processes_.at(member).lives() || links_.were_apart(who, member, now_);
                             });
    }
  }

  // At the end of a job, before a checkpoint: anywhere.
  void confirm_last(Process& process) {
    if (process.at > 0 && !faults_.ends_say_no_epoch && (process.at >= last_step_ || draw(1, 20) == 1)) {
      process.counted = process.confirming = process.at;
      process.membership->confirm(process.at);
    }
  }

  void deliver(Id who, Process& process, std::uint64_t step) {
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

  std::mt19937 random_;
  Faults faults_;
  int now_ = 0;
  Id next_id_ = 1000;
  std::map<Id, Process> processes_;
  SimulatedLinks links_;
  std::optional<FaultPlan> plan_;  // once all processes have drawn their beginnings
  std::map<Id, bool> side_;
  std::set<Id> joins_;
  std::set<Id> spares_;  // that wait
  std::size_t changes_ = 0;
  std::size_t taken_in_ = 0;
  std::uint64_t steps_ = 0;
  int longest_stop_ = 0;
  std::size_t confirmed_ = 0;
  std::size_t left_out_ = 0;
  std::size_t gave_up_ = 0;
  std::uint64_t last_step_;
  int disturbed_until_ = 0;
  std::ostringstream wrong_;
  SimulatedTruth truth_{wrong_, !faults_.ends_say_no_epoch};
};

}  // namespace gradwire::membership
