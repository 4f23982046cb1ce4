// Rows with their ids as bytes: ids as encode_ids() writes them, then each row as its codec encodes it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "table/id_codec.hpp"
#include "table/row_codec.hpp"
#include "wire/bytes.hpp"

namespace gradwire::table {

/// Appends rows with their ids; row_of(i) is the memory of row ids[i], valid until its next call.
template <class RowOf>
void put_rows(std::span<const std::uint64_t> ids, const RowCodec& codec, RowOf row_of, wire::Bytes& out) {
  out.reserve(out.size() + ids.size() * (codec.row_bytes() + 2));
  encode_ids(ids, out);
  std::size_t at = out.size();
  out.resize(at + ids.size() * codec.row_bytes());
  for (std::size_t i = 0; i < ids.size(); ++i, at += codec.row_bytes()) {
    codec.encode(row_of(i), out.data() + at);
  }
}

struct RowBlock {
  std::vector<std::uint64_t> ids;   // ascending, each once
  std::span<const std::byte> rows;  // in the memory that was read
};

/// Reads `count` rows of a table with `rows` rows. Throws Error(corrupt) for anything that put_rows() did not write.
[[nodiscard]] inline RowBlock take_rows(wire::ByteReader& in, std::uint64_t count, std::uint64_t rows,
                                        const RowCodec& codec) {
  RowBlock block{.ids = decode_ids(in, count, rows), .rows = {}};
  block.rows = in.take(block.ids.size() * codec.row_bytes());
  return block;
}

}  // namespace gradwire::table
