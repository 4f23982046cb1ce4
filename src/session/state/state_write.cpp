// Writes a state in the format of docs/reference/state-format.md.
#include <span>

#include "gradwire/error.hpp"
#include "session/state/state_file.hpp"
#include "session/state/state_stream.hpp"

namespace gradwire::session {
namespace {

void put_table(StateWriter& out, const table::SavedTable& table) {
  out.text(table.name);
  out.number(table.rows);
  out.number(table.width);
  out.number(static_cast<std::uint32_t>(table.optimizer));
  out.number(table.layout);
  out.number(static_cast<std::uint64_t>(table.own.size()));
  out.numbers(std::span(table.own));
  if (out.only_counts()) {  // rows may have to be read from a file
    out.put(nullptr, table.own.size() * table.row_floats() * sizeof(float));
  } else if (table.shard != nullptr) {
    table.shard->visit(table.own, [&](const table::Shard::Row& row) {
      out.numbers(row.values);
      out.numbers(row.accumulators);
    });
  }
}

void put_body(StateWriter& out, const SavedState& state) {
  out.number(static_cast<std::uint32_t>(state.rank));
  out.number(static_cast<std::uint32_t>(state.world_size));
  out.number(state.step);
  out.number(state.terms.loss_scale);
  out.number(static_cast<std::uint8_t>(state.terms.loss_scale_set));
  out.number(static_cast<std::uint8_t>(state.reduction));
  out.number(static_cast<std::uint8_t>(state.terms.weighted));
  out.text(state.fingerprint);
  out.number(static_cast<std::uint32_t>(state.tensors.size()));
  for (const TensorInfo& tensor : state.tensors) {
    out.text(tensor.name);
    out.number(static_cast<std::uint8_t>(tensor.dtype));
    out.number(tensor.count);
  }
  out.number(static_cast<std::uint32_t>(state.residuals.size()));
  for (const SavedResidual& residual : state.residuals) {
    out.number(residual.key.tensor);
    out.number(static_cast<std::uint8_t>(residual.key.site));
    out.number(residual.range.offset);
    out.number(static_cast<std::uint64_t>(residual.range.values.size()));
    out.numbers(residual.range.values.values());
  }
  out.number(static_cast<std::uint32_t>(state.sync_modes.anchors.size()));
  for (const SavedAnchor& anchor : state.sync_modes.anchors) {
    out.number(anchor.tensor);
    out.numbers(std::span(anchor.parameters));
    out.numbers(std::span(anchor.momentum));
  }
  out.number(static_cast<std::uint32_t>(state.sync_modes.results.size()));
  for (const SavedResult& result : state.sync_modes.results) {
    out.number(result.tensor);
    out.number(result.step);
    out.number(result.scale);
    out.number(static_cast<std::uint8_t>(result.nonfinite));
    out.numbers(std::span(result.values));
  }
  out.number(static_cast<std::uint32_t>(state.sync_modes.local_steps.size()));
  for (const SavedLocalSteps& local : state.sync_modes.local_steps) {
    out.number(local.tensor);
    out.number(local.put_off_to);
    out.number(static_cast<std::uint8_t>(local.moved));
  }
  if (!state.tables.empty()) {
    out.number(static_cast<std::uint32_t>(state.tables.size()));
    for (const table::SavedTable& table : state.tables) {
      put_table(out, table);
    }
  }
}

}  // namespace

void write_state(const SavedState& state, std::ostream& stream) {
  StateWriter size(nullptr);
  put_body(size, state);
  StateWriter out(&stream);
  out.put(kStateMagic.data(), kStateMagic.size());
  out.number(state.tables.empty() ? kStateWithoutTables : kStateVersion);
  out.number(std::uint32_t{0});
  out.number(size.bytes());
  put_body(out, state);
  out.number(out.hash());
  if (!stream.flush()) {
    throw Error(ErrorCode::invalid_argument, "save: the stream took only a part of the state; is the disk full?");
  }
}

}  // namespace gradwire::session
