#include "elastic/residual_copy.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "codec/byte_planes.hpp"
#include "codec/codec.hpp"
#include "codec/zstd.hpp"
#include "kernels/numeric.hpp"
#include "memory/paged_vector.hpp"

namespace gradwire::session {
namespace {

// The values of a residual are pieces, so that packing needs little memory. Each begins with its stored bytes.
constexpr std::size_t kPiece = 64 * codec::kTileElements;

constexpr std::uint8_t kExact = 3;  // 1 and 2 had no pieces
constexpr std::uint8_t kBf16 = 4;

std::size_t bytes_each(bool exact) { return exact ? sizeof(float) : sizeof(std::uint16_t); }

// Writes values into `out`, which has bytes_each() for each.
void store_values(std::span<const float> values, bool exact, std::byte* out) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (exact) {
      std::memcpy(out + i * sizeof(float), &values[i], sizeof(float));
    } else {
      const auto rounded = static_cast<std::uint16_t>(kernels::to_bf16(values[i]));
      std::memcpy(out + i * sizeof(rounded), &rounded, sizeof(rounded));
    }
  }
}

void load_values(const std::byte* in, bool exact, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (exact) {
      std::memcpy(&values[i], in + i * sizeof(float), sizeof(float));
    } else {
      std::uint16_t rounded = 0;
      std::memcpy(&rounded, in + i * sizeof(rounded), sizeof(rounded));
      values[i] = kernels::from_bf16(rounded);
    }
  }
}

void put_values(wire::Bytes& out, const exchange::ResidualValues& values, CopyForm form) {
  std::vector<float> widened(std::min<std::uint64_t>(kPiece, values.size()));
  for (std::uint64_t first = 0; first < values.size(); first += kPiece) {
    const std::uint64_t some = std::min<std::uint64_t>(kPiece, values.size() - first);
    const std::span<const float> piece(values.look(first, some, widened.data()), some);
    const codec::Elements elements{static_cast<std::uint32_t>(piece.size()), bytes_each(form.exact)};
    const std::size_t at = out.size() + sizeof(std::uint32_t);
    out.resize(at + elements.bytes());
    const std::span<std::byte> room = std::span(out).subspan(at);
    store_values(piece, form.exact, room.data());
    const std::size_t packed = form.packed ? codec::pack(room.data(), elements, room.first(room.size() - 1)) : 0;
    const auto stored = static_cast<std::uint32_t>(packed > 0 ? packed : elements.bytes());
    std::memcpy(out.data() + at - sizeof(stored), &stored, sizeof(stored));
    out.resize(at + stored);
  }
}

exchange::ResidualValues take_values(wire::ByteReader& in, std::uint64_t count, bool exact) {
  // A piece holds a byte and more; a count that cannot be right must not cost memory.
  if (count / kPiece > in.left()) {
    in.fail("it says more residuals than it has bytes");
  }
  memory::ScratchVector<float> values;
  std::uint64_t taken = 0;
  std::vector<std::byte> whole;
  std::vector<std::byte> room;
  while (taken < count) {
    const auto some = static_cast<std::uint32_t>(std::min<std::uint64_t>(kPiece, count - taken));
    const codec::Elements elements{some, bytes_each(exact)};
    const auto stored = in.number<std::uint32_t>();
    const std::span<const std::byte> bytes = in.take(stored);
    if (stored > elements.bytes()) {
      in.fail("a piece of " + std::to_string(some) + " residuals has " + std::to_string(stored) + " bytes");
    }
    if (values.size() < taken + some) {  // what has come bounds the memory
      values.resize(std::min(count, 2 * (taken + some)));
    }
    const std::span<float> piece(values.data() + taken, some);
    taken += some;
    if (stored == elements.bytes()) {
      load_values(bytes.data(), exact, piece);
      continue;
    }
    codec::require_zstd();
    room.resize(elements.bytes());
    whole.resize(elements.bytes());
    codec::merge(codec::unpack(bytes, elements, room, in.source()), 0, elements, whole.data());
    load_values(whole.data(), exact, piece);
  }
  return exchange::ResidualValues(values.values());
}

}  // namespace

wire::Bytes encode_copy(const std::vector<SavedResidual>& residuals, double loss_scale, CopyForm form) {
  // bf16 holds narrower residuals without a loss.
  form.exact = form.exact && std::any_of(residuals.begin(), residuals.end(), [](const SavedResidual& residual) {
                 return residual.range.values.dtype() == ResidualDType::f32 && !residual.range.values.empty();
               });
  constexpr std::size_t kHead = sizeof(double) + 1 + sizeof(std::uint64_t);
  constexpr std::size_t kHeadEach = sizeof(std::uint32_t) + 1 + 2 * sizeof(std::uint64_t);
  std::uint64_t most = kHead;
  for (const SavedResidual& residual : residuals) {
    const std::uint64_t count = residual.range.values.size();
    most += kHeadEach + count * bytes_each(form.exact) + (count + kPiece - 1) / kPiece * sizeof(std::uint32_t);
  }
  wire::Bytes out;
  out.reserve(most);  // bytes that grow would be in memory twice
  wire::put_number(out, loss_scale);
  wire::put_number(out, form.exact ? kExact : kBf16);
  wire::put_number(out, static_cast<std::uint64_t>(residuals.size()));
  for (const SavedResidual& residual : residuals) {
    wire::put_number(out, residual.key.tensor);
    wire::put_number(out, static_cast<std::uint8_t>(residual.key.site));
    wire::put_number(out, residual.range.offset);
    wire::put_number(out, static_cast<std::uint64_t>(residual.range.values.size()));
    put_values(out, residual.range.values, form);
  }
  return out;
}

ResidualCopy decode_copy(std::span<const std::byte> bytes) {
  wire::ByteReader in(bytes, "a copy of residuals");
  ResidualCopy copy{.loss_scale = in.number<double>()};
  const auto form = in.number<std::uint8_t>();
  if (form != kExact && form != kBf16) {
    in.fail("its form is " + std::to_string(form));
  }
  for (auto left = in.number<std::uint64_t>(); left > 0; --left) {
    SavedResidual residual;
    residual.key.tensor = in.number<std::uint32_t>();
    const auto site = in.number<std::uint8_t>();
    if (site > static_cast<std::uint8_t>(codec::EncodeSite::owner)) {
      in.fail("it has a site " + std::to_string(site));
    }
    residual.key.site = static_cast<codec::EncodeSite>(site);
    residual.range.offset = in.number<std::uint64_t>();
    const auto count = in.number<std::uint64_t>();
    residual.range.values = take_values(in, count, form == kExact);
    copy.residuals.push_back(std::move(residual));
  }
  if (in.left() != 0) {
    in.fail("there are " + std::to_string(in.left()) + " bytes behind it");
  }
  return copy;
}

}  // namespace gradwire::session
