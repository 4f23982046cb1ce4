// Reads a state in the format of docs/reference/state-format.md.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "gradwire/error.hpp"
#include "session/state/state_file.hpp"
#include "session/state/state_stream.hpp"
#include "table/options.hpp"
#include "wire/bytes.hpp"

namespace gradwire::session {
namespace {

constexpr std::uint32_t kMaxWorld = 1U << 20;

// Values that go into a file are read piece by piece.
exchange::ResidualValues read_values(StateReader& body, std::uint64_t count, ResidualDType dtype, std::uint32_t lead,
                                     const exchange::ResidualValues::Spill& spill) {
  constexpr std::uint64_t kPiece = 1U << 20;
  body.require(count, 1);
  std::uint64_t left = exchange::residual_bytes_of(dtype, count, lead);
  body.require(left, 1);
  if (spill == nullptr) {
    const auto bytes = body.numbers<std::byte>(left);
    exchange::ResidualValues values(count, dtype, nullptr, lead);
    values.set_bytes(0, bytes);
    return values;
  }
  exchange::ResidualValues values(count, dtype, spill, lead);
  for (std::size_t at = 0; left > 0;) {
    const auto piece = body.numbers<std::byte>(std::min(left, kPiece));
    values.set_bytes(at, piece);
    at += piece.size();
    left -= piece.size();
  }
  return values;
}

void read_residuals(StateReader& body, SavedState& state, const ResidualSpills& spills) {
  const auto residuals = body.number<std::uint32_t>();
  for (std::uint32_t i = 0; i < residuals; ++i) {
    SavedResidual residual;
    residual.key.tensor = body.number<std::uint32_t>();
    residual.key.site = static_cast<codec::EncodeSite>(body.number<std::uint8_t>());
    residual.range.offset = body.number<std::uint64_t>();
    const auto count = body.number<std::uint64_t>();
    if (residual.key.tensor >= state.tensors.size() || residual.key.site < codec::EncodeSite::local ||
        residual.key.site > codec::EncodeSite::owner) {
      body.fail("a residual belongs to no tensor");
    }
    const std::uint64_t elements = state.tensors[residual.key.tensor].count;
    if (residual.range.offset > elements || count > elements - residual.range.offset) {
      body.fail("a residual reaches beyond its tensor");
    }
    const auto dtype =
        body.version() >= kStateVersion ? static_cast<ResidualDType>(body.number<std::uint8_t>()) : ResidualDType::f32;
    if (dtype != ResidualDType::f32 && dtype != ResidualDType::bf16 && dtype != ResidualDType::int8) {
      body.fail("a residual has no dtype");
    }
    const std::uint32_t lead = dtype == ResidualDType::int8 ? body.number<std::uint8_t>() : 0;
    if (lead >= exchange::kResidualBlock) {
      body.fail("a block of residuals begins nowhere");
    }
    residual.range.values = read_values(body, count, dtype, lead, spills ? spills(residual.key.tensor) : nullptr);
    state.residuals.push_back(std::move(residual));
  }
}

std::uint64_t tensor_bytes(const StateReader& body, const SavedState& state, std::uint32_t tensor) {
  if (tensor >= state.tensors.size()) {
    body.fail("a result belongs to no tensor");
  }
  const TensorInfo& info = state.tensors[tensor];
  const std::uint64_t element = element_bytes(info.dtype);
  if (element == 0 || info.count > std::numeric_limits<std::uint64_t>::max() / element) {
    body.fail("a tensor has no size");
  }
  return info.count * element;
}

void read_sync_modes(StateReader& body, SavedState& state) {
  const auto anchors = body.number<std::uint32_t>();
  for (std::uint32_t i = 0; i < anchors; ++i) {
    SavedAnchor anchor{.tensor = body.number<std::uint32_t>()};
    const std::uint64_t bytes = tensor_bytes(body, state, anchor.tensor);
    anchor.parameters = body.numbers<std::byte>(bytes);
    anchor.momentum = body.numbers<std::byte>(bytes);
    state.sync_modes.anchors.push_back(std::move(anchor));
  }
  const auto results = body.number<std::uint32_t>();
  for (std::uint32_t i = 0; i < results; ++i) {
    SavedResult result{.tensor = body.number<std::uint32_t>()};
    result.step = body.number<std::uint64_t>();
    result.scale = body.number<double>();
    result.nonfinite = body.number<std::uint8_t>() != 0;
    if (!(result.scale > 0) || !std::isfinite(result.scale) || result.step >= state.step) {
      body.fail("a result has no step, or no loss scale");
    }
    result.values = body.numbers<std::byte>(tensor_bytes(body, state, result.tensor));
    state.sync_modes.results.push_back(std::move(result));
  }
}

void read_local_steps(StateReader& body, SavedState& state) {
  const auto tensors = body.number<std::uint32_t>();
  if (tensors > state.tensors.size()) {
    body.fail("local steps are of more tensors than there are");
  }
  for (std::uint32_t i = 0; i < tensors; ++i) {
    SavedLocalSteps local{.tensor = body.number<std::uint32_t>()};
    local.put_off_to = body.number<std::uint64_t>();
    local.moved = body.number<std::uint8_t>() != 0;
    if (local.tensor >= state.tensors.size() || (local.put_off_to > 0 && local.put_off_to - 1 > state.step)) {
      body.fail("local steps belong to no tensor, or begin too late");
    }
    state.sync_modes.local_steps.push_back(local);
  }
}

table::SavedTable read_head(StateReader& body) {
  table::SavedTable table{.name = body.text()};
  table.rows = body.number<std::uint64_t>();
  table.width = body.number<std::uint32_t>();
  const auto optimizer = body.number<std::uint32_t>();
  table.layout = body.number<std::uint64_t>();
  table.optimizer = optimizer == 0 ? RowOptimizer::sgd : RowOptimizer::adagrad;
  try {
    table::check_options({.name = table.name, .rows = table.rows, .width = table.width});
  } catch (const Error& error) {
    body.fail(error.what());
  }
  if (optimizer > 1) {
    body.fail(table.said() + ": its optimizer is " + std::to_string(optimizer) + ", which is none");
  }
  return table;
}

// Reads the rows of a table and passes them to `rows` if it wants them.
void read_rows(StateReader& body, const table::SavedTable& table, std::size_t number, RowSink* rows) {
  const auto count = body.number<std::uint64_t>();
  const std::size_t floats = table.row_floats();
  body.require(count, sizeof(std::uint64_t) + floats * sizeof(float));
  const auto ids = body.numbers<std::uint64_t>(count);
  const auto fail_at = [&](std::uint64_t i, const std::string& what) {
    body.fail(table.said() + ": row " + std::to_string(i) + " of " + std::to_string(count) + " in this file, id " +
              std::to_string(ids[i]) + ", " + what);
  };
  for (std::uint64_t i = 0; i < count; ++i) {
    if (ids[i] >= table.rows) {
      fail_at(i, "lies outside the table of " + std::to_string(table.rows) + " rows");
    }
    if (i > 0 && ids[i] <= ids[i - 1]) {
      fail_at(i, "comes after id " + std::to_string(ids[i - 1]) + "; ids ascend");
    }
  }
  if (rows == nullptr || !rows->wants(number, table)) {
    body.skip(count * floats * sizeof(float));
    return;
  }
  std::vector<float> row(floats);
  for (std::uint64_t i = 0; i < count; ++i) {
    body.read(row.data(), floats * sizeof(float));
    const std::span<const float> values(row);
    if (!rows->take(number, {ids[i], values.first(table.width), values.subspan(table.width)})) {
      fail_at(i, "is in another file, too");
    }
  }
}

void read_tables(StateReader& body, SavedState& state, RowSink* rows) {
  const auto tables = body.number<std::uint32_t>();
  if (tables == 0 && body.version() == kStateWithTables) {
    body.fail("it is of a version with tables, and has none");
  }
  for (std::uint32_t i = 0; i < tables; ++i) {
    table::SavedTable table = read_head(body);
    if (std::ranges::find(state.tables, table.name, &table::SavedTable::name) != state.tables.end()) {
      body.fail(table.said() + " is there twice");
    }
    read_rows(body, table, i, rows);
    state.tables.push_back(std::move(table));
  }
}

SavedState read_body(StateReader& body, RowSink* rows, const ResidualSpills& spills) {
  SavedState state;
  const auto rank = body.number<std::uint32_t>();
  const auto world = body.number<std::uint32_t>();
  if (world == 0 || world > kMaxWorld || rank >= world) {
    body.fail("rank " + std::to_string(rank) + " of " + std::to_string(world) + " is none");
  }
  state.rank = static_cast<int>(rank);
  state.world_size = static_cast<int>(world);
  state.step = body.number<std::uint64_t>();
  state.terms.loss_scale = body.number<double>();
  state.terms.loss_scale_set = body.number<std::uint8_t>() != 0;
  state.reduction = body.number<std::uint8_t>() == 0 ? static_cast<Reduction>(0) : static_cast<Reduction>(1);
  state.terms.weighted = body.number<std::uint8_t>() != 0;
  state.fingerprint = body.text();
  const auto tensors = body.number<std::uint32_t>();
  for (std::uint32_t i = 0; i < tensors; ++i) {
    TensorInfo tensor;
    tensor.name = body.text();
    tensor.dtype = static_cast<DType>(body.number<std::uint8_t>());
    tensor.count = body.number<std::uint64_t>();
    if (element_bytes(tensor.dtype) == 0) {  // zeros in a file would otherwise make tensors that need far more memory
      body.fail("a tensor has no dtype");
    }
    state.tensors.push_back(std::move(tensor));
  }
  if (!(state.terms.loss_scale > 0) || !std::isfinite(state.terms.loss_scale)) {
    body.fail("the loss scale is " + std::to_string(state.terms.loss_scale));
  }
  read_residuals(body, state, spills);
  if (body.version() >= 2) {
    read_sync_modes(body, state);
  }
  if (body.version() >= 3) {
    read_local_steps(body, state);
  }
  if (body.version() >= kStateWithTables) {
    read_tables(body, state, rows);
  }
  body.expect_end();
  return state;
}

}  // namespace

SavedState read_state(std::istream& stream, const std::string& source, RowSink* rows, const ResidualSpills& spills) {
  StateReader in(stream, source);
  SavedState state;
  try {
    in.require_version();
    state = read_body(in, rows, spills);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::corrupt || error.code() == ErrorCode::unsupported) {
      in.check_hash();  // if the bytes are damaged, that is the better message
    }
    throw;
  }
  in.check_hash();
  return state;
}

std::optional<std::uint64_t> read_step(std::istream& stream) {
  constexpr std::size_t kRankAndWorld = 2 * sizeof(std::uint32_t);
  std::array<std::byte, kStateHeadBytes + codec::kPieceHeadBytes + kRankAndWorld + sizeof(std::uint64_t)> head{};
  if (!stream.read(reinterpret_cast<char*>(head.data()), head.size()) ||
      !wire::as_text(head).starts_with(kStateMagic)) {
    return std::nullopt;
  }
  wire::ByteReader in(head, "the head of a state");
  in.take(kStateMagic.size());
  const auto version = in.number<std::uint32_t>();
  in.take(kStateHeadBytes - kStateMagic.size() - sizeof version);
  if ((version & kPackedFlag) != 0) {
    in.take(codec::kPieceHeadBytes);  // numbers are a piece that is not packed
  }
  in.take(kRankAndWorld);
  return in.number<std::uint64_t>();
}

}  // namespace gradwire::session
