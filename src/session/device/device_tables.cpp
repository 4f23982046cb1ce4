#include "session/device/device_tables.hpp"

#include <algorithm>
#include <cstring>

namespace gradwire::session {
namespace {

void append(std::vector<kernels::Piece>& table, std::span<const kernels::CopyPiece> pieces) {
  for (const kernels::CopyPiece& piece : pieces) {
    table.push_back({static_cast<std::uint8_t*>(piece.tensor), piece.offset});
  }
  table.push_back({nullptr, pieces.back().offset + pieces.back().count});
}

bool same(const kernels::Piece& a, const kernels::Piece& b) { return a.tensor == b.tensor && a.begin == b.begin; }

}  // namespace

void DeviceTables::reserve(const plan::Bucket& bucket) {
  buckets_.resize(std::max<std::size_t>(buckets_.size(), bucket.id + std::size_t{1}));
  OfBucket& now = buckets_[bucket.id];
  const std::size_t room = bucket.parts.size() + 1;
  if (bucket.parts.size() > 1 && now.room < room) {
    // Earlier memory stays acquired: a captured step may write to it.
    now = {reinterpret_cast<kernels::Piece*>(device_.arena().acquire_lasting(2 * room * sizeof(kernels::Piece))), room};
  }
}

DeviceTables::Tables DeviceTables::write(exchange::StreamBackend& backend, std::uint32_t bucket,
                                         std::span<const kernels::CopyPiece> inputs,
                                         std::span<const kernels::CopyPiece> outputs) {
  OfBucket& now = buckets_[bucket];
  const auto count = static_cast<std::uint32_t>(outputs.size());
  const bool zeros =
      std::any_of(inputs.begin(), inputs.end(), [](const auto& piece) { return piece.tensor == nullptr; });
  std::vector<kernels::Piece> table;
  append(table, outputs);
  if (zeros) {
    append(table, inputs);
  }
  captured_ = captured_ || device_.capturing();
  const bool known = !captured_ && table.size() == now.written.size() &&
                     std::equal(table.begin(), table.end(), now.written.begin(), same);
  if (!known) {
    static_assert(sizeof(kernels::Piece) == 2 * sizeof(std::uint64_t));
    std::vector<std::uint64_t> words(2 * table.size());
    std::memcpy(words.data(), table.data(), words.size() * sizeof(std::uint64_t));
    backend.write(words, reinterpret_cast<std::uint64_t*>(now.memory));
  }
  if (&backend == &device_.backend()) {
    now.written = std::move(table);
  }
  return {.input = {.pieces = zeros ? now.memory + count + 1 : now.memory, .count = count},
          .output = {.pieces = now.memory, .count = count}};
}

}  // namespace gradwire::session
