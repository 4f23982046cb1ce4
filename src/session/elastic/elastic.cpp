#include "session/elastic/elastic.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "base/current_error.hpp"
#include "base/elapsed.hpp"

namespace gradwire::session {
namespace {

constexpr std::chrono::milliseconds kBeat{100};

// A call of Processes::connect() on a thread of its own, which is left behind where it waits for one who has ended.
struct Attempt {
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;  // nobody waits any more
  bool made = false;
  std::shared_ptr<Transport> transport;
  std::optional<Error> error;
};

int rank_in(const membership::World& world, Processes::Id who) {
  const auto at = std::lower_bound(world.members.begin(), world.members.end(), who);
  return at != world.members.end() && *at == who ? static_cast<int>(at - world.members.begin()) : -1;
}

}  // namespace

Elastic::Elastic(std::shared_ptr<Processes> processes, const Policy::Elastic& settings,
                 std::chrono::milliseconds timeout)
    : processes_(processes),
      settings_(settings),
      timeout_(timeout),
      member_(std::move(processes), {.beat = kBeat, .silent_after = settings.suspect}) {
  world_ = before_ = {.epoch = 0, .members = processes_->all()};
}

std::shared_ptr<Transport> Elastic::connect() {
  before_ = world_;
  for (;;) {
    Member::World world = member_.world();
    if (world.members.size() < settings_.min_ranks) {
      throw Error(ErrorCode::too_few,
                  std::to_string(world.members.size()) + " ranks are left, and [elastic] min_ranks is " +
                      std::to_string(settings_.min_ranks) + "; start the job again from what it saved");
    }
    if (std::shared_ptr<Transport> transport = try_to_connect(world)) {
      world_ = std::move(world);
      commit_seconds_ = 0;
      return transport;
    }
    static_cast<void>(member_.await_change(world.epoch, std::chrono::milliseconds(0), timeout_));
  }
}

// Null: the world is over.
std::shared_ptr<Transport> Elastic::try_to_connect(const Member::World& world) {
  const auto attempt = std::make_shared<Attempt>();
  std::thread maker([attempt, world, processes = processes_, timeout = timeout_] {
    std::shared_ptr<Transport> transport;
    std::optional<Error> error;
    try {
      transport = processes->connect(world.members, world.epoch, timeout);
    } catch (...) {
      error = current_error();
    }
    const std::lock_guard lock(attempt->mutex);
    attempt->made = true;
    attempt->error = std::move(error);
    if (!attempt->over) {
      attempt->transport = std::move(transport);
    }
    attempt->changed.notify_all();
  });
  member_.watch(world.epoch, [attempt] {
    const std::lock_guard lock(attempt->mutex);
    attempt->over = true;
    attempt->changed.notify_all();
  });
  std::unique_lock lock(attempt->mutex);
  attempt->changed.wait(lock, [&] { return attempt->made || attempt->over; });
  const bool made = attempt->made;
  lock.unlock();
  if (made) {
    maker.join();
  } else {
    maker.detach();
  }
  lock.lock();
  if (attempt->error && !attempt->over) {
    throw Error(*attempt->error);
  }
  return attempt->over ? nullptr : attempt->transport;
}

bool Elastic::commit() {
  const auto begin = Clock::now();
  const bool all = member_.commit(world_.epoch, timeout_);
  commit_seconds_ = commit_seconds_ + seconds_since(begin);
  return all;
}

bool Elastic::await_change(bool failed) {
  constexpr std::chrono::seconds kToHear{2};  // that a rank has ended
  began_ = Clock::now();
  const auto patience = failed ? settings_.suspect + kToHear : std::chrono::milliseconds(0);
  return member_.await_change(world_.epoch, patience, timeout_);
}

WorldChange Elastic::change() const {
  WorldChange change{.epoch = world_.epoch,
                     .rank = rank_in(world_, processes_->self()),
                     .world_size = static_cast<int>(world_.members.size()),
                     .old_rank = rank_in(before_, processes_->self()),
                     .old_world_size = static_cast<int>(before_.members.size()),
                     .seconds = std::chrono::duration<double>(Clock::now() - began_).count()};
  for (const Processes::Id who : before_.members) {
    if (rank_in(world_, who) < 0) {
      change.lost.push_back(rank_in(before_, who));
      change.lost_names.push_back(processes_->describe(who));
    }
  }
  return change;
}

std::optional<Processes::Id> Elastic::id_of(int rank) const {
  const bool there = rank >= 0 && static_cast<std::size_t>(rank) < world_.members.size();
  return there ? std::optional(world_.members[static_cast<std::size_t>(rank)]) : std::nullopt;
}

std::optional<int> Elastic::rank_of(Processes::Id who) const {
  const int rank = rank_in(world_, who);
  return rank < 0 ? std::nullopt : std::optional(rank);
}

}  // namespace gradwire::session
