#include "elastic/elastic.hpp"

#include <algorithm>
#include <utility>

#include "base/elapsed.hpp"
#include "base/log.hpp"
#include "base/units.hpp"
#include "elastic/connect_attempt.hpp"
#include "policy/bounds.hpp"

namespace gradwire::session {
namespace {

constexpr std::chrono::milliseconds kBeat{100};

membership::MembershipSettings settings_of(const Processes& processes, const Policy::Elastic& settings) {
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
  membership::MembershipSettings found{.beat = kBeat, .silent_after = settings.suspect};
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
      copies_(processes_, settings),
      agreement_(processes_, settings_of(*processes_, settings), copies_.kept()) {
  if (settings_.trust_resets) {
    processes_->trust_resets();
    if (processes_->encrypted()) {
      log(LogLevel::warning,
          "[elastic] trust_resets has no effect in a job with a key: anybody on the network can reset a connection");
    }
  }
  std::vector<Processes::Id> ranks = processes_->all();
  ranks.resize(static_cast<std::size_t>(full_size()));
  ranks_.insert(ranks.begin(), ranks.end());
  if (ranks_.contains(processes_->self())) {
    world_ = reported_world_ = {.epoch = 0, .members = ranks};
    holders_ = std::move(ranks);
  }
}

bool Elastic::has_newcomers() const {
  return !std::includes(holders_.begin(), holders_.end(), world_.members.begin(), world_.members.end());
}
bool Elastic::holds() const { return std::binary_search(holders_.begin(), holders_.end(), processes_->self()); }

std::shared_ptr<Transport> Elastic::connect() {
  for (;;) {
    WorldAgreement::World world = agreement_.world();
    ranks_.insert(world.members.begin(), world.members.end());
    if (world.members.size() < settings_.min_ranks) {
      throw Error(ErrorCode::too_few, "a world of " + std::to_string(world.members.size()) +
                                          " ranks is less than [elastic] min_ranks, " +
                                          std::to_string(settings_.min_ranks) +
                                          "; start the job again from what it saved, or ask for fewer");
    }
    std::optional<Error> error;
    try {
      const auto watch = [&](std::function<void()> over) { agreement_.watch(world.epoch, std::move(over)); };
      if (std::shared_ptr<Transport> transport = connect_unless_over(processes_, world, timeout_, watch)) {
        world_ = std::move(world);
        transport_ = transport;
        copies_.enter(world_, transport->nodes());
        commit_seconds_ = 0;
        return transport;
      }
    } catch (const Error& failure) {
      if (failure.cause() != ErrorCause::world) {
        throw;
      }
      error = failure;
    }
    if (!agreement_.await_change(world.epoch, error ? patience() : std::chrono::milliseconds(0), timeout_)) {
      throw Error(error.value());
    }
  }
}

std::string Elastic::explain(std::uint64_t residual_bytes) const {
  const std::string copies = settings_.replicate == 0
                                 ? "not copied"
                                 : "copied after every " + std::to_string(settings_.replicate) + " steps, as " +
                                       (settings_.replicate_exact ? "fp32" : "bf16") +
                                       (settings_.replicate_packed ? ", packed" : "");
  return "goes on without ranks that end: silent ones after " + format_duration(settings_.suspect) + ", down to " +
         std::to_string(settings_.min_ranks) + " ranks; residuals are " + copies +
         (settings_.spares == 0 ? "" : "; " + std::to_string(settings_.spares) + " spares take the places of others") +
         (processes_->open() ? "; others may join" : "") +
         (settings_.trust_resets && !processes_->encrypted() ? "; a reset connection counts as the end of a rank"
                                                             : "") +
         "; residuals" + (residual_bytes == 0 ? "" : ", " + format_bytes(residual_bytes) + " now,") +
         " have a second buffer, so that a step can be undone, and it ends by a message of each rank to each" +
         (settings_.expel_slower_than == 0
              ? ""
              : "; a rank must go once steps take " + format_number(settings_.expel_slower_than, 3) +
                    " times as long because of it") +
         "\n";
}

bool Elastic::commit() {
  const auto begin = Clock::now();
  const bool all = agreement_.commit(world_.epoch, timeout_);
  commit_seconds_ = commit_seconds_ + seconds_since(begin);
  return all;
}

// Returns the time that it takes to miss a silent rank, and to hear that a rank has ended.
std::chrono::milliseconds Elastic::patience() const { return settings_.suspect + std::chrono::seconds(2); }

// A broken connection is reported first: otherwise both of its ends would fail with their errors, or be left out.
bool Elastic::await_change() {
  const auto transport = transport_.lock();
  const auto peer = transport ? transport->failed_peer() : std::nullopt;
  if (const auto who = peer ? id_of(*peer) : std::nullopt) {
    agreement_.miss(world_.epoch, *who);
  }
  return agreement_.await_change(world_.epoch, patience(), timeout_);
}

bool Elastic::has_to_tell() const {
  return !reported_world_.members.empty() && reported_world_.members != world_.members;
}

WorldChange Elastic::take_change() {
  WorldChange change{.epoch = world_.epoch,
                     .rank = membership::rank_in(world_, processes_->self()),
                     .world_size = static_cast<int>(world_.members.size()),
                     .old_rank = membership::rank_in(reported_world_, processes_->self()),
                     .old_world_size = static_cast<int>(reported_world_.members.size()),
                     .seconds = agreement_.seconds_since_over()};
  for (const Processes::Id who : reported_world_.members) {
    if (membership::rank_in(world_, who) < 0) {
      change.lost.push_back(membership::rank_in(reported_world_, who));
      change.lost_names.push_back(processes_->describe(who));
    }
  }
  for (const Processes::Id who : world_.members) {
    if (membership::rank_in(reported_world_, who) < 0) {
      change.joined.push_back(membership::rank_in(world_, who));
      change.joined_names.push_back(processes_->describe(who));
    }
  }
  for (const auto& [who, step] : copies_.take_used()) {
    if (const int rank = membership::rank_in(reported_world_, who); rank >= 0) {
      change.residuals_kept.emplace_back(rank, step);
    }
  }
  reported_world_ = world_;
  return change;
}

std::optional<Processes::Id> Elastic::id_of(int rank) const {
  const bool there = rank >= 0 && static_cast<std::size_t>(rank) < world_.members.size();
  return there ? std::optional(world_.members[static_cast<std::size_t>(rank)]) : std::nullopt;
}

std::optional<int> Elastic::rank_of(Processes::Id who) const {
  const int rank = membership::rank_in(world_, who);
  return rank < 0 ? std::nullopt : std::optional(rank);
}

}  // namespace gradwire::session
