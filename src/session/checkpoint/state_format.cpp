// The bytes of a saved state (docs/state-format.md).
#define XXH_INLINE_ALL  // no need of libxxhash in programs that link gradwire
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "gradwire/error.hpp"
#include "session/checkpoint/state_file.hpp"

namespace gradwire::session {
namespace {

constexpr std::string_view kMagic = "gradwire";
constexpr std::uint32_t kVersion = 3;
constexpr std::uint32_t kOldestVersion = 1;  // without what sync modes keep
constexpr std::size_t kHeadBytes = 24;       // magic, version, zero, bytes of the body
constexpr std::size_t kHashBytes = 8;
constexpr std::uint32_t kMaxWorld = 1U << 20;
static_assert(std::endian::native == std::endian::little, "the file is written as memory is");

class Writer {
 public:
  template <typename T>
  void number(T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(const std::string& value) {
    number(static_cast<std::uint32_t>(value.size()));
    bytes += value;
  }
  void raw(const std::vector<std::byte>& values) {
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size());
  }
  std::string bytes;
};

class Parser {
 public:
  Parser(std::string_view bytes, const std::string& source) : bytes_(bytes), source_(source) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorCode::corrupt, source_ + ": " + what + "; use another copy of the state, or start without it");
  }
  template <typename T>
  T number() {
    T value{};
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() { return std::string(take(number<std::uint32_t>())); }
  std::vector<float> floats(std::uint64_t count) {
    if (count > bytes_.size() / sizeof(float)) {
      fail("it says more residuals than it has bytes");
    }
    std::vector<float> values(count);
    if (count > 0) {
      std::memcpy(values.data(), take(count * sizeof(float)).data(), count * sizeof(float));
    }
    return values;
  }
  std::vector<std::byte> raw(std::uint64_t count) {
    const std::string_view taken = take(count);
    const auto* first = reinterpret_cast<const std::byte*>(taken.data());
    return {first, first + taken.size()};
  }
  void expect_end() const {
    if (!bytes_.empty()) {
      fail(std::to_string(bytes_.size()) + " bytes too many");
    }
  }

 private:
  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size()) {
      fail("it ends too early");
    }
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  std::string_view bytes_;
  const std::string& source_;
};

std::string body_of(const SavedState& state) {
  Writer body;
  body.number(static_cast<std::uint32_t>(state.rank));
  body.number(static_cast<std::uint32_t>(state.world_size));
  body.number(state.step);
  body.number(state.loss_scale);
  body.number(static_cast<std::uint8_t>(state.loss_scale_set));
  body.number(static_cast<std::uint8_t>(state.reduction));
  body.number(static_cast<std::uint8_t>(state.weighted));
  body.text(state.fingerprint);
  body.number(static_cast<std::uint32_t>(state.tensors.size()));
  for (const TensorInfo& tensor : state.tensors) {
    body.text(tensor.name);
    body.number(static_cast<std::uint8_t>(tensor.dtype));
    body.number(tensor.count);
  }
  body.number(static_cast<std::uint32_t>(state.residuals.size()));
  for (const SavedState::Residual& residual : state.residuals) {
    body.number(residual.key.tensor);
    body.number(static_cast<std::uint8_t>(residual.key.site));
    body.number(residual.range.offset);
    body.number(static_cast<std::uint64_t>(residual.range.values.size()));
    body.bytes.append(reinterpret_cast<const char*>(residual.range.values.data()),
                      residual.range.values.size() * sizeof(float));
  }
  body.number(static_cast<std::uint32_t>(state.anchors.size()));
  for (const SavedState::Anchor& anchor : state.anchors) {
    body.number(anchor.tensor);
    body.raw(anchor.parameters);
    body.raw(anchor.momentum);
  }
  body.number(static_cast<std::uint32_t>(state.results.size()));
  for (const SavedState::Result& result : state.results) {
    body.number(result.tensor);
    body.number(result.step);
    body.number(result.scale);
    body.number(static_cast<std::uint8_t>(result.nonfinite));
    body.raw(result.values);
  }
  body.number(static_cast<std::uint32_t>(state.local_steps.size()));
  for (const SavedState::LocalSteps& local : state.local_steps) {
    body.number(local.tensor);
    body.number(local.put_off_to);
    body.number(static_cast<std::uint8_t>(local.moved));
  }
  return std::move(body.bytes);
}

void read_residuals(Parser& body, SavedState& state) {
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
    residual.range.values = body.floats(count);
    state.residuals.push_back(std::move(residual));
  }
}

