// Processes that are in a world together, in simulated time: links with delays, deaths, pauses and broken links, drawn
// from a seed. Each runs steps: it sends its part to all, holds a step once all parts came, and delivers as its
// Membership says. What comes out must be one world and, for each step, one result.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include "membership/membership.hpp"
#include "tests/membership/simulated_links.hpp"
#include "tests/membership/simulated_process.hpp"

namespace gradwire::membership {

struct Faults {
  int processes = 4;
  int deaths = 1;
  int machines = 0;         // two or three processes end together
  int pauses = 0;           // of a process, 0.1 to 9 s
  int broken_links = 0;     // of a pair, both ways, 0.1 to 9 s
  int partitions = 0;       // of two halves, 0.1 to 9 s
  int freezes = 0;          // of all processes at once, 0.1 to 9 s: they go on within 50 ms of each other
  int frozen_hosts = 0;     // likewise of a third of them
  int clock_jumps = 0;      // of one process's clock, by up to 54 s, either way
  int joins = 0;            // of new processes
  int spares = 0;           // processes that wait from the start
  bool follow_ups = false;  // faults while others are dealt with
  bool for_ever = false;    // broken links stay broken
};

class Simulation {
 public:
  Simulation(unsigned seed, Faults faults) : random_(seed), faults_(faults) {
    World world;
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
    plan();
  }

  /// Empty, or what is wrong.
  [[nodiscard]] std::string run() {
    while (now_ < kQuiet) {
      advance();
    }
    judge(processes_, spares_, joins_, static_cast<std::size_t>(faults_.processes), wrong_);
    if (faults_.pauses + faults_.broken_links + faults_.partitions + faults_.frozen_hosts == 0 && !faults_.follow_ups) {
      judge_that_nobody_is_lost(processes_, wrong_);
    }
    return wrong_.str();
  }

  [[nodiscard]] std::size_t changes() const { return changes_; }
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  [[nodiscard]] std::size_t taken_in() const { return taken_in_; }
  [[nodiscard]] int longest_stop() const { return longest_stop_; }

 private:
  static constexpr int kFaultsEnd = 12'000;
  static constexpr int kStepsEnd = 50'000;
  static constexpr int kQuiet = 60'000;

  using Process = SimulatedProcess;
  struct Fault {
    enum class Kind : std::uint8_t { death, machine, pause, link, partition, freeze, host, jump, join } kind;
    int at;
    int length;
    int follows = 0;
  };

  struct Notice {  // that another has ended, or come
    int at;
    Id to;
    Id of;
    bool came;
  };

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
  }

  // The others hear of it one by one.
  void join() {
    const Id who = next_id_++;
    add(who, World{});
    joins_.insert(who);
    Membership& membership = *processes_[who].membership;
    for (const auto& [other, process] : processes_) {
      if (process.ended) {
        membership.dead({other}, Time(now_));
      } else if (other != who) {
        notices_.push_back({now_ + draw(0, 300), other, who, true});
        notices_.push_back({now_, who, other, true});
      }
    }
  }

  void hear(Process& process, const Notice& notice) {
    Membership& membership = *process.membership;
    if (!notice.came) {
      return membership.dead({notice.of}, process.time(now_));
    }
    if (std::ranges::find(process.reaches, notice.of) == process.reaches.end()) {
      membership.let_in(notice.of);
      process.reaches.push_back(notice.of);
      membership.wait_among(process.reaches);
    }
  }

  void plan() {
    const auto some = [&](Fault::Kind kind, int count) {
      for (int i = 0; i < count; ++i) {
        plan_.push_back({kind, draw(10, kFaultsEnd), draw(100, 9000)});
      }
    };
    some(Fault::Kind::death, faults_.deaths);
    some(Fault::Kind::machine, faults_.machines);
    some(Fault::Kind::pause, faults_.pauses);
    some(Fault::Kind::link, faults_.broken_links);
    some(Fault::Kind::partition, faults_.partitions);
    some(Fault::Kind::freeze, faults_.freezes);
    some(Fault::Kind::host, faults_.frozen_hosts);
    some(Fault::Kind::jump, faults_.clock_jumps);
    some(Fault::Kind::join, faults_.joins);
    std::sort(plan_.begin(), plan_.end(), [](const Fault& a, const Fault& b) { return a.at > b.at; });
  }

