// Writes a state in the format of docs/reference/state-format.md.
#include <algorithm>
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
    out.count(table.own.size() * table.row_floats() * sizeof(float));
  } else if (table.shard != nullptr) {
    table.shard->visit(table.own, [&](const table::Shard::Row& row) {
      out.numbers(row.values);
      out.numbers(row.accumulators);
    });
  }
}

// Returns the oldest version that can hold the state, so that older builds read what they can.
std::uint32_t version_for(const SavedState& state) {
  const bool narrow = std::any_of(state.residuals.begin(), state.residuals.end(), [](const SavedResidual& residual) {
    return residual.range.values.dtype() != DType::f32;
  });
  return narrow ? kStateVersion : state.tables.empty() ? kStateWithoutTables : kStateWithTables;
}

void put_body(StateWriter& out, const SavedState& state, std::uint32_t version) {
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
    if (version >= kStateVersion) {
      out.number(static_cast<std::uint8_t>(residual.range.values.dtype()));
    }
    if (out.only_counts()) {
      out.count(residual.range.values.byte_count());
    } else {
      residual.range.values.for_each_bytes([&](std::span<const std::byte> bytes) {
        out.put(bytes.data(), bytes.size(), element_bytes(residual.range.values.dtype()));
      });
    }
  }
  out.number(static_cast<std::uint32_t>(state.sync_modes.anchors.size()));
  const auto put_values = [&](std::uint32_t tensor, const auto& values) {
    out.put(values.data(), values.size(), element_bytes(state.tensors[tensor].dtype));
  };
  for (const SavedAnchor& anchor : state.sync_modes.anchors) {
    out.number(anchor.tensor);
    put_values(anchor.tensor, anchor.parameters);
    put_values(anchor.tensor, anchor.momentum);
  }
  out.number(static_cast<std::uint32_t>(state.sync_modes.results.size()));
  for (const SavedResult& result : state.sync_modes.results) {
    out.number(result.tensor);
    out.number(result.step);
    out.number(result.scale);
    out.number(static_cast<std::uint8_t>(result.nonfinite));
    put_values(result.tensor, result.values);
  }
  out.number(static_cast<std::uint32_t>(state.sync_modes.local_steps.size()));
  for (const SavedLocalSteps& local : state.sync_modes.local_steps) {
    out.number(local.tensor);
    out.number(local.put_off_to);
    out.number(static_cast<std::uint8_t>(local.moved));
  }
  if (version >= kStateWithTables) {
    out.number(static_cast<std::uint32_t>(state.tables.size()));
    for (const table::SavedTable& table : state.tables) {
      put_table(out, table);
    }
  }
}

}  // namespace

void write_state(const SavedState& state, std::ostream& stream) {
  if (state.packed) {
    codec::require_packing();
  }
  const std::uint32_t version = version_for(state);
  StateWriter size(nullptr);
  put_body(size, state, version);
  StateWriter out(&stream);
  out.put(kStateMagic.data(), kStateMagic.size());
  out.number(version | (state.packed ? kPackedFlag : 0));
  out.number(std::uint32_t{0});
  out.number(size.bytes());
  if (state.packed) {
    out.begin_pieces();
  }
  put_body(out, state, version);
  if (state.packed) {
    out.end_pieces();
  }
  out.number(out.hash());
  if (!stream.flush()) {
    throw Error(ErrorCode::invalid_argument, "save: the stream took only a part of the state; is the disk full?");
  }
}

}  // namespace gradwire::session
