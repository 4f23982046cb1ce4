// The bytes of a saved state (docs/state-format.md).
#define XXH_INLINE_ALL  // no need of libxxhash in programs that link gradwire
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "gradwire/error.hpp"
#include "session/checkpoint/state_file.hpp"
#include "wire/bytes.hpp"

namespace gradwire::session {
namespace {

constexpr std::string_view kMagic = "gradwire";
constexpr std::uint32_t kVersion = 4;
constexpr std::uint32_t kWithoutTables = 3;
constexpr std::uint32_t kOldestVersion = 1;  // without what sync modes keep
constexpr std::size_t kHeadBytes = 24;       // magic, version, zero, bytes of the body
constexpr std::size_t kHashBytes = 8;
constexpr std::uint32_t kMaxWorld = 1U << 20;

// Of a state, or of its head.
wire::ByteReader reader_of(std::span<const std::byte> bytes, const std::string& source) {
  return {bytes, source, "; use another copy of the state, or start without it"};
}

std::vector<float> floats(wire::ByteReader& in, std::uint64_t count) {
  if (count > in.left() / sizeof(float)) {
    in.fail("it says more residuals than it has bytes");
  }
  std::vector<float> values(count);
  in.numbers(std::span(values));
  return values;
}

std::vector<std::byte> raw(wire::ByteReader& in, std::uint64_t count) {
  const auto bytes = in.take(count);
  return {bytes.begin(), bytes.end()};
}

wire::Bytes body_of(const SavedState& state) {
  wire::Bytes body;
  wire::put_number(body, static_cast<std::uint32_t>(state.rank));
  wire::put_number(body, static_cast<std::uint32_t>(state.world_size));
  wire::put_number(body, state.step);
  wire::put_number(body, state.loss_scale);
  wire::put_number(body, static_cast<std::uint8_t>(state.loss_scale_set));
  wire::put_number(body, static_cast<std::uint8_t>(state.reduction));
  wire::put_number(body, static_cast<std::uint8_t>(state.weighted));
  wire::put_text(body, state.fingerprint);
  wire::put_number(body, static_cast<std::uint32_t>(state.tensors.size()));
  for (const TensorInfo& tensor : state.tensors) {
    wire::put_text(body, tensor.name);
    wire::put_number(body, static_cast<std::uint8_t>(tensor.dtype));
    wire::put_number(body, tensor.count);
  }
  wire::put_number(body, static_cast<std::uint32_t>(state.residuals.size()));
  for (const SavedState::Residual& residual : state.residuals) {
    wire::put_number(body, residual.key.tensor);
    wire::put_number(body, static_cast<std::uint8_t>(residual.key.site));
    wire::put_number(body, residual.range.offset);
    wire::put_number(body, static_cast<std::uint64_t>(residual.range.values.size()));
    wire::put(body, residual.range.values.data(), residual.range.values.size() * sizeof(float));
  }
  wire::put_number(body, static_cast<std::uint32_t>(state.anchors.size()));
  for (const SavedState::Anchor& anchor : state.anchors) {
    wire::put_number(body, anchor.tensor);
    wire::put(body, anchor.parameters.data(), anchor.parameters.size());
    wire::put(body, anchor.momentum.data(), anchor.momentum.size());
  }
  wire::put_number(body, static_cast<std::uint32_t>(state.results.size()));
  for (const SavedState::Result& result : state.results) {
    wire::put_number(body, result.tensor);
    wire::put_number(body, result.step);
    wire::put_number(body, result.scale);
    wire::put_number(body, static_cast<std::uint8_t>(result.nonfinite));
    wire::put(body, result.values.data(), result.values.size());
  }
  wire::put_number(body, static_cast<std::uint32_t>(state.local_steps.size()));
  for (const SavedState::LocalSteps& local : state.local_steps) {
    wire::put_number(body, local.tensor);
    wire::put_number(body, local.put_off_to);
    wire::put_number(body, static_cast<std::uint8_t>(local.moved));
  }
  if (state.tables.empty()) {
    return body;
  }
  wire::put_number(body, static_cast<std::uint32_t>(state.tables.size()));
  for (const SavedState::Table& table : state.tables) {
    wire::put_text(body, table.name);
    wire::put_number(body, table.rows);
    wire::put_number(body, table.width);
    wire::put_number(body, static_cast<std::uint32_t>(table.optimizer));
    wire::put_number(body, table.layout);
    wire::put_number(body, static_cast<std::uint64_t>(table.ids.size()));
    wire::put(body, table.ids.data(), table.ids.size() * sizeof(std::uint64_t));
    wire::put(body, table.values.data(), table.values.size() * sizeof(float));
  }
  return body;
}

void read_residuals(wire::ByteReader& body, SavedState& state) {
  const auto residuals = body.number<std::uint32_t>();
  for (std::uint32_t i = 0; i < residuals; ++i) {
    SavedState::Residual residual;
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
    residual.range.values = floats(body, count);
    state.residuals.push_back(std::move(residual));
  }
}

std::uint64_t tensor_bytes(const wire::ByteReader& body, const SavedState& state, std::uint32_t tensor) {
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

void read_sync_modes(wire::ByteReader& body, SavedState& state) {
  const auto anchors = body.number<std::uint32_t>();
  for (std::uint32_t i = 0; i < anchors; ++i) {
    SavedState::Anchor anchor{.tensor = body.number<std::uint32_t>()};
    const std::uint64_t bytes = tensor_bytes(body, state, anchor.tensor);
    anchor.parameters = raw(body, bytes);
    anchor.momentum = raw(body, bytes);
    state.anchors.push_back(std::move(anchor));
  }
  const auto results = body.number<std::uint32_t>();
  for (std::uint32_t i = 0; i < results; ++i) {
    SavedState::Result result{.tensor = body.number<std::uint32_t>()};
    result.step = body.number<std::uint64_t>();
    result.scale = body.number<double>();
    result.nonfinite = body.number<std::uint8_t>() != 0;
    if (!(result.scale > 0) || !std::isfinite(result.scale) || result.step >= state.step) {
      body.fail("a result has no step, or no loss scale");
    }
    result.values = raw(body, tensor_bytes(body, state, result.tensor));
    state.results.push_back(std::move(result));
  }
}

void read_local_steps(wire::ByteReader& body, SavedState& state) {
  const auto tensors = body.number<std::uint32_t>();
  for (std::uint32_t i = 0; i < tensors; ++i) {
    SavedState::LocalSteps local{.tensor = body.number<std::uint32_t>()};
    local.put_off_to = body.number<std::uint64_t>();
    local.moved = body.number<std::uint8_t>() != 0;
    if (local.tensor >= state.tensors.size() || (local.put_off_to > 0 && local.put_off_to - 1 > state.step)) {
      body.fail("local steps belong to no tensor, or begin too late");
    }
    state.local_steps.push_back(local);
  }
}

void read_tables(wire::ByteReader& body, SavedState& state) {
  const auto tables = body.number<std::uint32_t>();
  for (std::uint32_t i = 0; i < tables; ++i) {
    SavedState::Table table{.name = body.text()};
    table.rows = body.number<std::uint64_t>();
    table.width = body.number<std::uint32_t>();
    table.optimizer = body.number<std::uint32_t>() == 0 ? RowOptimizer::sgd : RowOptimizer::adagrad;
    table.layout = body.number<std::uint64_t>();
    const auto count = body.number<std::uint64_t>();
    const std::uint64_t row_bytes = sizeof(std::uint64_t) + table.row_floats() * sizeof(float);
    if (count > body.left() / row_bytes) {
      body.fail("it says more rows of a table than it has bytes");
    }
    table.ids.resize(count);
    body.numbers(std::span(table.ids));
    table.values.resize(count * table.row_floats());
    body.numbers(std::span(table.values));
    if (std::ranges::any_of(table.ids, [&](std::uint64_t id) { return id >= table.rows; })) {
      body.fail("a row lies outside its table");
    }
    state.tables.push_back(std::move(table));
  }
}

SavedState parse_body(std::span<const std::byte> bytes, std::uint32_t version, const std::string& source) {
  wire::ByteReader body = reader_of(bytes, source);
  SavedState state;
  const auto rank = body.number<std::uint32_t>();
  const auto world = body.number<std::uint32_t>();
  if (world == 0 || world > kMaxWorld || rank >= world) {
    body.fail("rank " + std::to_string(rank) + " of " + std::to_string(world) + " is none");
  }
  state.rank = static_cast<int>(rank);
  state.world_size = static_cast<int>(world);
  state.step = body.number<std::uint64_t>();
  state.loss_scale = body.number<double>();
  state.loss_scale_set = body.number<std::uint8_t>() != 0;
  state.reduction = body.number<std::uint8_t>() == 0 ? static_cast<Reduction>(0) : static_cast<Reduction>(1);
  state.weighted = body.number<std::uint8_t>() != 0;
  state.fingerprint = body.text();
  const auto tensors = body.number<std::uint32_t>();
  for (std::uint32_t i = 0; i < tensors; ++i) {
    TensorInfo tensor;
    tensor.name = body.text();
    tensor.dtype = static_cast<DType>(body.number<std::uint8_t>());
    tensor.count = body.number<std::uint64_t>();
    state.tensors.push_back(std::move(tensor));
  }
  if (!(state.loss_scale > 0) || !std::isfinite(state.loss_scale)) {
    body.fail("the loss scale is " + std::to_string(state.loss_scale));
  }
  read_residuals(body, state);
  if (version >= 2) {
    read_sync_modes(body, state);
  }
  if (version >= 3) {
    read_local_steps(body, state);
  }
  if (version >= 4) {
    read_tables(body, state);
  }
  body.expect_end();
  return state;
}

// The body and its hash, in pieces: a damaged size must not become an allocation.
void read_rest(std::istream& stream, std::uint64_t body_bytes, wire::Bytes& bytes, const wire::ByteReader& head) {
  constexpr std::uint64_t kPiece = 16ULL << 20;
  std::uint64_t left = body_bytes + kHashBytes;
  while (left > 0) {
    const std::size_t before = bytes.size();
    const std::uint64_t wanted = std::min(left, kPiece);
    bytes.resize(before + wanted);
    stream.read(reinterpret_cast<char*>(bytes.data() + before), static_cast<std::streamsize>(wanted));
    bytes.resize(before + static_cast<std::size_t>(stream.gcount()));
    left -= wanted;
    if (bytes.size() != before + wanted) {
      head.fail("it should have " + std::to_string(body_bytes) + " bytes of content but ends after " +
                std::to_string(bytes.size() - kHeadBytes));
    }
  }
}

}  // namespace

void write_state(const SavedState& state, std::ostream& stream) {
  const wire::Bytes body = body_of(state);
  wire::Bytes file;
  wire::put(file, kMagic.data(), kMagic.size());
  wire::put_number(file, state.tables.empty() ? kWithoutTables : kVersion);
  wire::put_number(file, std::uint32_t{0});
  wire::put_number(file, static_cast<std::uint64_t>(body.size()));
  wire::put(file, body.data(), body.size());
  wire::put_number(file, static_cast<std::uint64_t>(XXH3_64bits(file.data(), file.size())));
  stream.write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
  if (!stream.flush()) {
    throw Error(ErrorCode::invalid_argument, "save: the stream took only a part of the state; is the disk full?");
  }
}

SavedState read_state(std::istream& stream, const std::string& source) {
  wire::Bytes bytes(kHeadBytes);
  stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(kHeadBytes));
  bytes.resize(static_cast<std::size_t>(stream.gcount()));
  const wire::Bytes begin = bytes;
  wire::ByteReader head = reader_of(begin, source);
  if (begin.size() < kMagic.size() || wire::as_text(head.take(kMagic.size())) != kMagic) {
    head.fail("it is no saved state of gradwire");
  }
  const auto version = head.number<std::uint32_t>();
  static_cast<void>(head.number<std::uint32_t>());  // zero
  const auto body_bytes = head.number<std::uint64_t>();
  if (version < kOldestVersion || version > kVersion) {
    throw Error(ErrorCode::unsupported, source + ": is of version " + std::to_string(version) +
                                            " of the format; this build reads versions " +
                                            std::to_string(kOldestVersion) + " to " + std::to_string(kVersion));
  }
  read_rest(stream, body_bytes, bytes, head);
  const std::span<const std::byte> hashed = std::span(bytes).first(bytes.size() - kHashBytes);
  auto end = reader_of(std::span(bytes).last(kHashBytes), source);
  if (end.number<std::uint64_t>() != XXH3_64bits(hashed.data(), hashed.size())) {
    head.fail("it is damaged: its checksum is wrong");
  }
  return parse_body(hashed.subspan(kHeadBytes), version, source);
}

std::optional<std::uint64_t> read_step(std::istream& stream) {
  constexpr std::size_t kBeforeStep = kHeadBytes + 2 * sizeof(std::uint32_t);  // rank, world size
  std::array<std::byte, kBeforeStep + sizeof(std::uint64_t)> head{};
  if (!stream.read(reinterpret_cast<char*>(head.data()), head.size()) || !wire::as_text(head).starts_with(kMagic)) {
    return std::nullopt;
  }
  wire::ByteReader in(head, "the head of a state");
  in.take(kBeforeStep);
  return in.number<std::uint64_t>();
}

}  // namespace gradwire::session
