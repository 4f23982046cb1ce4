#include "codec/byte_planes.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/per_thread.hpp"
#include "codec/zstd.hpp"
#include "memory/paged_vector.hpp"
#include "wire/bytes.hpp"

namespace gradwire::codec {
namespace {

using PlaneSize = std::uint32_t;  // before all planes stands the size of each

// Loops over bytes of all planes at once are what compilers turn into vector code.
template <class T>
void split_as(const std::byte* values, std::uint32_t count, std::byte* planes) noexcept {
  for (std::uint32_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, values + i * sizeof(T), sizeof(T));
    for (std::size_t p = 0; p < sizeof(T); ++p) {
      planes[p * count + i] = static_cast<std::byte>(value >> (8 * p));
    }
  }
}

template <class T>
void merge_as(const Planes& planes, std::uint32_t first, std::uint32_t count, std::byte* values) noexcept {
  for (std::uint32_t i = 0; i < count; ++i) {
    T value = 0;
    for (std::size_t p = 0; p < sizeof(T); ++p) {
      value = static_cast<T>(value | std::to_integer<T>(planes[p][first + i]) << (8 * p));
    }
    std::memcpy(values + i * sizeof(T), &value, sizeof(T));
  }
}

void split(const std::byte* values, const Elements& elements, std::byte* planes) noexcept {
  switch (elements.bytes_each) {
    case sizeof(std::uint16_t): return split_as<std::uint16_t>(values, elements.count, planes);
    case sizeof(std::uint32_t): return split_as<std::uint32_t>(values, elements.count, planes);
    default: return split_as<std::uint64_t>(values, elements.count, planes);
  }
}

// Returns whether a plane is worth an attempt, by a sample of it: two of its bytes are equal at least twice as often as
// two random ones would be.
bool may_shrink(std::span<const std::byte> plane) noexcept {
  constexpr std::size_t kSample = 1024;
  const std::size_t stride = std::max<std::size_t>(1, plane.size() / kSample);
  std::array<std::uint16_t, 256> seen{};
  std::uint64_t sampled = 0;
  for (std::size_t i = 0; i < plane.size() && sampled < kSample; i += stride, ++sampled) {
    ++seen[std::to_integer<std::size_t>(plane[i])];
  }
  std::uint64_t equal = 0;
  for (const std::uint64_t times : seen) {
    equal += times * times;
  }
  equal -= sampled;  // pairs of a byte with itself
  return 128 * equal > sampled * (sampled - 1);
}

// Writes a plane into `out`, as it is or compressed, and returns its bytes; 0: it does not fit.
std::size_t store(std::span<const std::byte> plane, std::span<std::byte> out) {
  if (may_shrink(plane)) {
    if (const std::size_t bytes = zstd_compress(plane, out.first(std::min(out.size(), plane.size() - 1))); bytes > 0) {
      return bytes;
    }
  }
  if (plane.size() > out.size()) {
    return 0;
  }
  std::copy(plane.begin(), plane.end(), out.begin());
  return plane.size();
}

// Returns where the planes lie if they follow one after the other.
Planes planes_at(const std::byte* begin, const Elements& elements) noexcept {
  Planes planes{};
  for (std::size_t p = 0; p < elements.bytes_each; ++p) {
    planes[p] = begin + p * elements.count;
  }
  return planes;
}

}  // namespace

std::size_t pack(std::byte* values, const Elements& elements, std::span<std::byte> out) {
  const std::size_t sizes = elements.bytes_each * sizeof(PlaneSize);
  if (elements.count == 0 || out.size() <= sizes) {
    return 0;
  }
  auto& scratch = per_thread<memory::PagedVector<std::byte, memory::MemoryUse::frames>>();
  scratch.resize(std::max(scratch.size(), elements.bytes()));
  split(values, elements, scratch.data());
  const Planes planes = planes_at(scratch.data(), elements);
  std::array<PlaneSize, kMostPlanes> stored{};
  std::size_t at = sizes;
  for (std::size_t p = 0; p < elements.bytes_each; ++p) {
    stored[p] = static_cast<PlaneSize>(store({planes[p], elements.count}, out.subspan(at)));
    if (stored[p] == 0) {
      merge(planes, 0, elements, values);
      return 0;
    }
    at += stored[p];
  }
  std::memcpy(out.data(), stored.data(), sizes);
  return at;
}

Planes unpack(std::span<const std::byte> payload, const Elements& elements, std::span<std::byte> room,
              const std::string& source) {
  wire::ByteReader reader(payload, source);
  std::array<PlaneSize, kMostPlanes> stored{};
  reader.numbers(std::span(stored).first(elements.bytes_each));
  Planes planes = planes_at(room.data(), elements);
  for (std::size_t p = 0; p < elements.bytes_each; ++p) {
    const std::string plane = "byte plane " + std::to_string(p);
    if (stored[p] > elements.count) {
      reader.fail(plane + " has " + std::to_string(stored[p]) + " bytes for " + std::to_string(elements.count) +
                  " elements");
    }
    const std::span<const std::byte> bytes = reader.take(stored[p]);
    if (stored[p] == elements.count) {
      planes[p] = bytes.data();
    } else if (!zstd_decompress(bytes, room.subspan(p * elements.count, elements.count))) {
      reader.fail(plane + " cannot be decompressed to " + std::to_string(elements.count) + " bytes");
    }
  }
  reader.expect_end();
  return planes;
}

void merge(const Planes& planes, std::uint32_t first, const Elements& elements, std::byte* values) noexcept {
  switch (elements.bytes_each) {
    case sizeof(std::uint16_t): return merge_as<std::uint16_t>(planes, first, elements.count, values);
    case sizeof(std::uint32_t): return merge_as<std::uint32_t>(planes, first, elements.count, values);
    default: return merge_as<std::uint64_t>(planes, first, elements.count, values);
  }
}

}  // namespace gradwire::codec
