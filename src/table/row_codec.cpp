#include "table/row_codec.hpp"

#include <cstring>
#include <vector>

#include "base/per_thread.hpp"
#include "codec/codec.hpp"
#include "gradwire/codec_spec.hpp"
#include "gradwire/error.hpp"
#include "kernels/bf16.hpp"
#include "kernels/int8.hpp"
#include "table/floats.hpp"

namespace gradwire::table {
namespace {

// A row of int8 is one block, with any width.
using Int8Row = kernels::Int8::Selected;
using Bf16Row = kernels::Bf16::Selected;

}  // namespace

RowCodec::RowCodec(CodecSpec codec, std::uint32_t width) : width_(width) {
  if (codec == CodecSpec::exact()) {
    row_bytes_ = std::size_t{width} * sizeof(float);
  } else if (codec == CodecSpec("bf16")) {
    kind_ = Kind::bf16;
    row_bytes_ = Bf16Row::bytes(width);
  } else if (codec == CodecSpec("int8")) {
    kind_ = Kind::int8;
    row_bytes_ = Int8Row::bytes(width);
  } else {
    throw Error(ErrorCode::unsupported, "rows have no codec \"" + codec.to_string() + "\"; use exact, bf16 or int8");
  }
}

void RowCodec::encode(const float* row, std::byte* out) const {
  auto* bytes = reinterpret_cast<std::uint8_t*>(out);
  switch (kind_) {
    case Kind::exact: std::memcpy(out, row, row_bytes_); break;
    case Kind::bf16: Bf16Row::encode(row, width_, bytes); break;
    case Kind::int8: Int8Row::encode(row, width_, bytes); break;
  }
}

void RowCodec::decode(const std::byte* in, float* row) const {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(in);
  switch (kind_) {
    case Kind::exact: std::memcpy(row, in, row_bytes_); break;
    case Kind::bf16: Bf16Row::decode(bytes, width_, row); break;
    case Kind::int8: Int8Row::decode(bytes, width_, row); break;
  }
}

bool RowCodec::finite(const std::byte* in) const {
  if (kind_ == Kind::exact) {
    return true;
  }
  auto& row = per_thread<Floats>();
  row.resize(width_);
  decode(in, row.data());
  return codec::all_finite(codec::Working::f32, row.data(), width_);
}

const char* RowCodec::name() const noexcept {
  return kind_ == Kind::exact ? "exact" : kind_ == Kind::bf16 ? "bf16" : "int8";
}

}  // namespace gradwire::table