  std::vector<Id> running() const {
    std::vector<Id> ids;
    for (const auto& [who, process] : processes_) {
      if (!process.ended) {
        ids.push_back(who);
      }
    }
    return ids;
  }

  bool is_member(Id who) const {
    const Membership& membership = *processes_.at(who).membership;
    return !membership.expelled() && !membership.world().members.empty();
  }

  // Often another fault meets those that are busy with the last.
  void follow_up(const Fault& fault) {
    if (fault.follows < 2 && draw(0, 1) == 0) {
      const bool dies = faults_.deaths > 0 && draw(0, 2) == 0;
      plan_.push_back(
          {dies ? Fault::Kind::death : Fault::Kind::pause, now_ + draw(1, 120), draw(100, 9000), fault.follows + 1});
      std::sort(plan_.begin(), plan_.end(), [](const Fault& a, const Fault& b) { return a.at > b.at; });
    }
  }

  void strike(const Fault& fault) {
    if (faults_.follow_ups) {
      follow_up(fault);
    }
    const std::vector<Id> ids = running();
    if (ids.empty()) {
      return;
    }
    const auto any = [&] { return ids[static_cast<std::size_t>(draw(0, static_cast<int>(ids.size()) - 1))]; };
    switch (fault.kind) {
      case Fault::Kind::death: end(any()); break;
      case Fault::Kind::machine:
        for (int i = draw(2, 3); i > 0; --i) {
          end(any());
        }
        break;
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

  // What it sent last is lost on some links.
  void end(Id who) {
    const std::vector<Id> ids = running();
    if (processes_[who].ended ||
        (is_member(who) && std::count_if(ids.begin(), ids.end(), [&](Id one) { return is_member(one); }) < 2)) {
      return;
    }
    processes_[who].ended = true;
    std::map<Id, int> last;
    for (const Id other : ids) {
      last[other] = now_ + draw(0, 40);
      if (other != who) {
        notices_.push_back({now_ + draw(0, 300), other, who, false});
      }
    }
    links_.lose(who, last);
  }

  void advance() {
    while (!plan_.empty() && plan_.back().at <= now_) {
      const Fault fault = plan_.back();
      plan_.pop_back();
      strike(fault);
    }
    for (auto& [to, packet] : links_.arrivals(now_)) {
      processes_[to].inbox.push_back(std::move(packet));
    }
    std::erase_if(notices_, [&](const Notice& notice) {
      Process& process = processes_[notice.to];
      if (notice.at > now_ || process.ended || now_ < process.paused_until) {
        return process.ended;
      }
      hear(process, notice);
      process.touched = true;
      return true;
    });
    for (auto& [who, process] : processes_) {
      if (!process.ended && now_ >= process.paused_until && has_to_do(who, process)) {
        live(who, process);
      }
    }
    ++now_;
  }

  // Most of the time nothing is: three quarters of a simulation's own time.
  [[nodiscard]] bool has_to_do(Id who, Process& process) const {
    const bool works = process.works_until >= 0 && now_ >= process.works_until;
    return std::exchange(process.touched, false) || !process.inbox.empty() || works || ticks(who) || now_ % 400 == 0 ||
           now_ - process.moved_at >= 4000;
  }
  [[nodiscard]] bool ticks(Id who) const { return now_ % 50 == static_cast<int>(who) % 50; }

  void live(Id who, Process& process) {
    Membership& membership = *process.membership;
    for (const Packet& packet : std::exchange(process.inbox, {})) {
      if (const auto* message = std::get_if<Message>(&packet.what)) {
        membership.receive(*message, process.time(now_));
        take(who, process);
      } else {
        const Part& part = std::get<Part>(packet.what);
        process.parts[{part.epoch, part.step}].insert(packet.from);
        hold(process);
      }
    }
    if (ticks(who)) {
      membership.tick(process.time(now_));
    }
    work(who, process);
    miss(who, process);
    take(who, process);
  }

  // What a session does whose step does not end.
  void miss(Id who, Process& process) {
    Membership& membership = *process.membership;
    const auto& members = membership.world().members;
    if (!is_member(who) || membership.agreeing() || now_ >= kStepsEnd || now_ - process.moved_at < 4000) {
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
        now_ >= kStepsEnd || !std::binary_search(members.begin(), members.end(), who)) {
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

  void take(Id who, Process& process) {
    Membership& membership = *process.membership;
    for (Membership::Outgoing& out : membership.take_messages()) {
      links_.send(who, out.to, std::move(out.message), now_);
    }
    for (const News& news : membership.take_news()) {
      if (const auto* delivered = std::get_if<Delivered>(&news)) {
        deliver(who, process, delivered->step);
        process.moved_at = now_;
        process.works_until = now_ + draw(1, 50);
      } else if (const auto* changed = std::get_if<Changed>(&news)) {
        ++changes_;
        process.moved_at = now_;
        const std::uint64_t last = changed->decision.delivered;
        note(who, process, changed->decision);
        if (joins_.erase(who) + spares_.erase(who) != 0) {
          process.at = last;
          ++taken_in_;
        }
        while (process.at < last) {
          deliver(who, process, process.at + 1);
        }
        process.works_until = now_ + draw(1, 50);
      } else if (faults_.spares + faults_.joins > 0) {
        if (spares_.contains(who) ||
            joins_.contains(who)) {  // seen red where a process that waits took any decision for one about it
          wrong_ << "process " << who << " waits, and took itself for left out\n";
        }
        end(who);  // as a process does that learns that it is out
      }
    }
    if (membership.agreeing() && process.stopped_since < 0) {
      process.stopped_since = now_;
    } else if (!membership.agreeing() && process.stopped_since >= 0) {
      longest_stop_ = std::max(longest_stop_, now_ - process.stopped_since);
      process.stopped_since = -1;
    }
  }

  // Two that live must never have decided differently.
  void note(Id who, Process& process, const Decision& decision) {
    process.decisions[decision.world.epoch] = decision;
    for (const auto& [other, theirs] : processes_) {
      const auto found = theirs.decisions.find(decision.world.epoch);
      if (!theirs.ended && !theirs.membership->expelled() && found != theirs.decisions.end() &&
          found->second != decision) {
        wrong_ << "processes " << other << " and " << who << " decided differently on epoch " << decision.world.epoch
               << "; ";
      }
    }
  }

  void deliver(Id who, Process& process, std::uint64_t step) {
    process.at = step;
    const auto held = process.held.find(step);
    if (held == process.held.end()) {
      wrong_ << "process " << who << " delivers step " << step << ", which it does not hold; ";
      return;
    }
    process.results[step] = held->second;
    steps_ = std::max(steps_, step);
  }

  std::mt19937 random_;
  Faults faults_;
  int now_ = 0;
  Id next_id_ = 1000;
  std::map<Id, Process> processes_;
  SimulatedLinks links_{random_};
  std::vector<Fault> plan_;
  std::vector<Notice> notices_;
  std::map<Id, bool> side_;
  std::set<Id> joins_;
  std::set<Id> spares_;  // that wait
  std::size_t changes_ = 0;
  std::size_t taken_in_ = 0;
  std::uint64_t steps_ = 0;
  int longest_stop_ = 0;
  std::ostringstream wrong_;
};

}  // namespace gradwire::membership
