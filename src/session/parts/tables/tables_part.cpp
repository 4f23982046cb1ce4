#include "session/parts/tables/tables_part.hpp"

#include <algorithm>
#include <new>
#include <numeric>
#include <utility>

namespace gradwire::session {

std::uint32_t TablesPart::add(SessionTableOptions asked) {
  asked.copies = asked.copies > 0 ? asked.copies : inputs_.copies_of_rows;
  if (tables_.empty()) {
    enter();
  }
  return tables_.add(asked);
}

// A spare process is in no world, and uses no tables.
void TablesPart::enter() {
  TableWorld world;
  if (inputs_.members) {
    world.members = *inputs_.members;
  } else {
    world.members.resize(static_cast<std::size_t>(inputs_.runner.info().world_size));
    std::iota(world.members.begin(), world.members.end(), 0U);
  }
  if (!world.members.empty()) {
    world.nodes = inputs_.runner.info().nodes;
  }
  tables_.enter(world, inputs_.runner.info().rank);
}

void TablesPart::take_over(Part& before) {
  tables_ = std::move(static_cast<TablesPart&>(before).tables_);
  enter();
}

void TablesPart::check(const SavedState& state, const std::string& source) const {
  const auto describe = [](const table::SavedTable& table) {
    return "\"" + table.name + "\" " + std::to_string(table.rows) + " x " + std::to_string(table.width) +
           (table.optimizer == RowOptimizer::sgd ? ", sgd" : ", adagrad");
  };
  const std::vector<table::SavedTable> here = tables_.heads();
  for (std::size_t i = 0; i < std::max(state.tables.size(), here.size()); ++i) {
    const std::string theirs = i < state.tables.size() ? describe(state.tables[i]) : "nothing";
    const std::string ours = i < here.size() ? describe(here[i]) : "nothing";
    if (theirs != ours) {
      throw Error(ErrorCode::mismatch, source + ": is of another model: table " + std::to_string(i) + " is " + theirs +
                                           " there and " + ours + " here; load the state that this model saved");
    }
  }
}

table::RowSink& TablesPart::begin_rows() {
  loading_.reset();  // before the new one takes memory
  return loading_.emplace(tables_);
}

void TablesPart::load(const SavedState& /*state*/) {
  if (loading_) {
    tables_.load(std::move(*loading_));
    loading_.reset();
    report();
  }
}

void TablesPart::prepare(const StepInfo& step, bool skipped) {
  if (skipped) {
    tables_.forget_pushes();
    return;
  }
  tables_.exchange_pushes(inputs_.runner.peers(), inputs_.options.reduction,
                          step.weighted ? std::optional(step.weight) : std::nullopt);
}

// The other ranks count the step, so a rank that cannot must leave.
void TablesPart::commit() {
  try {
    tables_.count();
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::out_of_memory, "finish: no memory for the rows that this step has pushed to tables");
  }
  report();
}

void TablesPart::report() {
  std::vector<RowTable> found = tables_.row_tables();
  const MutexLock lock(reported_);
  row_tables_ = std::move(found);
}

void TablesPart::install() {
  try {
    tables_.install();
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::out_of_memory, "no memory for rows of tables that ranks have left behind");
  }
}

std::unique_ptr<Part> make_tables(const PartInputs& inputs) { return std::make_unique<TablesPart>(inputs); }

}  // namespace gradwire::session
