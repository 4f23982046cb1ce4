// Ascending numbers without loss: the first one, then what lies between neighbours, as varints. A thousand of a million
// ids take about 1.5 bytes each.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "wire/bytes.hpp"

namespace gradwire::table {

/// `ids` strictly ascending.
void encode_ids(std::span<const std::uint64_t> ids, wire::Bytes& out);
/// `count` ids below `limit`. Error(corrupt) for anything that encode_ids did not write.
[[nodiscard]] std::vector<std::uint64_t> decode_ids(wire::ByteReader& in, std::uint64_t count, std::uint64_t limit);

/// What is known of each of some rows, 0 for nothing: runs of equal numbers.
void encode_runs(std::span<const std::uint64_t> values, wire::Bytes& out);
[[nodiscard]] std::vector<std::uint64_t> decode_runs(wire::ByteReader& in, std::uint64_t count);

}  // namespace gradwire::table
