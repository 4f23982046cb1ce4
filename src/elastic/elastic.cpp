#include "elastic/elastic.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/awake_time.hpp"
#include "base/current_error.hpp"
#include "base/elapsed.hpp"
#include "base/log.hpp"
#include "base/mutex.hpp"
#include "base/units.hpp"
#include "policy/bounds.hpp"

namespace gradwire::session {
namespace {

constexpr std::chrono::milliseconds kBeat{100};

// A call of Processes::connect() on a thread of its own, which is left behind where it waits for one who has ended.
struct Attempt {
  Mutex mutex;
  CondVar changed;
  bool over GUARDED_BY(mutex) = false;  // nobody waits any more
  bool made GUARDED_BY(mutex) = false;
  std::shared_ptr<Transport> transport GUARDED_BY(mutex);
  std::optional<Error> error GUARDED_BY(mutex);

  // Its end waits for nobody.
  void drop() REQUIRES(mutex) {
    if (transport != nullptr) {
      transport->abort(ErrorCode::aborted, "the world changed");
      transport.reset();
    }
  }
};

int rank_in(const membership::World& world, Processes::Id who) {
  const auto at = std::lower_bound(world.members.begin(), world.members.end(), who);
  return at != world.members.end() && *at == who ? static_cast<int>(at - world.members.begin()) : -1;
}

membership::Settings settings_of(const Processes& processes, const Policy::Elastic& settings) {
  const std::vector<Processes::Id> all = processes.all();
  if (settings.expel_slower_than != 0 && !(settings.expel_slower_than >= policy::kLeastSlower)) {
    throw Error(ErrorCode::invalid_argument,
                "[elastic] expel_slower_than = " + format_number(settings.expel_slower_than, 3) + " is below " +
                    format_number(policy::kLeastSlower) + "; write such as 3");
  }
  if (settings.spares > 0 && all.size() < std::size_t{settings.spares} + settings.min_ranks) {
    throw Error(ErrorCode::invalid_argument,
                "[elastic] spares = " + std::to_string(settings.spares) + " of " + std::to_string(all.size()) +
                    " processes leave fewer ranks than min_ranks, " + std::to_string(settings.min_ranks) +
                    "; start ranks + spares processes, as by mpirun -np");
  }
  membership::Settings found{.beat = kBeat, .silent_after = settings.suspect};
  found.start = all;
  if (settings.spares > 0) {
    found.full = all.size() - settings.spares;
    found.spares.assign(all.begin() + static_cast<std::ptrdiff_t>(found.full), all.end());
  }
  return found;
}

}  // namespace

Elastic::Elastic(std::shared_ptr<Processes> processes, MakeRunner make_runner, const Policy::Elastic& settings,
                 std::chrono::milliseconds timeout)
    : processes_(std::move(processes)),
      make_runner_(std::move(make_runner)),
      settings_(settings),
      timeout_(timeout),
      member_(processes_, settings_of(*processes_, settings)) {
  if (settings_.trust_resets) {
    processes_->trust_resets();
  }
  std::vector<Processes::Id> ranks = processes_->all();
  ranks.resize(static_cast<std::size_t>(full_size()));
  ranks_.insert(ranks.begin(), ranks.end());
  if (ranks_.contains(processes_->self())) {
    world_ = before_ = told_ = {.epoch = 0, .members = ranks};
    holders_ = std::move(ranks);
  }
}

bool Elastic::has_newcomers() const {
  return !std::includes(holders_.begin(), holders_.end(), world_.members.begin(), world_.members.end());
}
bool Elastic::holds() const { return std::binary_search(holders_.begin(), holders_.end(), processes_->self()); }

std::shared_ptr<Transport> Elastic::connect() {
  before_ = world_;
  member_.forget_copies_before(before_.epoch);
  for (;;) {
    Member::World world = member_.world();
    ranks_.insert(world.members.begin(), world.members.end());
    if (world.members.size() < settings_.min_ranks) {
      throw Error(ErrorCode::too_few, "a world of " + std::to_string(world.members.size()) +
                                          " ranks is less than [elastic] min_ranks, " +
                                          std::to_string(settings_.min_ranks) +
                                          "; start the job again from what it saved, or ask for fewer");
    }
    std::optional<Error> error;
    try {
      if (std::shared_ptr<Transport> transport = try_to_connect(world)) {
        world_ = std::move(world);
        transport_ = transport;
        keepers_before_ = std::exchange(keepers_, {});
        find_keepers(transport->nodes());
        copied_ = false;
        commit_seconds_ = 0;
        return transport;
      }
    } catch (const Error& failure) {
      if (!may_be_peer_failure(failure.code())) {
        throw;
      }
      error = failure;
    }
    if (!member_.await_change(world.epoch, patience(error.has_value()), timeout_)) {
      throw Error(error.value());
    }
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
    const MutexLock lock(attempt->mutex);
    attempt->made = true;
    attempt->error = std::move(error);
    attempt->transport = std::move(transport);
    if (attempt->over) {
      attempt->drop();
    }
    attempt->changed.notify_all();
  });
  member_.watch(world.epoch, [attempt] {
    const MutexLock lock(attempt->mutex);
    attempt->over = true;
    attempt->changed.notify_all();
  });
  const MutexLock lock(attempt->mutex);
  const bool in_time = wait_awake(attempt->changed, attempt->mutex, 2 * timeout_,
                                  [&]() REQUIRES(attempt->mutex) { return attempt->made || attempt->over; });
  const bool over = std::exchange(attempt->over, attempt->over || !in_time);
  const bool made = attempt->made;
  {
    const MutexUnlock meanwhile(attempt->mutex);
    made ? maker.join() : maker.detach();
  }
  if (!in_time) {
    throw Error(ErrorCode::timeout, "a new world of " + std::to_string(world.members.size()) +
                                        " ranks was not there within " + format_duration(2 * timeout_) +
                                        ": a rank gives signs of life, but does not come");
  }
  if (over) {
    attempt->drop();
    return nullptr;
  }
  if (attempt->error) {
    throw Error(*attempt->error);
  }
  return attempt->transport;
}

