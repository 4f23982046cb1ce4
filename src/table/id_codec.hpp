// Encodes ascending numbers without loss: the first one, then the differences of neighbours, as varints. A thousand of
// a million ids take about 1.5 bytes each.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "wire/bytes.hpp"

namespace gradwire::table {

/// `ids` are strictly ascending.
void encode_ids(std::span<const std::uint64_t> ids, wire::Bytes& out);
/// Reads `count` ids below `limit`. Throws Error(corrupt) for anything that encode_ids did not write.
[[nodiscard]] std::vector<std::uint64_t> decode_ids(wire::ByteReader& in, std::uint64_t count, std::uint64_t limit);

/// Encodes numbers as runs of equal ones: what a rank knows of each of some rows, 0 for nothing.
void encode_runs(std::span<const std::uint64_t> values, wire::Bytes& out);
[[nodiscard]] std::vector<std::uint64_t> decode_runs(wire::ByteReader& in, std::uint64_t count);

}  // namespace gradwire::table
