#include "table/id_codec.hpp"

#include <cstddef>

namespace gradwire::table {

void encode_ids(std::span<const std::uint64_t> ids, wire::Bytes& out) {
  std::uint64_t next = 0;  // the least possible next id
  for (const std::uint64_t id : ids) {
    wire::put_varint(out, id - next);
    next = id + 1;
  }
}

std::vector<std::uint64_t> decode_ids(wire::ByteReader& in, std::uint64_t count, std::uint64_t limit) {
  if (count > in.left()) {
    in.fail("it says " + std::to_string(count) + " ids but has " + std::to_string(in.left()) + " bytes");
  }
  std::vector<std::uint64_t> ids(count);
  std::uint64_t next = 0;
  for (std::uint64_t& id : ids) {
    const std::uint64_t gap = in.varint();
    if (next >= limit || gap >= limit - next) {
      in.fail("an id lies beyond " + std::to_string(limit) + " rows");
    }
    id = next + gap;
    next = id + 1;
  }
  return ids;
}

void encode_runs(std::span<const std::uint64_t> values, wire::Bytes& out) {
  for (std::size_t begin = 0; begin < values.size();) {
    std::size_t end = begin + 1;
    while (end < values.size() && values[end] == values[begin]) {
      ++end;
    }
    wire::put_varint(out, end - begin);
    wire::put_varint(out, values[begin]);
    begin = end;
  }
}

std::vector<std::uint64_t> decode_runs(wire::ByteReader& in, std::uint64_t count) {
  std::vector<std::uint64_t> values;
  values.reserve(count);
  while (values.size() < count) {
    const std::uint64_t run = in.varint();
    if (run == 0 || run > count - values.size()) {
      in.fail("a run of " + std::to_string(run) + " among " + std::to_string(count));
    }
    values.insert(values.end(), run, in.varint());
  }
  return values;
}

}  // namespace gradwire::table