std::chrono::milliseconds Elastic::patience(bool failed) const {
  constexpr std::chrono::seconds kToHear{2};  // that a rank has ended
  return failed ? settings_.suspect + kToHear : std::chrono::milliseconds(0);
}

// The next rank on another node, or where all share one the next: a node may end as a whole.
void Elastic::find_keepers(const std::vector<std::uint32_t>& nodes) {
  const auto size = world_.members.size();
  const auto node_of = [&](std::size_t rank) { return nodes.empty() ? 0U : nodes[rank]; };
  for (std::size_t rank = 0; rank < size; ++rank) {
    std::size_t keeper = (rank + 1) % size;
    for (std::size_t i = 1; i < size; ++i) {
      const std::size_t other = (rank + i) % size;
      if (node_of(other) != node_of(rank)) {
        keeper = other;
        break;
      }
    }
    keepers_.push_back(static_cast<int>(keeper));
  }
  const bool one_node = std::all_of(nodes.begin(), nodes.end(), [&](std::uint32_t node) { return node == nodes[0]; });
  if (settings_.replicate > 0 && one_node && size > 1 && keepers_before_.empty() &&
      world_.members[0] == processes_->self()) {
    log(LogLevel::warning, "[elastic] replicate: all ranks share one node, so a copy of residuals is lost with it");
  }
}

// Residuals hold at most all elements twice, as fp32, with a position for each.
void Elastic::take_copies_of(std::uint64_t elements) {
  constexpr std::uint64_t kLeast = 1 << 20;
  member_.take_copies_up_to(replicates() ? kLeast + 4 * sizeof(float) * elements : 0);
}

bool Elastic::replicates_after(std::uint64_t step) const {
  return settings_.replicate > 0 && world_.members.size() > 1 && (!copied_ || (step + 1) % settings_.replicate == 0);
}

void Elastic::replicate(std::uint64_t step, const ResidualCopy& copy) {
  copied_ = true;
  const int rank = rank_in(world_, processes_->self());
  const int keeper = keepers_[static_cast<std::size_t>(rank)];
  const Copy sent{.epoch = world_.epoch,
                  .step = step,
                  .bytes = encode_copy(copy.residuals, copy.loss_scale, settings_.replicate_exact)};
  if (!member_.send_copy(world_.members[static_cast<std::size_t>(keeper)], sent)) {
    log(LogLevel::info, "step " + std::to_string(step) +
                            ": the copy of residuals before this one is still on its way; " + "this one is left out");
  }
}

