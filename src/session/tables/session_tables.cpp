// Tables of a session: what belongs to its calls, steps and worlds.
#include <chrono>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>

#include "base/elapsed.hpp"
#include "observe/record.hpp"
#include "session/session_state.hpp"

namespace gradwire {

using session::TableWorld;

std::uint32_t Session::State::add_table(TableOptions asked) {
  if (runner->device() != nullptr) {
    throw Error(ErrorCode::unsupported,
                "add_table: tables lie in host memory, and this session works over a device's; "
                "make a gradwire::Table, or a session over host memory");
  }
  asked.copies = asked.copies > 0 ? asked.copies : elastic ? 2 : 1;
  {
    const std::lock_guard lock(progress.state);
    throw_if_failed();
    if (plan) {
      throw Error(ErrorCode::invalid_argument, "add_table: \"" + asked.name +
                                                   "\" comes after the plan was made; add every table before the first "
                                                   "ready(), pull(), explain() or fingerprint()");
    }
  }
  if (tables.empty()) {
    enter_tables();
  }
  return tables.add(asked);
}

// A spare is in no world, and asks nothing of them.
void Session::State::enter_tables() {
  TableWorld world;
  if (elastic) {
    world.members = elastic->members();
  } else {
    world.members.resize(static_cast<std::size_t>(runner->info().world_size));
    std::iota(world.members.begin(), world.members.end(), 0U);
  }
  if (!world.members.empty()) {
    world.nodes = runner->info().nodes;
  }
  tables.enter(world, runner->info().rank);
}

void Session::State::require_rank(const char* call) const {
  if (elastic && elastic->waits()) {
    throw Error(ErrorCode::invalid_argument,
                std::string(call) +
                    ": this process is no rank yet; call share() first, and make no steps where it returns false");
  }
}

void Session::State::check_pull(std::uint32_t table, std::span<const std::uint64_t> ids, std::span<float> rows) {
  checked([&] {
    require_rank("pull");
    tables.at(table, "pull").check("pull", ids, rows.size());
    progress.require_communication("pull");
    const std::lock_guard lock(progress.state);
    throw_if_failed();
    step.require_between("pull");
  });
}

void Session::State::pull(std::uint32_t table, std::span<const std::uint64_t> ids, std::span<float> rows) {
  const auto begin = std::chrono::steady_clock::now();
  const observe::Span span(
      {.bytes = rows.size_bytes(), .source = runner->info().source, .kind = observe::EventKind::pull});
  {
    const std::lock_guard lock(progress.state);
    step.faults.throw_if_failed();
    make_plan();
  }
  on_wire([&] { tables.pull(runner->peers(), table, ids, rows); });
  tables.at(table, "pull").counts().wait_seconds += seconds_since(begin);
  const std::lock_guard lock(progress.state);
  parts.waited(seconds_since(begin));
}

bool Session::State::pull_elastically(std::unique_ptr<State>& self, std::uint32_t table,
                                      std::span<const std::uint64_t> ids, std::span<float> rows) {
  std::optional<Error> failure;
  try {
    self->pull(table, ids, rows);
    return true;
  } catch (const Error& error) {
    if (!session::may_be_peer_failure(error.code())) {
      self->leave(error);
    }
    failure = error;
  }
  const WorldChange change = change_world(self, failure);  // replaces the state
  self->tell_of(change);
  return false;
}

void Session::State::exchange_pushes() {
  if (tables.empty()) {
    return;
  }
  std::optional<double> weight;
  {
    const std::lock_guard lock(progress.state);
    if (step.outcome().skipped) {
      tables.forget_pushes();
      return;
    }
    if (const session::StepInfo info = step.info(); info.weighted) {
      weight = info.weight;
    }
  }
  on_wire([&] { tables.exchange_pushes(runner->peers(), options.reduction, weight); });
}

TableId Session::add_table(const TableOptions& options) {
  return static_cast<TableId>(state_->checked([&] { return state_->add_table(options); }));
}

bool Session::pull(TableId table, std::span<const std::uint64_t> ids, std::span<float> rows) {
  const auto number = static_cast<std::uint32_t>(table);
  state_->check_pull(number, ids, rows);
  if (state_->elastic) {
    return State::pull_elastically(state_, number, ids, rows);
  }
  state_->checked([&] { state_->pull(number, ids, rows); });
  return true;
}

void Session::push(TableId table, std::span<const std::uint64_t> ids, std::span<const float> gradients) {
  state_->checked([&] {
    state_->require_rank("push");
    state_->tables.push(static_cast<std::uint32_t>(table), ids, gradients);
  });
}

TableStatistics Session::table_statistics(TableId table) const {
  return state_->tables.at(static_cast<std::uint32_t>(table), "table_statistics").statistics();
}

}  // namespace gradwire
