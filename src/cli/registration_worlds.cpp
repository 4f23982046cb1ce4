#include "cli/registration_worlds.hpp"

#include <algorithm>

#include "transport/tcp/tcp_registration.hpp"

namespace gradwire::cli {
namespace {

constexpr int kMostRanks = 1 << 22;
constexpr std::size_t kMostWorlds = 1 << 14;  // bounds a script that starts job after job

}  // namespace

// A process tries several addresses at once, and closes all connections except one; it counts as beginning as long as
// one is left. A `begins` that arrives after its question is late and ignored.
void RegistrationWorlds::begin(Visitor visitor, const Process& process) {
  if (asked_.contains(process.number)) {
    return;
  }
  beginning_.emplace_back(visitor, process);
  if (begun_.insert(process.number).second) {
    ++seen_.begun;
    seen_.hosts.insert(process.host);
  }
}

bool RegistrationWorlds::ask(Visitor visitor, const Process& process, int world_size, Time now) {
  if (process.rank < 0 || process.rank >= world_size || world_size > kMostRanks || process.job.empty()) {
    return false;
  }
  asked_.insert(process.number);
  std::erase_if(beginning_, [&](const auto& other) { return other.second.number == process.number; });
  World& world = world_of(process, world_size, now);
  if (world.asked.emplace(process.rank, process.number).second) {
    ++seen_.asked;
    seen_.hosts.insert(process.host);
    if (process.rank == 0) {
      seen_.hosts_of_root.insert(process.host);
    }
  }
  world.waiting.push_back(visitor);
  return true;
}

void RegistrationWorlds::run(std::uint64_t process, const std::string& host) {
  if (running_.insert(process).second) {
    ++seen_.elastic;
    seen_.hosts.insert(host);
  }
}

void RegistrationWorlds::end(std::uint64_t process, int status) {
  if (!running_.contains(process) || !ended_.insert(process).second) {
    return;
  }
  if (status == transport::tcp::kNoPlace) {
    ++seen_.never_placed;
  } else {
    ++seen_.ended_as[status];
  }
}

// The world of a process. A job's name may be used again, since launchers make it from a process's number: this is a
// new world if its rank has asked in the earlier one already.
RegistrationWorlds::World& RegistrationWorlds::world_of(const Process& process, int size, Time now) {
  World* open = nullptr;
  World* answered = nullptr;
  for (World& world : worlds_) {
    if (world.size != size || world.job != process.job) {
      continue;
    }
    const auto before = world.asked.find(process.rank);
    if (before != world.asked.end() && before->second == process.number) {
      return world;
    }
    if (before == world.asked.end()) {
      (world.missing ? answered : open) = &world;
    }
  }
  if (open != nullptr || answered != nullptr) {
    return open != nullptr ? *open : *answered;
  }
  if (worlds_.size() >= kMostWorlds) {
    worlds_.erase(worlds_.begin());
  }
  World& made = worlds_.emplace_back();
  made.job = process.job;
  made.size = size;
  made.first = now;
  return made;
}

void RegistrationWorlds::leave(Visitor visitor) {
  std::erase_if(beginning_, [&](const auto& other) { return other.first == visitor; });
  for (World& world : worlds_) {
    std::erase(world.waiting, visitor);
  }
}

// The answer, if it is time for one. Ranks that are still in MPI_Init have the drop-in and are not named.
std::optional<std::vector<int>> RegistrationWorlds::missing_of(const World& world, Time now) const {
  if (world.missing) {
    return world.missing;
  }
  if (world.asked.size() == static_cast<std::size_t>(world.size)) {
    return std::vector<int>();
  }
  if (now < world.first + patience_.usual) {
    return std::nullopt;
  }
  std::set<int> beginning;
  std::set<std::uint64_t> unknown;  // processes whose rank is not known yet
  for (const auto& [visitor, process] : beginning_) {
    if (process.job == world.job) {
      if (process.rank >= 0) {
        beginning.insert(process.rank);
      } else {
        unknown.insert(process.number);
      }
    }
  }
  std::vector<int> silent;
  std::vector<int> missing;
  for (int rank = 0; rank < world.size; ++rank) {
    if (!world.asked.contains(rank)) {
      silent.push_back(rank);
      if (!beginning.contains(rank)) {
        missing.push_back(rank);
      }
    }
  }
  if (missing.size() <= unknown.size() && now < world.first + patience_.longest) {
    return std::nullopt;
  }
  return missing.empty() ? silent : missing;
}

std::vector<RegistrationWorlds::Answer> RegistrationWorlds::take_answers(Time now) {
  std::vector<Answer> answers;
  for (World& world : worlds_) {
    if (world.waiting.empty()) {
      continue;
    }
    const auto missing = missing_of(world, now);
    if (!missing) {
      continue;
    }
    world.missing = missing;
    for (const Visitor visitor : world.waiting) {
      answers.push_back({.visitor = visitor, .missing = *missing});
    }
    world.waiting.clear();
  }
  return answers;
}

std::optional<RegistrationWorlds::Time> RegistrationWorlds::next(Time now) const {
  std::optional<Time> next;
  for (const World& world : worlds_) {
    if (!world.waiting.empty() && !world.missing) {
      const Time usual = world.first + patience_.usual;
      const Time time = now < usual ? usual : world.first + patience_.longest;
      next = std::min(next.value_or(time), time);
    }
  }
  return next;
}

}  // namespace gradwire::cli