std::vector<Elastic::Kept> Elastic::take_kept() {
  std::vector<Kept> kept;
  const bool is_first = world_.members.front() == processes_->self();
  for (std::size_t rank = 0; rank < keepers_before_.size() && replicates(); ++rank) {
    const Processes::Id who = before_.members[rank];
    const Processes::Id keeper = before_.members[static_cast<std::size_t>(keepers_before_[rank])];
    if (rank_of(who) || !std::binary_search(holders_.begin(), holders_.end(), who)) {
      continue;  // a newcomer that ends before it holds anything has nothing to send
    }
    if (keeper == processes_->self()) {
      const auto copy = member_.take_copy(who, before_.epoch);
      kept.push_back(copy ? Kept{who, copy->step, decode_copy(copy->bytes)} : Kept{who});
    } else if (is_first && !rank_of(keeper)) {
      kept.push_back({who});
    }
  }
  member_.forget_copies_before(world_.epoch);  // also of those that live and have another keeper now
  return kept;
}

std::string Elastic::explain(std::uint64_t residual_bytes) const {
  const std::string copies = settings_.replicate == 0
                                 ? "not copied"
                                 : "copied after every " + std::to_string(settings_.replicate) + " steps, as " +
                                       (settings_.replicate_exact ? "fp32" : "bf16");
  return "goes on without ranks that end: silent ones after " + format_duration(settings_.suspect) + ", down to " +
         std::to_string(settings_.min_ranks) + " ranks; residuals are " + copies +
         (settings_.spares == 0 ? "" : "; " + std::to_string(settings_.spares) + " spares take the places of others") +
         (processes_->open() ? "; others may join" : "") +
         (settings_.trust_resets ? "; a reset connection counts as the end of a rank" : "") + "; residuals" +
         (residual_bytes == 0 ? "" : ", " + format_bytes(residual_bytes) + " now,") +
         " have a second buffer, so that a step can be undone, and it ends by a message of each rank to each" +
         (settings_.expel_slower_than == 0
              ? ""
              : "; a rank must go once steps take " + format_number(settings_.expel_slower_than, 3) +
                    " times as long because of it") +
         "\n";
}

bool Elastic::commit() {
  const auto begin = Clock::now();
  const bool all = member_.commit(world_.epoch, timeout_);
  commit_seconds_ = commit_seconds_ + seconds_since(begin);
  return all;
}

// Unless it is reported, both ends of the broken connection would fail with their errors, or be left out.
void Elastic::miss_failed_peer() {
  const auto transport = transport_.lock();
  const auto peer = transport ? transport->failed_peer() : std::nullopt;
  if (const auto who = peer ? id_of(*peer) : std::nullopt) {
    member_.miss(world_.epoch, *who);
  }
}

bool Elastic::await_change(bool failed) {
  if (failed) {
    miss_failed_peer();
  }
  return member_.await_change(world_.epoch, patience(failed), timeout_);
}

bool Elastic::has_to_tell() const { return !told_.members.empty() && told_.members != world_.members; }

WorldChange Elastic::take_change() {
  WorldChange change{.epoch = world_.epoch,
                     .rank = rank_in(world_, processes_->self()),
                     .world_size = static_cast<int>(world_.members.size()),
                     .old_rank = rank_in(told_, processes_->self()),
                     .old_world_size = static_cast<int>(told_.members.size()),
                     .seconds = member_.seconds_since_over()};
  for (const Processes::Id who : told_.members) {
    if (rank_in(world_, who) < 0) {
      change.lost.push_back(rank_in(told_, who));
      change.lost_names.push_back(processes_->describe(who));
    }
  }
  for (const Processes::Id who : world_.members) {
    if (rank_in(told_, who) < 0) {
      change.joined.push_back(rank_in(world_, who));
      change.joined_names.push_back(processes_->describe(who));
    }
  }
  for (const auto& [who, step] : std::exchange(kept_, {})) {
    if (const int rank = rank_in(told_, who); rank >= 0) {
      change.residuals_kept.emplace_back(rank, step);
    }
  }
  told_ = world_;
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
