// Tables of a session: what belongs to its calls, steps and worlds.
#include <chrono>
#include <numeric>
#include <string>
#include <utility>

#include "base/elapsed.hpp"
#include "base/mutex.hpp"
#include "observe/record.hpp"
#include "session/session_state.hpp"
#include "table/options.hpp"

namespace gradwire {

using session::TableWorld;

std::uint32_t session::Engine::add_table(SessionTableOptions asked) {
  if (runner->device() != nullptr) {
    throw Error(ErrorCode::unsupported,
                "add_table: tables lie in host memory, and this session works over a device's; "
                "make a gradwire::Table, or a session over host memory");
  }
  asked.copies = asked.copies > 0 ? asked.copies : settings.copies_of_rows;
  {
    const MutexLock lock(progress.state);
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
void session::Engine::enter_tables() {
  TableWorld world;
  if (settings.members) {
    world.members = *settings.members;
  } else {
    world.members.resize(static_cast<std::size_t>(runner->info().world_size));
    std::iota(world.members.begin(), world.members.end(), 0U);
  }
  if (!world.members.empty()) {
    world.nodes = runner->info().nodes;
  }
  tables.enter(world, runner->info().rank);
}

void session::Engine::check_pull(std::uint32_t table, std::span<const std::uint64_t> ids, std::span<float> rows) {
  checked([&] {
    tables.check_pull(table, ids, rows.size());
    progress.require_communication("pull");
    const MutexLock lock(progress.state);
    throw_if_failed();
    step.require_between("pull");
  });
}

void session::Engine::pull(std::uint32_t table, std::span<const std::uint64_t> ids, std::span<float> rows) {
  const auto begin = std::chrono::steady_clock::now();
  const observe::Span span(
      {.bytes = rows.size_bytes(), .source = runner->info().source, .kind = observe::EventKind::pull});
  {
    const MutexLock lock(progress.state);
    step.faults.throw_if_failed();
    make_plan();
  }
  on_wire([&] { tables.pull(runner->peers(), table, ids, rows); });
  const MutexLock lock(progress.state);
  parts.waited(seconds_since(begin));
}

void session::Engine::exchange_pushes() {
  if (tables.empty()) {
    return;
  }
  std::optional<double> weight;
  {
    const MutexLock lock(progress.state);
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

TableId Session::add_table(const SessionTableOptions& options) {
  session::Engine& engine = state_->engine();
  return static_cast<TableId>(engine.checked([&] { return engine.add_table(options); }));
}

TableId Session::add_table_as_before(const TableOptions& options) {
  return add_table(state_->engine().checked([&] { return table::session_options_of(options); }));
}

bool Session::pull(TableId table, std::span<const std::uint64_t> ids, std::span<float> rows) {
  return state_->pull(static_cast<std::uint32_t>(table), ids, rows);
}

void Session::push(TableId table, std::span<const std::uint64_t> ids, std::span<const float> gradients) {
  session::Engine& engine = state_->engine();
  engine.checked([&] {
    state_->require_rank("push");
    engine.tables.push(static_cast<std::uint32_t>(table), ids, gradients);
  });
}

TableStatistics Session::table_statistics(TableId table) const {
  return state_->engine().tables.statistics(static_cast<std::uint32_t>(table));
}

}  // namespace gradwire