std::uint64_t tensor_bytes(const Parser& body, const SavedState& state, std::uint32_t tensor) {
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

void read_sync_modes(Parser& body, SavedState& state) {
  const auto anchors = body.number<std::uint32_t>();
  for (std::uint32_t i = 0; i < anchors; ++i) {
    SavedState::Anchor anchor{.tensor = body.number<std::uint32_t>()};
    const std::uint64_t bytes = tensor_bytes(body, state, anchor.tensor);
    anchor.parameters = body.raw(bytes);
    anchor.momentum = body.raw(bytes);
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
    result.values = body.raw(tensor_bytes(body, state, result.tensor));
    state.results.push_back(std::move(result));
  }
}

void read_local_steps(Parser& body, SavedState& state) {
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

SavedState parse_body(std::string_view bytes, std::uint32_t version, const std::string& source) {
  Parser body(bytes, source);
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
  body.expect_end();
  return state;
}

// The body and its hash, in pieces: a damaged size must not become an allocation.
void read_rest(std::istream& stream, std::uint64_t body_bytes, std::string& bytes, const Parser& head) {
  constexpr std::uint64_t kPiece = 16ULL << 20;
  std::uint64_t left = body_bytes + kHashBytes;
  while (left > 0) {
    const std::size_t before = bytes.size();
    const std::uint64_t wanted = std::min(left, kPiece);
    bytes.resize(before + wanted);
    stream.read(bytes.data() + before, static_cast<std::streamsize>(wanted));
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
  const std::string body = body_of(state);
  Writer file;
  file.bytes = kMagic;
  file.number(kVersion);
  file.number(std::uint32_t{0});
  file.number(static_cast<std::uint64_t>(body.size()));
  file.bytes += body;
  file.number(static_cast<std::uint64_t>(XXH3_64bits(file.bytes.data(), file.bytes.size())));
  stream.write(file.bytes.data(), static_cast<std::streamsize>(file.bytes.size()));
  if (!stream.flush()) {
    throw Error(ErrorCode::invalid_argument, "save: the stream took only a part of the state; is the disk full?");
  }
}

SavedState read_state(std::istream& stream, const std::string& source) {
  std::string bytes(kHeadBytes, '\0');
  stream.read(bytes.data(), static_cast<std::streamsize>(kHeadBytes));
  bytes.resize(static_cast<std::size_t>(stream.gcount()));
  Parser head(bytes, source);
  if (!std::string_view(bytes).starts_with(kMagic)) {
    head.fail("it is no saved state of gradwire");
  }
  if (bytes.size() < kHeadBytes) {
    head.fail("it ends too early");
  }
  std::uint32_t version = 0;
  std::uint64_t body_bytes = 0;
  std::uint64_t hash = 0;
  std::memcpy(&version, bytes.data() + kMagic.size(), sizeof version);
  std::memcpy(&body_bytes, bytes.data() + kHeadBytes - sizeof body_bytes, sizeof body_bytes);
  if (version < kOldestVersion || version > kVersion) {
    throw Error(ErrorCode::unsupported, source + ": is of version " + std::to_string(version) +
                                            " of the format; this build reads versions " +
                                            std::to_string(kOldestVersion) + " to " + std::to_string(kVersion));
  }
  read_rest(stream, body_bytes, bytes, head);
  std::memcpy(&hash, bytes.data() + bytes.size() - kHashBytes, sizeof hash);
  if (hash != XXH3_64bits(bytes.data(), bytes.size() - kHashBytes)) {
    head.fail("it is damaged: its checksum is wrong");
  }
  return parse_body(std::string_view(bytes).substr(kHeadBytes, body_bytes), version, source);
}

void reseal_state(std::string& bytes) {
  const XXH64_hash_t hash = XXH3_64bits(bytes.data(), bytes.size() - kHashBytes);
  std::memcpy(bytes.data() + bytes.size() - kHashBytes, &hash, sizeof hash);
}

std::optional<std::uint64_t> read_step(std::istream& stream) {
  std::array<char, kHeadBytes + 2 * sizeof(std::uint32_t) + sizeof(std::uint64_t)> head{};
  if (!stream.read(head.data(), head.size()) || !std::string_view(head.data(), head.size()).starts_with(kMagic)) {
    return std::nullopt;
  }
  std::uint64_t step = 0;
  std::memcpy(&step, head.data() + head.size() - sizeof step, sizeof step);
  return step;
}

}  // namespace gradwire::session
