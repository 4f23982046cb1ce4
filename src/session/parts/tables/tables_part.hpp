// The part of a session that has its tables.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "session/part/part.hpp"
#include "session/parts/tables/session_tables.hpp"

namespace gradwire::session {

/// Only the thread that makes steps uses it, except for reports.
class TablesPart final : public Part, public StepParticipant, public SharedOut, public RowLoader {
 public:
  explicit TablesPart(PartInputs inputs) : inputs_(std::move(inputs)) {}

  /// Public calls such as Session::pull() use it directly.
  [[nodiscard]] SessionTables& tables() noexcept { return tables_; }
  /// Session::add_table(), before the plan is made.
  std::uint32_t add(SessionTableOptions asked);

  [[nodiscard]] std::string_view name() const noexcept override { return "tables"; }
  [[nodiscard]] bool has_name_compared() const noexcept override { return false; }
  [[nodiscard]] StepParticipant* participant() noexcept override { return tables_.empty() ? nullptr : this; }
  [[nodiscard]] SharedOut* shared_out() noexcept override { return tables_.empty() ? nullptr : this; }
  [[nodiscard]] RowLoader* row_loader() noexcept override { return tables_.empty() ? nullptr : this; }
  void take_over(Part& before) override;
  void add_to(plan::Plan& plan) const override { plan.tables = tables_.describe(); }
  [[nodiscard]] bool in_step() const override { return tables_.in_use(); }
  void check(const SavedState& state, const std::string& source) const override;
  void save(SavedState& state) override { state.tables = tables_.save(); }
  void load(const SavedState& state) override;
  [[nodiscard]] std::string explain() const override { return tables_.explain(); }
  void add_to(SessionStatistics& statistics) const override {
    const MutexLock lock(reported_);
    statistics.tables = row_tables_;
  }

  void add_blocks(std::vector<memory::Block*>& blocks) override { tables_.add_blocks(blocks); }

  [[nodiscard]] table::RowSink& begin_rows() override;
  void forget_rows() override { loading_.reset(); }

  void prepare(const StepInfo& step, bool skipped) override;
  void commit() override;

  [[nodiscard]] bool to_move() const override { return tables_.to_move(); }
  void move(bool holds) override { tables_.move(inputs_.runner.peers(), holds); }
  void install() override;

 private:
  void enter();
  void report();

  const PartInputs inputs_;
  SessionTables tables_;
  std::optional<SessionTables::Loading> loading_;
  mutable Mutex reported_;
  std::vector<RowTable> row_tables_ GUARDED_BY(reported_);  // after the last step
};

[[nodiscard]] std::unique_ptr<Part> make_tables(const PartInputs& inputs);

}  // namespace gradwire::session
