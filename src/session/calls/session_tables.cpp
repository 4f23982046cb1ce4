// The calls of a session that concern its tables.
#include "base/mutex.hpp"
#include "session/calls/table_calls.hpp"

#include <chrono>
#include <string>

#include "base/elapsed.hpp"
#include "observe/record.hpp"
#include "session/calls/session_state.hpp"
#include "session/parts/tables/tables_part.hpp"
#include "table/options.hpp"

namespace gradwire {
namespace {

session::TablesPart& part_of(const session::Engine& engine) {
  auto* part = engine.parts.find<session::TablesPart>();
  if (part == nullptr) {
    throw Error(ErrorCode::unsupported, "this session was made without the part that holds tables");
  }
  return *part;
}

}  // namespace

void session::check_pull(Engine& engine, std::uint32_t table, std::span<const std::uint64_t> ids,
                         std::span<float> rows) {
  engine.checked([&] {
    part_of(engine).tables().check_pull(table, ids, rows.size());
    engine.progress.require_communication("pull");
    const MutexLock lock(engine.progress.state);
    engine.throw_if_failed();
    engine.step.require_between("pull");
  });
}

void session::pull(Engine& engine, std::uint32_t table, std::span<const std::uint64_t> ids, std::span<float> rows) {
  const auto begin = std::chrono::steady_clock::now();
  const observe::Span span(
      {.bytes = rows.size_bytes(), .source = engine.runner->info().source, .kind = observe::EventKind::pull});
  {
    const MutexLock lock(engine.progress.state);
    engine.step.faults.throw_if_failed();
    engine.make_plan();
  }
  engine.on_wire([&] { part_of(engine).tables().pull(engine.runner->peers(), table, ids, rows); });
  const MutexLock lock(engine.progress.state);
  engine.parts.waited(seconds_since(begin));
}

bool Session::State::pull(std::uint32_t table, std::span<const std::uint64_t> ids, std::span<float> rows) {
  session::check_pull(*engine_, table, ids, rows);
  engine_->checked([&] { session::pull(*engine_, table, ids, rows); });
  return true;
}

TableId Session::add_table(const SessionTableOptions& options) {
  session::Engine& engine = state_->engine();
  return static_cast<TableId>(engine.checked([&] {
    if (engine.runner->device() != nullptr) {
      throw Error(ErrorCode::unsupported,
                  "add_table: tables lie in host memory, and this session works over a device's; "
                  "make a gradwire::Table, or a session over host memory");
    }
    {
      const MutexLock lock(engine.progress.state);
      engine.throw_if_failed();
      if (engine.plan) {
        throw Error(ErrorCode::invalid_argument,
                    "add_table: \"" + options.name +
                        "\" comes after the plan was made; add every table before the first "
                        "ready(), pull(), explain() or fingerprint()");
      }
    }
    return part_of(engine).add(options);
  }));
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
    part_of(engine).tables().push(static_cast<std::uint32_t>(table), ids, gradients);
  });
}

TableStatistics Session::table_statistics(TableId table) const {
  return part_of(state_->engine()).tables().statistics(static_cast<std::uint32_t>(table));
}

}  // namespace gradwire
