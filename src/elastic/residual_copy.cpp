#include "elastic/residual_copy.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/numeric.hpp"

namespace gradwire::session {
namespace {

enum class Form : std::uint8_t { exact = 1, bf16 = 2 };

void put_values(wire::Bytes& out, const exchange::ResidualStore::Values& values, bool exact) {
  if (exact) {
    wire::put(out, values.data(), values.size() * sizeof(float));
    return;
  }
  const std::size_t before = out.size();
  out.resize(before + values.size() * sizeof(std::uint16_t));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto rounded = static_cast<std::uint16_t>(kernels::to_bf16(values[i]));
    std::memcpy(out.data() + before + i * sizeof(rounded), &rounded, sizeof(rounded));
  }
}

exchange::ResidualStore::Values take_values(wire::ByteReader& in, std::uint64_t count, bool exact) {
  const std::uint64_t element = exact ? sizeof(float) : sizeof(std::uint16_t);
  if (count > in.left() / element) {
    in.fail("it says more residuals than it has bytes");
  }
  const auto bytes = in.take(count * element);
  exchange::ResidualStore::Values values(count);
  if (exact && count > 0) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
  }
  for (std::size_t i = 0; !exact && i < values.size(); ++i) {
    std::uint16_t rounded = 0;
    std::memcpy(&rounded, bytes.data() + i * sizeof(rounded), sizeof(rounded));
    values[i] = kernels::from_bf16(rounded);
  }
  return values;
}

}  // namespace

wire::Bytes encode_copy(const std::vector<SavedResidual>& residuals, double loss_scale, bool exact) {
  wire::Bytes out;
  wire::put_number(out, loss_scale);
  wire::put_number(out, static_cast<std::uint8_t>(exact ? Form::exact : Form::bf16));
  wire::put_number(out, static_cast<std::uint64_t>(residuals.size()));
  for (const SavedResidual& residual : residuals) {
    wire::put_number(out, residual.key.tensor);
    wire::put_number(out, static_cast<std::uint8_t>(residual.key.site));
    wire::put_number(out, residual.range.offset);
    wire::put_number(out, static_cast<std::uint64_t>(residual.range.values.size()));
    put_values(out, residual.range.values, exact);
  }
  return out;
}

ResidualCopy decode_copy(std::span<const std::byte> bytes) {
  wire::ByteReader in(bytes, "a copy of residuals");
  ResidualCopy copy{.loss_scale = in.number<double>()};
  const auto form = in.number<std::uint8_t>();
  if (form != static_cast<std::uint8_t>(Form::exact) && form != static_cast<std::uint8_t>(Form::bf16)) {
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
    residual.range.values = take_values(in, count, form == static_cast<std::uint8_t>(Form::exact));
    copy.residuals.push_back(std::move(residual));
  }
  if (in.left() != 0) {
    in.fail("there are " + std::to_string(in.left()) + " bytes behind it");
  }
  return copy;
}

}  // namespace gradwire::session
